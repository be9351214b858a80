"""The comparison of all submissions: who was first, equal numbers of two runs, and how its work grows."""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

import pytest

from suite.audit.judgement import AUDIT_TASKS, judged
from suite.log import statistics
from suite.log.files import Raw, read_folder
from suite.log.reader import record_of
from suite.sandbox.sandbox import Sandbox
from suite.submissions import package as submission
from suite.submissions.registry.comparison import tree_breaches
from suite.submissions.registry.copies import (
    CHANCE,
    GRAM,
    MOST,
    copied_durations,
    shared_numbers,
    similar_noise,
)
from suite.submissions.registry.model import Registry
from suite.submissions.registry.traces import Trace, trace_of
from suite.submissions.system import encode
from tests.fixtures.forged import both
from tests.fixtures.forging import Events, Forge
from tests.fixtures.gaming_edits import later, losses_of, shuffled
from tests.fixtures.good_log import MINI, Good
from tests.fixtures.honest import NAMES, log_of
from tests.fixtures.registered import ORG, Registrar, entry, nonce, receipt, result

VALUE, OTHER_VALUE = "5e" * 32, "6f" * 32
THIEF = "another-labs"  # sorts before its victim
LIMIT = 0.8


@pytest.fixture
def tree(tmp_path: Path) -> Registrar:
    """A tree with a registry and no submission."""
    return Registrar(tmp_path / "submissions")


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An honest result with a nonce; read only."""
    return result(tmp_path_factory.mktemp("victim"), Good(nonce=VALUE))


@pytest.fixture(scope="module")
def trace(victim: Path) -> Trace:
    """What is kept of the honest result."""
    return trace_of(record_of(read_folder(victim)), "one", ORG, "box")


def stolen(source: Path, folder: Path, good: Good, *forges: Forge) -> Path:
    """Another run's result with the losses of ``source`` in another order."""
    return result(folder, good, both(losses_of(source, shuffled), *forges))


def by_submitter(tree: Registrar) -> dict[str, str | None]:
    """The level of each submitter's only submission; None where it is rejected."""
    entries, _ = submission.check_tree(tree.root)
    levels: dict[str, str | None] = {}
    for one in entries:
        levels[one.folder.relative_to(tree.root).parts[0]] = one.assurance.level if one.assurance else None
    return levels


# ---- who was first
@pytest.mark.parametrize("seconds", [-30, 3 * 86_400])
def test_theft_with_shuffled_steps_is_rejected_whatever_its_dates(
    tree: Registrar, victim: Path, tmp_path: Path, seconds: int
) -> None:
    """The thief's folder comes first, its timings are its own, and its dates are earlier or later."""
    tree.rows("nonces", nonce(VALUE))
    assert tree.submit(victim) == 0
    tree.rows("nonces", nonce(VALUE, **receipt(victim)))
    copy = stolen(victim, tmp_path, Good(run_hex="00000002"), later(seconds))
    assert tree.submit(copy, key=False, submitter=THIEF) == 0
    assert tree.state()[0] == {"SUBM-007": "reject"}
    assert by_submitter(tree) == {THIEF: None, ORG: "L2"}
    with Sandbox(AUDIT_TASKS) as sandbox:
        audited = {run: judged(sandbox, run, tree.root) for run in tree.runs()}
    levels = {run.relative_to(tree.root).parts[0]: value["level"] for run, value in audited.items()}
    assert levels == {THIEF: None, ORG: "L2"}


def test_earlier_of_two_receipts_decides(tree: Registrar, victim: Path, tmp_path: Path) -> None:
    thief = stolen(victim, tmp_path, Good(run_hex="00000002", nonce=OTHER_VALUE))
    tree.rows("nonces", nonce(VALUE), nonce(OTHER_VALUE, THIEF))
    assert tree.submit(victim) == tree.submit(thief, key=False, submitter=THIEF) == 0
    for ours, theirs, levels in ((1, 2, {THIEF: None, ORG: "L2"}), (2, 1, {THIEF: "L0", ORG: None})):
        tree.rows(
            "nonces",
            nonce(VALUE, **receipt(victim, ours)),
            nonce(OTHER_VALUE, THIEF, **receipt(thief, theirs)),
        )
        assert by_submitter(tree) == levels


