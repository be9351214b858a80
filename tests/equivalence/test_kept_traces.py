"""Repeats after the first load what PyTorch traced, and only where it is what they would trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.equivalence.interpreters import run

WORKLOADS = ("faster_rcnn", "lstm_ptb", "ncf", "resnet50", "vgg16", "word2vec")


def result(*arguments: str) -> Any:
    done = run("pytorch", "tests.equivalence.kept_traces", *arguments)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


def test_trace_is_kept_for_the_same_function_only(tmp_path: Path) -> None:
    found = result(str(tmp_path / "traced"))
    assert found == {  # loss, and whether the function was compiled
        "first": [12.0, 1],
        "again": [12.0, 0],
        "another value of the weight": [60.0, 0],
        "one weight for two": [12.0, 1],
        "attribute": [16.0, 1],
        "shape": [18.0, 1],
        "constant": [42.0, 1],
        "without gradients": [12.0, 1],
        "source": [12.0, 1],
        "version": [12.0, 1],
        "damaged": [12.0, 1],
        "two graphs": [6.0, 2],
        "attribute of the same object": [12.0, 16.0, 12.0],
    }


def test_later_processes_load_the_traces_of_every_workload(tmp_path: Path) -> None:
    first, second = (result(str(tmp_path / "traced"), *WORKLOADS) for _ in range(2))
    assert set(first) == {f"{name} {phase}" for name in WORKLOADS for phase in ("train", "infer")}
    for name, found in first.items():
        assert found["results"] == found["plain"], name
        assert (found["calls"] > 0) == (name != "word2vec train"), name  # it compiles inference only
        assert second[name] == found | {"calls": 0}, name
