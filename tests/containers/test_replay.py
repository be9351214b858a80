"""Replay of a submission in its container image, and of one whose log states another image."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from suite.checker import check_result
from tests.containers.pairs import DATA, QUICK, ROOT, containers, published, result, run
from tests.fixtures.forging import Events, rewrite

pytestmark = pytest.mark.docker
PERTURBED = {"name and seed", "work, one slope", "work, marginal cost", "size as submitted"}


def replay(
    folder: Path, out: Path, verb: str = "audit-replay", options: tuple[str, ...] = ()
) -> tuple[int, dict[str, str], str]:
    """Exit code, outcomes by item, and the output of the command."""
    paths = ["--data-root", str(DATA), "--cache-dir", str(ROOT / ".cache"), "--out", str(out)]
    done = subprocess.run(
        [sys.executable, "-m", "suite", verb, "--result", str(folder), *paths, *options],
        cwd=ROOT, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    report = json.loads(next(out.glob("*.json")).read_text()) if out.exists() else {}
    rows = report.get("replay", report.get("perturbed", {})).get("items", [])
    return done.returncode, {row["name"]: row["outcome"] for row in rows}, done.stdout + done.stderr


def test_replay_reproduces_submission_and_detects_exchanged_image(tmp_path: Path) -> None:
    pinned = str(published("ncf", "mxnet").config_digest)
    done = run(tmp_path / "results")
    assert done.returncode == 0, done.stdout + done.stderr
    submitted = result(tmp_path / "results")
    code, items, text = replay(submitted, tmp_path / "honest")
    assert (items["image"], items["image as started"], items["losses"]) == ("equal",) * 3, text
    differ = {name for name, outcome in items.items() if outcome == "different"}
    # On a busy machine the time may differ, or its spread confirms nothing.
    assert (code, differ) in ((0, set()), (1, {"time"}), (4, set())), text
    assert containers(tmp_path / "honest" / submitted.name) == []

    def swap(events: Events) -> None:
        """The log names another image everywhere; no lock has its configuration."""
        other = "sha256:" + "9" * 64
        events[:] = json.loads(json.dumps(events).replace(pinned, other))

    forged = rewrite(shutil.copytree(submitted, tmp_path / "forged" / submitted.name), swap)
    assert check_result(forged).accepted  # no rule of the checker can detect it
    code, items, text = replay(forged, tmp_path / "detected")
    assert code == 1, text
    assert [name for name, outcome in items.items() if outcome == "different"] == ["image"]
    assert not (tmp_path / "detected" / submitted.name).exists()  # nothing was run


@pytest.mark.quiet
def test_perturbed_replay_runs_in_container(tmp_path: Path) -> None:
    """On a busy machine, repeats may differ by chance, so that up to three replays are tried."""
    published("ncf", "mxnet")
    done = run(tmp_path / "results", "data=synthetic", "batch=4096", *QUICK)
    assert done.returncode == 0, done.stdout + done.stderr
    differing = []
    for number in range(3):
        out = tmp_path / f"out-{number}"
        options = ("--repeats", "1", "--grow", "1")  # shorter than the defaults
        _, items, text = replay(result(tmp_path / "results"), out, "audit-perturb", options)
        assert set(items) == PERTURBED, text
        if "different" not in items.values():
            return
        differing.append(text)
    pytest.fail("\n".join(differing))
