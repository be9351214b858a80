"""A finding for each way to embellish a scaling set."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from suite.cli import main
from suite.compare.comparable import COMPARE_TASKS
from suite.compare.scaling import check_set, rules
from suite.compare.scaling_set import (
    FILE,
    INDEPENDENT,
    SINGLE,
    STRONG,
    SYNCHRONOUS,
    WEAK,
    Failure,
    Group,
    ScalingSet,
    read_set,
)
from suite.log.canonical import sha256_hex
from suite.log.files import LOG
from suite.log.finding import RecordError
from suite.report import scaling_table
from suite.sandbox.sandbox import Sandbox
from tests.fixtures.forged import reseal
from tests.fixtures.forging import Events, rewrite
from tests.fixtures.scaling_sets import SLOT_NS, Imagined, checked, edit_set, interleaved

ONE_BY_ONE = {
    name: tuple((at * 5 + r) * SLOT_NS + 1_000_000 for r in range(5))
    for at, name in enumerate((SINGLE, INDEPENDENT, SYNCHRONOUS))
}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(COMPARE_TASKS) as one:
        yield one


# ---- forgeries: each breaks exactly its rule ---------------------------------------------------------------
Forge = Callable[[Path], object]


def in_first_group(change: Callable[[Group], Group]) -> Forge:
    """Edit the first group of the set."""
    return lambda folder: edit_set(folder, lambda one: one.with_group(change(one.groups[0])))


def named_with(name: str, **changes: str) -> Forge:
    """Edit what the first group states about an arm."""
    return in_first_group(
        lambda group: replace(group, arms={**group.arms, name: replace(group.arms[name], **changes)})
    )


def rewritten(name: str, change: Callable[[Events], object]) -> Forge:
    """Edit the log of an arm of the first group, and name its new digest in the set."""

    def forge(folder: Path) -> None:
        value = json.loads((folder / FILE).read_text())
        log = rewrite(folder.parent.parent / value["groups"][0]["arms"][name]["run_id"], change) / LOG
        named_with(name, sha256=sha256_hex(log.read_bytes()))(folder)

    return forge


def of_header(field: str, value: str) -> Callable[[Events], object]:
    return lambda events: events[0]["data"].update({field: value})


def threads(value: object) -> Callable[[Events], object]:
    def change(events: Events) -> None:
        events[0]["data"]["settings"]["threads"] = value
        reseal(events)

    return change


def device_facts(events: Events) -> Iterator[dict[str, Any]]:
    for event in events:
        if event["kind"] == "env" and event["data"]["side"] == "outside":
            yield from event["data"]["facts"]["accelerators"]["devices"]


def limited(milliwatts: int, *names: str) -> Callable[[Events], object]:
    def change(events: Events) -> None:
        for device in device_facts(events):
            device |= dict.fromkeys(names, milliwatts)

    return change


def other_device(events: Events) -> None:
    uuid = next(device_facts(events))["uuid"]
    events[:] = json.loads(json.dumps(events).replace(uuid, "d" * 64))


def other_boot(events: Events) -> None:
    for event in events:
        if event["kind"] == "clock":
            event["data"]["boot"] = "b" * 64


def lost_run(folder: Path) -> None:
    value = json.loads((folder / FILE).read_text())
    shutil.rmtree(folder.parent.parent / value["groups"][0]["arms"][INDEPENDENT]["run_id"])


def swapped(group: Group) -> Group:
    arms = {**group.arms, INDEPENDENT: group.arms[SYNCHRONOUS], SYNCHRONOUS: group.arms[INDEPENDENT]}
    return replace(group, arms=arms)


def pruned(group: Group) -> Group:
    return replace(group, arms={name: arm for name, arm in group.arms.items() if name != INDEPENDENT})


ON_GPUS = Imagined(scale="reference")
FAST = {SYNCHRONOUS: 1_700_000, INDEPENDENT: 1_690_000}
ALIKE = {SYNCHRONOUS: 2_200_000, INDEPENDENT: 2_200_000}
SLOW = {INDEPENDENT: 2_600_000}
ANOTHER_DAY = {SINGLE: (86_400_000_000_000,)}
BESIDE = tuple(ns + 100_000_000 for ns in interleaved(0, 3))  # while the single device runs


def append(folder: Path) -> None:
    (folder / FILE).write_bytes((folder / FILE).read_bytes() + b" ")


def with_path(folder: Path) -> None:
    file = folder / FILE
    file.write_bytes(file.read_bytes().replace(b'"run_id":"2026', b'"run_id":"../2026'))


def linked(folder: Path) -> None:
    (folder / FILE).rename(folder / "other.json")
    (folder / FILE).symlink_to("other.json")


def folder_for_file(folder: Path) -> None:
    (folder / FILE).unlink()
    (folder / FILE).mkdir()


def without_second_group(folder: Path) -> None:
    edit_set(folder, lambda one: replace(one, groups=one.groups[:1]))


def single_of_first_group(folder: Path) -> None:
    def change(one: ScalingSet) -> ScalingSet:
        first, second = one.groups
        return one.with_group(replace(second, arms={**second.arms, SINGLE: first.arms[SINGLE]}))

    edit_set(folder, change)


def renamed(before: str, after: str) -> Forge:
    return lambda folder: folder.rename(folder.with_name(folder.name.replace(before, after)))


def called(scaling: str) -> Forge:
    """Another kind of scaling, and the name that goes with it."""

    def forge(folder: Path) -> None:
        before = json.loads((folder / FILE).read_text())["scaling"]
        edit_set(folder, lambda one: replace(one, scaling=scaling))
        renamed(before, scaling)(folder)

    return forge


FAILED = in_first_group(lambda group: Group(group.devices, {}, Failure(21, "out_of_memory")))
OF_A_FAULT = "SET-007"  # which no content of a set is known to break
LIMITS = ("power_limit_mw", "power_limit_default_mw")
FORGED: dict[str, tuple[str, Imagined, Forge | None]] = {
    "another spelling": ("SET-001", Imagined(), append),
    "a path for a run": ("SET-001", Imagined(), with_path),
    "the name of another workload": ("SET-009", Imagined(), renamed("ncf", "gnmt")),
    "the name of reference scale": ("SET-009", Imagined(), renamed("mini", "reference")),
    "a name of the submitter's": ("SET-009", Imagined(), renamed("ncf-pytorch-train-fp32-mini-weak-", "")),
    "a blank cause": ("SET-001", Imagined(scale="reference", steps=FAST, cause=" "), None),
    "a folder for the file": ("SET-001", Imagined(), folder_for_file),
    "a link for the file": ("SET-001", Imagined(), linked),
    "the digest of another log": ("SET-002", Imagined(), named_with(SINGLE, sha256="a" * 64)),
    "a lost run": ("SET-002", Imagined(), lost_run),
    "a rejected run": ("SET-002", Imagined(), rewritten(SYNCHRONOUS, of_header("repeats", "5"))),
    "a pruned arm": ("SET-003", Imagined(), in_first_group(pruned)),
    "a pruned group": ("SET-003", Imagined(devices=(2, 3)), without_second_group),
    "a run in two groups": ("SET-003", Imagined(devices=(2, 3), rounds=1), single_of_first_group),
    "a failed group": ("SET-003", Imagined(devices=(2, 3)), FAILED),
    "weak scaling called strong": ("SET-004", Imagined(), called(STRONG)),
    "strong scaling called weak": ("SET-004", Imagined(scaling=STRONG), called(WEAK)),
    "the arms exchanged": ("SET-004", Imagined(steps=ALIKE), in_first_group(swapped)),
    "other code in one arm": ("SET-004", Imagined(), rewritten(SINGLE, of_header("code_digest", "c" * 64))),
    "a list of threads": ("SET-004", Imagined(), rewritten(INDEPENDENT, threads([2]))),
    "an object of threads": ("SET-004", Imagined(), rewritten(SINGLE, threads({"a": 1}))),
    "a lower power limit": ("SET-004", ON_GPUS, rewritten(SINGLE, limited(650_000, *LIMITS))),
    "another single device": ("SET-004", ON_GPUS, rewritten(SINGLE, other_device)),
    "one arm after the other": ("SET-005", Imagined(begins=ONE_BY_ONE), None),
    "two arms at a time": ("SET-005", Imagined(begins={INDEPENDENT: BESIDE}), None),
    "the single arm of another day": ("SET-005", Imagined(rounds=1, begins=ANOTHER_DAY), None),
    "another boot": ("SET-005", Imagined(), rewritten(SINGLE, other_boot)),
    "too efficient": ("SET-006", Imagined(scale="reference", steps=FAST), None),
    "a declared cause": ("SET-008", Imagined(scale="reference", steps=FAST, cause="x"), None),
    "a slowed single arm": ("SET-006", Imagined(scale="reference", steps={SINGLE: 2_500_000}), None),
    "a slowed independent arm": ("SET-006", Imagined(scale="reference", steps=SLOW), None),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_set_breaks_its_rule_alone(name: str, sandbox: Sandbox, tmp_path: Path) -> None:
    rule, imagined, forge = FORGED[name]
    folder = imagined.write(tmp_path)
    if forge is not None:
        forge(folder)
    (folder,) = folder.parent.iterdir()
    verdict, _ = check_set(sandbox, folder)
    assert {finding.rule for finding in verdict.findings} == {rule}
    assert verdict.accepted == (rules()[rule]["severity"] == "flag")
    for finding in verdict.findings:
        assert finding.location
        assert finding.expected != finding.found
        assert finding.fix


def test_damaged_file_is_refused_or_still_valid(tmp_path: Path) -> None:
    """Whatever the bytes are, reading ends with a set or with the defects of SET-001."""
    folder = Imagined().write(tmp_path)
    content, source = (folder / FILE).read_bytes(), random.Random(1)
    rules_of_refusals: list[str] = []
    for _ in range(300):
        at, length = source.randrange(len(content)), source.randrange(8)
        junk = source.choice([b"", b"[" * 3000, b"1e999", b"null", b'"', source.randbytes(4)])
        (folder / FILE).write_bytes(content[:at] + junk + content[at + length :])
        try:
            ScalingSet.of_dict(read_set(folder))
        except RecordError as error:
            rules_of_refusals.append(error.defects[0].rule)
    assert len(rules_of_refusals) > 200
    assert set(rules_of_refusals) == {"SET-001"}


def test_every_rule_of_sets_has_a_forgery() -> None:
    assert {rule for rule, *_ in FORGED.values()} | {OF_A_FAULT} == set(rules())


def test_fault_of_the_checker_rejects_the_set(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise TypeError("unhashable type")

    folder = Imagined().write(tmp_path)
    monkeypatch.setattr("suite.compare.scaling.figures_of", failing)
    verdict, found = check_set(sandbox, folder)
    assert found is None
    assert not verdict.accepted
    (finding,) = verdict.findings
    assert (finding.rule, finding.found) == (OF_A_FAULT, "TypeError: unhashable type")


def test_declared_cause_explains_an_efficiency_above_the_limit(sandbox: Sandbox, tmp_path: Path) -> None:
    verdict, found = checked(
        sandbox,
        Imagined(scale="reference", steps=FAST, cause="the cache holds half the table").write(tmp_path),
    )
    assert {(finding.rule, finding.severity) for finding in verdict.findings} == {("SET-008", "flag")}
    assert all(finding.found.endswith("the cache holds half the table") for finding in verdict.findings)
    assert verdict.accepted
    assert verdict.value["flags"] == len(verdict.flags)
    assert found.figures[0].efficiency.value > 1.02
    text = scaling_table.to_text(found)
    assert "the cache holds half the table" in text
    assert scaling_table.BY_CAUSE in text


def test_measured_group_without_an_accepted_run_is_not_called_unmeasured(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    folder = Imagined(devices=(2, 4)).write(tmp_path)
    value = json.loads((folder / "set.json").read_text())
    shutil.rmtree(tmp_path / value["groups"][1]["arms"][SYNCHRONOUS]["run_id"])
    _, found = checked(sandbox, folder)
    rows = [line for line in scaling_table.to_text(found).splitlines() if line.startswith("4")]
    assert len(rows) == 1
    assert "a run is rejected or missing" in rows[0]


def test_flags_of_arms_are_flags_of_the_set(
    sandbox: Sandbox, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ON_GPUS.write(tmp_path)
    for name in (SINGLE, INDEPENDENT, SYNCHRONOUS):
        rewritten(name, limited(650_000, "power_limit_mw"))(folder)
    verdict, _ = checked(sandbox, folder)
    assert {(finding.rule, finding.severity) for finding in verdict.findings} == {("DEV-001", "flag")}
    arms = {finding.location.partition(":")[0].rpartition(" ")[2] for finding in verdict.findings}
    assert arms == {SINGLE, INDEPENDENT, SYNCHRONOUS}
    assert verdict.accepted
    assert main(["check", "--strict", str(folder)]) == 3
    assert f"0 rejections, {len(verdict.findings)} flags" in capsys.readouterr().out


def test_efficiency_above_the_limit_is_information_at_mini(sandbox: Sandbox, tmp_path: Path) -> None:
    verdict, found = checked(sandbox, Imagined(steps=FAST).write(tmp_path))
    assert {(finding.rule, finding.severity) for finding in verdict.findings} == {("SET-006", "info")}
    assert verdict.accepted
    assert found.accepted == {2}


def test_broken_group_leaves_the_others_accepted(sandbox: Sandbox, tmp_path: Path) -> None:
    folder = Imagined(devices=(2, 3)).write(tmp_path)
    edit_set(folder, lambda one: one.with_group(pruned(one.groups[1])))
    verdict, found = checked(sandbox, folder)
    assert not verdict.accepted
    assert found.accepted == {2}
