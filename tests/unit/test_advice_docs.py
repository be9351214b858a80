"""docs/sizing.md: the numbers of its example are those of the command that it shows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from suite.cli import main

_ROOT = Path(__file__).parents[2]


def test_the_example_of_sizing_has_the_numbers_of_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    page = (_ROOT / "docs" / "sizing.md").read_text(encoding="utf-8")
    folder = re.search(r"make advise WORKLOAD=resnet50 RESULTS_DIR=(submissions/\S+)\n", page)
    assert folder is not None
    options = ["--workload", "resnet50", "--results-dir", str(_ROOT / folder[1]), "--format", "json"]
    assert main(["advise", *options]) == 0
    ((row,),) = (group["rows"] for group in json.loads(capsys.readouterr().out)["groups"])
    stated = (
        f"The table has {row['per_second']:,.0f} images/s, {row['epoch_s']:.1f} s and "
        f"{row['joules_per_epoch'] / 1e3:.1f} kJ an epoch, limited by the {row['binds']}."
    )
    assert stated in page
    goal = round(0.95 * row["per_second"], -1)
    assert f"95 % of step 1, here {goal:,.0f} images/s" in page
    assert f'GOAL="throughput>={goal:.0f}" GRID' in page
