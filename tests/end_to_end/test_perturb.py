"""Perturbed replay with real workers: an honest pair passes; pairs that know the name or skip work do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from suite.audit.items import DIFFERENT, INSIDE
from suite.audit.perturbed import ON_A_PROCESSOR, Timed, growth_item, judge, name_item
from suite.contract import Key
from suite.plan.compose import composer
from suite.plan.machine import Machine
from suite.plan.prepare import prepare_resources, prepare_run
from suite.plan.prepared import PreparedRun
from suite.plan.resolve import resolve
from suite.replay.perturb import Variant, larger_batches, measure, variant_runner
from suite.workloads import specification
from tests.equivalence.interpreters import interpreter

PAIRS = Path(__file__).resolve().parents[1] / "fixtures" / "pairs"
NAME, SEED = "w0a1b2c3d", 7


def prepare_ncf(folder: Path, pair: str | None = None, *more: str) -> PreparedRun:
    """A prepared run of ncf in MXNet, with steps long enough to be mostly work."""
    python = interpreter("mxnet")
    options = [
        *("workload=ncf", "framework=mxnet", "data=synthetic", "batch=4096", f"framework.python={python}"),
        *(f"data_root={folder}/data", f"results_dir={folder}/results", f"cache_dir={folder}/cache"),
        *([f"pair={PAIRS / pair}"] if pair else []),
        *more,
    ]
    with composer() as compose:
        plan = resolve(compose(options), Machine(cores=1, gpus=(), visible=None))
    return prepare_run(plan, prepare_resources(plan), attempt=1)


def key_of(run: PreparedRun) -> Key:
    assert isinstance(run.plan.key, Key)
    return run.plan.key


def timed(prepared_run: PreparedRun, *variants: Variant) -> list[Timed]:
    flop = specification("ncf").window_flop
    with variant_runner(prepared_run, NAME) as run:
        return [Timed(one.title, flop(one.key), (run(one),)) for one in variants]


def test_honest_pair_passes(tmp_path: Path) -> None:
    """One round has no spread to detect a disturbed machine, so that up to three rounds are tried."""
    run, tried = prepare_ncf(tmp_path), []
    for _ in range(3):
        items = judge(measure(run, "5c" * 32, rounds=1, grow=1), 0.2)
        tried.append([item.as_dict() for item in items])
        if all(item.outcome == INSIDE for item in items):
            return
    pytest.fail(f"{tried}")


def test_variants_of_two_ranks_run(tmp_path: Path) -> None:
    run = prepare_ncf(tmp_path, None, "devices=2", "batch=64", "framework.threads=1")
    (found,) = timed(run, Variant("renamed", NAME, key_of(run), SEED))
    assert found.best_ns > 0


def test_pair_that_recognises_the_name_is_detected(tmp_path: Path) -> None:
    run = prepare_ncf(tmp_path, "knowing.py")
    variants = Variant("unchanged", "ncf", key_of(run), SEED), Variant("renamed", NAME, key_of(run), SEED)
    plain, renamed = timed(run, *variants)
    item = name_item(plain, renamed, ON_A_PROCESSOR)
    assert item.outcome == DIFFERENT, item


def test_pair_that_returns_cached_results_is_detected(tmp_path: Path) -> None:
    run = prepare_ncf(tmp_path, "cached.py")
    item = growth_item(timed(run, *larger_batches(key_of(run), NAME, SEED, 1)), ON_A_PROCESSOR)
    assert item.outcome == DIFFERENT, item
