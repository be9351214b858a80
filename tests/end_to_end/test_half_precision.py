"""fp16 from worker to verdict: the log has the loss scale and skipped steps, which TRAIN-008 checks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from suite.checker import check_result
from suite.harness.run import execute
from suite.log.reader import read_result
from suite.plan import prepare
from suite.plan.plan import new_run_id
from tests.equivalence.interpreters import interpreter
from tests.unit.test_plan import benchmark, planned, settings

PAIR = Path(__file__).parents[1] / "fixtures" / "pairs" / "half.py"


# The second scale is still too large after the warm-up, so that TRAIN-004 finds no update either.
@pytest.mark.parametrize(
    ("scale", "rules"), [(2**15, set()), (2**60, {"TRAIN-004", "TRAIN-008"})], ids=["good", "far too large"]
)
def test_log_has_loss_scale_and_skipped_steps(scale: int, rules: set[str], tmp_path: Path) -> None:
    chosen = settings(
        *("data=synthetic", f"pair={PAIR}", "framework.threads=1", "runtime=native", "repeats=1"),
        "fingerprint=false",
        *(f"workload.hyper.loss_scale={scale}", f"framework.python={interpreter('pytorch')}"),
        *(f"results_dir={tmp_path}/results", f"cache_dir={tmp_path}/cache"),
    )
    plan = planned(chosen)
    key = replace(benchmark(plan), precision="fp16")  # resolve() refuses fp16 on a CPU
    plan = replace(plan, key=key, run_id=new_run_id(key, "throughput"))
    outcome = execute(prepare.prepare_run(plan, prepare.prepare_resources(plan), 1), quiet=True)
    assert outcome.exit_code == 0, outcome.message
    verdict = check_result(outcome.folder)
    scales = [report["loss_scale"] for report in read_result(outcome.folder).all("rank_end")]
    assert len(scales) == 1
    skipped = sum(row["skipped"] for row in scales)
    for row in scales:
        assert float.fromhex(row["first"]) == scale / 2 ** row["skipped_before"]
        assert float.fromhex(row["last"]) == float.fromhex(row["first"]) / 2 ** row["skipped"]
    assert (skipped == 0) == (not rules)
    assert {finding.rule for finding in verdict.rejections} == rules
