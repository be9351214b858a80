"""Long preparations: which stages run again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from suite.datasets import stages
from suite.datasets.errors import DatasetCorrupt
from suite.datasets.stages import Stage


def test_stages_run_again_only_after_a_change(tmp_path: Path) -> None:
    ran: list[str] = []

    def stage(name: str, reads: str, writes: str, by: str = "") -> Stage:
        def run(parts: object) -> None:
            ran.append(name)
            assert isinstance(parts, list)
            parts[0].write_bytes((tmp_path / reads).read_bytes() + name.encode())

        return Stage(name, (reads,), (writes,), run, by)

    def perform(published: Mapping[str, str] | None = None, by: str = "1") -> list[str]:
        ran.clear()
        chain = [stage("a", "in", "one"), stage("b", "one", "two", by), stage("c", "two", "three")]
        stages.perform(chain, tmp_path, published or {}, lambda _: None)
        return list(ran)

    (tmp_path / "in").write_bytes(b"x")
    assert perform() == ["a", "b", "c"]
    assert (tmp_path / "three").read_bytes() == b"xabc"
    assert perform() == []
    (tmp_path / "two").unlink()
    assert perform() == ["b"], "the same bytes came back, so that nothing behind it runs"
    (tmp_path / "in").write_bytes(b"y")
    assert perform() == ["a", "b", "c"]
    assert perform(by="2") == ["b"]
    (tmp_path / "one").write_bytes(b"damaged")
    assert perform(by="2") == ["a"], "repaired from what it was made of"
    (tmp_path / "in").write_bytes(b"z")
    with pytest.raises(DatasetCorrupt, match=r"two \(stage b\): expected md5:0"):
        perform({"two": "md5:" + "0" * 32}, by="2")
    assert perform(by="2") == ["b", "c"]
    (tmp_path / stages.RECORD).write_text("[]")
    assert perform(by="2") == ["a", "b", "c"]
