"""The table of quality runs: the results of each pair, and the causes of missed targets."""

from __future__ import annotations

import json
from dataclasses import replace

from suite.compare.result_row import ResultRow as Result
from suite.metrics.metric import Metric, missing
from suite.report.grid import FAILED, NOT_AVAILABLE, GridEntry
from suite.report.targets import quality_rows, to_json, to_markdown, to_text

KEY = {"workload": "ncf", "variant": "f8", "phase": "train", "precision": "fp32", "framework": "pytorch"}
GROUP = ("practice", "mini", "real", "quality")


def run(quality: float, seconds: float | None, framework: str = "pytorch") -> GridEntry:
    key = {**KEY, "framework": framework}
    figures = {
        "quality": Metric(quality, "hr10"),
        "quality_target": Metric(0.75, "hr10"),
        "time_to_quality_s": Metric(seconds, "s")
        if seconds is not None
        else missing("not reached in 1 of 1"),
    }
    row = Result(GROUP[:1] + GROUP[2:], key, "accepted", "", 0, "sample", "CPU", "", "", "id", "d", figures)
    return GridEntry(GROUP, key, "accepted", "", row)


def test_seeds_of_a_pair_are_one_row() -> None:
    found = quality_rows([run(0.77, 8.0), run(0.80, 6.0), run(0.76, 7.0, "mxnet"), run(0.78, 11.5)])
    assert [(row.framework, row.runs, row.done) for row in found] == [
        ("pytorch", 3, True),
        ("mxnet", 1, True),
    ]
    lines = to_text(found).splitlines()
    assert " ".join(lines[1].split()) == "ncf f8 train fp32 pytorch hr10 0.75 3 of 3 0.770–0.800 6.0–11.5"
    assert lines[2].split()[-5:] == ["1", "of", "1", "0.760", "7.0"]
    assert (
        to_markdown(found).splitlines()[2].startswith("| ncf f8 train fp32 | pytorch | hr10 0.75 | 3 of 3 |")
    )


def test_run_below_target_or_without_result_is_missing() -> None:
    failed = replace(run(0.5, None), row=None, status=FAILED, why="a loss is not finite")
    below, without = quality_rows([run(0.77, 8.0), run(0.7, None)]), quality_rows([failed])
    assert not below[0].done
    assert not without[0].done
    assert "1 of 2" in to_text(below)
    assert "not reached in 1 of 1" in to_text(below)
    assert "failed: a loss is not finite" in to_text(without)
    (long,) = quality_rows([replace(failed, why=f"{'a' * 300} end")])
    assert f"{'a' * 300} end" in to_markdown([long])
    (shown,) = json.loads(to_json(without))
    assert (shown["target"], shown["metric"], shown["quality"]) == (None, None, [])


def test_impossible_run_is_no_failure() -> None:
    (row,) = quality_rows([replace(run(0.5, None), row=None, status=NOT_AVAILABLE, why="no fp16 here")])
    assert row.done
    assert "N/A: no fp16 here" in to_text([row])
