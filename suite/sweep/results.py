"""What a results folder holds already: which result is of which configuration, and how long it took."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suite.log.canonical import MAX_FILE
from suite.log.files import LOG, PARTIAL
from suite.plan.custom import CustomCode
from suite.plan.header import settings_of
from suite.plan.options import MAX
from suite.plan.plan import Plan

# Known only once a run is prepared, and told apart by the digests of the code or by the fields kept.
_LATER = ("changes_digest",)
_TAIL = 1 << 16  # bytes of a log in which its last line is


@dataclass(frozen=True, slots=True)
class FoundResult:
    """A finished result: what its header says, and the seconds from its first event to its last."""

    folder: Path
    wall: str
    configuration: dict[str, Any]
    code: str
    seconds: float | None


def configuration(plan: Plan, custom: CustomCode) -> dict[str, Any]:
    """What makes two runs the same run twice: the resolved settings, the hyperparameters, the nonce."""
    settings = settings_of(plan, custom) | ({"batch": MAX} if plan.settings.batch_max else {})
    return _configuration(settings, plan.hyper, plan.settings.nonce)


def _configuration(settings: Mapping[str, Any], hyper: Mapping[str, str], nonce: object) -> dict[str, Any]:
    kept = {name: value for name, value in settings.items() if name not in _LATER}
    if kept.pop("batch_search", None) is not None:
        kept["batch"] = MAX
    return {"settings": kept, "hyper": dict(hyper), "nonce": nonce}


def finished(folder: Path) -> tuple[FoundResult, ...]:
    """The finished results in ``folder``, newest first. Nothing says yet that they are accepted."""
    found = sorted(_finished(folder), key=lambda result: (result.wall, result.folder.name), reverse=True)
    return tuple(found)


def _finished(folder: Path) -> Iterator[FoundResult]:
    for log in folder.glob(f"*/{LOG}"):
        if log.parent.name.endswith(PARTIAL) or log.stat().st_size > MAX_FILE:
            continue
        try:
            first, last = _ends(log)
            header = first["data"]
            yield FoundResult(
                log.parent,
                str(first["wall"]),
                _configuration(header["settings"], header["hyper"], header["nonce"]),
                str(header["code_digest"]),
                last["mono_ns"] / 1e9 if last["kind"] == "footer" else None,
            )
        except (OSError, ValueError, KeyError, TypeError):
            continue  # no log of ours: the checker would say what is wrong with it


def _ends(log: Path) -> tuple[Any, Any]:
    """First and last line of a log."""
    with log.open("rb") as file:
        first = file.readline()
        file.seek(max(0, log.stat().st_size - _TAIL))
        return json.loads(first), json.loads(file.read().splitlines()[-1])
