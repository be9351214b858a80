"""The ratio of a comparison is that of the printed figures, and interleaved repeats are paired."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from suite.compare.comparable import comparable
from suite.compare.compare import compare, interleaved
from suite.report.compare_text import blocks, to_text
from tests.fixtures.good_log import MINI, Good, write_good

SPREAD = (1.0, 1.004, 0.997, 1.002, 0.999)
A = Good(spread=SPREAD)
B = "1b2c3d4e"
STREAM = replace(MINI, phase="infer", scenario="single_stream", batch=1)
Values = dict[str, dict[str, Any]]


def comparison_data(folder: Path, good: Good) -> dict[str, Any]:
    """The comparison data of an imagined run, without a sandbox."""
    value = comparable(write_good(folder, good))["comparable"]
    assert value is not None
    return dict(value)


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Values:
    """The comparison data of a few runs, by name; copy before changing."""
    folder = tmp_path_factory.mktemp("values")
    goods = {
        "a": A,
        "slow": Good(spread=tuple(1.1 * one for one in SPREAD), run_hex=B),
        "stream": Good(key=STREAM),
        "stream slow": Good(key=STREAM, spread=tuple(1.5 * one for one in SPREAD), run_hex=B),
    }
    return {name: comparison_data(folder / name, good) for name, good in goods.items()}


def test_ratio_is_that_of_the_printed_figures(tmp_path: Path) -> None:
    """One disturbed repeat moves the mean rate less than the throughput: all work over all time."""
    disturbed = Good(spread=(0.9, 0.9, 0.9, 0.9, 1.6), run_hex=B)
    found = compare(comparison_data(tmp_path / "a", A), comparison_data(tmp_path / "b", disturbed))
    for row in found.rows:
        if row.ratio is not None and row.a and row.b:
            assert row.ratio.value == pytest.approx(row.b / row.a)
    assert found.rows[0].ratio is not None
    assert found.rows[0].ratio.value < 1


def test_every_ratio_is_that_of_the_printed_figures(values: Values) -> None:
    checked = set()
    for one, other in (("stream", "stream slow"), ("a", "slow")):
        for row in compare(values[one], values[other]).rows:
            if row.ratio is not None and row.a and row.b:
                assert row.ratio.value == pytest.approx(row.b / row.a)
                checked.add(row.name)
    assert checked == {"throughput", "latency_p50_ms", "latency_p90_ms", "latency_p99_ms"}


def times(result: dict[str, Any], begins: list[int], lasts: int = 10) -> dict[str, Any]:
    """The result, whose repeats begin and end at other times."""
    ran = zip(result["times"], begins, strict=True)
    return {**result, "times": [{**one, "began_ns": at, "ended_ns": at + lasts} for one, at in ran]}


def test_interleaved_repeats_are_paired(values: Values) -> None:
    """Drift of the machine slows both repeats r: only unpaired it hides a difference of 3 %."""
    drift, part = (1.0, 1.2, 1.4, 1.6, 1.8), 1.03
    sides = []
    for slower_by, begins in ((1.0, [0, 30, 40, 70, 80]), (part, [10, 20, 50, 60, 90])):
        result = times(json.loads(json.dumps(values["a"])), begins)
        rates = [1000 / (slower_by * one) for one in drift]
        result["metrics"]["throughput"] |= {"repeats": rates, "value": 1000 / (slower_by * 1.4)}
        sides.append(result)
    found = compare(sides[0], sides[1])
    assert found.paired
    assert found.rows[0].ratio is not None
    assert found.rows[0].ratio.value == pytest.approx(1 / part)
    assert found.rows[0].conclusion == "slower"
    assert "paired: repeat r of A and repeat r of B" in to_text(list(blocks(found)))
    apart = compare(sides[0], times(sides[1], [100, 110, 120, 130, 140]))
    assert not apart.paired
    assert apart.rows[0].conclusion == "indistinguishable"
    assert apart.rows[0].ratio is not None
    assert apart.rows[0].ratio.value == pytest.approx(1 / part)


def test_only_repeats_of_one_boot_that_do_not_overlap_are_paired(values: Values) -> None:
    a, b = times(values["a"], [0, 30, 40, 70, 80]), times(values["a"], [10, 20, 50, 60, 90])
    assert interleaved(a, b)
    assert not interleaved(a, times(b, [10, 20, 50, 60, 90], lasts=11)), "they overlap"
    assert not interleaved(a, {**b, "times": [{**one, "boot": "another"} for one in b["times"]]})
    unknown = [{**side, "times": [{**one, "boot": None} for one in side["times"]]} for side in (a, b)]
    assert not interleaved(*unknown)
    assert not interleaved(a, {name: value for name, value in b.items() if name != "times"})
