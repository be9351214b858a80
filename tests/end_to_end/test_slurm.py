"""launcher=slurm on a real Slurm of one node: jobs that end, are refused, cancelled or reach a time limit."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from suite.checker import check_result
from suite.launch.job import submit
from suite.launch.script import script
from suite.plan.errors import Unsupported
from suite.plan.slurm_options import SlurmOptions
from tests.end_to_end import local_slurm
from tests.end_to_end.command import DATA, ROOT, Running, all_ended, command
from tests.end_to_end.local_slurm import Slurm, slurm_for_tests

SYNTHETIC = "data=synthetic"


def test_packages_are_unpacked_once_by_callers_that_start_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes of the tests once removed each other's files."""
    fetched = []

    def fetch(folder: Path) -> None:
        fetched.append(folder)
        time.sleep(0.2)  # long enough for the other caller to begin

    monkeypatch.setattr(local_slurm, "_fetch", fetch)
    with ThreadPoolExecutor() as callers:
        list(callers.map(local_slurm.unpack, [tmp_path / "packages"] * 2))
    assert len(fetched) == 1


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with slurm_for_tests(tmp_path_factory.mktemp("slurm")) as slurm:
        yield slurm


@pytest.fixture
def slurm(cluster: Slurm, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    wait_until_free(cluster)  # the job of the test before has written its exit code, but may still be listed
    return cluster


class Submitted(Running):
    """A run by Slurm in progress."""

    def __init__(self, results: Path, *overrides: str, workload: str = "gnmt") -> None:
        self.results = results
        argv = command(
            results, "launcher=slurm", "scale=mini", "runtime=native", *overrides, workload=workload
        )
        # Without the test's interpreter: the job uses the suite's environment.
        argv = [argument for argument in argv if not argument.startswith("framework.python=")]
        self.process = subprocess.Popen(
            argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def done(self, timeout: float = 400) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of the finished command."""
        out, errors = self.process.communicate(timeout=timeout)
        return self.process.returncode, out, errors

    def number(self, slurm: Slurm) -> str:
        """The number of the one job that runs."""
        (number,) = slurm.run("squeue", "--noheader", "--format=%i", "--states=RUNNING").split()
        return number


def write_script(folder: Path, *argv: str, options: SlurmOptions | None = None, gpus: int = 0) -> Path:
    """Write the script of a job that runs ``argv``, as :func:`suite.launch.slurm.launch` does."""
    folder.mkdir()
    path = folder / "job.sh"
    text = script(
        options or SlurmOptions(), argv, job_name="suite-test", folder=folder, root=folder, gpus=gpus
    )
    path.write_text(text)
    return path


def events(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()]


def abort_event(results: Path) -> dict[str, Any]:
    """The data of the abort event of the one log in ``results``, which only the footer follows."""
    (folder,) = results.glob("*.partial")
    *_, abort, footer = events(folder)
    assert (abort["kind"], footer["kind"], footer["data"]["outcome"]) == ("abort", "footer", "aborted")
    data: dict[str, Any] = abort["data"]
    return data


def processes_naming(text: str) -> list[int]:
    """Process ids whose command line contains ``text``."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if text.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def wait_until_free(slurm: Slurm) -> None:
    """Wait until no job is left, so that the node is free for the next test."""
    until = time.monotonic() + 60
    while slurm.run("squeue", "--noheader"):
        assert time.monotonic() < until, slurm.run("squeue")
        time.sleep(0.5)


# ---- commands as jobs ------------------------------------------------------------------------------------
def test_job_has_streams_folder_and_environment(
    slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SBATCH_PARTITION", "from-elsewhere")
    monkeypatch.setenv("STRAY_SETTING", "1")
    monkeypatch.setenv("PYTHONPATH", "/some/folder")
    output = "pwd; echo stray=${STRAY_SETTING:-none} path=$PYTHONPATH; echo problem >&2; exit 12"
    path = write_script(tmp_path / 'it\'s a #1 "job" %j', "bash", "-c", output)
    assert submit(path, wait=True) == 12
    shown = capfd.readouterr()
    assert shown.out == f"{path.parent}\nstray=none path=/some/folder\n"
    assert re.search(r"^job \d+: submitted", shown.err)
    assert "\nproblem\n" in shown.err
    assert (path.parent / "exit_code.txt").read_text() == "12 ended\n"


def test_slurm_options_are_passed_to_slurm(slurm: Slurm, tmp_path: Path) -> None:
    options = SlurmOptions(
        partition="debug", cpus=1, memory="300M", extra=('--comment=it\'s #1, "a" \\ job',)
    )
    path = write_script(tmp_path / "job", "bash", "-c", "scontrol show job $SLURM_JOB_ID", options=options)
    assert submit(path, wait=True) == 0
    shown = (path.parent / "stdout.txt").read_text()
    for expected in ("Partition=debug", "NumCPUs=1 ", "mem=300M", "TimeLimit=02:00:00", "Requeue=0"):
        assert expected in shown
    assert 'Comment=it\'s #1, "a" \\ job' in shown


def test_job_requests_whole_node_by_default(slurm: Slurm, tmp_path: Path) -> None:
    path = write_script(tmp_path / "job", "bash", "-c", "scontrol show job $SLURM_JOB_ID")
    assert submit(path, wait=True) == 0
    cores = len(os.sched_getaffinity(0))
    assert f"NumCPUs={cores} " in (path.parent / "stdout.txt").read_text()


@pytest.mark.parametrize(
    ("options", "gpus", "message"),
    [
        (SlurmOptions(partition="nowhere"), 0, "invalid partition specified: nowhere"),
        (SlurmOptions(), 1, "nvalid generic resource"),
        (SlurmOptions(extra=("--no-such-option",)), 0, "unrecognized option"),
    ],
    ids=["partition", "no GPU", "option"],
)
def test_slurm_refusal_is_reported(
    slurm: Slurm, tmp_path: Path, options: SlurmOptions, gpus: int, message: str
) -> None:
    with pytest.raises(Unsupported, match=message):
        submit(write_script(tmp_path / "job", "true", options=options, gpus=gpus), wait=True)
    assert slurm.run("squeue", "--noheader") == ""


def test_submit_without_waiting_leaves_the_job_running(slurm: Slurm, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    path = write_script(tmp_path / "job", "sh", "-c", f"until [ -e {seen} ]; do sleep 0.1; done")
    assert submit(path, wait=False) == 0
    assert slurm.run("squeue", "--noheader", "--format=%j").strip() == "suite-test"
    seen.touch()
    wait_until_free(slurm)
    assert (path.parent / "exit_code.txt").read_text() == "0 ended\n"


def test_interrupt_cancels_pending_job(slurm: Slurm, tmp_path: Path) -> None:
    options = SlurmOptions(extra=("--begin=now+1hour",))
    path = write_script(tmp_path / "job", "true", options=options)
    code = "import sys, pathlib, suite.launch.job as j; sys.exit(j.submit(pathlib.Path(sys.argv[1]), True))"
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    while "PENDING (BeginTime)" not in (line := process.stderr.readline()):
        assert line, "the job was never pending"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "SIGINT was received" in errors
    assert "Traceback" not in errors
    assert slurm.run("squeue", "--noheader") == ""


# ---- runs ------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_run_by_slurm_is_accepted(slurm: Slurm, tmp_path: Path) -> None:
    code, out, errors = Submitted(
        tmp_path, "repeats=1", "fingerprint=false", "launcher.partition=debug", workload="ncf"
    ).done()
    assert code == 0, errors
    assert re.search(r"^job \d+: submitted", errors, re.MULTILINE)
    *_, result = out.splitlines()
    folder = Path(result.removeprefix("result: "))
    assert folder.parent == tmp_path
    verdict = check_result(folder)
    assert verdict.accepted, verdict.findings
    header = events(folder)[0]["data"]
    assert (header["launcher"], header["key"]["scale"]) == ("slurm", "mini")
    assert "debug" not in json.dumps(header["overrides"])  # the log must not contain the partition


@pytest.mark.slow
@pytest.mark.parametrize("cancelled_by", ["the user", "scancel"])
def test_cancelled_run_logs_its_abort(slurm: Slurm, tmp_path: Path, cancelled_by: str) -> None:
    running = Submitted(tmp_path, SYNTHETIC)
    running.wait_for("env", 2)
    if cancelled_by == "the user":
        code, errors = running.finish(signal.SIGINT)
        assert "SIGINT was received" in errors
    else:
        slurm.run("scancel", running.number(slurm))
        code, errors = running.finish()
    assert code == 130
    assert "was cancelled" in errors
    assert "Traceback" not in errors
    assert abort_event(tmp_path)["code"] in (
        {"interrupted"} if cancelled_by == "the user" else {"interrupted", "killed"}
    )
    wait_until_free(slurm)
    assert all_ended(processes_naming(str(tmp_path)))


@pytest.mark.slow
def test_run_that_reaches_time_limit_logs_its_abort(slurm: Slurm, tmp_path: Path) -> None:
    pair = Path(__file__).parents[1] / "fixtures" / "pairs" / "waiting.py"
    running = Submitted(tmp_path, SYNTHETIC, f"pair={pair}", workload="ncf")
    running.wait_for("repeat_start")
    slurm.run("scontrol", "update", f"JobId={running.number(slurm)}", "TimeLimit=1")
    code, _, errors = running.done()
    assert code == 23
    assert "time limit ended the run; raise launcher.time" in errors
    assert abort_event(tmp_path)["code"] == "interrupted"
    wait_until_free(slurm)
    assert all_ended(processes_naming(str(tmp_path)))


def test_dry_run_prints_script_and_submits_nothing(slurm: Slurm, tmp_path: Path) -> None:
    code, out, errors = Submitted(tmp_path, SYNTHETIC, "dry=true").done()
    assert code == 0, errors
    assert "#SBATCH --job-name=suite-gnmt-pytorch" in out
    assert f"data_root={DATA}" in out
    assert slurm.run("squeue", "--noheader") == ""
    assert not list(tmp_path.iterdir())


def test_run_reports_slurm_refusal(slurm: Slurm, tmp_path: Path) -> None:
    code, _, errors = Submitted(tmp_path, SYNTHETIC, "launcher.partition=nowhere").done()
    assert code == 11
    assert "invalid partition specified: nowhere" in errors
    assert "Traceback" not in errors
