"""A replay of a submission by an auditor: honest results, forgeries, and signed verdicts."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from suite.audit.replay import MOST_TOLERANCE, allowed, select
from suite.audit.replayed import root_of
from suite.log.files import read_folder
from suite.log.reader import read_result
from suite.submissions.signing import keys
from tests.end_to_end.command import DATA, ROOT, run
from tests.equivalence.interpreters import interpreter
from tests.fixtures.forging import Events, rewrite
from tests.fixtures.honest import NAMES, write_honest

NONCE = "3d" * 32


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of ncf in MXNet, which starts fastest."""
    folder = tmp_path_factory.mktemp("results")
    done = run(folder, framework="mxnet")
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("2*"))


def audit(verb: str, folder: Path, out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    paths = ["--data-root", str(DATA), "--cache-dir", str(out.parent / "cache"), "--out", str(out)]
    custom = ["--interpreter", str(interpreter("mxnet"))]
    return subprocess.run(
        [sys.executable, "-m", "suite", verb, "--result", str(folder), *paths, *custom, *options],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def report(out: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((out / "replay.json").read_text())
    return value


def outcomes(verdict: dict[str, Any]) -> dict[str, str]:
    return {item["name"]: item["outcome"] for item in verdict["replay"]["items"]}


def test_replay_of_an_honest_submission_is_equal_and_its_verdict_verifies(
    result: Path, tmp_path: Path
) -> None:
    """All items but the time are bitwise equal. On a busy machine it may differ, or be unconfirmed."""
    key = tmp_path / "key.pem"
    public = keys.write(keys.generate(), key)
    out = tmp_path / "out"
    done = audit("audit-replay", result, out, "--nonce", NONCE, "--key", str(key))
    verdict = report(out)
    assert {name for name, outcome in outcomes(verdict).items() if outcome == "different"} <= {"time"}, done
    wanted, found = read_result(result).throughput, read_result(out / result.name).throughput
    assert wanted is not None
    assert found is not None
    apart = abs(math.log(wanted.per_second / found.per_second))
    late = apart > allowed(wanted.cv or 0.0, None, 1)
    unsure = not late and apart > MOST_TOLERANCE
    outcome = "different" if late else "not comparable" if unsure else "inside tolerance"
    assert outcomes(verdict)["time"] == outcome
    code, level = (1, "L0") if late else (4, "L0") if unsure else (0, "L3")
    assert (done.returncode, verdict["level"]) == (code, level), done
    repeat = select(root_of(read_folder(result).data), NONCE, 1)[0]
    assert {item["repeat"] for item in verdict["replay"]["items"]} == {None, repeat}
    bits = ("losses", "batches", "final parameters", "fingerprint common: losses (fp32)")
    assert {outcomes(verdict)[name] for name in bits} == {"equal"}
    again = out / result.name
    verify = [sys.executable, "-m", "suite", "audit", "--result", str(result), "--keys", str(public)]
    verify += ["--verify", str(out / "verdict.dsse.json"), "--replay"]
    verified = subprocess.run([*verify, str(again)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert ("FAILED, FAILED" if late else f"PASSED, SUITE_{level}") in verified.stdout
    forged = shutil.copytree(again, tmp_path / "forged" / again.name)
    rewrite(forged, lambda events: events[1]["data"]["load"].update(one_minute="9.99"))
    broken = subprocess.run([*verify, str(forged)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert broken.returncode == 1
    assert "predicate.urn:suite:audit:1.replay.log" in broken.stdout


def test_replay_detects_losses_of_another_seed(result: Path, tmp_path: Path) -> None:
    """Two repeats exchange their losses, and all fields that the checker compares with them."""
    root = root_of(read_folder(result).data)

    def exchange(events: Events) -> None:
        steps: list[list[Any]] = [[] for _ in range(5)]
        for event in events:
            if event["kind"] == "step":
                steps[event["repeat"]].append(event["data"])
        for one, other in ((0, 1), (2, 3), (4, 0)):
            for mine, theirs in zip(steps[one], steps[other], strict=True):
                mine["loss"], theirs["loss"] = theirs["loss"], mine["loss"]

    forged = rewrite(shutil.copytree(result, tmp_path / result.name), exchange)
    assert root_of(read_folder(forged).data) != root
    done = audit("audit-replay", forged, tmp_path / "out", "--nonce", NONCE)
    assert done.returncode == 1, done.stdout + done.stderr
    found = outcomes(report(tmp_path / "out"))
    assert {name for name, outcome in found.items() if outcome == "different"} - {"time"} == {"losses"}


def test_first_steps_agree_in_another_framework(result: Path, tmp_path: Path) -> None:
    options = ["--device", "cpu", "--steps", "2", "--framework", "pytorch", "--threads", "1"]
    options += ["--interpreter", str(interpreter("pytorch"))]
    done = audit("audit-replay", result, tmp_path / "out", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["name"]: row["outcome"] for row in report(tmp_path / "out")["first_steps"]}
    assert rows["batches"] == "equal"
    assert rows["fingerprint common: initial parameters"] == "equal"
    assert set(rows.values()) <= {"equal", "inside tolerance"}
    assert "no level" in done.stdout


def test_rejected_result_is_not_replayed(result: Path, tmp_path: Path) -> None:
    def claim(events: Events) -> None:
        events[-1]["data"]["claims"]["units"] += 1

    forged = rewrite(shutil.copytree(result, tmp_path / result.name), claim)
    done = audit("audit-replay", forged, tmp_path / "out")
    assert done.returncode == 1
    assert "nothing was run" in done.stdout
    assert not (tmp_path / "out").exists()


def test_first_steps_of_a_gpu_agree_on_a_cpu(tmp_path: Path) -> None:
    """MXNet on a CPU recomputes the float64 values of PyTorch on an H200 to 1e-12."""
    interpreter("mxnet")
    (name,) = (one for one in NAMES if "word2vec-pytorch-train" in one)  # the smallest
    measured = write_honest(name, tmp_path)
    out = tmp_path / "out"
    options = ["--result", str(measured), "--out", str(out), "--cache-dir", str(tmp_path / "cache")]
    options += ["--device", "cpu", "--steps", "2", "--framework", "mxnet"]
    done = subprocess.run(
        [sys.executable, "-m", "suite", "audit-replay", *options],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    items = {item["name"]: item for item in report(out)["first_steps"]}
    for name in ("losses", "gradient norms"):
        item = items[f"fingerprint own: {name} (fp64)"]
        apart = re.search(r"([0-9.]+e-[0-9]+) apart", item["because"])
        assert item["outcome"] == "equal" or (apart is not None and float(apart[1]) < 1e-12), item
