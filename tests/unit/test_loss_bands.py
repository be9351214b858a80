"""The tool that computes the loss bands: its rows match the rules, and bad input gives no row."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from suite.checker import check_result
from suite.checker.training import curve, envelope
from suite.log.model import Record
from suite.log.reader import read_result
from suite.rules import LATEST, load
from tests.fixtures.forged import reverse_losses
from tests.fixtures.forging import rewrite
from tests.fixtures.good_log import MINI, Good, write_good
from tools.loss_bands import band, main


def printed(capsys: pytest.CaptureFixture[str], *folders: Path) -> dict[str, list[dict[str, Any]]]:
    """What the tool prints for ``folders``."""
    assert main([str(folder) for folder in folders]) == 0
    found: dict[str, list[dict[str, Any]]] = json.loads(capsys.readouterr().out)
    return found


def curves(record: Record) -> list[tuple[float, float, float]]:
    """The three numbers of each repeat, from the log alone."""
    found = []
    for repeat in record.repeats:
        steps = [event.data for event in repeat.events if event.kind == "step"]
        losses = [float.fromhex(step["loss"]) for step in steps]
        found.append(curve(losses, [step["units"] for step in steps]))
    return found


def test_computed_bands_match_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = [write_good(tmp_path / "a", Good()), write_good(tmp_path / "b", Good(run_hex="1b2c3d4e"))]
    write_good(tmp_path / "a" / "others", Good(key=replace(MINI, phase="infer")))
    write_good(tmp_path / "a" / "others", Good(mode="quality", run_hex="2b2c3d4e"))
    write_good(tmp_path / "a" / "others", Good(out_of_memory_in=1, run_hex="3b2c3d4e"))
    found = printed(capsys, tmp_path / "a", tmp_path / "b")
    assert list(found) == ["mini/ncf"]
    (row,) = found["mini/ncf"]
    assert set(row) == set(load(LATEST).workload("ncf")["loss_curve"][0])
    assert row["repeats"] == 10, "five of each training, nothing of inference, quality or what did not end"
    assert envelope([row], MINI) == row
    assert envelope([row], replace(MINI, batch=MINI.batch + 1)) is None
    all_curves = [values for result in results for values in curves(read_result(result))]
    for at, name in enumerate(("start", "middle", "end")):
        low, high = (float(edge) for edge in row[name])
        values = [one[at] for one in all_curves]
        assert 0 < low < min(values) <= max(values) < high
    assert float(row["end"][1]) < 1, "a loss that stays is outside"


def test_loss_is_per_unit_of_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The mean of the first ten steps per unit of work, for losses with any divisor."""
    record = read_result(write_good(tmp_path, Good()))
    steps = [event.data for event in record.repeats[0].events if event.kind == "step"][:10]
    mean = sum(float.fromhex(step["loss"]) for step in steps) / sum(step["units"] for step in steps)
    low, high = (float(edge) for edge in printed(capsys, tmp_path)["mini/ncf"][0]["start"])
    assert low < mean < high
    assert high < 1.5 * mean


def test_forged_curve_lies_outside_bands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = printed(capsys, write_good(tmp_path / "honest").parent)["mini/ncf"][0]
    monkeypatch.setitem(load("practice").workload("ncf"), "loss_curve", [row])
    honest = check_result(write_good(tmp_path / "another", Good(run_hex="1b2c3d4e")))
    forged = check_result(rewrite(write_good(tmp_path / "forged"), reverse_losses))
    assert honest.findings == ()
    assert "TRAIN-009" in {finding.rule for finding in forged.findings}


@pytest.mark.parametrize(
    ("values", "edges"),
    [
        ([10.0, 10.0], ["9.512", "10.51"]),  # at least 5 %
        ([1.0, math.e**0.1], ["0.45", "2.456"]),  # twelve deviations of the logarithms
        ([1.0, math.e**0.1] * 8, ["0.6955", "1.589"]),  # eight, of fifteen and more
    ],
)
def test_band_margins(values: list[float], edges: list[str]) -> None:
    assert band(values) == edges


def test_other_precisions_give_spread_of_repeats() -> None:
    near, far = [1.0, 1.001, 0.999], [2.0, 2.2, 1.8]
    assert band(near) == ["0.9512", "1.051"]
    low, high = (float(edge) for edge in band(near, [far]))
    assert low < 0.6
    assert high > 1.6
    assert band(near, [[2.0]]) == band(near)
    with pytest.raises(ValueError, match="two repeats"):
        band([1.0])


def test_untimed_training_curves_count_as_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = write_good(tmp_path / "results")
    other = [
        (one[0], one[1], one[2] * factor) for one in curves(read_result(result)) for factor in (1.0, 1.01)
    ]
    lines = [
        json.dumps({"key": asdict(replace(MINI, precision="bf16")), "curve": values}) for values in other
    ]
    (tmp_path / "curves.jsonl").write_text("\n".join(lines) + "\n")
    fp32, bf16 = sorted(
        printed(capsys, tmp_path / "results", tmp_path / "curves.jsonl")["mini/ncf"],
        key=lambda row: bool(row["precisions"] == ["bf16"]),
    )
    assert (fp32["repeats"], bf16["repeats"]) == (5, 10)
    alone = printed(capsys, tmp_path / "curves.jsonl")["mini/ncf"]
    assert [row["precisions"] for row in alone] == [["bf16"]]
    assert envelope([fp32, bf16], replace(MINI, precision="bf16")) == bf16


def test_missing_or_bad_curves_are_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_good(tmp_path / "infer", Good(key=replace(MINI, phase="infer")))
    broken = write_good(tmp_path / "broken") / "run.jsonl"
    broken.write_bytes(broken.read_bytes()[:-1])
    (tmp_path / "empty").mkdir()
    once = tmp_path / "once.jsonl"
    once.write_text(json.dumps({"key": asdict(MINI), "curve": [1.0, 0.9, 0.8]}))
    for folders, message in (
        ([], "no argument"),
        ([tmp_path / "infer", tmp_path / "gone"], "gone"),
        ([tmp_path / "empty"], "none of 0 logs"),
        ([tmp_path / "infer"], "none of 1 logs"),
        ([tmp_path / "broken"], "bytes without LF"),
        (
            [once],
            "mini/ncf, variant f8, batch 256, real data: expected at least two repeats of one precision",
        ),
        ([once], "found 1 in fp32"),
    ):
        assert main([str(folder) for folder in folders]) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        assert message in shown.err


@pytest.mark.parametrize(
    ("data", "losses", "flagged"),
    [
        ("real", "scattered", False),
        ("real", "rising", True),
        ("real", "constant", True),
        ("synthetic", "scattered", True),
    ],
)
def test_loss_that_does_not_fall(tmp_path: Path, data: str, losses: str, flagged: bool) -> None:
    """AlexNet's scatters around the logarithm of the number of classes in 110 steps of real data."""
    result = write_good(tmp_path, Good(key=replace(MINI, data=data)))

    def change(events: list[dict[str, Any]]) -> None:
        random = Random(1)
        for event in events:
            if event["kind"] == "step":
                step = event["data"]
                trend = {"scattered": 5e-5, "rising": 5e-4, "constant": 0.0}[losses] * step["step"] / 110
                noise = 0.0 if losses == "constant" else random.gauss(0, 1e-4)
                step["loss"] = (step["units"] * (0.69 + trend + noise)).hex()

    rewrite(result, change)
    faults = [one for one in check_result(result).findings if one.rule == "TRAIN-003"]
    assert bool(faults) is flagged, faults
