"""Three or more results: the fastest first, each compared with it, and the rate of errors."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suite.cli import main
from suite.compare.comparable import comparable
from suite.compare.compare import NotComparable
from suite.compare.ranking import rank
from suite.report.compare_text import to_text
from suite.report.ranking_text import blocks
from tests.fixtures.good_log import write_good
from tests.fixtures.slower import GOODS, A, slower


@pytest.fixture(scope="module")
def a(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fastest."""
    return write_good(tmp_path_factory.mktemp("a"), A)


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The comparison data of a few runs, by name; copy before changing."""
    folder = tmp_path_factory.mktemp("values")
    return {name: comparable(write_good(folder / name, good))["comparable"] for name, good in GOODS.items()}


Values = dict[str, dict[str, Any]]


def test_three_results_are_ranked_with_the_fastest_first(
    a: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = write_good(tmp_path / "slow", slower(0.10))
    same = write_good(tmp_path / "same", replace(slower(0.002), run_hex="2c3d4e5f"))
    report = tmp_path / "ranking.xml"
    assert main(["compare", str(slow), str(a), str(same), "--junit", str(report)]) == 0
    text = capsys.readouterr().out
    table = text[text.index("Fastest first") :].splitlines()[2:5]
    assert [line.split()[0] for line in table] == ["B", "C", "A"]
    assert [line.split()[-1] for line in table] == ["fastest", "indistinguishable", "slower"]
    assert "B and C" not in text
    assert "C and B are indistinguishable; minimum detectable effect" in text
    assert "hold together at 95 % (98.33 % each)" in text
    assert {case.get("name") for case in ET.parse(report).getroot().iter("testcase")} == {
        "compare C with B",
        "compare A with B",
    }
    assert main(["compare", str(slow), str(a), str(same), "--format", "json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert [one["label"] for one in value["results"]] == ["B", "C", "A"]
    speeds = [one["speed"] for one in value["results"]]
    assert speeds[0] is None
    for one, speed in zip(value["results"][1:], speeds[1:], strict=True):
        assert speed["value"] == pytest.approx(one["value"] / value["results"][0]["value"])


def test_ranking_states_what_differs_and_ends_with_what_is_unlike(values: Values) -> None:
    found = rank([values["a"], values["bf16"], values["batch"]])
    text = to_text(list(blocks(found)))
    head = next(line for line in text.splitlines() if "95 % interval" in line)
    assert "precision" in head
    assert "batch" in head
    assert text.splitlines()[-1].startswith("DIFFERENT SETTINGS: the results differ in ")
    with pytest.raises(NotComparable, match="A and C are not comparable: they differ in phase"):
        rank([values["a"], values["same"], values["infer"]])


def test_ranking_puts_a_result_without_a_value_last_with_the_reason(values: Values) -> None:
    without = json.loads(json.dumps(values["same"]))
    without["metrics"]["throughput"] |= {"value": None, "reason": "no window", "repeats": []}
    found = rank([without, values["slow"], values["a"]])
    assert [row.label for row in found.rows] == ["C", "B", "A"]
    assert (found.rows[-1].speed, found.rows[-1].reason) == (None, "no window")


def test_equal_results_are_told_apart_in_at_most_1_of_20_rankings(values: Values) -> None:
    """The same data choose the fastest and compare it: the rate of errors holds nevertheless."""
    chance = np.random.default_rng(1)
    different = 0
    for _ in range(400):
        some = [json.loads(json.dumps(values["a"])) for _ in range(4)]
        for one in some:
            rates = [float(rate) for rate in 1 / chance.normal(1, 0.02, 5)]
            one["metrics"]["throughput"] |= {"repeats": rates, "value": 5 / sum(1 / rate for rate in rates)}
            one["times"] = []
        different += any(row.conclusion == "slower" for row in rank(some).rows)
    assert different / 400 <= 0.05
