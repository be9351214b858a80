"""The frameworks' interpreters, with their versions of numpy, read and make the same bytes."""

from __future__ import annotations

from pathlib import Path

from tests.equivalence import image_batches
from tests.equivalence.case import FRAMEWORKS
from tests.equivalence.interpreters import run
from tests.fixtures import image_files

BATCHES = ("train", "infer", "evaluation")


def test_all_interpreters_make_same_batches(tmp_path: Path) -> None:
    files = image_files.with_lists(image_files.folders(tmp_path / "files"))
    records = image_files.records(tmp_path / "records")
    found = {}
    for framework in FRAMEWORKS:
        result = run(framework, "tests.equivalence.image_batches", str(files), str(records))
        assert result.returncode == 0, result.stderr[-2000:]
        found[framework] = result.stdout.splitlines()
    assert all(lines == found["pytorch"] for lines in found.values())
    # Batches that need no decoder are also equal in the suite's interpreter.
    generated = [line for line in image_batches.lines(files, records) if line.split()[0] not in BATCHES]
    assert generated == [line for line in found["pytorch"] if line.split()[0] not in BATCHES]
    assert len(generated) == 4
