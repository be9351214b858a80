"""The fingerprint: bitwise equal on one machine, equal in all frameworks; other computations are rejected."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from suite.contract import Key
from suite.contract.seeds import fingerprint_passes
from suite.harness.fingerprint import fingerprint_job
from suite.log.fingerprint import Pass, common_pass, own_pass
from suite.log.model import Record
from suite.log.reader import read_result
from suite.rules import load
from tests.end_to_end.command import run
from tests.equivalence.case import FRAMEWORKS
from tests.equivalence.interpreters import interpreter
from tools.fingerprint_losses import losses
from tools.one_worker import HOURS_S, WorkerLocation, configured_worker

PAIRS = Path(__file__).resolve().parents[1] / "fixtures" / "pairs"


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """The record of a run of ncf in PyTorch."""
    folder = tmp_path_factory.mktemp("results")
    done = run(folder, "repeats=1")
    assert done.returncode == 0, done.stdout + done.stderr
    return read_result(next(folder.glob("2*")))


def test_fingerprint_is_reproducible_on_one_machine(record: Record) -> None:
    assert record.fingerprint is not None
    one = common_pass(record.fingerprint)
    assert one is not None
    assert losses("ncf", "f8", "mini", "pytorch", "fp32", WorkerLocation()) == one["losses"]


def test_salted_batch_differs_from_the_common_batch(record: Record) -> None:
    assert record.fingerprint is not None
    first, second = common_pass(record.fingerprint), own_pass(record.fingerprint)
    assert first is not None
    assert second is not None
    assert second["precision"] == "fp64"
    assert abs(float.fromhex(second["losses"][0]) / float.fromhex(first["losses"][0]) - 1) > 1e-6


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_framework_computes_the_losses_of_the_rules(framework: str) -> None:
    interpreter(framework)
    expected = load("practice").workload("lstm_ptb")["fingerprint"]
    found = losses("lstm_ptb", "small", "mini", framework, "fp64", WorkerLocation())
    for computed, wanted in zip(found, expected["losses"]["small"], strict=True):
        assert float.fromhex(computed) == pytest.approx(float.fromhex(wanted), rel=1e-8)


def test_fingerprint_of_another_computation_is_rejected(tmp_path: Path) -> None:
    done = run(tmp_path, f"pair={PAIRS / 'slower.py'}", "repeats=1")
    assert "FING-005" in done.stdout
    assert done.returncode != 0


def test_run_without_fingerprint_is_accepted_where_allowed(tmp_path: Path) -> None:
    done = run(tmp_path, "fingerprint=false", "repeats=1")
    assert done.returncode == 0, done.stdout + done.stderr
    found = read_result(next(tmp_path.glob("2*")))
    assert found.fingerprint is None
    assert found.header["settings"]["fingerprint"] is False


@cache
def inferred(workload: str, framework: str) -> tuple[Pass, Pass]:
    """The passes on the common batch and on a run's own batch of an inference at mini scale, in float64."""
    interpreter(framework)
    rules = load("practice")
    variant = next(iter(rules.workload(workload)["variants"]))
    key = Key(workload, framework, "infer", "offline", "fp32", 1, 1, "mini", "synthetic", "warm", variant)
    passes = fingerprint_passes(rules.limits["fingerprint"], "infer", None, "a run")
    job = fingerprint_job(rules, key, [{**one, "precision": "fp64"} for one in passes])
    with configured_worker(framework, WorkerLocation(), job) as worker:
        common, own = worker.expect("fingerprint", HOURS_S)[0]["passes"]
    return common, own


@pytest.mark.parametrize("workload", ["gnmt", "faster_rcnn"])
def test_fingerprint_of_inference_differs_between_batches(workload: str) -> None:
    """An untrained model may translate every batch to the same text, or detect nothing: its scores differ."""
    common, own = inferred(workload, "mxnet")
    assert not set(common["outputs"]) & set(own["outputs"])
    assert not set(common["output_norms"]) & set(own["output_norms"])


@pytest.mark.parametrize("framework", FRAMEWORKS[1:])
def test_framework_computes_the_scores_of_the_reference(framework: str) -> None:
    wanted, found = inferred("faster_rcnn", "pytorch"), inferred("faster_rcnn", framework)
    for one, other in zip(wanted, found, strict=True):
        norms = [[float.fromhex(norm) for norm in some["output_norms"]] for some in (one, other)]
        assert norms[1] == pytest.approx(norms[0], rel=1e-8)
