"""Compare rejects hostile files: the sandbox returns the rejection only."""

from __future__ import annotations

import shutil
from pathlib import Path

from suite.compare.comparable import COMPARE_TASKS, comparable_in
from suite.sandbox.sandbox import Sandbox
from tests.fixtures.good_log import Good, write_good
from tests.hostile.corpus import ROWS


def test_compare_rejects_hostile_file(tmp_path: Path) -> None:
    good = write_good(tmp_path / "good", Good(mode="quality"))
    with Sandbox(COMPARE_TASKS) as sandbox:
        verdict, value = comparable_in(sandbox, good)
        assert (verdict.accepted, value is not None) == (True, True)
        for number, (_, spoil) in enumerate(ROWS.values()):
            result = shutil.copytree(good, tmp_path / str(number) / good.name)
            spoil(result)
            verdict, value = comparable_in(sandbox, result)
            assert (verdict.accepted, value) == (False, None)
        assert sandbox.starts == 1
