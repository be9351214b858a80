"""What closed demands of the work; in open each departure is declared, in practice it is information."""

from __future__ import annotations

from collections.abc import Iterator

from suite.checker.context import REGISTRY, Fault, HeaderContext, departs, header_rule
from suite.rules.places import since


@header_rule("DIV-001")
def batch_listed(c: HeaderContext) -> Iterator[Fault]:
    """The batch is from the workload's list."""
    allowed = c.rules.limits["conversion"]["batches"] if c.converts else c.workload_rules["batches"]
    if c.key.batch not in allowed and c.key.scenario != "single_stream":
        wanted = "one of " + ", ".join(map(str, allowed))
        yield from departs(c, "DIV-001", Fault("header, data.key.batch", wanted, str(c.key.batch)))


def usual_hyperparameters(c: HeaderContext) -> dict[str, str]:
    """Those of the specification, without those that are newer than the rules."""
    if c.converts:
        return {}
    first, versions = getattr(c.spec, "HYPER_SINCE", {}), since(c.rules.version)
    given = c.spec.hyperparameters(c.key.scale, c.key.variant)
    return {name: value for name, value in given.items() if first.get(name, versions[0]) in versions}


@header_rule("DIV-002")
def hyperparameters_given(c: HeaderContext) -> Iterator[Fault]:
    """The hyperparameters are the specification's."""
    wanted, found = usual_hyperparameters(c), c.header["hyper"]
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
    """Closed declares no difference; what others declare are rules that they may depart from."""
    known = sorted(name for name in REGISTRY if name.startswith(("DIV-", "IMG-")) and name in c.rules.checks)
    for row in c.header["differences"]:
        if c.division == "closed":
            yield Fault("header, data.differences", "none in closed", row["rule"])
        elif row["rule"] not in known:
            yield Fault("header, data.differences", "rules of " + ", ".join(known), row["rule"])
