"""Windows that waited for real data need not have regular steps; all others must."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from suite.checker import check_result
from suite.report.grid import INPUT_BOUND_PERCENT
from suite.rules import LATEST, load
from tests.fixtures.forging import rewrite
from tests.fixtures.good_log import REFERENCE, reference, write_good

IRREGULAR: dict[str, dict[str, Any]] = {"STAT-004": {"trend": 0.2}, "STAT-006": {"spikes": 30}}


@pytest.mark.parametrize("rule", IRREGULAR)
@pytest.mark.parametrize(
    ("data", "share", "flagged"), [("real", 0.2, False), ("real", 0.05, True), ("synthetic", 0.2, True)]
)
def test_irregular_steps(tmp_path: Path, rule: str, data: str, share: float, flagged: bool) -> None:
    good = reference(key=replace(REFERENCE, data=data), **IRREGULAR[rule])

    def wait(events: list[dict[str, Any]]) -> None:
        for event in events:
            if event["kind"] == "rank_end":
                event["data"]["input_wait_ns"] = round(share * event["data"]["window"]["ns"])

    result = rewrite(write_good(tmp_path, good), wait)
    verdict = check_result(result)
    assert verdict.rejections == ()
    assert (rule in {one.rule for one in verdict.flags}) is flagged


def test_tables_call_the_same_windows_input_bound() -> None:
    assert load(LATEST).limit("input_bound") == INPUT_BOUND_PERCENT / 100
