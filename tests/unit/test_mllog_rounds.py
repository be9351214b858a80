"""The tables of rounds, and the facts in the names of published folders and files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from suite.mllog.check_folder import status_of
from suite.mllog.examine import examine
from suite.mllog.layout import result_folder_of
from suite.mllog.rounds import parse_round, target_for
from tests.fixtures.mlperf_logs import run_v07


@pytest.mark.parametrize(
    ("path", "facts"),
    [
        ("training_results_v0.7/Org/results/sys/gnmt", ("Org", "sys", "gnmt", None)),
        ("training_results_v0.5/v0.5.0/org/sub/results/sys/ncf", ("org", "sys", "ncf", None)),
        ("hpc_results_v2.0/Org/results/sys/weak/deepcam", ("Org", "sys", "deepcam", "weak")),
        ("Org/results/sys/strong/oc20", ("Org", "sys", "oc20", "strong")),
        ("training_results_v0.7/Org/results/v100-1280", ("Org", "v100-1280", None, None)),
        ("results/sys/gnmt", ("here", "sys", "gnmt", None)),
        ("logs", (None, None, None, None)),
    ],
)
def test_result_folder_is_read_from_published_paths(
    path: str, facts: tuple[str | None, ...], tmp_path: Path
) -> None:
    found = result_folder_of(tmp_path / "here" / path)
    assert (found.org, found.system, found.benchmark, found.scaling) == facts


@pytest.mark.parametrize(
    ("text", "status"),
    [("onprem", "onprem"), ("on-premise", "onprem"), ("available", "onprem"),
     ("Available on-premise", "onprem"), ("cloud", "cloud"),
     ("Available cloud", "cloud"), ("research", "research"), ("Preview", "preview"),
     ("Research, Development, or Internal (RDI)", "research"), ("nothing known", "nothingknown")],
)  # fmt: skip
def test_status_of_normalises_spellings(text: str, status: str) -> None:
    assert status_of(text) == status


@pytest.mark.parametrize(
    ("benchmark", "round_", "target"),
    [
        ("resnet", "0.5", "at least 0.749"), ("resnet", "v4.0.0", "at least 0.759"),
        ("gnmt", "0.5", "at least 0.218"), ("gnmt", "0.7", "at least 0.24"),
        ("ssd", "0.5", "at least 0.212"), ("ssd", "1.1", "at least 0.23"),
        ("ssd", "2.0", "at least 0.34"), ("maskrcnn", "1.0", "BBOX at least 0.377, SEGM at least 0.339"),
        ("rnnt", "1.0", "at most 0.058"), ("stable_diffusion", "4.0", "CLIP at least 0.15, FID at most 90"),
        ("resnet", "any", "at least 0.759"), ("ssd", "any", "None"), ("minigo", "0.5", "None"),
    ],
)  # fmt: skip
def test_target_follows_the_round(benchmark: str, round_: str, target: str) -> None:
    assert str(target_for(benchmark, parse_round(round_))) == target


@pytest.mark.parametrize(
    ("value", "met"),
    [
        ({"BBOX": 0.378, "SEGM": 0.34}, True),
        ({"BBOX": 0.378, "SEGM": 0.33}, False),
        ({"BBOX": 0.4}, None),
        (0.4, None),
    ],
)
def test_target_with_two_parts_requires_both(value: Any, met: bool | None) -> None:
    bound = target_for("maskrcnn", (1, 0))
    assert bound is not None
    assert bound.met(value, "maskrcnn", (1, 0)) is met


def logs_of(names: Sequence[str], tmp_path: Path) -> list[str]:
    folder = tmp_path / "Org" / "results" / "system" / "resnet"
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text("\n".join(run_v07()))
    return [log["name"] for log in examine(folder, "any")["logs"]]


def test_logs_are_sorted_by_number(tmp_path: Path) -> None:
    names = ("result_10.txt", "result_2.txt", "result_run1.txt", "result_3", "run.log")
    assert logs_of(names, tmp_path) == ["result_run1.txt", "result_2.txt", "result_10.txt"]
    assert logs_of(("result_10", "result_run3.log", "c.log"), tmp_path / "third") == [
        "result_run3.log",
        "result_10",
    ]
    assert logs_of(("b.log", "a.log"), tmp_path / "other") == ["a.log", "b.log"]