@pytest.mark.parametrize("copies", ["the bytes", "the losses"])
def test_copy_cannot_get_its_victim_rejected(tree: Registrar, tmp_path: Path, copies: str) -> None:
    """Without receipts nobody knows who was first: both are flagged, and both keep their levels."""
    victim = result(tmp_path / "victim", Good())
    assert tree.submit(victim) == 0
    copy = victim
    if copies == "the losses":
        copy = stolen(victim, tmp_path / "copy", Good(run_hex="00000002"), later(-30))
    assert tree.submit(copy, key=False, submitter=THIEF) == 0
    found, levels = tree.state()
    assert found["SUBM-007"] == "flag"
    assert set(found.values()) == {"flag"}
    assert levels == ["L0", "L1"]
    _, about = submission.check_tree(tree.root)
    assert about
    assert all("do not show which of the two was first" in one.expected for one in about)


def test_rejected_copy_in_the_victims_folder_harms_nobody(tree: Registrar, tmp_path: Path) -> None:
    """Somebody without the victim's key adds an unsigned copy, whose run id sorts first, to its folder."""
    victim = result(tmp_path / "victim", Good(run_hex="00000002"))
    assert tree.submit(victim) == 0
    tree.rows("keys")
    copy = stolen(victim, tmp_path / "copy", Good(run_hex="00000001"))
    assert tree.submit(copy, key=False) == 0
    tree.rows("keys", entry(tree.key))
    assert tree.state() == ({"SIGN-002": "reject", "SUBM-007": "reject"}, [None, "L1"])


def test_invented_overlap_cannot_get_its_victim_rejected(trace: Trace) -> None:
    """A log that claims the victim's device, and an earlier start."""
    ours = replace(trace, devices=frozenset({"GPU"}), numbers=(), own=None, nonce=None, curves=(), repeats=())
    start = ours.started - (ours.ended - ours.started) / 2
    theirs = replace(ours, location="a", started=start, benchmark=ours.benchmark._replace(submitter=THIEF))
    (found,) = tree_breaches([theirs, ours], Registry())
    assert (found.rule, found.severity) == ("REG-008", "flag")
    (found,) = tree_breaches([replace(theirs, rejected=True), ours], Registry())
    assert (found.rule, found.severity, found.location[0]) == ("REG-008", None, "a")
    assert found.found == theirs.ended.isoformat()


def test_nonce_belongs_to_the_submitter_to_whom_it_was_issued(tree: Registrar, victim: Path) -> None:
    tree.rows("nonces", nonce(VALUE))
    assert tree.submit(victim) == 0
    (run,) = tree.runs()
    copy = tree.root / THIEF / run.relative_to(tree.root / ORG)
    shutil.copytree(run, copy)
    described = json.loads((copy / "system.json").read_text())
    (copy / "system.json").write_bytes(encode({**described, "submitter": THIEF}))
    found, levels = tree.state()
    assert {"REG-002", "REG-003", "SUBM-007"} <= set(found)
    assert levels == [None, "L1"]


# ---- which numbers identify a run
def test_numbers_of_other_runs_and_of_edited_losses_are_told_apart(victim: Path, tmp_path: Path) -> None:
    def traced(name: str, good: Good, *forges: Forge) -> Trace:
        return trace_of(
            record_of(read_folder(result(tmp_path / name, good, both(*forges)))), name, name, "box"
        )

    def reported(*traces: Trace) -> list[str]:
        return [found.location for found in shared_numbers(traces)]

    one = trace_of(record_of(read_folder(victim)), "victim", ORG, "box")
    other = Good(run_hex="00000002")
    assert {name for name, _ in one.numbers} == {"losses", "weights"}
    assert reported(one, traced("honest", other)) == []

    def one_changed(repeat: int, losses: list[str]) -> list[str]:
        return [(float.fromhex(losses[0]) + 1e-9).hex(), *losses[:0:-1]] if repeat == 0 else losses

    assert reported(one, traced("edited", other, losses_of(victim, one_changed)))
    assert reported(one, replace(one, location="copy", curves=()))  # timestamps that are not compared

    inference = Good(key=replace(MINI, phase="infer"))
    served = traced("served", inference)
    assert {name for name, _ in served.numbers} == {"outputs"}
    assert reported(served, traced("served again", replace(inference, run_hex="00000002"))) == []
    again = replace(served, location="copy")
    assert reported(served, again) == ["copy, outputs of its timed steps"]


def test_numbers_that_do_not_depend_on_the_seed_identify_nobody(tmp_path: Path) -> None:
    """Inference on synthetic batches computes the same outputs in every honest run."""
    good = Good(key=replace(MINI, phase="infer", data="synthetic"))

    def constant(events: Events) -> None:
        for event in events:
            if event["kind"] == "step":
                event["data"]["output_digest"] = "ab" * 32

    record = record_of(read_folder(result(tmp_path, good, constant)))
    assert trace_of(record, "one", ORG, "box").numbers == ()


