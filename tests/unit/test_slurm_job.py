"""The outcome of job states and answers that a Slurm of one node does not produce on demand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from suite.launch import job
from suite.launch.job import submit
from suite.launch.script import EXIT_CODE
from suite.plan.errors import Unsupported


@pytest.fixture
def scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of commands that sbatch's and scontrol's answers go into; time is short."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    for name in ("_POLL_S", "_LAG_S", "_SILENT_S"):
        monkeypatch.setattr(job, name, 0.1)
    answer(folder, "sbatch", "echo '12;cluster'")
    return folder


def answer(folder: Path, command: str, line: str) -> None:
    path = folder / command
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("state", "code", "message"),
    [
        ("NODE_FAIL Reason=NodeDown", 22, "lost its node"),
        ("COMPLETED Reason=None", 22, "exit_code.txt is missing"),
        ("FAILED Reason=NonZeroExitCode", 22, "ended before the run: see its output"),
        ("OUT_OF_MEMORY Reason=OutOfMemory", 21, "raise launcher.memory"),
        ("TIMEOUT Reason=TimeLimit", 23, "raise launcher.time"),
        ("PREEMPTED Reason=None", 130, "was preempted"),
        ("CANCELLED Reason=None", 130, "was cancelled"),
    ],
)
def test_final_state_without_exit_code_gives_typed_code(
    state: str, code: int, message: str, tmp_path: Path, scontrol: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    answer(scontrol, "scontrol", f"echo 'JobId=12 JobName=x Priority=1 JobState={state} Dependency=(null)'")
    assert submit(tmp_path / "job.sh", wait=True) == code
    *_, last = capfd.readouterr().err.splitlines()
    assert last.startswith("error: job 12: ")
    assert message in last


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", "no longer lists it"),
        ("echo 'Unable to contact slurm controller' >&2; exit 1", "has not answered"),
    ],
    ids=["gone", "silent"],
)
def test_lost_job_gives_typed_code(
    line: str, message: str, tmp_path: Path, scontrol: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    answer(scontrol, "scontrol", line)
    assert submit(tmp_path / "job.sh", wait=True) == 22
    assert message in capfd.readouterr().err


@pytest.mark.parametrize(
    ("recorded", "code"),
    [
        ("0 ended", 0),
        ("1 ended", 1),
        ("130 time-limit", 23),
        ("0 time-limit", 0),
        ("22 cancelled", 130),
        ("137 ended", 22),
    ],
)
def test_recorded_exit_code_is_the_outcome(
    recorded: str, code: int, tmp_path: Path, scontrol: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    answer(scontrol, "scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    (tmp_path / EXIT_CODE).write_text(recorded + "\n")
    (tmp_path / "stdout.txt").write_text("result: results/x\n")
    assert submit(tmp_path / "job.sh", wait=True) == code
    assert capfd.readouterr().out == "result: results/x\n"


def test_refusal_of_slurm_is_reported_in_one_line(tmp_path: Path, scontrol: Path) -> None:
    answer(scontrol, "sbatch", "echo 'sbatch: error: invalid account' >&2; echo 'sbatch: bye' >&2; exit 1")
    with pytest.raises(Unsupported, match="refused the job: invalid account; bye; see launcher"):
        submit(tmp_path / "job.sh", wait=True)
