"""Histories: results of one key and machine are a series; level and changes of level are reported."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suite.cli import main
from suite.compare import history
from suite.compare.comparable import CODE, FRAMEWORK, MEANING, SETTINGS, SOFTWARE, SYSTEM, comparable
from suite.report.compare_text import to_markdown, to_text
from suite.report.history_text import blocks
from tests.fixtures.good_container import rules_of
from tests.fixtures.good_log import MINI, Good, write_good


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The comparison data of one run; copy before changing."""
    value = comparable(write_good(tmp_path_factory.mktemp("one"), Good()), rules_of)["comparable"]
    assert value is not None
    return dict(value)


def run(one: dict[str, Any], day: int, speed: float, cv: float = 0.01) -> dict[str, Any]:
    """``one``, measured on another day at another speed."""
    made = copy.deepcopy(one)
    chance = np.random.default_rng(day)
    repeats = [float(value) for value in speed * np.exp(chance.normal(0, cv, 5))]
    made["metrics"]["throughput"] |= {"value": sum(repeats) / 5, "repeats": repeats}
    made |= {"when": f"2026-{1 + day // 28:02}-{1 + day % 28:02}T12:00:00.000000Z", "sha256": f"{day:064x}"}
    made["run_id"] = f"2026-run-{day}"
    return made


def runs(one: dict[str, Any], speeds: list[float]) -> list[dict[str, Any]]:
    return [run(one, day, speed) for day, speed in enumerate(speeds)]


def test_first_result_has_no_comparison(one: dict[str, Any]) -> None:
    found = history.compare_with_history(one, [], 0.02)
    assert (found.ratio, found.conclusion) == (None, "unknown")
    assert "no earlier result" in found.reason
    assert found.gate is not None
    assert found.gate.outcome == "undecidable"


def test_later_results_are_not_earlier_ones(one: dict[str, Any]) -> None:
    """A merged branch adds results of days between those that are known."""
    known = [run(one, day, 100.0 if day < 7 else 80.0) for day in (*range(1, 7), *range(8, 15))]
    found = history.compare_with_history(run(one, 7, 100.0), known, 0.02)
    assert [result["run_id"] for result in found.earlier] == [f"2026-run-{day}" for day in range(1, 7)]
    assert found.conclusion != "faster"
    assert found.gate is not None
    assert found.gate.outcome == "holds"


def test_second_result_is_compared_with_first_by_repeats(one: dict[str, Any]) -> None:
    found = history.compare_with_history(run(one, 9, 90.0), [run(one, 1, 100.0)], 0.02)
    assert not found.uses_run_spread
    assert found.conclusion == "slower"
    assert found.gate is not None
    assert found.gate.outcome == "fails"
    assert "the spread between runs is not known yet" in to_text(list(blocks(found)))


def test_fourth_result_is_compared_by_spread_between_runs(one: dict[str, Any]) -> None:
    known = [run(one, day, speed, 0.001) for day, speed in enumerate([100.0, 103.0, 97.0, 101.0, 99.0])]
    new = run(one, 9, 97.5, cv=0.001)
    found = history.compare_with_history(new, known)
    assert found.uses_run_spread
    assert found.conclusion == "indistinguishable"  # unlike by the repeats of two runs alone
    assert history.compare_with_history(new, known[-1:]).conclusion == "slower"
    assert history.compare_with_history(run(one, 10, 80.0), known, 0.02).conclusion == "slower"


def test_comparison_uses_level_since_last_change(one: dict[str, Any]) -> None:
    known = [run(one, day, 100.0) for day in range(12)]
    known += [run(one, day, 150.0) for day in range(12, 24)]
    found = history.compare_with_history(run(one, 30, 149.0), known, 0.05)
    assert len(found.level) == 12
    assert found.gate is not None
    assert found.gate.outcome == "holds"
    (change,) = found.changes
    assert change.result["run_id"] == "2026-run-12"
    assert change.ratio == pytest.approx(1.5, rel=0.02)


def test_level_change_names_changed_facts(one: dict[str, Any]) -> None:
    known = [run(one, day, 100.0) for day in range(12)]
    after = {SOFTWARE: ("framework.version", "9.9"), CODE: ("code_digest", "f" * 64)}
    for day in range(12, 24):
        made = run(one, day, 90.0)
        for group, (name, value) in after.items():
            made["facts"][group][name] = value
        known.append(made)
    found = history.compare_with_history(known[-1], known[:-1])
    assert {row.name for row in found.changes[0].differs} == {"framework.version", "code_digest"}
    text = to_text(list(blocks(found)))
    assert "went down by" in text
    assert "code_digest, framework.version" in text
    assert "went down by" in to_markdown(list(blocks(found)))


def test_result_is_not_compared_with_itself(one: dict[str, Any]) -> None:
    found = history.compare_with_history(one, [one])
    assert (found.earlier, found.others) == ((), 0)


@pytest.mark.parametrize(
    ("group", "name", "value"),
    [
        (MEANING, "batch", 512),
        (MEANING, "precision", "bf16"),
        (FRAMEWORK, "framework", "mxnet"),
        (SETTINGS, "threads", 7),
        (SYSTEM, "cpu.model", "Another"),
        (SYSTEM, "accelerators.devices.0.name", "NVIDIA H200"),
    ],
)
def test_different_key_setting_or_machine_is_another_series(
    one: dict[str, Any], group: str, name: str, value: Any
) -> None:
    other = copy.deepcopy(one)
    other["facts"][group][name] = value
    other["sha256"] = "1" * 64
    found = history.compare_with_history(one, [other])
    assert (found.earlier, found.others) == ((), 1)


