"""N ranks are one process over the same N shards, and every mistake in the exchange breaks the bound."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.equivalence import sweep_times
from tests.equivalence.interpreters import run
from tests.equivalence.world import BOUNDS, FRAMEWORKS, HONEST, UNCLIPPED

# The case that each mutant of mutants/world_<framework>.py runs with: the fastest one in which it makes a
# difference.
MUTANTS = {
    "ncf": (
        "sum-for-mean", "same-shard", "other-initial-weights", "update-before-exchange", "seed-by-rank",
        "stale-gradient",
    ),
    "word2vec": ("local-normaliser",),
    "lstm_ptb": ("local-clip",),
    "resnet50_cifar10": ("statistics-of-rank-0",),
}  # fmt: skip
OWN_MUTANTS = {
    ("pytorch", "ncf"): ("bucket-not-reduced",),
    ("tensorflow", "ncf"): ("tensor-not-reduced", "no-exchange"),
    ("tensorflow", "word2vec"): ("no-exchange",),
    ("mxnet", "ncf"): ("tensor-not-reduced", "no-exchange"),
    ("jax", "ncf"): ("tensor-not-reduced", "no-exchange"),
    ("jax", "word2vec"): ("no-exchange",),
    ("jax", "resnet50_cifar10"): ("joint-statistics",),
}


def compared(framework: str, case: str, size: int, *mutants: str) -> dict[str, Any]:
    """What the module prints."""
    done = run(framework, "tests.equivalence.world", framework, case, str(size), *mutants, timeout=200)
    assert done.returncode == 0, done.stderr[-4000:]
    print(done.stdout)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])  # libraries write to stdout too
    return found


@pytest.mark.parametrize("case", ["gnmt", "ncf", "word2vec", "resnet50_cifar10"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_ranks_are_one_process(framework: str, case: str) -> None:
    found = compared(framework, case, FRAMEWORKS[framework])[HONEST]
    assert found["equal"], "the ranks' weights differ"
    assert max(found["differences"].values()) <= BOUNDS[framework]


@pytest.mark.parametrize(
    ("case", "more"),
    [("gnmt", ()), ("word2vec", ()), ("resnet50_cifar10" + UNCLIPPED, ("gradients-before-steps",))],
)
def test_copy_engines_add_up_the_same(case: str, more: tuple[str, ...]) -> None:
    for found in compared("pytorch", case, 3, "copy-engine", *more).values():
        assert found["equal"], "the ranks' weights differ"
        assert max(found["differences"].values()) <= BOUNDS["pytorch"]


@pytest.mark.parametrize("case", MUTANTS)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_mutant_breaks_the_bound(framework: str, case: str) -> None:
    found = compared(framework, case, 2, *MUTANTS[case], *OWN_MUTANTS.get((framework, case), ()))
    kept = [name for name, one in found.items() if max(one["differences"].values()) <= BOUNDS[framework]]
    assert kept == []


def test_mistakes_of_a_sharded_update_break_the_bound() -> None:
    found = compared("pytorch", "resnet50_cifar10" + UNCLIPPED, 2, "part-updated-twice", "part-not-sent")
    assert min(max(one["differences"].values()) for one in found.values()) > BOUNDS["pytorch"]


def test_sum_of_the_sweep_does_not_wait_for_the_check_of_another_rank() -> None:
    done = run("jax", "tests.equivalence.sweep_times", timeout=100)
    assert done.returncode == 0, done.stderr[-4000:]
    assert float(done.stdout.splitlines()[-1]) < 0.5 * sweep_times.CHECK_S


# JAX notices a rank that hangs after 100 seconds, and then ends the process itself.
@pytest.mark.parametrize(
    ("framework", "signals"), [("pytorch", ("SIGKILL", "SIGSTOP")), ("jax", ("SIGKILL",))]
)
def test_rank_notices_that_another_one_ended_or_hangs(framework: str, signals: tuple[str, ...]) -> None:
    done = run(framework, "tests.equivalence.lost_rank", framework, *signals, timeout=150)
    assert done.returncode == 0, done.stderr[-4000:]
    lines = [line for line in done.stdout.splitlines() if line.startswith(signals)]
    outcomes = dict(line.split(": ") for line in lines)
    assert {name: text.partition(",")[0] for name, text in outcomes.items()} == dict.fromkeys(
        signals, "LostRank"
    )
