"""Comparisons of the fingerprints of several submissions."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suite.audit import curves
from suite.checker import check_result
from suite.log.files import read_folder
from suite.log.reader import record_of
from suite.rules import LATEST, load
from suite.submissions.registry.comparison import fingerprint_breaches
from suite.submissions.registry.traces import Trace, trace_of
from suite.worker.fingerprint import _infer
from tests.fixtures.forged import both
from tests.fixtures.forged_fingerprint import put, scaled
from tests.fixtures.forging import Events, Forge, rewrite
from tests.fixtures.good_container import Container
from tests.fixtures.good_log import REFERENCE, Good, reference, write_good

SUBMISSIONS = Path(__file__).parents[2] / "submissions"


def passes(events: Events) -> Any:
    """The passes of the log."""
    return next(event for event in events if event["kind"] == "fingerprint")["data"]["passes"]


def same_digests(events: Events) -> None:
    """Make the digests of the common pass independent of the run, as they are in reality."""
    passes(events)[0]["parameters"] |= {"step_10": "1" * 64, "final": "2" * 64}


def last_bit(events: Events) -> None:
    """Change the last bit of one loss of the common pass."""
    losses = passes(events)[0]["losses"]
    losses[7] = math.nextafter(float.fromhex(losses[7]), 9).hex()


def threads(events: Events) -> None:
    """The framework computed with seven threads."""
    for event in events:
        if event["kind"] == "env" and event["data"]["side"] == "inside":
            event["data"]["facts"]["framework"]["threads"] = 7


def test_runs_of_one_bitwise_class_must_have_equal_fingerprints(tmp_path: Path) -> None:
    def traced(location: str, good: Good, *edits: Forge) -> Trace:
        folder = rewrite(write_good(tmp_path / location, good), both(same_digests, *edits))
        return trace_of(record_of(read_folder(folder)), location, "example-labs", "box")

    ran = Good(container=Container())
    one = traced("one", ran)
    assert one.bitwise is not None
    assert list(fingerprint_breaches([one, traced("two", replace(ran, run_hex="00000001"))])) == []
    other = traced("three", replace(ran, run_hex="00000002"), last_bit)
    assert [fault.rule for fault in fingerprint_breaches([one, other])] == ["REG-010"]
    another = traced("four", replace(ran, run_hex="00000003"), last_bit, threads)
    assert list(fingerprint_breaches([one, another])) == []  # of another bitwise class
    native = traced("five", Good(run_hex="00000004"), last_bit)
    assert native.bitwise is None  # no event states which libraries computed
    copied = replace(native, own=one.own)
    assert [fault.rule for fault in fingerprint_breaches([one, copied])] == ["REG-011"]


def test_facts_longer_than_a_line_together_have_a_bitwise_class(tmp_path: Path) -> None:
    def long_facts(events: Events) -> None:
        for event in events:
            facts = event["data"]["facts"] if event["kind"] == "env" else {}
            for name, fact in (("framework", "version"), ("cpu", "flags")):
                if name in facts:
                    facts[name][fact] = ["f" * 4000] * 12

    folder = rewrite(write_good(tmp_path, Good(container=Container())), long_facts)
    trace = trace_of(record_of(read_folder(folder)), "one", "example-labs", "box")
    assert re.fullmatch("[0-9a-f]{64}", trace.bitwise or "")


# Later fingerprints of faster_rcnn have scores.
WITHOUT_SCORES = "h200-virtual-machine/faster_rcnn/20261124T"


@pytest.mark.parametrize(("start", "telling"), [(WITHOUT_SCORES, False), ("lstm_ptb/", True)])
def test_empty_outputs_do_not_show_a_copied_fingerprint(start: str, telling: bool) -> None:
    """Untrained weights of faster_rcnn detect nothing: a result of JAX was rejected (REG-011)."""
    folders = sorted(SUBMISSIONS.glob(f"**/{start}*-infer-*"))
    records = [record_of(read_folder(one)) for one in folders]
    records = [record for record in records if record.header["settings"]["fingerprint"]]
    assert len(records) >= 2
    traces = [trace_of(record, record.run_id, "example-labs", "box") for record in records]
    assert [trace.own is not None for trace in traces] == [telling] * len(traces)
    assert list(fingerprint_breaches(traces)) == []


def test_scores_replace_outputs_that_a_pair_chooses() -> None:
    """An untrained faster_rcnn detects nothing at reference scale, whatever the batch."""

    class Detector:
        chooses = True

        def step(self, index: int) -> None:
            del index

        def collect(self) -> list[Any]:
            return [np.zeros((2, 3, 6), np.float32)] * 2

        def outputs(self, index: int) -> Any:
            return np.array([3.0, 4.0 + index], np.float32)

        def parameters(self) -> dict[str, Any]:
            return {}

    found = _infer(Detector(), {"steps": 2})
    assert [float.fromhex(norm) for norm in found["output_norms"]] == [5.0, math.sqrt(34)]
    assert len(set(found["outputs"])) == 2


def test_fingerprint_without_detections_is_not_compared_with_one_of_scores() -> None:
    folders = SUBMISSIONS.glob(f"**/{WITHOUT_SCORES}*-pytorch-infer-*")
    record = record_of(read_folder(next(folders)))
    assert record.fingerprint is not None
    old = record.fingerprint["passes"]
    new = [{**one, "output_norms": [(834.1).hex()] * 2} for one in old]
    found = [item.outcome for item in curves.passes(record, old, new, load(LATEST))]
    assert found == ["equal", "not comparable"] * 2


def test_losses_are_not_compared_once_rounding_dominates(tmp_path: Path) -> None:
    """resnet50_cifar10 on an H200 in float32 was 81 % off at step 10, and was wrongly rejected."""
    good = reference(key=replace(REFERENCE, workload="resnet50_cifar10", variant="v1", batch=128))
    known = load(LATEST).workload("resnet50_cifar10")["fingerprint"]["tolerances"]["v1"]
    assert float(known[10]) == 0.5
    assert float(known[3]) < 0.5

    def rejected(location: str, step: int, by: float) -> bool:
        folder = rewrite(write_good(tmp_path / location, good), put(0, "losses", step, scaled(by)))
        return "FING-005" in {finding.rule for finding in check_result(folder).findings}

    assert not rejected("chaos", 10, 1.81)
    assert rejected("early", 3, 1.81)


def test_equal_losses_with_different_gradients_are_accepted(tmp_path: Path) -> None:
    """ncf on an H200 had losses 8e-7 apart and gradients 1 % apart, and was wrongly rejected."""

    def near(events: Events) -> None:
        first, second = passes(events)
        second["losses"][0] = scaled(1 + 8e-7)(first["losses"][0])
        second["gradient_norms"][0] = scaled(1.01)(first["gradient_norms"][0])

    found = check_result(rewrite(write_good(tmp_path, Good()), near)).findings
    assert "FING-006" not in {finding.rule for finding in found}


def test_batch_with_the_first_loss_and_norm_of_the_common_batch_is_accepted(tmp_path: Path) -> None:
    """A run of ncf was wrongly rejected: its own batch agreed in these two numbers, not in later losses."""

    def near(events: Events) -> None:
        first, second = passes(events)
        second["gradient_norms"][0] = scaled(1 - 1.8e-5)(first["gradient_norms"][0])
        for step, by in enumerate((1 + 3.4e-7, 1 + 9.7e-5, 1 + 1.6e-4)):
            second["losses"][step] = scaled(by)(first["losses"][step])

    found = check_result(rewrite(write_good(tmp_path, Good()), near)).findings
    assert "FING-006" not in {finding.rule for finding in found}
