"""A submission run again as an auditor does it: what holds, what a forgery changes, what is signed."""

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

from suite.audit.replay import allowed, select
from suite.audit.replayed import root_of
from suite.log.files import read_folder
from suite.log.reader import read_result
from suite.log.statistics import REPEATS
from suite.submissions.signing import keys
from tests.end_to_end.command import DATA, ROOT, run
from tests.equivalence.interpreters import interpreter
from tests.fixtures.forging import Events, rewrite
from tests.fixtures.honest import NAMES, write_honest

NONCE = "3d" * 32


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of ncf in MXNet, which starts quickest."""
    place = tmp_path_factory.mktemp("results")
    done = run(place, framework="mxnet")
    assert done.returncode == 0, done.stdout + done.stderr
    return next(place.glob("2*"))


def audit(verb: str, folder: Path, out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    places = ["--data-root", str(DATA), "--cache-dir", str(out.parent / "cache"), "--out", str(out)]
    own = ["--interpreter", str(interpreter("mxnet"))]
    return subprocess.run(
        [sys.executable, "-m", "suite", verb, "--result", str(folder), *places, *own, *options],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def report(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "replay.json").read_text())
    return found


def outcomes(told: dict[str, Any]) -> dict[str, str]:
    return {item["name"]: item["outcome"] for item in told["replay"]["items"]}


def test_an_honest_submission_is_replayed_and_its_verdict_holds(result: Path, tmp_path: Path) -> None:
    """All but the time is bits. A machine that was disturbed while it ran again is late, and no L3 then."""
    key = tmp_path / "key.pem"
    public = keys.write(keys.generate(), key)
    out = tmp_path / "out"
    done = audit("audit-replay", result, out, "--nonce", NONCE, "--key", str(key))
    told = report(out)
    assert {name for name, outcome in outcomes(told).items() if outcome == "different"} <= {"time"}, done
    wanted, found = read_result(result).throughput, read_result(out / result.name).throughput
    assert wanted is not None
    assert found is not None
    late = abs(math.log(wanted.per_second / found.per_second)) > allowed(wanted.cv or 0.0, None, 1)
    assert outcomes(told)["time"] == ("different" if late else "inside tolerance")
    assert (done.returncode, told["level"]) == ((1, "L0") if late else (0, "L3")), done
    repeat = select(root_of(read_folder(result).data), NONCE, 1)[0]
    assert {item["repeat"] for item in told["replay"]["items"]} == {None, repeat}
    bits = ("losses", "batches", "final parameters", "fingerprint common: losses (fp32)")
    assert {outcomes(told)[name] for name in bits} == {"equal"}
    again = out / result.name
    verify = [sys.executable, "-m", "suite", "audit", "--result", str(result), "--keys", str(public)]
    verify += ["--verify", str(out / "verdict.dsse.json"), "--replay"]
    held = subprocess.run([*verify, str(again)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert held.returncode == 0, held.stdout + held.stderr
    assert ("FAILED, FAILED" if late else "PASSED, SUITE_L3") in held.stdout
    forged = shutil.copytree(again, tmp_path / "forged" / again.name)
    rewrite(forged, lambda events: events[1]["data"]["load"].update(one_minute="9.99"))
    broken = subprocess.run([*verify, str(forged)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert broken.returncode == 1
    assert "predicate.urn:suite:audit:1.replay.log" in broken.stdout


def test_losses_of_another_seed_are_caught(result: Path, tmp_path: Path) -> None:
    """The losses of two repeats change places, and with them all that the checker compares them with."""
    root = root_of(read_folder(result).data)

    def exchange(events: Events) -> None:
        steps: list[list[Any]] = [[] for _ in range(REPEATS)]
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


def test_first_steps_hold_in_another_framework(result: Path, tmp_path: Path) -> None:
    options = ["--device", "cpu", "--steps", "2", "--framework", "pytorch", "--threads", "1"]
    options += ["--interpreter", str(interpreter("pytorch"))]
    done = audit("audit-replay", result, tmp_path / "out", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["name"]: row["outcome"] for row in report(tmp_path / "out")["first_steps"]}
    assert rows["batches"] == "equal"
    assert rows["fingerprint common: initial parameters"] == "equal"
    assert set(rows.values()) <= {"equal", "inside tolerance"}
    assert "no level" in done.stdout


def test_a_rejected_result_is_not_run(result: Path, tmp_path: Path) -> None:
    def claim(events: Events) -> None:
        events[-1]["data"]["claims"]["units"] += 1

    forged = rewrite(shutil.copytree(result, tmp_path / result.name), claim)
    done = audit("audit-replay", forged, tmp_path / "out")
    assert done.returncode == 1
    assert "nothing was run" in done.stdout
    assert not (tmp_path / "out").exists()


def test_first_steps_of_a_gpu_hold_on_a_processor(tmp_path: Path) -> None:
    """What PyTorch computed in float64 on an H200 comes out of MXNet here to the last digits.

    It does since a rate is the same number in all.
    """
    interpreter("mxnet")
    (name,) = (one for one in NAMES if "ncf-pytorch-train-tf32" in one)
    measured = write_honest(name, tmp_path)
    out = tmp_path / "out"
    words = ["--result", str(measured), "--out", str(out), "--cache-dir", str(tmp_path / "cache")]
    words += ["--device", "cpu", "--steps", "3", "--framework", "mxnet"]
    done = subprocess.run(
        [sys.executable, "-m", "suite", "audit-replay", *words],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    items = {item["name"]: item for item in report(out)["first_steps"]}
    for name in ("losses", "gradient norms"):
        item = items[f"fingerprint own: {name} (fp64)"]
        apart = re.search(r"([0-9.]+e-[0-9]+) apart", item["because"])
        assert item["outcome"] == "equal" or (apart is not None and float(apart[1]) < 1e-12), item
