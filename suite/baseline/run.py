"""Measure the groups of a baseline and write its log."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from suite import __version__
from suite.baseline import disk
from suite.baseline.sample import cohort_of, sample
from suite.containers.engines.native import PROJECT
from suite.harness.log import LogWriter
from suite.harness.neighbours import announced
from suite.telemetry.facts import machine_facts, machine_identity
from suite.telemetry.nvml import open_devices

GROUPS = ("cpu", "gpu", "disk")
# Seconds of a window, and of a burst of GEMMs.
SECONDS = {"cpu": (0.5, 2.0), "gpu": (0.25, 1.0)}  # quick, full
BURST = (2.0, 6.0)
QUICK_ARRAY_MIB = 256
_WRONG = 3  # suite.frameworks.pytorch.baseline.windows.WRONG
_KINDS = {
    "series": ("name", "unit", "work", "method"),
    "window": ("name", "window", "calls", "elapsed_ns"),
    "check": ("name", "error", "limit"),
    "missing": ("name", "reason"),
}
# The variables that the programs get: no other setting of the user changes what is measured. Those of NCCL
# are in the method of the series that uses it, so none with a path is passed on.
_KEPT = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
_KEPT_PREFIX = "NCCL_"


class GroupFailed(Exception):
    """A group ended with an error or computed a wrong result; the message names the group and the fix."""


def measure(
    groups: Sequence[str],
    interpreters: Mapping[str, Path],
    *,
    folder: Path,
    disk_folder: Path,
    quick: bool,
    gpus: int,
    report: Callable[[str], None],
) -> Path:
    """Measure ``groups`` one after the other; the folder of the finished log.

    ``interpreters``: a Python with PyTorch for the groups cpu and gpu. ``folder``: where logs are kept.
    ``gpus``: the number of visible GPUs. A failed group leaves a log ``….partial`` and raises GroupFailed.
    """
    names = [str(index) for index in range(gpus)]
    devices = open_devices(names)
    facts, reasons = machine_facts(names)
    cohort, machine = cohort_of(facts), machine_identity(devices)
    run_id = f"{datetime.now(UTC):%Y%m%dT%H%MZ}-baseline-{'-'.join(groups)}-{secrets.token_hex(4)}"
    header = {
        "format": "suite-baseline/1", "run_id": run_id, "suite": __version__, "groups": list(groups),
        "quick": quick, "cohort": {"cpu": cohort.cpu, "threads": cohort.threads, "gpus": dict(cohort.gpus)},
        "machine": machine,
        "reasons": {} if machine else {"machine": "/etc/machine-id is missing or empty"},
    }  # fmt: skip
    log = LogWriter(folder / run_id, header)

    def emit(kind: str, data: Mapping[str, Any]) -> None:
        log.event(kind, data, None)

    try:
        with announced(run_id) as others:
            if others:
                report(f"warning: the suite measures {' and '.join(others)} on this machine too; wait for it")
            emit("facts", {"source": "host", "facts": facts, "reasons": reasons})
            for group in groups:
                report(f"{group}: measuring")
                emit("conditions", sample(group, "before", devices))
                if group == "disk":
                    _disk(disk_folder, quick, emit)
                elif group == "gpu" and not gpus:
                    emit("missing", {"name": "gpu", "reason": "this machine shows no NVIDIA GPU"})
                else:
                    _program(group, interpreters[group], quick, emit)
                emit("conditions", sample(group, "after", devices))
        return log.close("completed", None, {})
    finally:
        log.abandon()


def _disk(folder: Path, quick: bool, emit: Callable[[str, Mapping[str, Any]], None]) -> None:
    try:
        disk.measure(folder, quick, emit)
    except (disk.DiskProblem, disk.WrongData) as problem:
        raise GroupFailed(f"disk: {problem}") from problem


def _program(
    group: str, interpreter: Path, quick: bool, emit: Callable[[str, Mapping[str, Any]], None]
) -> None:
    """Run the program of a group, and log its lines as they come."""
    command = [str(interpreter), "-m", f"suite.frameworks.pytorch.baseline.{group}"]
    command += ["--seconds", str(SECONDS[group][not quick])]
    command += ["--burst", str(BURST[not quick])] if group == "gpu" else []
    command += ["--array-mib", str(QUICK_ARRAY_MIB)] if group == "cpu" and quick else []
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT or (name.startswith(_KEPT_PREFIX) and "/" not in value)
    }
    wrong = ""
    with subprocess.Popen(
        command, cwd=PROJECT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                data = json.loads(line)
                kind = data.pop("kind")
                if kind == "wrong":
                    wrong = f"{data['name']}: expected {data['expected']}, found {data['found']}"
                elif kind == "facts":
                    emit("facts", {"source": group, "facts": data["facts"], "reasons": {}})
                else:
                    emit(kind, {name: data[name] for name in _KINDS[kind]})
        except (ValueError, LookupError) as error:
            process.kill()
            raise GroupFailed(f"{group}: expected a JSON line, found {line[:200]!r}") from error
        except BaseException:
            process.kill()
            raise
    if process.returncode == _WRONG:
        raise GroupFailed(f"{group}: a result is wrong: {wrong}; test this machine's memory and cooling")
    if process.returncode != 0:
        raise GroupFailed(
            f"{group}: the program that measures ended with {process.returncode}; its message is above"
        )
