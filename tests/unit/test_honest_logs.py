"""Logs of real runs on GPUs: the checker accepts all, and flags only faults of that machine."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from suite.checker import check_result
from suite.workloads import names
from tests.fixtures.honest import NAMES, write_honest

# Flags that are no false alarms, with their cause.
INHERENT = {"STAT-002": "repeats were spread by other runs on the host"}


@pytest.mark.parametrize("name", NAMES)
def test_honest_gpu_log_is_accepted(name: str, tmp_path: Path) -> None:
    verdict = check_result(write_honest(name, tmp_path))
    assert verdict.rejections == ()
    assert verdict.scored
    assert {finding.rule for finding in verdict.flags} <= set(INHERENT)


def test_honest_logs_cover_every_workload_and_phase() -> None:
    found = {tuple(name.split("-")[i] for i in (1, 3)) for name in NAMES}
    assert found == set(product(names(), ("train", "infer")))
    precisions = {(name.split("-")[1], name.split("-")[4]) for name in NAMES}
    assert {one for workload, one in precisions if workload == "ncf"} == {"fp32", "tf32", "bf16", "fp16"}