def test_numbers_of_honest_gpu_runs_are_their_own() -> None:
    traces = []
    for name in NAMES:
        record = record_of(Raw(name, ("run.jsonl",), log_of(name)))
        traces.append(trace_of(record, name, ORG, "box"))
    assert sum(bool(one.numbers) for one in traces) >= 20
    assert list(shared_numbers(traces)) == []


# ---- as before, with less work
def imagined(count: int, base: Trace, seed: int = 0, copies: int = 0) -> list[Trace]:
    """Runs with independent noise; the last ``copies`` have that of another, changed or in part."""
    draw = random.Random(seed)

    def curves() -> tuple[tuple[tuple[int, ...], ...], ...]:
        speed = draw.randrange(3_000_000, 9_000_000)
        return (tuple(tuple(speed + draw.randrange(200_000) for _ in range(100)) for _ in range(5)),)

    runs = [
        replace(base, location=f"{at:05}", curves=curves(), own=f"{at}", numbers=()) for at in range(count)
    ]
    for at in range(count - copies, count):
        (theirs,) = runs[draw.randrange(count - copies)].curves
        off = draw.choice((0, 4, 30_000, 110_000, 160_000))
        copy = tuple(tuple(ns + (draw.randrange(off) if off else 0) for ns in curve) for curve in theirs)
        if off == 4:
            copy = (*runs[at].curves[0][:2], copy[0], *runs[at].curves[0][3:])
        runs[at] = replace(runs[at], curves=(copy,))
    return runs


def pairs_with_copied_durations(traces: Sequence[Trace]) -> Iterator[tuple[str, str]]:
    """The definition of REG-007: every pair of submissions, every pair of their repeats."""
    for one, other in combinations(traces, 2):
        for first, second in product(one.curves[0], other.curves[0]):
            grams = [{c[at : at + GRAM] for at in range(len(c) - GRAM + 1)} for c in (first, second)]
            if grams[0] & grams[1] and statistics.collision(first + second) <= CHANCE:
                yield one.location, other.location
                break


def pairs_with_similar_noise(traces: Sequence[Trace]) -> Iterator[tuple[str, str, str]]:
    """The definition of REG-012: the first pair of repeats whose noise and its differences are correlated."""
    noise = [statistics.noise(one.curves[0]) for one in traces]
    for one, other in combinations(range(len(traces)), 2):
        for first, second in product(noise[one], noise[other]):
            found = statistics.similarity(first, second)
            if found > LIMIT:
                yield traces[one].location, traces[other].location, f"{found:.3f}"
                break


@pytest.mark.parametrize("seed", range(2))
def test_comparison_finds_what_every_pair_of_runs_shows(trace: Trace, seed: int) -> None:
    runs = imagined(20, trace, seed, copies=8)
    durations = [found.between for found in copied_durations(runs)]
    assert sorted(durations, key=str) == sorted(pairs_with_copied_durations(runs), key=str)
    noise = [(*(found.between or ()), found.found) for found in similar_noise(runs)]
    assert sorted(noise) == sorted(pairs_with_similar_noise(runs))
    assert durations
    assert noise


def calls(work: Callable[[], object]) -> int:
    """How many functions, of Python and of C, ``work`` calls."""
    counted = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return counted


def coarse(run: Trace) -> Trace:
    """The run with a timer that measures nearly always the same."""
    return replace(run, curves=(tuple(tuple(int(ns % 10 == 0) for ns in curve) for curve in run.curves[0]),))


TREES: dict[str, Callable[[list[Trace]], list[Trace]]] = {
    "honest": lambda runs: runs,
    "one run many times": lambda runs: [replace(run, curves=runs[0].curves) for run in runs],
    "coarse timers": lambda runs: [coarse(run) for run in runs],
}


@pytest.mark.parametrize("name", TREES)
def test_work_grows_with_the_number_of_submissions_and_not_with_its_square(name: str, trace: Trace) -> None:
    """Only the matrix product over all pairs of curves does, which is one call for a block of runs."""
    runs = TREES[name](imagined(200, trace))
    few = calls(lambda: tree_breaches(runs[:50], Registry()))
    many = calls(lambda: tree_breaches(runs, Registry()))
    assert many < 1.5 * 4 * few
    assert len(tree_breaches(runs, Registry())) <= 4 * MOST * len(runs)


def test_too_many_submissions_are_refused(
    tree: Registrar, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.rows("nonces", nonce(VALUE))
    assert tree.submit(victim) == 0
    monkeypatch.setattr(submission, "MOST_CURVES", 4)
    with pytest.raises(submission.TooManySubmissions, match=r"expected at most 4 repeats .* found 5: check"):
        submission.check_tree(tree.root)
