"""A submission from a container, run again in its image; and one whose log states another image."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from suite.checker import check_result
from tests.containers.pairs import DATA, ROOT, containers, published, result, run
from tests.fixtures.forging import Events, rewrite

pytestmark = pytest.mark.docker
PERTURBED = {"name and seed", "work, one slope", "work, marginal cost", "size as submitted"}


def replay(folder: Path, out: Path, verb: str = "audit-replay") -> tuple[int, dict[str, str], str]:
    """Exit code, outcomes by item, and what was printed."""
    places = ["--data-root", str(DATA), "--cache-dir", str(ROOT / ".cache"), "--out", str(out)]
    done = subprocess.run(
        [sys.executable, "-m", "suite", verb, "--result", str(folder), *places],
        cwd=ROOT, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    told = json.loads(next(out.glob("*.json")).read_text()) if out.exists() else {}
    rows = told.get("replay", told.get("perturbed", {})).get("items", [])
    return done.returncode, {row["name"]: row["outcome"] for row in rows}, done.stdout + done.stderr


def test_a_submission_from_a_container_is_replayed_and_a_swapped_image_caught(tmp_path: Path) -> None:
    pinned = str(published("ncf", "pytorch").config_digest)
    done = run(tmp_path / "results")
    assert done.returncode == 0, done.stdout + done.stderr
    submitted = result(tmp_path / "results")
    code, items, text = replay(submitted, tmp_path / "honest")
    assert (items["image"], items["image as started"], items["losses"]) == ("equal",) * 3, text
    differ = {name for name, outcome in items.items() if outcome == "different"}
    assert (code, differ) in ((0, set()), (1, {"time"})), text  # a machine that others use may be late
    assert containers(tmp_path / "honest" / submitted.name) == []

    def swap(events: Events) -> None:
        """Wherever the log names the image, it names another: of its configuration no lock knows anything."""
        other = "sha256:" + "9" * 64
        events[:] = json.loads(json.dumps(events).replace(pinned, other))

    forged = rewrite(shutil.copytree(submitted, tmp_path / "forged" / submitted.name), swap)
    assert check_result(forged).accepted  # no offline rule sees it
    code, items, text = replay(forged, tmp_path / "caught")
    assert code == 1, text
    assert [name for name, outcome in items.items() if outcome == "different"] == ["image"]
    assert not (tmp_path / "caught" / submitted.name).exists()  # nothing was run


def test_the_renamed_code_runs_in_the_container(tmp_path: Path) -> None:
    """Three repeats know little of a machine that others use, so that a disturbed one may be tried again."""
    published("ncf", "pytorch")
    done = run(tmp_path / "results", "data=synthetic", "batch=4096")
    assert done.returncode == 0, done.stdout + done.stderr
    tried = []
    for number in range(3):
        out = tmp_path / f"out-{number}"
        _, items, text = replay(result(tmp_path / "results"), out, "audit-perturb")
        assert set(items) == PERTURBED, text
        if "different" not in items.values():
            return
        tried.append(text)
    pytest.fail("\n".join(tried))
