"""REG-012: copied step times are found by the ranks of their noise, even if their values were changed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suite.audit.judgement import AUDIT_TASKS, judged
from suite.log.files import Raw, read_folder
from suite.log.reader import record_of
from suite.sandbox.sandbox import Sandbox
from suite.submissions import package as submission
from suite.submissions.registry import copies
from suite.submissions.registry.copies import copied_durations, similar_noise
from suite.submissions.registry.traces import Trace, trace_of
from tests.fixtures.forged import both
from tests.fixtures.gaming_edits import later, timestamps_like
from tests.fixtures.good_log import Good
from tests.fixtures.honest import NAMES, log_of
from tests.fixtures.registered import ORG, Registrar, result


@pytest.fixture
def tree(tmp_path: Path) -> Registrar:
    """A tree with a registry and no submission."""
    return Registrar(tmp_path / "submissions")


@pytest.fixture
def one(tmp_path: Path) -> Trace:
    """What the index keeps of an honest training."""
    return trace_of(record_of(read_folder(result(tmp_path, Good()))), "one", ORG, "box")


def test_copied_durations_are_found_by_their_ranks(tree: Registrar, tmp_path: Path) -> None:
    """A week later, at another speed, each step timestamp up to 3 ns off: only the ranks are equal."""
    first = result(tmp_path / "first", Good(run_hex="00000001"))
    forge = both(timestamps_like(first), later(7 * 86_400))
    second = result(tmp_path / "second", Good(run_hex="00000002"), forge)
    assert tree.submit(first) == tree.submit(second) == 0
    assert tree.state() == ({"REG-012": "flag"}, ["L1", "L1"])
    _, (found,) = submission.check_tree(tree.root)
    assert second.name in found.location
    assert first.name in found.expected
    assert float(found.found) > 0.95
    with Sandbox(AUDIT_TASKS) as sandbox:  # of a folder outside of the tree, without a description
        value = judged(sandbox, second.rename(tmp_path / "alone"), tree.root)
    assert "REG-012" in {one["rule"] for one in value["findings"]}


def test_similar_noise_is_found_only_within_one_workload(one: Trace) -> None:
    assert one.work == "ncf train"
    draw = random.Random(1)
    (curves,) = one.curves

    def found(**changes: Any) -> list[str]:
        two = replace(one, location="two", curves=(edited(lambda ns: 3 * ns + draw.randrange(4)),))
        return [fault.rule for fault in similar_noise([one, replace(two, **changes)])]

    def edited(change: Callable[[int], int]) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(map(change, curve)) for curve in curves)

    assert found() == ["REG-012"]
    assert found(benchmark=one.benchmark._replace(digest="0" * 64)) == ["REG-012"]  # another key
    assert found(curves=(curves[1:], curves[:1])) == ["REG-012"]  # another worker, without one repeat
    assert found(work="ncf infer") == found(work=None) == []
    assert found(curves=(curves[:2],)) == []  # no median to depart from
    assert found(curves=((*curves[:4], curves[4][:50]),)) == []  # of a log that is rejected anyway
    assert found(curves=(edited(lambda ns: ns // 10_000),)) == []  # too coarse to compare
    assert found(curves=(edited(lambda ns: ns + draw.randrange(10_000_000)),)) == []  # independent noise
    slow = tuple(tuple(ns + 30_000 * at for at, ns in enumerate(curve)) for curve in curves)
    assert found(curves=(slow,)) == ["REG-012"]  # what all repeats have in common is not their noise


def test_pairs_of_one_bucket_are_compared_up_to_a_number_for_each_curve() -> None:
    buckets = np.array([5, 3, 5, 8, 5, 3])
    pairs = zip(*(some.tolist() for some in copies._sharing(buckets)), strict=True)
    assert sorted(pairs) == [(0, 2), (0, 4), (1, 5), (2, 4)]
    first, second = copies._sharing(np.zeros(1000, np.int64))
    assert len(first) == len(second) == sum(min(before, copies.MOST) for before in range(1000))
    assert int(first.max()) == copies.MOST - 1  # the earliest submissions


def test_similar_curves_share_a_bucket_among_many(one: Trace) -> None:
    """Copies with noise of three tenths of their own among 1,500 curves."""
    draw = np.random.default_rng(3)
    runs = [np.round(draw.normal(3e6, 1e4, (5, 100))) for _ in range(150)]
    runs += [np.round(run + draw.normal(0, 3e3, (5, 100))) for run in runs]
    traces = [
        replace(one, location=f"{at:03}", curves=(tuple(tuple(map(int, curve)) for curve in run),))
        for at, run in enumerate(runs)
    ]
    found = {breach.between for breach in similar_noise(traces)}
    assert found == {(f"{at:03}", f"{at + 150:03}") for at in range(150)}


def test_common_slow_drift_is_not_reported_as_copy(one: Trace) -> None:
    """Two GPUs that grow warm in one way: from step to step the noise of each is independent."""
    draw = random.Random(1)

    def warm() -> tuple[tuple[int, ...], ...]:
        def step(repeat: int, at: int) -> int:
            return 2_000_000 + 2_000 * at * (repeat - 2) + draw.randrange(10_000)

        return tuple(tuple(step(repeat, at) for at in range(100)) for repeat in range(5))

    pair = [replace(one, location=folder, curves=(warm(),)) for folder in ("one", "two")]
    assert list(similar_noise(pair)) == []
    same = replace(pair[0], location="two")
    assert [fault.rule for fault in similar_noise([pair[0], same])] == ["REG-012"]


def test_honest_logs_are_not_reported_as_copies() -> None:
    raw = ((name, Raw(name, ("run.jsonl",), log_of(name))) for name in NAMES)
    traces = [trace_of(record_of(one), name, ORG, "box") for name, one in raw]
    assert sum(bool(one.curves) for one in traces) >= 50
    assert list(similar_noise(traces)) == list(copied_durations(traces)) == []
