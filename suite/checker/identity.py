"""ID: key, settings, code and rules version of the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from suite.checker.context import (
    COUNTS_DECLARED,
    KEY,
    Context,
    Fault,
    HeaderContext,
    header_rule,
    rule,
    strings,
)
from suite.contract import BENCHMARK, FORWARD_BACKWARD, key_fields, run_id_parts
from suite.contract.traits import storage_formats
from suite.log.canonical import encode, sha256_hex
from suite.log.limits import LIMITS
from suite.rules import digest_of
from suite.workloads import frameworks

_PAIRED = ("mode", "division", "purpose", "loader", "launcher", "runtime")


@header_rule("ID-001", KEY)
def rules_version(c: HeaderContext) -> Iterator[Fault]:
    """The version of the rules exists, and is the one that was loaded."""
    found = c.header["rules"]["version"]
    if found != c.rules.version:
        existing = ", ".join(c.rules.root.versions)
        yield Fault("header, data.rules.version", f"{c.rules.version} (of {existing})", found)


@header_rule("ID-002")
def rule_digests(c: HeaderContext) -> Iterator[Fault]:
    """The header has the digests of all rule files that the run needs, as the checker has them.

    A file of a version that is not frozen may have changed since the run (ID-018): every rule judges the log
    by the present files, so a stated digest gives no advantage.
    """
    stated: Mapping[str, str] = c.header["rules"]["files"]
    for name, digest in stated.items():
        shipped = c.rules.shipped(name)
        if digest != shipped and not c.rules.may_change(name):
            yield Fault(f"header, data.rules.files[{name!r}]", shipped or "no such file", digest)
    dataset = c.spec.DATASETS[c.subject.scale] if c.real else None
    image = c.image if c.locked is not None else None
    needed = c.rules.files_for(c.subject.workload, dataset, framework=c.subject.framework, image=image)
    missing = sorted(set(needed) - set(stated))
    if missing:
        yield Fault("header, data.rules.files", f"also {missing[0]}", "not there")
    if c.header["rules"]["digest"] != digest_of(stated):
        yield Fault("header, data.rules.digest", digest_of(stated), c.header["rules"]["digest"])


@header_rule("ID-018")
def present_rule_files(c: HeaderContext) -> Iterator[Fault]:
    """The files of rules that are not frozen have not changed since the run."""
    stated: Mapping[str, str] = c.header["rules"]["files"]
    changed = [name for name in stated if c.rules.may_change(name) and stated[name] != c.rules.shipped(name)]
    if changed:
        found = f"others of {', '.join(changed)}"
        yield Fault("header, data.rules.files", "the digests of the present files", found)


@header_rule("ID-003", KEY)
def known_key_values(c: HeaderContext) -> Iterator[Fault]:
    """Every field of the key has a known value, and the values fit each other."""
    if c.subject.workload not in c.known_workloads:
        yield Fault(f"{c.location}.workload", " or ".join(c.known_workloads), c.subject.workload)
        return
    options = {**c.rules.options, "precision": c.workload_rules["precisions"], "storage": storage_formats()}
    options["framework"] = frameworks(c.subject.workload)
    for name, found in key_fields(c.subject).items():
        if name in options and found not in options[name]:
            yield Fault(f"{c.location}.{name}", " or ".join(dict.fromkeys(options[name])), found)
    for name in ("loader", "launcher", "runtime"):
        if name in c.header and c.header[name] not in options[name]:
            yield Fault(f"header, data.{name}", " or ".join(options[name]), c.header[name])
    if c.conversion is None:
        yield from _values_fit(c)


def _values_fit(c: HeaderContext) -> Iterator[Fault]:
    """The values of a benchmark key fit each other."""
    if c.key.scenario == "single_stream" and (c.key.phase != "infer" or c.key.batch != 1):
        found = f"{c.key.phase}, batch {c.key.batch}"
        yield Fault("header, data.key.scenario", "single_stream with phase infer and batch 1", found)
    if c.key.scenario == FORWARD_BACKWARD and (
        (c.key.phase, c.key.devices, c.mode) != ("train", 1, "throughput")
        or c.key.precision == "fp16"
        or FORWARD_BACKWARD not in c.spec.SCENARIOS
    ):
        wanted = (
            f"{FORWARD_BACKWARD} with phase train, mode throughput, one device, a precision other than fp16 "
            "and a workload that has this scenario"
        )
        found = f"{c.key.workload}, {c.key.phase}, {c.mode}, {c.key.devices} devices, {c.key.precision}"
        yield Fault("header, data.key.scenario", wanted, found)
    if c.mode == "quality" and (c.key.phase != "train" or c.key.data != "real"):
        yield Fault(
            "header, data.mode", "quality with phase train and real data", f"{c.key.phase}, {c.key.data}"
        )
    if c.key.scale in c.spec.VARIANTS and c.key.variant not in c.spec.VARIANTS[c.key.scale]:
        yield Fault("header, data.key.variant", " or ".join(c.spec.VARIANTS[c.key.scale]), c.key.variant)


@header_rule("ID-004", KEY)
def division_fits(c: HeaderContext) -> Iterator[Fault]:
    """Mini scale is in practice, reference scale is not; a rules version lists its divisions."""
    wanted = ("closed", "open") if c.reference else ("practice",)
    if c.division not in wanted:
        yield Fault("header, data.division", f"{' or '.join(wanted)} at scale {c.subject.scale}", c.division)
    elif c.division not in c.rules.limits["divisions"]:
        allowed = " or ".join(c.rules.limits["divisions"])
        yield Fault("header, data.division", f"{allowed} under rules {c.rules.version}", c.division)


@header_rule("ID-005")
def run_id_fits(c: HeaderContext) -> Iterator[Fault]:
    """The run id agrees with the key."""
    wanted = "-".join(run_id_parts(c.subject, c.mode))
    found = "-".join(c.header["run_id"].split("-")[1:-1])
    if found != wanted:
        yield Fault("header, data.run_id", f"…-{wanted}-…", c.header["run_id"])


@rule("ID-006")
def folder_name(c: Context) -> Iterator[Fault]:
    """The folder is named after the run."""
    if c.record.name.removesuffix(".partial") != c.record.run_id:
        yield Fault("folder", c.record.run_id, c.record.name)


@header_rule("ID-007")
def settings_agree(c: HeaderContext) -> Iterator[Fault]:
    """The settings agree with key and header."""
    settings = c.header["settings"]
    wanted = {**key_fields(c.subject), **{name: c.header[name] for name in _PAIRED if name in c.header}}
    for name, value in wanted.items():
        if name not in settings or settings[name] != value or type(settings[name]) is not type(value):
            yield Fault(f"header, data.settings.{name}", value, settings.get(name, "not there"))
    for name, counted in (("repeats", "repeats"), ("steps", "measured_steps")):
        if name in settings and settings[name] != c.header[counted]:
            yield Fault(f"header, data.settings.{name}", c.header[counted], settings[name])


@header_rule("ID-008")
def settings_digest(c: HeaderContext) -> Iterator[Fault]:
    """The digest of the settings is that of their canonical line."""
    wanted = sha256_hex(encode(c.header["settings"]))
    if c.header["settings_digest"] != wanted:
        yield Fault("header, data.settings_digest", wanted, c.header["settings_digest"])


@header_rule("ID-009")
def overrides_agree(c: HeaderContext) -> Iterator[Fault]:
    """The settings have the values that the command line set."""
    settings = c.header["settings"]
    requested = {}
    for text in c.header["overrides"]:
        name, equals, value = text.lstrip("+").partition("=")
        if equals:
            requested[name.removeprefix("framework.")] = value.replace("\\", "").strip(" '\"")
    for name, value in requested.items():
        if value not in ("auto", "null") and not value.startswith("<"):
            setting, read = LIMITS.get(name.removeprefix("runtime."), (name, None))
            found = settings.get(setting)
            if (name, value) == ("batch", "max") and "batch_search" in settings:
                continue  # ID-014 checks the search
            if name == "fingerprint" and not c.fingerprinted:
                continue  # this mode or kind has none, whatever is requested: FING-001
            same = _same_value(found, value) if read is None else read(value) == found
            if isinstance(found, str | int) and not same:
                location = f"header, data.overrides ({name})"
                yield Fault(location, f"{setting}={found}, as in the settings", value)


def _same_value(found: object, text: str) -> bool:
    """Whether ``text`` of a command line means the value ``found`` of a setting."""
    if isinstance(found, bool):
        return text.lower() == str(found).lower()
    if isinstance(found, int):
        try:
            return int(text) == found  # as Hydra reads numbers: +200 and 1_000 too
        except ValueError:
            return text.startswith("[") and text.count(",") + 1 == found  # devices=[0,1] are two
    return str(found) == text


@header_rule("ID-014", kind=BENCHMARK)
def batch_found(c: HeaderContext) -> Iterator[Fault]:
    """A batch found by batch=max is the largest one tried that ran all steps; closed forbids it."""
    search = c.header["settings"].get("batch_search")
    if search is None:
        return
    location = "header, data.settings.batch_search"
    if c.division == "closed":
        yield Fault(location, "a listed batch in closed, not one found by batch=max", "a search")
    if not isinstance(search, list) or not all(map(_is_trial, search)):
        yield Fault(location, "a list of [batch, steps, outcome]", str(search)[:200])
        return
    steps = sum(c.rules.limits["counts"].values())
    complete = [batch for batch, ran, outcome in search if ran == steps and outcome == "fits"]
    if complete != [c.key.batch] or search[-1][0] != c.key.batch:
        yield Fault(
            location, f"{c.key.batch} as the one batch that ran {steps} steps, and the last", complete
        )
    failed = [batch for batch, _, outcome in search if outcome != "fits"]
    if not any(c.key.batch < batch <= 2 * c.key.batch for batch in failed):
        yield Fault(
            location, f"a batch above {c.key.batch}, at most twice as large, that does not fit", "none"
        )


def _is_trial(row: Any) -> bool:
    return isinstance(row, list) and list(map(type, row)) == [int, int, str]


@header_rule("ID-010")
def clean_submission(c: HeaderContext) -> Iterator[Fault]:
    """A submission runs committed code, and its log states so."""
    git = c.header["git"]
    if c.header["purpose"] == "submission" and (git is None or git["dirty"] is not False):
        found = None if git is None else git["dirty"]
        yield Fault("header, data.git.dirty", "false", {True: "true", None: "null"}.get(found, found))


def _released(c: HeaderContext) -> Iterator[Fault]:
    """The digest of the code is that of a release of the suite."""
    if c.header["code_digest"] not in c.rules.releases:
        known = ", ".join(c.rules.releases.values()) or "there is none yet"
        wanted = f"the digest of a release for rules {c.rules.version} ({known})"
        yield Fault("header, data.code_digest", wanted, c.header["code_digest"])


@header_rule("ID-015")
def code_released(c: HeaderContext) -> Iterator[Fault]:
    """In closed the code is that of a release, whose loop, clock and harness are published."""
    if c.division == "closed":
        yield from _released(c)


@header_rule("ID-016")
def code_known(c: HeaderContext) -> Iterator[Fault]:
    """In open, code that is not of a release is flagged."""
    if c.division == "open":
        yield from _released(c)


@header_rule("ID-011", KEY)
def counts_in_bounds(c: HeaderContext) -> Iterator[Fault]:
    """The warm-up has the steps of the rules; declared repeats and steps are within bounds.

    DIV-015 reports those that are not declared.
    """
    limits, found = c.rules.limits, c.counts
    if c.header["warmup_steps"] != found["warmup_steps"]:
        yield Fault("header, data.warmup_steps", found["warmup_steps"], c.header["warmup_steps"])
    if not c.allowed(COUNTS_DECLARED):
        return
    bounds = limits["declared_counts"]
    for name in ("repeats", "measured_steps"):
        least, most = bounds[name]
        if not least <= c.header[name] <= most:
            yield Fault(f"header, data.{name}", f"{least} to {most}", c.header[name])
        elif c.header[name] != found[name]:
            yield Fault(f"header, data.{name}", found[name], c.header[name])
    if found["measured_steps"] % bounds["multiple"]:
        wanted = f"a multiple of {bounds['multiple']}"
        yield Fault("header, data.measured_steps", wanted, found["measured_steps"])
    steps = found["repeats"] * found["measured_steps"] * c.devices
    if steps > bounds["steps"]:
        yield Fault("header, data.measured_steps", f"at most {bounds['steps']} steps in all", steps)


@rule("ID-012")
def no_machine_paths(c: Context) -> Iterator[Fault]:
    """The log contains no file system paths of the machine."""
    roots = tuple(f"/{name}/" for name in c.rules.limits["private_roots"])
    for event in (*c.record.all("header"), *c.record.all("env"), *c.record.all("abort")):
        for text in strings(event.data):
            if "/" in text and any(root in text for root in roots):
                yield Fault(event.location(), "no paths", text)


@rule("ID-017")
def run_id_time(c: Context) -> Iterator[Fault]:
    """The run id, from which seeds are derived, begins with a time not after the first event."""
    found, wall = c.record.run_id.partition("-")[0], c.record.header.wall
    try:
        stated = datetime.fromisoformat(f"{found[:4]}-{found[4:6]}-{found[6:11]}:{found[11:13]}")
    except ValueError:
        yield Fault("header, data.run_id", "a date and time such as 20260131T2359Z", found)
        return
    slack = timedelta(microseconds=c.rules.limit("wall_ns") / 1000)  # a clock may be set back a little
    if stated > datetime.fromisoformat(wall[:19]) + slack:
        yield Fault("header, data.run_id", f"not after {wall}", found)
