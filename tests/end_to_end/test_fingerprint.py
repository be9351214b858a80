"""The fingerprint: bitwise equal on one machine, equal in all frameworks; other computations are rejected."""

from __future__ import annotations

from pathlib import Path

import pytest

from suite.log.fingerprint import common_pass, own_pass
from suite.log.model import Record
from suite.log.reader import read_result
from suite.rules import load
from tests.end_to_end.command import run
from tests.equivalence.case import FRAMEWORKS
from tests.equivalence.interpreters import interpreter
from tools.fingerprint_losses import losses
from tools.one_worker import WorkerLocation

PAIRS = Path(__file__).resolve().parents[1] / "fixtures" / "pairs"


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """The record of a run of ncf in PyTorch."""
    folder = tmp_path_factory.mktemp("results")
    done = run(folder, "repeats=2")
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
    done = run(tmp_path, f"pair={PAIRS / 'slower.py'}")
    assert "FING-005" in done.stdout
    assert done.returncode != 0


def test_run_without_fingerprint_is_accepted_where_allowed(tmp_path: Path) -> None:
    done = run(tmp_path, "fingerprint=false", "repeats=2")
    assert done.returncode == 0, done.stdout + done.stderr
    found = read_result(next(tmp_path.glob("2*")))
    assert found.fingerprint is None
    assert found.header["settings"]["fingerprint"] is False


def test_fingerprint_of_gnmt_inference_differs_between_batches(tmp_path: Path) -> None:
    """An untrained gnmt translates every batch to the same text, so that its fingerprint uses the scores."""
    done = run(tmp_path, "phase=infer", "telemetry=false", "repeats=2", workload="gnmt")
    assert done.returncode == 0, done.stdout + done.stderr
    found = read_result(next(tmp_path.glob("2*"))).fingerprint
    assert found is not None
    first, second = common_pass(found), own_pass(found)
    assert first is not None
    assert second is not None
    assert not set(first["outputs"]) & set(second["outputs"])