@pytest.mark.parametrize(
    ("group", "name"),
    [(CODE, "code_digest"), (SOFTWARE, "python"), (SYSTEM, "kernel.release"), (SETTINGS, "new")],
)
def test_code_software_and_null_facts_keep_the_series(one: dict[str, Any], group: str, name: str) -> None:
    other = copy.deepcopy(one)
    other["facts"][group][name] = None if group == SETTINGS else "another"
    other["sha256"] = "1" * 64
    assert len(history.compare_with_history(one, [other]).earlier) == 1


def test_history_is_ordered_by_time_not_by_name(one: dict[str, Any]) -> None:
    known = runs(one, [100.0, 101.0, 102.0])
    found = history.compare_with_history(run(one, 9, 100.0), [known[2], known[0], known[1]])
    assert [output["run_id"] for output in found.earlier] == ["2026-run-0", "2026-run-1", "2026-run-2"]


def test_added_result_is_read_back(one: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "made" / "by add"
    path = history.add(folder, one)
    assert path is not None
    assert path.name == f"{one['run_id']}.json"
    (back,) = history.read(folder)
    assert back.pop("format") == history.FORMAT
    assert back == json.loads(json.dumps(one))
    assert history.add(folder, one) is None
    with pytest.raises(history.HistoryProblem, match="another result of the same run id"):
        history.add(folder, {**one, "sha256": "0" * 64})


@pytest.mark.parametrize("run_id", ["../escape", "a/b", "", ".hidden", "x" * 200, "a\n"])
def test_hostile_run_id_never_becomes_a_path(one: dict[str, Any], run_id: str, tmp_path: Path) -> None:
    with pytest.raises(history.HistoryProblem, match="can name a file"):
        history.add(tmp_path, {**one, "run_id": run_id})
    assert list(tmp_path.iterdir()) == []


SPOILS: dict[str, Any] = {
    "empty": lambda text: "",
    "no JSON": lambda text: text[:-10],
    "a list": lambda text: "[]",
    "deep": lambda text: "[" * 100_000,
    "NaN": lambda text: text.replace('"value": ', '"value": NaN, "was": ', 1),
    "another format": lambda text: text.replace("suite-history/1", "suite-history/2"),
    "too long": lambda text: text + " " * (1 << 20),
    "a number for a name": lambda text: text.replace('"mode": "throughput"', '"mode": 7'),
    "an unknown mode": lambda text: text.replace('"mode": "throughput"', '"mode": "other"'),
    "facts that are a list": lambda text: text.replace('"facts": {', '"facts": [], "was": {', 1),
    "a negative rate": lambda text: text.replace('"repeats": [', '"repeats": [-1,', 1),
    "not text": lambda text: "\udcff",
}


@pytest.mark.parametrize("name", SPOILS)
def test_invalid_history_file_is_reported_by_name(one: dict[str, Any], name: str, tmp_path: Path) -> None:
    path = history.add(tmp_path, one)
    assert path is not None
    spoilt = SPOILS[name](path.read_text())
    path.write_bytes(spoilt.encode("utf-8", "surrogateescape"))
    with pytest.raises(history.HistoryProblem, match=r"restore or remove the file"):
        history.read(tmp_path)


def test_history_works_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "history"
    spread = (1.0, 1.004, 0.997, 1.002, 0.999)
    made = [
        write_good(
            tmp_path / str(number),
            Good(spread=spread, run_hex=f"{number:08x}", step_ns=2_000_000 + 1000 * number),
        )
        for number in range(2)
    ]
    arguments = ["compare", "--baseline", str(folder), "--add"]
    assert main([*arguments, str(made[0]), "--fail-slower=2%"]) == 6
    output = capsys.readouterr()
    assert "not compared: no earlier result" in output.out
    assert "compare: added" in output.err
    assert main([*arguments, str(made[1]), "--fail-slower=2%", "--junit", str(tmp_path / "x.xml")]) == 0
    assert "History: 1 earlier result of this key" in capsys.readouterr().out
    assert "throughput in its history" in (tmp_path / "x.xml").read_text()
    assert main([*arguments, str(made[1])]) == 0
    assert "in the history already" in capsys.readouterr().err
    assert len(list(folder.iterdir())) == 2
    slow = write_good(tmp_path / "slow", Good(spread=tuple(1.2 * one for one in spread), run_hex="5" * 8))
    assert main(["compare", "--baseline", str(folder), str(slow), "--fail-slower=2%", "--format=json"]) == 5
    value = json.loads(capsys.readouterr().out)
    assert (value["format"], value["conclusion"], len(value["earlier"])) == ("suite-standing/1", "slower", 2)
    infer = write_good(tmp_path / "infer", Good(key=replace(MINI, phase="infer")))
    assert main(["compare", "--baseline", str(folder), str(infer)]) == 0
    assert "2 results of other keys, settings or machines left out" in capsys.readouterr().out
    (folder / "broken.json").write_text("{")
    assert main(["compare", "--baseline", str(folder), str(slow)]) == 2
    assert "broken.json" in capsys.readouterr().err
