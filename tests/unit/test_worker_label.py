"""The label file of a container image, as the worker reports it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from suite.log.processors import expand_list
from suite.worker import record


def test_label_is_reported_unchanged(tmp_path: Path) -> None:
    label = {"workload": "ncf", "framework": "pytorch", "base_digest": ""}
    file = tmp_path / "label.json"
    file.write_text(json.dumps(label))
    assert record.image_label(file) == (label, "")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is not JSON"),
        (b"\xff", "is not JSON"),
        (b"[" * 10_000, "is not JSON"),
        (b"{}" + b" " * (16 << 10), "has more than 16384 bytes"),
        (b'["workload"]', "is not an object of plain texts"),
        (b'{"workload": 3}', "is not an object of plain texts"),
        (b'{"workload": null}', "is not an object of plain texts"),
        (b'{"": "x"}', "is not an object of plain texts"),
        (b'{"workload": "\\u001b[2J"}', "is not an object of plain texts"),
        ('{"wörk": "x"}'.encode(), "is not an object of plain texts"),
        (json.dumps({f"n{number}": "" for number in range(65)}).encode(), "is not an object of plain texts"),
    ],
    ids=range(11),
)
def test_invalid_label_is_null_with_a_reason(content: bytes, why: str, tmp_path: Path) -> None:
    file = tmp_path / "label.json"
    file.write_bytes(content)
    assert record.image_label(file) == (None, f"the label file {why}")


def test_missing_or_unreadable_label_is_null_with_a_reason(tmp_path: Path) -> None:
    assert record.image_label(tmp_path / "none")[1].startswith("there is no label file")
    assert record.image_label(tmp_path) == (None, "the label file cannot be read: Is a directory")


def test_facts_have_the_label_or_the_reason_without_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(record, "LABEL_FILE", tmp_path / "label.json")
    facts, reasons = record.facts({"version": None})
    assert facts["image_label"] is None
    assert reasons == {"image_label": "there is no label file: the suite did not build this container image"}
    (tmp_path / "label.json").write_text('{"workload": "ncf"}')
    facts, reasons = record.facts({})
    assert (facts["image_label"], reasons) == ({"workload": "ncf"}, {})
    assert len(expand_list(facts["affinity"])) == len(os.sched_getaffinity(0))


def test_facts_name_injecting_variables_without_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in record.INJECTING:
        monkeypatch.delenv(name, raising=False)
    before = record.injected()
    monkeypatch.setenv("LD_PRELOAD", "/home/somebody/fast.so")
    monkeypatch.setenv("CUDA_INJECTION64_PATH", "")  # an empty variable injects nothing
    assert record.facts({})[0]["injected"] == ["LD_PRELOAD", *before]
