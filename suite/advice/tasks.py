"""The task of the advice for the sandbox: one checked result as the numbers that the model needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from suite.checker import Verdict, check_result
from suite.checker.tasks import log_tasks
from suite.compare.result_row import row_of
from suite.log.model import Record
from suite.metrics.machine import at, devices
from suite.metrics.metric import missing
from suite.metrics.run import metrics_of
from suite.rules import load
from suite.workloads import specification


def advice_result(path: str) -> dict[str, Any]:
    """The result in ``path``: its row, and the facts of a cell where it has a score or ran out of memory."""
    verdict = check_result(Path(path))
    return {"row": row_of(Path(path), verdict).as_dict(), "facts": cell_facts(verdict)}


def cell_facts(verdict: Verdict) -> dict[str, Any] | None:
    """What a cell needs beside the row of its result; None for an unreadable result, and without a model."""
    record = verdict.record
    if record is None or not record.computes:
        return None
    capacities = [at(device, "memory_bytes") for device in devices(record)]
    energy = missing("no score")
    if verdict.scored and record.mode == "throughput":
        energy = metrics_of(record)["energy_devices_j_per_unit"]
    return {
        "device_capacity_bytes": min((one for one in capacities if type(one) is int), default=None),
        "joules_per_unit": energy.value,
        "no_energy": energy.reason,
        "energy_from": energy.note,
        "epoch_units": _epoch_units(record),
    }


def _epoch_units(record: Record) -> int | None:
    """The images of a training epoch by the rules; None where they do not state a number."""
    key = record.key
    try:
        rules = load(str(record.header["rules"]["version"]))
        spec = specification(key.workload)
        images = rules.dataset(spec.DATASETS[key.scale]).get("images")
    except (KeyError, ValueError):
        return None
    if not isinstance(images, dict) or spec.UNIT != "image" or key.phase != "train":
        return None
    return int(images["train"])


TASKS = log_tasks({"advice_result": advice_result})
