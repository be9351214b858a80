"""DIV: requirements of closed. Open declares each departure; in practice it is information."""

from __future__ import annotations

from collections.abc import Iterator

from suite.checker.context import RULE_FUNCTIONS, Context, Fault, HeaderContext, header_rule, rule
from suite.checker.dataset import CUSTOM_DATASET
from suite.contract import BENCHMARK, CONVERSION
from suite.log.files import CHANGES, MAX_CHANGES


@header_rule("DIV-001", declarable=True)
def batch_listed(c: HeaderContext) -> Iterator[Fault]:
    """The batch is from the list of the workload, or of conversions."""
    allowed = c.workload_rules["batches"]
    if c.conversion is not None:
        allowed = c.rules.limits["conversion"]["batches"]
    elif c.key.scenario == "single_stream":
        return
    if c.subject.batch not in allowed:
        yield Fault(f"{c.location}.batch", "one of " + ", ".join(map(str, allowed)), c.subject.batch)


@header_rule("DIV-002", declarable=True, kind=BENCHMARK)
def hyperparameters_given(c: HeaderContext) -> Iterator[Fault]:
    """The hyperparameters are the specification's."""
    wanted, found = c.hyperparameters, c.header["hyper"]
    for name in sorted(set(wanted) | set(found)):
        expected, actual = wanted.get(name, "not there"), found.get(name, "not there")
        if expected != actual:
            yield Fault(f"header, data.hyper.{name}", expected, actual)


@header_rule("DIV-016", declarable=True, kind=CONVERSION)
def files_unchanged(c: HeaderContext) -> Iterator[Fault]:
    """A conversion stores the image files unchanged."""
    if c.conversion is not None and c.conversion.encoding != "file":
        yield Fault(f"{c.location}.encoding", "unchanged files", c.conversion.encoding)


@header_rule("DIV-017", declarable=True)
def compiled_by_the_run(c: HeaderContext) -> Iterator[Fault]:
    """The run compiles its code itself: nothing that an earlier run left could change it."""
    found = c.header["settings"].get("reuse_compiled", False)
    if found is not False:
        yield Fault("header, data.settings.reuse_compiled", "false", found)


@header_rule("DIV-003", declarable=True)
def soak_and_tail(c: HeaderContext) -> Iterator[Fault]:
    """The soak has the length of the rules."""
    wanted = c.rules.limits["soak_ns"] if c.mode == "throughput" else 0
    found = c.header["settings"].get("soak_ns")
    if found != wanted:
        yield Fault("header, data.settings.soak_ns", wanted, found)


@header_rule("DIV-004", declarable=True)
def telemetry_on(c: HeaderContext) -> Iterator[Fault]:
    """Telemetry is taken."""
    found = c.header["settings"].get("telemetry")
    if found is not True:
        yield Fault("header, data.settings.telemetry", "true", found)


@header_rule("DIV-005", declarable=True)
def submission_in_closed(c: HeaderContext) -> Iterator[Fault]:
    """Closed results are submission runs: their attempts are counted."""
    if c.division != "practice" and c.header["purpose"] != "submission":
        yield Fault("header, data.purpose", "submission", c.header["purpose"])


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


def _setting_is_null(c: HeaderContext, name: str, meaning: str) -> Iterator[Fault]:
    found = c.header["settings"].get(name)
    if found is not None:
        yield Fault(f"header, data.settings.{name}", f"null: {meaning}", found)


@header_rule("DIV-007", declarable=True)
def pair_of_the_suite(c: HeaderContext) -> Iterator[Fault]:
    """The pair is the suite's."""
    return _setting_is_null(c, "custom_pair", "the suite's pair")


@header_rule("DIV-008", declarable=True)
def interpreter_of_the_suite(c: HeaderContext) -> Iterator[Fault]:
    """The interpreter is the suite's or the image's."""
    return _setting_is_null(c, "custom_python", "the suite's interpreter")


@header_rule("DIV-009", declarable=True)
def image_of_the_suite(c: HeaderContext) -> Iterator[Fault]:
    """The container image is not a custom one."""
    return _setting_is_null(c, "custom_image", "an image of the lock")


@header_rule("DIV-010", declarable=True)
def code_committed(c: HeaderContext) -> Iterator[Fault]:
    """The code that ran was committed; if that is unknown, ID-010 flags submissions."""
    git = c.header["git"]
    if git is not None and git["dirty"]:
        yield Fault("header, data.git.dirty", "false", "true")


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
    wanted = c.header["settings"].get("custom_pair")
    for repeat in c.repeats:
        for event in repeat.envs_of("inside"):
            found = event["facts"].get("custom_pair")
            if found != wanted:
                none = "none: the suite's pair"
                yield Fault(event.location("facts.custom_pair"), wanted or none, found or none)


def _needs_patch(c: Context) -> str:
    """The departure that needs a patch, or "". In practice a dirty tree is only information."""
    for name in ("custom_pair", "custom_python", "custom_image"):
        if c.header["settings"].get(name) is not None:
            return name
    git = c.header["git"]
    dirty = c.division != "practice" and git is not None and git["dirty"]
    return "git.dirty" if dirty else ""


@header_rule("DIV-013", declarable=True)
def published_dataset(c: HeaderContext) -> Iterator[Fault]:
    """The dataset is the published one, not a custom dataset under its name."""
    if c.header["dataset"]["kind"] == CUSTOM_DATASET:
        yield Fault("header, data.dataset.kind", "official", CUSTOM_DATASET)


@header_rule("DIV-014", declarable=True)
def fingerprint_requested(c: HeaderContext) -> Iterator[Fault]:
    """A benchmark in mode throughput takes the fingerprint."""
    found = c.header["settings"].get("fingerprint")
    if c.fingerprinted and found is not True:
        yield Fault("header, data.settings.fingerprint", "true", found)


@header_rule("DIV-015", declarable=True)
def usual_counts(c: HeaderContext) -> Iterator[Fault]:
    """The repeats, and the steps of a window, are as many as the rules set."""
    limits = c.rules.limits
    wanted = {
        "repeats": limits["modes"][c.mode]["repeats"],
        "measured_steps": limits["counts"]["measured_steps"],
    }
    for name, value in wanted.items():
        if c.header[name] != value:
            yield Fault(f"header, data.{name}", value, c.header[name])
