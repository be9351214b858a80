"""DIV: requirements of closed. Open declares each departure; in practice it is information."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from suite.checker.context import RULE_FUNCTIONS, Context, Fault, HeaderContext, departs, header_rule, rule
from suite.checker.dataset import CUSTOM_DATASET
from suite.contract import BENCHMARK
from suite.log.files import CHANGES, MAX_CHANGES


@header_rule("DIV-001")
def batch_listed(c: HeaderContext) -> Iterator[Fault]:
    """The batch is from the list of the workload, or of conversions."""
    allowed = c.workload_rules["batches"]
    if c.conversion is not None:
        allowed = c.rules.limits["conversion"]["batches"]
    elif c.key.scenario == "single_stream":
        return
    if c.subject.batch not in allowed:
        wanted = "one of " + ", ".join(map(str, allowed))
        yield from departs(c, "DIV-001", Fault(f"{c.location}.batch", wanted, str(c.subject.batch)))


@header_rule("DIV-002", kind=BENCHMARK)
def hyperparameters_given(c: HeaderContext) -> Iterator[Fault]:
    """The hyperparameters are the specification's."""
    wanted, found = c.hyperparameters, c.header["hyper"]
    for name in sorted(set(wanted) | set(found)):
        expected, actual = wanted.get(name, "not there"), found.get(name, "not there")
        if expected != actual:
            yield from departs(c, "DIV-002", Fault(f"header, data.hyper.{name}", expected, actual))


@header_rule("DIV-003")
def soak_and_tail(c: HeaderContext) -> Iterator[Fault]:
    """The soak has the length of the rules."""
    wanted = c.rules.limits["soak_ns"] if c.mode == "throughput" else 0
    found = c.header["settings"].get("soak_ns")
    if found != wanted:
        yield from departs(c, "DIV-003", Fault("header, data.settings.soak_ns", str(wanted), str(found)))


@header_rule("DIV-004")
def telemetry_on(c: HeaderContext) -> Iterator[Fault]:
    """Telemetry is taken."""
    found = c.header["settings"].get("telemetry")
    if found is not True:
        yield from departs(c, "DIV-004", Fault("header, data.settings.telemetry", "true", str(found)))


@header_rule("DIV-005")
def submission_in_closed(c: HeaderContext) -> Iterator[Fault]:
    """Closed results are submission runs: their attempts are counted."""
    if c.division != "practice" and c.header["purpose"] != "submission":
        yield from departs(c, "DIV-005", Fault("header, data.purpose", "submission", c.header["purpose"]))


@header_rule("DIV-006")
def differences_known(c: HeaderContext) -> Iterator[Fault]:
    """Closed declares no difference; other divisions may declare departures from DIV and IMG rules."""
    known = sorted(
        name for name in RULE_FUNCTIONS if name.startswith(("DIV-", "IMG-")) and name in c.rules.checks
    )
    for row in c.header["differences"]:
        if c.division == "closed":
            yield Fault("header, data.differences", "none in closed", row["rule"])
        elif row["rule"] not in known:
            yield Fault("header, data.differences", "rules of " + ", ".join(known), row["rule"])


def _custom(c: HeaderContext, name: str) -> Any:
    """The digest or name of custom code; None for the suite's code."""
    return c.header["settings"].get(name)


@header_rule("DIV-007")
def pair_of_the_suite(c: HeaderContext) -> Iterator[Fault]:
    """The pair is the suite's."""
    found = _custom(c, "custom_pair")
    if found is not None:
        fault = Fault("header, data.settings.custom_pair", "null: the suite's pair", str(found))
        yield from departs(c, "DIV-007", fault)


@header_rule("DIV-008")
def interpreter_of_the_suite(c: HeaderContext) -> Iterator[Fault]:
    """The interpreter is the suite's or the image's."""
    found = _custom(c, "custom_python")
    if found is not None:
        fault = Fault("header, data.settings.custom_python", "null: the suite's interpreter", str(found))
        yield from departs(c, "DIV-008", fault)


@header_rule("DIV-009")
def image_of_the_suite(c: HeaderContext) -> Iterator[Fault]:
    """The container image is not a custom one."""
    found = _custom(c, "custom_image")
    if found is not None:
        fault = Fault("header, data.settings.custom_image", "null: an image of the lock", str(found))
        yield from departs(c, "DIV-009", fault)


@header_rule("DIV-010")
def code_committed(c: HeaderContext) -> Iterator[Fault]:
    """The code that ran was committed; if that is unknown, ID-013 flags submissions."""
    git = c.header["git"]
    if git is not None and git["dirty"]:
        yield from departs(c, "DIV-010", Fault("header, data.git.dirty", "false", "true"))


@rule("DIV-011")
def changes_shown(c: Context) -> Iterator[Fault]:
    """Custom or changed code has a reason, and a patch whose digest is in the log."""
    for number, row in enumerate(c.header["differences"]):
        if not row["reason"].strip():
            yield Fault(f"header, data.differences.{number}.reason", "a reason", "blanks")
    digest, changes = c.header["settings"].get("changes_digest"), c.record.changes
    needed = _needs_patch(c)
    if changes is None:
        if digest is not None:
            yield Fault(CHANGES, f"the file of digest {digest}", "no such file")
        elif needed:
            yield Fault(CHANGES, f"the patch with the changes ({needed})", "no such file")
        return
    if changes.digest is None:
        yield Fault(CHANGES, f"at most {MAX_CHANGES} bytes", f"{changes.bytes} bytes")
    elif digest is None:
        yield Fault("header, data.settings.changes_digest", changes.digest, "null")
    elif changes.digest != digest:
        yield Fault(CHANGES, f"digest {digest}, as in the settings", changes.digest)
    elif not changes.text:
        yield Fault(CHANGES, "text in UTF-8 without control characters", "other bytes")


@rule("DIV-012")
def pair_loaded(c: Context) -> Iterator[Fault]:
    """The pair that each rank reports in every repeat is the one in the settings."""
    wanted = _custom(c, "custom_pair")
    for repeat in c.repeats:
        for event in repeat.envs_of("inside"):
            found = event["facts"].get("custom_pair")
            if found != wanted:
                none = "none: the suite's pair"
                yield Fault(event.location("facts.custom_pair"), str(wanted or none), str(found or none))


def _needs_patch(c: Context) -> str:
    """The departure that needs a patch, or "". In practice a dirty tree is only information."""
    for name in ("custom_pair", "custom_python", "custom_image"):
        if _custom(c, name) is not None:
            return name
    git = c.header["git"]
    dirty = c.division != "practice" and git is not None and git["dirty"]
    return "git.dirty" if dirty else ""


@header_rule("DIV-013")
def published_dataset(c: HeaderContext) -> Iterator[Fault]:
    """The dataset is the published one, not a custom dataset under its name."""
    if c.header["dataset"]["kind"] == CUSTOM_DATASET:
        yield from departs(c, "DIV-013", Fault("header, data.dataset.kind", "official", CUSTOM_DATASET))


@header_rule("DIV-014")
def fingerprint_requested(c: HeaderContext) -> Iterator[Fault]:
    """A benchmark in mode throughput takes the fingerprint."""
    found = c.header["settings"].get("fingerprint")
    if c.fingerprinted and found is not True:
        yield from departs(c, "DIV-014", Fault("header, data.settings.fingerprint", "true", str(found)))
