"""Samples at 1 Hz, taken by a separate process: a thread would compete with the harness for the interpreter.

The child (``python -m suite.telemetry.sampler``) writes JSON lines to its stdout, which is an anonymous file
in memory: writing never blocks and uses no disk, and the harness does not read within the window. The child
ends at end of file on its stdin, so it does not outlive the harness.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from suite.telemetry.counters import CounterReader
from suite.telemetry.nvml import open_devices

INTERVAL = 1.0
SHORTEST_INTERVAL = 0.1  # faster polling disturbs the device and its driver
NICENESS = 10
MOST_BYTES = 64 << 20  # of samples; about 20 hours of one device
STOP_SECONDS = 5.0

# CLOCK_MONOTONIC in ns; host, processes and devices of a telemetry event; the reasons of their nulls.
Sample = tuple[int, dict[str, Any], dict[str, str]]


class Sampler:
    """Samples one worker from the start of the ``with`` block to :meth:`stop` or the end of the block.

    ``devices``: UUIDs, or ordinals under CUDA_VISIBLE_DEVICES (see :class:`suite.telemetry.nvml.Devices`).
    If not ``enabled``, it does nothing. After :meth:`stop`, ``cost_ns`` is the CPU time of all samples but
    the first (None if the process was killed): the start and the first sample, which fall into the worker's
    set-up, are excluded. ``failure`` is the reason why samples are missing, or None.
    """

    def __init__(
        self, pid: int, devices: Sequence[str] = (), enabled: bool = True, interval: float = INTERVAL
    ) -> None:
        if interval < SHORTEST_INTERVAL:
            raise ValueError(f"interval: expected at least {SHORTEST_INTERVAL} s, found {interval}")
        self._options = ["--pid", str(pid), "--interval", str(interval), "--devices", ",".join(devices)]
        self._enabled = enabled
        self._process: subprocess.Popen[bytes] | None = None
        self._file = -1
        self.cost_ns: int | None = None
        self.failure: str | None = None

    def __enter__(self) -> Sampler:
        """Start the process. Returns at once; the first sample comes some 0.1 s later."""
        if self._enabled:
            self._file = os.memfd_create("telemetry-samples")
            home = str(Path(__file__).resolve().parents[2])
            search = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH"))))
            self._process = subprocess.Popen(
                [sys.executable, "-m", "suite.telemetry.sampler", *self._options],
                stdin=subprocess.PIPE,
                stdout=self._file,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": search},
                start_new_session=True,  # Ctrl-C is for the harness, which then ends the sampler
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def wait(self, seconds: float = STOP_SECONDS) -> bool:
        """Wait for the first sample; whether it was taken within ``seconds``."""
        deadline = time.monotonic() + seconds
        while self._process is not None and os.fstat(self._file).st_size == 0:
            if time.monotonic() > deadline or self._process.poll() is not None:
                return False
            time.sleep(0.01)
        return self._process is not None

    def stop(self) -> list[Sample]:
        """End the process and return its samples, oldest first; an empty list if it does not run."""
        if self._process is None:
            return []
        process, self._process = self._process, None
        assert process.stdin is not None
        process.stdin.close()
        try:
            code = process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:  # a driver call hangs
            process.kill()
            code = process.wait()
        if code != 0:
            self.failure = f"the sampling process ended with status {code}"
        text = os.pread(self._file, os.fstat(self._file).st_size, 0)
        os.close(self._file)
        return self._parse(text)

    def _parse(self, text: bytes) -> list[Sample]:
        whole = text[: text.rfind(b"\n") + 1]  # a killed process may leave an incomplete line
        lines = [json.loads(line) for line in whole.splitlines()]
        if lines and "cost_ns" in lines[-1]:
            end = lines.pop()
            self.cost_ns = int(end["cost_ns"])
            self.failure = self.failure or end["failure"]
        return [(line["monotonic_ns"], line["data"], line["reasons"]) for line in lines]


def _leave_cores_to(worker: int) -> None:
    """Run on cores that are not the worker's, if there are any."""
    with contextlib.suppress(OSError):  # no such core, or the worker has ended
        os.sched_setaffinity(0, set(range(os.cpu_count() or 1)) - os.sched_getaffinity(worker))


def _write(line: dict[str, Any]) -> int:
    return os.write(1, json.dumps(line, separators=(",", ":")).encode() + b"\n")


def _sample(counters: CounterReader, interval: float) -> tuple[int, str | None]:
    """Sample until stdin ends; returns the CPU time up to the first sample, and why samples are missing."""
    room = MOST_BYTES
    started_ns: int | None = None
    due = time.monotonic()
    while True:
        taken = time.monotonic_ns()
        data, reasons = counters.read()
        room -= _write({"monotonic_ns": taken, "data": data, "reasons": reasons})
        started_ns = started_ns or time.process_time_ns()
        now = time.monotonic()
        due += interval * (int((now - due) // interval) + 1)  # missed ticks are skipped
        ended, _, _ = select.select([0], [], [], due - now)
        if ended:
            return started_ns, None
        if room < 0:
            select.select([0], [], [])
            return started_ns, f"samples after the first {MOST_BYTES} bytes were dropped"


def main(argv: Sequence[str] | None = None) -> int:
    """The sampling process."""
    parser = argparse.ArgumentParser(prog="python -m suite.telemetry.sampler", description=__doc__)
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--interval", type=float, default=INTERVAL)
    parser.add_argument("--devices", default="", help="UUIDs or ordinals, separated by commas")
    options = parser.parse_args(argv)
    os.nice(NICENESS)
    _leave_cores_to(options.pid)
    chosen = [name for name in options.devices.split(",") if name]
    started_ns, failure = _sample(CounterReader(options.pid, open_devices(chosen)), options.interval)
    _write({"cost_ns": time.process_time_ns() - started_ns, "failure": failure})
    return 0


if __name__ == "__main__":
    sys.exit(main())
