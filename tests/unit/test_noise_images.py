"""Generated files for measurements of input pipelines have the published sizes and can be prepared."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def python(*argv: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *argv], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("like", "workload", "bytes_each"), [("imagenet", "resnet50", 110e3), ("coco", "faster_rcnn", 175e3)]
)
def test_generated_images_are_prepared_as_custom_ones(
    like: str, workload: str, bytes_each: float, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    counts = ("--groups", "2", "--train", "4", "--val", "2")
    python("tools.noise_images", str(source), "--like", like, *counts)
    files = [path for path in source.rglob("*.*") if path.suffix in (".JPEG", ".jpg")]
    assert len(files) == 2 * (4 + 2)
    assert sum(path.stat().st_size for path in files) / len(files) == pytest.approx(bytes_each, rel=0.15)
    root = ("--data-root", str(tmp_path / "data"))
    python("suite", "data", "--workload", workload, "--from", str(source), "--custom", *root)
