"""Runs ``python -m suite run`` as a user does, in a separate process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.equivalence.interpreters import interpreter

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "data"


# Workers start early on a GPU alone; this is the same program, which lets them on a CPU.
EARLY = (
    "import sys; from suite.harness import run; run._may_start_early = lambda plan: True; "
    "from suite.cli import main; sys.exit(main())"
)


def command(
    results: Path, *options: str, framework: str = "pytorch", workload: str = "ncf", early: bool = False
) -> list[str]:
    """The argv of a run that writes to ``results``; skips the test without the framework's environment."""
    python = interpreter(framework)
    program = ("-c", EARLY) if early else ("-m", "suite")
    return [
        *(sys.executable, *program, "run", f"workload={workload}", f"framework={framework}"),
        *(f"framework.python={python}", f"results_dir={results}", f"data_root={DATA}", *options),
    ]


def run(results: Path, *options: str, timeout: float = 300, **which: Any) -> subprocess.CompletedProcess[str]:
    """The finished command."""
    return subprocess.run(
        command(results, *options, **which),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


class Running:
    """A run in progress that a test interrupts."""

    def __init__(self, results: Path, *options: str, **which: Any) -> None:
        self.results = results
        argv = command(results, *options, **which)
        self.process = subprocess.Popen(
            argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def wait_for(self, kind: str, count: int = 1, timeout: float = 120) -> Path:
        """The log's path once it holds ``count`` events of ``kind``."""
        until = time.monotonic() + timeout
        while time.monotonic() < until and self.process.poll() is None:
            for log in self.results.glob("*.partial/run.jsonl"):
                if log.read_text().count(f'"kind":"{kind}"') >= count:
                    return log
            time.sleep(0.05)
        raise AssertionError(f"no {kind} in {timeout} s: {self.process.communicate(timeout=5)}")

    def workers(self) -> list[int]:
        """Process ids of the live workers and samplers that this run has started."""
        return workers_of(self.process.pid)

    def finish(self, number: signal.Signals | None = None, timeout: float = 120) -> tuple[int, str]:
        """Send a signal if one is given, wait for the end: exit code and stderr."""
        if number is not None:
            os.kill(self.process.pid, number)
        _, errors = self.process.communicate(timeout=timeout)
        return self.process.returncode, errors


def workers_of(parent: int, module: bytes = b"suite.worker") -> list[int]:
    """Process ids of the live workers, or of another module, that process ``parent`` has started."""
    children = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command_line = (entry / "cmdline").read_bytes()
            found = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        if module in command_line and found == parent and alive(int(entry.name)):
            children.append(int(entry.name))
    return children


def alive(pid: int) -> bool:
    """Whether process ``pid`` still runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def all_ended(pids: list[int], timeout: float = 10) -> bool:
    """Whether every process of ``pids`` ends within ``timeout`` seconds."""
    until = time.monotonic() + timeout
    while any(alive(pid) for pid in pids) and time.monotonic() < until:
        time.sleep(0.05)
    return not any(alive(pid) for pid in pids)
