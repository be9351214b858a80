"""A seeded sample of the mutation sweep: mutants with stakes are noticed, and only known ones survive."""

from __future__ import annotations

import orjson
import pytest

from tests.fixtures.scaling import CLOCKS, COUNTERS, RECEIPTS, TIMES, scaled
from tests.sweep.__main__ import sweep
from tests.sweep.known import PAGE, known, page
from tests.sweep.logs import LOGS, fix, honest, judge
from tests.sweep.mutants import mutants
from tests.sweep.run import FLAGGED, REJECTED, SURVIVED, attempts

_SAMPLE = 30  # one of so many mutants of each log


def test_sampled_mutants_are_noticed() -> None:
    tally = sweep(list(LOGS), (), seed=20261122, every=_SAMPLE)
    assert sum(row["at stake"] for row in tally.totals.values()) > 50
    assert set(tally.survivors) <= set(known()["survivors"])
    assert tally.share >= 0.98  # of the whole sweep 0.99; a sample of 300 scatters by half a percent


@pytest.mark.parametrize("log", sorted({line.split(" | ")[0] for line in known()["mutants"]}))
def test_known_survivors_still_survive(log: str) -> None:
    """A rule that closes a gap requires its removal from the list."""
    names = {line.partition(" | ")[2] for line in known()["mutants"] if line.startswith(f"{log} | ")}
    events = honest(log)
    chosen = [one for one in mutants(events, 0) if one.id in names]
    assert {one.id for one in chosen} == names
    outcomes = {found.mutant.id: found.outcome for found in attempts(log, events, chosen)}
    assert outcomes == dict.fromkeys(names, SURVIVED)


@pytest.mark.parametrize("log", ["train", "quality"])
def test_mutants_do_not_change_the_honest_log(log: str) -> None:
    """A mutant that edited shared objects would change all later mutants."""
    events = honest(log)
    before = orjson.dumps(events)
    for one in mutants(events, 0):
        if "data" in one.field.split(".")[-1:] or one.field.startswith("whole event"):
            forged = list(events)
            one.forge(forged)
            if forged and all("data" in event and "kind" in event for event in forged):
                fix(forged, events, one.kind, one.field)
            assert orjson.dumps(events) == before, one.id


def test_null_of_a_step_gets_its_reason_in_repeat_end() -> None:
    events = honest("train")
    chosen = [one for one in mutants(events, 0) if one.id == "step data.dispatch_ns | null | one"]
    assert {(one.outcome, one.rules) for one in attempts("train", events, chosen)} == {(SURVIVED, ())}


def test_sweep_distinguishes_rejected_from_flagged() -> None:
    """A claim that is wrong by a fifth is rejected, a hot device is flagged."""
    events = honest("train")
    ids = (
        "footer data.claims.throughput | times 1.1 | one",
        "env data.facts.accelerators.devices.*.ecc | other | all",
    )
    chosen = (one for one in mutants(events, 0) if one.id in ids)
    found = {one.mutant.id: one for one in attempts("train", events, chosen)}
    claim = found[ids[0]]
    assert (claim.outcome, "CLAIM-002" in claim.rules, claim.stakes) == (REJECTED, True, frozenset({"time"}))
    assert found[ids[1]].outcome == FLAGGED


@pytest.mark.parametrize(
    ("log", "id_", "rule"),
    [
        ("infer", "header repeat | retype | one", "LOG-016"),
        ("infer", "step data.step_end_ns | zero | all", "TIME-001"),
        ("train", "header data.key.phase | term infer | all", "FING-002"),
        ("train", "header data.dataset.files | one more | one", "DATA-002"),
        ("train", "header data.dataset.generator | another text | one", "DATA-002"),
        ("train", "rank_end data.modules_digest | null | all", "ENV-003"),
        ("quality", "repeat_end data.steps | times 0.9 | all", "QUAL-007"),
        ("quality", "repeat_end data.units | retype | one", "QUAL-009"),
        ("train", "env data.facts | empty | all", "ENV-009"),
        ("train", "telemetry whole event sample window | twice | one", "TELE-007"),
        ("infer", "env data.facts.image_label | delete | one", "ENV-009"),
    ],
)
def test_formerly_surviving_mutants_are_noticed(log: str, id_: str, rule: str) -> None:
    """Mutants that survived, or raised an error in the checker, before their rule was added."""
    events = honest(log)
    found = list(attempts(log, events, (one for one in mutants(events, 0) if one.id == id_)))
    assert found
    assert all(one.outcome == REJECTED and rule in one.rules for one in found)


def test_checker_handles_null_memory() -> None:
    events = honest("train")
    chosen = [one for one in mutants(events, 0) if one.id == "rank_end data.memory | null | all"]
    assert [(one.outcome, one.rules) for one in attempts("train", events, chosen)] == [(SURVIVED, ())]


@pytest.mark.parametrize("sign", ["", "-"])
def test_checker_handles_losses_with_infinite_sum(sign: str) -> None:
    """The sums of these losses exceed the largest float."""
    events = honest("train")
    for event in events:
        if event["kind"] == "step":
            event["data"]["loss"] = f"{sign}0x1.fffffffffffffp+1023"
    assert {"TRAIN-002", "WARM-001"} <= {found.rule for found in judge(events).findings}


@pytest.mark.parametrize("log", ["train", "processor"])
def test_scaled_times_are_noticed_down_to_receipts(log: str) -> None:
    """A tenth less is noticed unless every clock of the run is scaled (class 20)."""
    found = []
    for depth in (TIMES, RECEIPTS, CLOCKS, COUNTERS):
        events = honest(log)
        scaled(0.9, depth)(events)
        # DEV-010: the device table lists no processors.
        found.append({finding.rule for finding in judge(events).findings} - {"DEV-010"})
    assert found == [{"TIME-019"}, {"TIME-019"}, set(), set()]


def test_threat_model_lists_all_survivors() -> None:
    old = PAGE.read_text()
    assert old == page(old, known()["free"], known()["survivors"])
