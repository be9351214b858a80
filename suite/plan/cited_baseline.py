"""Finds the baseline that a run cites: the newest one of this machine, of the last 24 hours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from suite.contract import ConversionKey, Key
from suite.log.files import LOG
from suite.log.safe import safe
from suite.metrics.baseline import Baseline, BaselineProblem, read_log
from suite.metrics.cited_baseline import citation, gemm_series
from suite.plan.machine import detect_machine
from suite.plan.plan import Plan
from suite.rules import Rules
from suite.telemetry.facts import machine_identity
from suite.telemetry.nvml import hash_uuid, open_devices
from suite.telemetry.storage import storage_facts

LOGS = "logs"  # the folder of logs within that of baselines
_MOST = 20  # logs that are read, the newest first
_NAMED = "%Y%m%dT%H%MZ"  # the time at the beginning of a log's folder


@dataclass(frozen=True, slots=True)
class CitedBaseline:
    """The ``baseline`` of the header and the content of the file beside the log; or None and the reason."""

    data: Mapping[str, Any] | None
    shared: bytes
    reason: str


def not_cited(reason: str) -> CitedBaseline:
    """No citation."""
    return CitedBaseline(None, b"", safe(reason, 400).encode("ascii", "replace").decode())


def cite_baseline(plan: Plan, rules: Rules, data: Path | None) -> CitedBaseline:
    """The baseline that the run of ``plan`` cites. ``data``: the folder of the dataset, if it reads one."""
    key, folder = plan.key, plan.settings.baselines
    if isinstance(key, ConversionKey) or key.nodes > 1:
        return not_cited("a baseline is cited by a benchmark on one machine only")
    hours = int(rules.limit("baseline_age_s")) // 3600
    problem = f"no log of the last {hours} hours is in the folder {LOGS} of baselines"
    for log in list(_recent(folder / LOGS, hours))[:_MOST]:
        try:
            baseline = read_log(log)
        except BaselineProblem as error:
            problem = f"the newest log of a baseline is invalid: {error}"
            continue
        gpus = _gpus_of(baseline, plan, key)
        if isinstance(gpus, str):
            problem = gpus
            continue
        return CitedBaseline(
            citation(baseline, gpus, key.precision, same_disk=_same_disk(baseline, data)),
            baseline.shared(),
            "",
        )
    return not_cited(f"{problem}; measure one: make baseline")


def _recent(logs: Path, hours: int) -> Iterator[Path]:
    """The folders of the logs that began in the last ``hours``, the newest first."""
    now = datetime.now(UTC)
    for path in sorted(logs.glob("*-baseline-*"), reverse=True):
        try:
            began = datetime.strptime(path.name.partition("-")[0], _NAMED).replace(tzinfo=UTC)
        except ValueError:
            continue
        if 0 <= (now - began).total_seconds() < 3600 * hours and (path / LOG).is_file():
            yield path


def _gpus_of(baseline: Baseline, plan: Plan, key: Key) -> dict[str, str] | str:
    """The GPUs of the run by their names in ``baseline``; or why it is not of this run's machine."""
    if not plan.gpus:
        here = machine_identity(open_devices([str(at) for at in range(len(detect_machine().gpus))]))
        if here is None:
            return "this machine cannot be recognised: /etc/machine-id is missing or empty"
        if baseline.machine != here:
            return f"the baseline {baseline.digest[:16]} is of another machine"
        return {}
    found = {}
    for gpu in plan.gpus:
        digest = hash_uuid(gpu.uuid)
        if digest not in baseline.gpus:
            return f"the baseline {baseline.digest[:16]} is of another machine or of other GPUs of this one"
        name = f"gpu{baseline.gpus.index(digest)}"
        if not any(one in baseline.series for one in gemm_series(name, key.precision)):
            return f"the baseline {baseline.digest[:16]} has no GEMM of {name} in {key.precision}"
        found[name] = digest
    return found


def _same_disk(baseline: Baseline, data: Path | None) -> bool:
    """Whether the baseline measured a disk of the model and file system that ``data`` is on."""
    if data is None or baseline.disk is None:
        return False
    here, _ = storage_facts({"data": data})
    return all(baseline.disk.get(name) == value for name, value in here["data"].items())
