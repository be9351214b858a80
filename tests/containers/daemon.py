"""Daemons that the tests start and end by their pid."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil


def start(
    name: str, command: list[str], folder: Path, ready: Callable[[], bool], timeout_s: float
) -> str | None:
    """Start ``command`` and wait until it is ``ready``; its output goes to ``folder``.

    Returns None, or the reason why the daemon is not ready.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{name}.log"
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    # With the creation time: the kernel may give the pid to another process before stop() is called.
    (folder / f"{name}.pid").write_text(f"{process.pid} {psutil.Process(process.pid).create_time()}\n")
    end = time.monotonic() + timeout_s
    while time.monotonic() < end and process.poll() is None:
        if ready():
            return None
        time.sleep(0.2)
    stop(name, folder)
    return f"{name} was started and does not answer: {_end_of(log)}"


def stop(name: str, folder: Path) -> bool:
    """End the daemon that :func:`start` started; False if it does not run."""
    file = folder / f"{name}.pid"
    try:
        process = _process(file)
        process.terminate()
        process.wait(30)
    except (OSError, ValueError, psutil.NoSuchProcess):
        return False
    finally:
        file.unlink(missing_ok=True)
    return True


def ended_by_itself(name: str, folder: Path) -> str:
    """The end of the log of a daemon that :func:`start` started, if it ended by itself; else empty."""
    file = folder / f"{name}.pid"
    try:
        if not file.exists() or _process(file).status() != psutil.STATUS_ZOMBIE:
            return ""
    except psutil.NoSuchProcess:
        pass
    return _end_of(folder / f"{name}.log")


def _process(file: Path) -> psutil.Process:
    """The process that :func:`start` noted in ``file``; psutil.NoSuchProcess if it ended."""
    pid, created = file.read_text().split()
    process = psutil.Process(int(pid))
    if process.create_time() != float(created):
        raise psutil.NoSuchProcess(int(pid))  # another process has its pid now
    return process


def _end_of(log: Path) -> str:
    return " / ".join(log.read_text(errors="replace").strip().splitlines()[-5:])
