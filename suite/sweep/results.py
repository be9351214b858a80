"""The finished results in a folder: their configurations and durations."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from suite.contract import LOAD
from suite.log.canonical import MAX_FILE
from suite.log.files import LOG, PARTIAL
from suite.metrics.image import restricted
from suite.plan.custom import CustomCode
from suite.plan.header import settings_of
from suite.plan.options import MAX
from suite.plan.plan import Plan

# Known only after a run is prepared; the digest of the code and the other settings imply it.
_LATER = ("changes_digest", "pilot_ns")
_TAIL = 1 << 16  # bytes at the end of a log that contain its last line


@dataclass(frozen=True, slots=True)
class FinishedResult:
    """A finished result: facts of its header, and the seconds from its first event to its last."""

    folder: Path
    started: datetime
    configuration: dict[str, Any]
    code: str
    seconds: float | None
    affinity: str | None = None  # processors that its native worker was restricted to


def configuration(plan: Plan, custom: CustomCode) -> dict[str, Any]:
    """What repeated runs of a cell share: the resolved settings, the hyperparameters and the nonce."""
    settings = settings_of(plan, custom) | ({"batch": MAX} if plan.settings.batch_max else {})
    hyper = {} if plan.kind == LOAD else plan.hyper
    # As a log contains it: JSON turns tuples into lists.
    found: dict[str, Any] = json.loads(json.dumps(_configuration(settings, hyper, plan.settings.nonce)))
    return found


def _configuration(settings: Mapping[str, Any], hyper: Mapping[str, str], nonce: object) -> dict[str, Any]:
    compared = {name: value for name, value in settings.items() if name not in _LATER}
    if compared.pop("batch_search", None) is not None:
        compared["batch"] = MAX
    return {"settings": compared, "hyper": dict(hyper), "nonce": nonce}


def finished_results(folder: Path) -> list[FinishedResult]:
    """The finished results in ``folder``, newest first, before any check."""
    return sorted(_read_all(folder), key=lambda result: (result.started, result.folder.name), reverse=True)


def last_run(plan: Plan, custom: CustomCode) -> FinishedResult | None:
    """The newest complete result of the settings of ``plan`` in its folder, of any nonce."""
    wanted = configuration(plan, custom)
    for result in finished_results(plan.settings.results_dir):
        if result.seconds is not None and {**result.configuration, "nonce": wanted["nonce"]} == wanted:
            return result
    return None


def _read_all(folder: Path) -> Iterator[FinishedResult]:
    for log in folder.glob(f"*/{LOG}"):
        if log.parent.name.endswith(PARTIAL) or log.stat().st_size > MAX_FILE:
            continue
        try:
            first, last = _first_and_last(log)
            header = first["data"]
            yield FinishedResult(
                log.parent,
                datetime.fromisoformat(first["wall"]).replace(tzinfo=UTC),
                _configuration(header["settings"], header.get("hyper", {}), header["nonce"]),
                str(header["code_digest"]),
                last["mono_ns"] / 1e9 if last["kind"] == "footer" else None,
                _affinity(log) if header["runtime"] == "native" else None,
            )
        except (OSError, ValueError, KeyError, TypeError):
            continue  # not a log of the suite; the checker reports the cause


def _affinity(log: Path) -> str | None:
    """The processors that the worker of the first repeat was restricted to."""
    facts: dict[str, list[Any]] = {"outside": [], "inside": []}
    with log.open("rb") as file:
        for raw in file:
            event = json.loads(raw)
            if event["kind"] == "step":  # the facts come before
                break
            if event["kind"] == "env":
                facts[event["data"]["side"]].append(event["data"]["facts"])
    harness = facts["outside"][0]["cpu"].get("affinity") if facts["outside"] else None
    return restricted(harness, [one.get("affinity") for one in facts["inside"]])


def _first_and_last(log: Path) -> tuple[Any, Any]:
    """The first and the last event of a log."""
    with log.open("rb") as file:
        first = file.readline()
        file.seek(max(0, log.stat().st_size - _TAIL))
        return json.loads(first), json.loads(file.read().splitlines()[-1])
