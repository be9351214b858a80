"""Precisions: unsupported ones are refused before a run, others are verified by the types of a step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from suite import workloads
from suite.checker import check_result
from suite.common.support import unsupported
from suite.contract import BENCHMARK, MEASURED_STEPS, STEPS, Key
from suite.harness.repeat import log_steps
from tests.fixtures.forged import both, everywhere, put
from tests.fixtures.forging import rewrite
from tests.fixtures.good_container import rules_of
from tests.fixtures.good_log import MINI, Good, reference, write_good

KEY = Key("ncf", "pytorch", "train", "offline", "fp32", 256, 1, "mini", "real", "warm", "f8")
INFER_BF16 = Good(key=replace(MINI, phase="infer", precision="bf16"))


@pytest.mark.parametrize("workload", workloads.names())
@pytest.mark.parametrize(
    ("framework", "supported"),
    [
        ("pytorch", "fp32 bf16"),
        ("tensorflow", "fp32 bf16"),
        ("mxnet", "fp32"),
        ("jax", "fp32 bf16"),
    ],
)
def test_cpu_supports_only_precisions_that_it_computes(workload: str, framework: str, supported: str) -> None:
    assert framework in workloads.frameworks(workload)
    for precision in ("fp32", "tf32", "bf16", "fp16"):
        reason = unsupported(replace(KEY, workload=workload, framework=framework, precision=precision), "cpu")
        assert (reason is None) == (precision in supported.split())
        assert reason is None or f"precision {precision}" in reason


@pytest.mark.parametrize(
    ("precision", "capability", "supported"),
    [
        ("tf32", "7.5", False),
        ("tf32", "8.0", True),
        ("bf16", "7.0", False),
        ("bf16", "9.0", True),
        ("bf16", "10.0", True),  # compared as numbers: as text, 10.0 sorts before 8.0
        ("fp16", "5.2", False),
        ("fp16", "7.5", True),
        ("fp32", "3.5", True),
        ("bf16", "", True),  # unknown capability
    ],
)
def test_gpu_supports_precisions_by_compute_capability(
    precision: str, capability: str, supported: bool
) -> None:
    reason = unsupported(replace(KEY, precision=precision), "cuda:0", capability)
    assert (reason is None) == supported
    assert reason is None or (capability in reason and "precision=fp32" in reason)


@pytest.mark.parametrize(
    ("good", "path", "value", "expected"),
    [
        (INFER_BF16, "dtypes.activations", "float32", "bfloat16 in bf16"),
        (INFER_BF16, "dtypes.weights", "float16", "bfloat16 or float32 in bf16"),
        (Good(), "dtypes.gradients", "bfloat16", "float32 in fp32"),
        (Good(key=replace(MINI, precision="fp16")), "dtypes.weights", "float16", "float32 in fp16"),
        (Good(), "dtypes", {"weights": "float32", "gradients": "float32"}, "float32 in fp32"),
        (Good(mode="quality"), "dtypes.activations", "bfloat16", "float32 in fp32"),
    ],
)
def test_checker_rejects_types_that_contradict_the_precision(
    good: Good, path: str, value: object, expected: str, tmp_path: Path
) -> None:
    repeats = 1 if good.mode == "quality" else 5
    folder = write_good(tmp_path, good)
    for repeat in range(repeats):
        rewrite(folder, put("rank_end", path, value, repeat))
    rejections = [f for f in check_result(folder, rules_of).rejections if f.rule == "ENV-006"]
    assert [finding.expected for finding in rejections] == [expected] * repeats


@pytest.mark.parametrize(
    ("good", "stated"), [(Good(), True), (reference(), False)], ids=["fp32", "tf32 of the H200"]
)
def test_checker_reports_a_tf32_flag_that_contradicts_the_precision(
    good: Good, stated: bool, tmp_path: Path
) -> None:
    described = {"version": "2.13.0", "device": good.device, "capability": None, "tf32": stated}
    folder = rewrite(
        write_good(tmp_path, good), everywhere("env", "facts.framework", described, side="inside")
    )
    findings = check_result(folder, rules_of).findings
    assert {finding.rule for finding in findings} == {"ENV-006"}
    assert {finding.found for finding in findings} == {str(stated)}


def test_checker_accepts_fp32_weights_in_bf16_inference(tmp_path: Path) -> None:
    folder = rewrite(write_good(tmp_path, INFER_BF16), everywhere("rank_end", "dtypes.weights", "float32"))
    assert check_result(folder, rules_of).findings == ()


def test_harness_logs_a_reason_for_the_missing_gradient_norm_of_a_skipped_step(tmp_path: Path) -> None:
    good = Good(key=replace(MINI, precision="fp16"))
    norms: list[str | None] = [(1.0).hex()] * STEPS
    norms[3] = None
    steps: dict[str, Any] = {"losses": [(1.0).hex()] * STEPS, "gradient_norms": norms}
    events: list[dict[str, Any]] = []
    session = SimpleNamespace(
        plan=SimpleNamespace(key=good.key, kind=BENCHMARK, measured_steps=MEASURED_STEPS),
        log=SimpleNamespace(event=lambda kind, data, repeat: events.append(data)),
    )
    timestamps = {name: list(range(STEPS)) for name in ("timestamps", "dispatched", "batches")}
    steps |= {**timestamps, "arrivals": None, "outputs": None}
    reasons = log_steps(session, 0, 0, steps, (1,) * STEPS)  # type: ignore[arg-type]
    assert [step["grad_norm"] is None for step in events] == [step == 3 for step in range(STEPS)]
    folder = rewrite(
        write_good(tmp_path, good),
        both(
            put("step", "grad_norm", None, step=3),
            put("repeat_end", "reasons", lambda old: old | {"step.grad_norm": reasons["step.grad_norm"]}),
        ),
    )
    assert check_result(folder, rules_of).findings == ()
