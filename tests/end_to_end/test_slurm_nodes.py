"""A run on two nodes of a real Slurm: accepted, and ended in order when a node loses its processes."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from suite.checker import check_result
from tests.end_to_end.command import all_ended
from tests.end_to_end.local_slurm import Slurm, slurm_for_tests
from tests.end_to_end.test_slurm import (
    SYNTHETIC,
    Submitted,
    abort_event,
    events,
    processes_naming,
    wait_until_free,
)

TWO_NODES = ("devices=2", "nodes=2")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with slurm_for_tests(tmp_path_factory.mktemp("slurm"), nodes=3) as slurm:
        yield slurm


@pytest.fixture
def slurm(cluster: Slurm, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    return cluster


@pytest.mark.slow
def test_run_on_two_nodes_is_accepted(slurm: Slurm, tmp_path: Path) -> None:
    code, out, errors = Submitted(
        tmp_path,
        *TWO_NODES,
        "repeats=1",
        "fingerprint=false",
        'launcher.exclude=["n0:fans fail"]',
        workload="ncf",
    ).done()
    assert code == 0, out + errors
    folder = Path(out.splitlines()[-1].removeprefix("result: "))
    verdict = check_result(folder)
    assert verdict.accepted, verdict.findings
    header = events(folder)[0]["data"]
    assert (header["launcher"], header["key"]["nodes"]) == ("slurm", 2)
    assert header["settings"]["excluded_nodes"] == ["fans fail"]
    text = (folder / "run.jsonl").read_text()
    assert not re.search(r'"n[012]"|n0:|SUITE_TOKEN|127\.0\.0\.1|/tmp/', text)


@pytest.mark.slow
def test_killed_processes_of_a_node_end_the_job(slurm: Slurm, tmp_path: Path) -> None:
    running = Submitted(tmp_path, *TWO_NODES, SYNTHETIC, workload="ncf")
    running.wait_for("env", 4)  # both nodes, both ranks
    on_nodes = [pid for pid in processes_naming(str(tmp_path)) if _variable(pid, "SLURM_PROCID") == "1"]
    assert on_nodes
    began = time.monotonic()
    for pid in on_nodes:
        os.kill(pid, signal.SIGKILL)
    code, out, errors = running.done(timeout=120)
    assert time.monotonic() - began < 90
    assert code == 20, out + errors
    abort = abort_event(tmp_path)
    assert (abort["code"], abort["rank"], abort["node"]) == ("crashed", 1, 1)
    wait_until_free(slurm)
    assert all_ended(processes_naming(str(tmp_path)), timeout=30)


@pytest.mark.slow
def test_cancelled_job_logs_its_abort(slurm: Slurm, tmp_path: Path) -> None:
    running = Submitted(tmp_path, *TWO_NODES, SYNTHETIC, workload="ncf")
    running.wait_for("env", 4)
    code, errors = running.finish(signal.SIGINT)
    assert code == 130, errors
    assert "was cancelled" in errors
    assert abort_event(tmp_path)["code"] == "interrupted"
    wait_until_free(slurm)
    assert all_ended(processes_naming(str(tmp_path)), timeout=30)


def _variable(pid: int, name: str) -> str | None:
    """An environment variable of another process; None if it has ended or has none."""
    try:
        rows = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    found = [row.partition(b"=")[2].decode() for row in rows if row.startswith(f"{name}=".encode())]
    return found[0] if found else None
