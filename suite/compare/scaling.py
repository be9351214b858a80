"""The verdict on a scaling set: it follows from the checked logs of its runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

from suite.checker.sandboxed import VerdictSummary, ended_verdict, limit_finding
from suite.compare.scaling_figures import ArmData, GroupFigures, figures_of
from suite.compare.scaling_set import (
    FILE,
    INDEPENDENT,
    SINGLE,
    SYNCHRONOUS,
    WEAK,
    Group,
    ScalingSet,
    run_folder,
)
from suite.contract import INDEPENDENT as NO_EXCHANGE
from suite.log.finding import Defect, Finding
from suite.log.safe import safe
from suite.rules.root import LATEST, SHIPPED
from suite.sandbox.sandbox import LimitsError, Sandbox, SandboxError, TaskError

FORMAT = "suite-scaling/1"
EXPLAINED = "SET-008"  # a ratio above the limit has a declared cause
NONE: Mapping[Path, str] = MappingProxyType({})
_OfGroup = tuple[int, str, str, str, str]  # devices of the group, rule, location in it, expected, found


@dataclass(frozen=True, slots=True)
class CheckedSet:
    """A readable set with its verdict.

    ``figures`` has the groups with all arms; ``accepted`` the devices of those that no finding rejects, and
    ``explained`` those with a ratio above the limit that a declared cause explains.
    """

    set: ScalingSet
    verdict: VerdictSummary
    figures: tuple[GroupFigures, ...]
    accepted: frozenset[int]
    explained: frozenset[int]


@cache
def _table() -> Mapping[str, Any]:
    table: dict[str, Any] = json.loads(SHIPPED.files(LATEST)["scaling"].read_text("utf-8"))
    return table


def rules() -> Mapping[str, Mapping[str, str]]:
    """The rules of scaling sets by id: severity, title, fix."""
    found: Mapping[str, Mapping[str, str]] = _table()["rules"]
    return found


def check_set(
    sandbox: Sandbox, path: Path, rejected: Mapping[Path, str] = NONE, used: Mapping[Path, str] = NONE
) -> tuple[VerdictSummary, CheckedSet | None]:
    """The verdict on the set in ``path``, and its figures; None for a set that cannot be read.

    The runs are looked up where :func:`suite.compare.scaling_set.run_folder` says. ``rejected`` are absolute
    folders of runs that rules about submissions reject, each with the reason; ``used`` are those of other
    sets, each with the set. A fault of the checker rejects this set only: whoever submits it must not stop
    the check of the others.
    """
    folder = path.parent if path.name == FILE else path
    try:
        return _checked(sandbox, folder, rejected, used)
    except LimitsError as error:
        return VerdictSummary.of_dict(ended_verdict(path, limit_finding(error))), None
    except Exception as error:
        if type(error) is SandboxError:  # no set can be checked
            raise
        fault = str(error) if isinstance(error, TaskError) else f"{type(error).__name__}: {error}"
        defect = Defect("SET-007", "the whole set", "a check that comes to an end", fault)
        return _verdict(folder, [defect], "the check failed"), None


def _checked(
    sandbox: Sandbox, folder: Path, rejected: Mapping[Path, str], used: Mapping[Path, str]
) -> tuple[VerdictSummary, CheckedSet | None]:
    """:func:`check_set`; raises LimitsError, TaskError and whatever a fault of the checker raises."""
    answer = sandbox.run("scaling_set", path=folder)
    if answer["defects"]:
        unreadable = [Defect(**defect) for defect in answer["defects"]]
        return _verdict(folder, unreadable, "the set cannot be read"), None
    found = ScalingSet.of_dict(answer["set"])
    actual = folder.absolute().name
    if re.fullmatch(found.folder_pattern, actual) is None:
        misnamed = Defect("SET-009", "folder", found.folder_pattern, actual)
        return _verdict(folder, [misnamed], "the folder has another name"), None
    defects: list[_OfGroup] = []
    checked: dict[int, dict[str, ArmData]] = {}
    for group in found.groups:
        arms = checked.setdefault(group.devices, {})
        for name, arm in group.arms.items():
            run = run_folder(folder, found.workload, arm.run_id)
            data, problem = _arm_data(sandbox, run, rejected)
            if run in used:
                other = f"that of {used[run]}"
                defects.append((group.devices, "SET-003", name, "a run of this set alone", other))
            if data is not None and data["sha256"] == arm.sha256:
                arms[name] = data
                continue
            if data is not None:
                problem = f"the log {data['sha256']}; the set names {arm.sha256}"
            defects.append((group.devices, "SET-002", name, "an accepted result with a score", problem))
    figures = tuple(
        figures_of(found, devices, arms)
        for devices, arms in checked.items()
        if set(found.arms) <= set(arms) and len({len(arm["repeats"]) for arm in arms.values()}) == 1
    )
    defects += judge(found, checked, figures)
    flags = [flag for devices, arms in checked.items() for flag in _flags_of_arms(devices, arms)]
    verdict = _verdict(folder, map(_located, defects), _reached(found, figures), figures, flags)
    faulty = {
        devices
        for (devices, *_), finding in zip(defects, verdict.findings, strict=False)  # then flags of arms
        if finding.severity == "reject"
    }
    accepted = frozenset(one.devices for one in figures) - faulty
    explained = frozenset(devices for devices, rule, *_ in defects if rule == EXPLAINED)
    return verdict, CheckedSet(found, verdict, figures, accepted, explained)


def _located(defect: _OfGroup) -> Defect:
    devices, rule, where, expected, actual = defect
    return Defect(rule, _location(devices, where), expected, actual)


def _location(devices: int, where: str) -> str:
    return f"group of {devices} devices{f', {where}' if where else ''}"


def _flags_of_arms(devices: int, arms: Mapping[str, ArmData]) -> Iterator[Finding]:
    """What an auditor should look at in the runs of a group is to be looked at in the set."""
    for name, arm in arms.items():
        for flag in arm["flags"]:
            yield Finding(**flag | {"location": _location(devices, f"{name}: {flag['location']}")})


def _arm_data(sandbox: Sandbox, folder: Path, rejected: Mapping[Path, str]) -> tuple[ArmData | None, str]:
    """The data of the run in ``folder``, or None and why it cannot be used."""
    if not folder.is_dir():
        return None, f"no folder {folder.name} beside the set"
    if folder in rejected:
        return None, rejected[folder]
    try:
        answer = sandbox.run("scaling_arm", path=folder)
    except (LimitsError, TaskError) as error:
        return None, str(error)
    if answer["arm"] is None:
        verdict = VerdictSummary.of_dict(answer["verdict"])
        broken = ", ".join(sorted({finding.rule for finding in verdict.rejections}))
        return None, f"rejected by {broken}" if broken else f"no score: {verdict.reached}"
    return answer["arm"], ""


def judge(
    found: ScalingSet, checked: Mapping[int, Mapping[str, ArmData]], figures: Sequence[GroupFigures]
) -> Iterator[_OfGroup]:
    """The defects of a set whose arms were read."""
    yield from _missing(found)
    yield from _shared(found)
    arms = [arm for group in checked.values() for arm in group.values()]
    for devices, group in checked.items():
        counts = {name: len(arm["repeats"]) for name, arm in group.items()}
        if len(set(counts.values())) > 1:
            yield devices, "SET-005", "", "equally many repeats of each arm", str(counts)
        for name, arm in group.items():
            for where, expected, actual in _differing(found, devices, name, arm, arms[0]):
                yield devices, "SET-004", f"{name}: {where}", expected, actual
    yield from _limits_differ(figures)
    limit = float(_table()["efficiency"])
    for one in figures:
        for expected, actual in _threads_differ(one.arms):
            yield one.devices, "SET-004", "settings.threads", expected, actual
        for expected, actual in _not_interleaved(one.arms):
            yield one.devices, "SET-005", "", expected, actual
        for where, value in _too_fast(one, limit):
            if found.cause is None:
                yield one.devices, "SET-006", where, f"at most {limit}, or a declared cause", f"{value:.4f}"
            else:
                yield one.devices, EXPLAINED, where, f"at most {limit}", f"{value:.4f}, cause: {found.cause}"


def _too_fast(one: GroupFigures, limit: float) -> Iterator[tuple[str, float]]:
    """The ratios of a group that are above ``limit``, by name.

    A slowed single arm makes a poor efficiency look good, and the independent arm gives it away; a slowed
    independent arm is given away by the synchronous one. The value decides, not the lower end of its
    interval: two rounds made 2 % more unequal push that end below any limit. Of the submitted sets the
    highest value is 1.011. Where short windows scatter by more (word2vec: 12 ms), more rounds or a declared
    cause remain.
    """
    ratios = {f"{name} of N x {SINGLE}": share.value for name, share in one.shares.items()}
    if one.synchronisation is not None:
        ratios[f"{SYNCHRONOUS} / {INDEPENDENT}"] = 1 - one.synchronisation.value
    yield from ((name, value) for name, value in ratios.items() if value > limit)


def _missing(found: ScalingSet) -> Iterator[_OfGroup]:
    groups: dict[int, Group] = {}
    for group in found.groups:
        if group.devices in groups or group.devices not in found.devices:
            yield group.devices, "SET-003", "", "one group of each requested number", "another group"
        groups[group.devices] = group
    for devices in found.devices:
        group = groups.get(devices, Group(devices, {}))
        if set(group.arms) == set(found.arms):
            continue
        text = ", ".join(group.arms) or "none"
        if group.failure is not None:
            text += f"; a run ended with exit code {group.failure.exit_code}: {group.failure.message}"
        yield devices, "SET-003", "", f"the arms {', '.join(found.arms)}", text


def _shared(found: ScalingSet) -> Iterator[_OfGroup]:
    """The runs that serve in two arms: each group is measured with runs of its own."""
    used: dict[str, str] = {}
    for group in found.groups:
        for name, arm in group.arms.items():
            there = used.setdefault(arm.sha256, here := _location(group.devices, name))
            if there != here:
                yield group.devices, "SET-003", name, "a run of this arm alone", f"that of {there}"


def _differing(
    found: ScalingSet, devices: int, name: str, arm: ArmData, first: ArmData
) -> Iterator[tuple[str, str, str]]:
    """(fact, expected, found) of what an arm has beyond its devices, strategy and batch."""
    key, count = arm["key"], 1 if name == SINGLE else devices
    batch = str(found.batch) if found.scaling == WEAK else f"{found.batch} / {count}"
    expected: dict[str, Any] = {
        "workload": found.workload, "framework": found.framework, "phase": found.phase,
        "devices": count, "nodes": 1,
    }  # fmt: skip
    for field, wanted in expected.items():
        if key[field] != wanted:
            yield f"key.{field}", str(wanted), str(key[field])
    if key["batch"] * (1 if found.scaling == WEAK else count) != found.batch:
        yield "key.batch", f"{batch} ({found.scaling} scaling)", str(key["batch"])
    if (key["strategy"] != NO_EXCHANGE) != (name == SYNCHRONOUS):
        wanted = "one that exchanges gradients" if name == SYNCHRONOUS else NO_EXCHANGE
        yield "key.strategy", wanted, key["strategy"]
    ours, theirs = first["facts"], arm["facts"]
    for fact in sorted({*ours, *theirs}):
        if ours.get(fact) != theirs.get(fact):
            yield fact, f"{ours.get(fact)}, as {first['run_id']}", str(theirs.get(fact))


def _threads_differ(arms: Mapping[str, ArmData]) -> Iterator[tuple[str, str]]:
    """The ranks share the processor: a single one has as many threads as each of them, or more."""
    threads = {name: arm["threads"] for name, arm in arms.items()}
    if not all(type(count) is int for count in threads.values()):
        yield "a number of each arm", str(threads)
        return
    several = {count for name, count in threads.items() if name != SINGLE}
    if len(several) > 1:
        yield "equal numbers in the arms of several devices", str(threads)
    elif threads[SINGLE] < max(several):
        yield f"{max(several)} or more in the arm {SINGLE}", str(threads[SINGLE])


def _limits_differ(figures: Sequence[GroupFigures]) -> Iterator[_OfGroup]:
    """A device has the same power limits in all arms of a set; the single one is a device of the others."""
    first: dict[str, list[int]] = {}
    for one in figures:
        for name, arm in one.arms.items():
            for device, limits in arm["power_limits"].items():
                if device not in one.arms[INDEPENDENT]["power_limits"]:
                    yield one.devices, "SET-004", f"{name}: device", f"one of the arm {INDEPENDENT}", device
                elif limits != (wanted := first.setdefault(device, limits)):
                    where = f"{name}: power_limit_mw of {device[:8]}"
                    yield one.devices, "SET-004", where, f"{wanted}, as in other arms", str(limits)


def _not_interleaved(arms: Mapping[str, ArmData]) -> Iterator[tuple[str, str]]:
    """What is wrong with the order of the repeats: rounds of all arms, each the reverse of the last."""
    most_ns = int(_table()["longest_wait_s"]) * 1_000_000_000
    boots = {str(repeat["boot"]) for arm in arms.values() for repeat in arm["repeats"]}
    if len(boots) > 1:
        yield "one boot of one machine", f"{len(boots)} boots"
        return
    runs = sorted(
        (repeat["began_ns"], repeat["ended_ns"], name)
        for name, arm in arms.items()
        for repeat in arm["repeats"]
    )
    for (_, ended, name), (began, _, other) in pairwise(runs):
        if began < ended:
            yield "repeats one after the other", f"{other} began before {name} ended"
            return
        # With one round the order says nothing: this keeps the single arm from being of another time of day.
        if began - ended > most_ns:
            wait = f"{other} began {(began - ended) / 1e9:,.0f} s after {name} ended"
            yield f"at most {most_ns / 1e9:,.0f} s between two repeats", wait
            return
    order, size = [name for *_, name in runs], len(arms)
    rounds = [order[at : at + size] for at in range(0, len(order), size)]
    wanted = [rounds[0][:: 1 if number % 2 == 0 else -1] for number in range(len(rounds))]
    if rounds != wanted or set(rounds[0]) != set(arms):
        yield "rounds of all arms, each the reverse of the last", _rounds_text(rounds)


def _rounds_text(rounds: Sequence[Sequence[str]]) -> str:
    return " | ".join(" ".join(one) for one in rounds)


def _reached(found: ScalingSet, figures: Sequence[GroupFigures]) -> str:
    return f"{len(figures)} of {len(found.devices)} groups, {found.scaling} scaling"


def _verdict(
    folder: Path,
    defects: Iterable[Defect],
    reached: str,
    figures: Sequence[GroupFigures] = (),
    flags_of_arms: Sequence[Finding] = (),
) -> VerdictSummary:
    mini = any(arm["key"]["scale"] == "mini" for one in figures for arm in one.arms.values())
    findings = []
    for defect in defects:
        rule = rules()[defect.rule]
        severity = "info" if mini and defect.rule in ("SET-006", EXPLAINED) else rule["severity"]
        findings.append(
            Finding(defect.rule, severity, defect.location, defect.expected, defect.found, rule["fix"])
        )
    findings += flags_of_arms
    rejected = sum(finding.severity == "reject" for finding in findings)
    flags = sum(finding.severity == "flag" for finding in findings)
    value = {
        "result": safe(folder.name),
        "run_id": None,
        "accepted": not rejected,
        "scored": not rejected,
        "reached": reached,
        "rules": LATEST,
        "sha256": None,
        "rejections": rejected,
        "flags": flags,
        "findings": [asdict(finding) for finding in findings],
    }
    return VerdictSummary.of_dict(value)
