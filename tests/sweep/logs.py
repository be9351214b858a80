"""The honest logs that the sweep mutates, and the verdict on a mutated log."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from suite.checker.verdict import Verdict, check_raw
from suite.contract.seeds import seed_hex
from suite.log.canonical import ZERO, encode, reencode, sha256_hex
from suite.log.files import Raw
from suite.log.nulls import STEP_PREFIX, TELEMETRY_PREFIX, null_paths
from suite.rules import Rules
from suite.rules.load import digest_of
from tests.fixtures.forged import reclaim
from tests.fixtures.forged_storage import CONVERSION
from tests.fixtures.forging import Events, lines_of
from tests.fixtures.good_container import Container, rules_of
from tests.fixtures.good_log import REFERENCE, Good, reference, write_good

NONCE = "5e" * 32
_WHY = "not measured"
LONG = {
    "step_ns": 30_000_000,
    "jitter_ns": 600_000,
}  # windows of three seconds: the energy counter is conclusive
LOGS: dict[str, Good] = {
    "train": reference(**LONG),
    "infer": reference(key=replace(REFERENCE, phase="infer"), nonce=NONCE, **LONG),
    "processor": reference(
        key=replace(REFERENCE, precision="fp32"), devices=(), timestamp_kind="host_completion", **LONG
    ),
    "quality": reference(key=replace(REFERENCE, data="real"), mode="quality"),
    "conversion": CONVERSION,
    "container": reference(container=Container(), differences=(("DIV-005", "a trial of the pair"),), **LONG),
}


@cache
def rules(version: str) -> Rules:
    """The rules of each version, cached."""
    return rules_of(version)


def honest(name: str, folder: str | None = None) -> Events:
    """The events of one of ``LOGS``, or of the result in ``folder``."""
    if folder is not None:
        return lines_of(Path(folder))
    with tempfile.TemporaryDirectory() as results:
        return lines_of(write_good(Path(results), LOGS[name]))


def judge(events: Events) -> Verdict:
    """The verdict on :func:`raw_of` the ``events``."""
    return check_raw(raw_of(events), rules)


def raw_of(events: Events) -> Raw:
    """``events`` with repaired numbering and chain, in a folder of the run's name."""
    previous, out = ZERO, []
    for number, event in enumerate(events):
        data = event.get("data")
        if event.get("kind") == "footer" and isinstance(data, dict) and type(data.get("events")) is int:
            event = {**event, "data": {**data, "events": len(events)}}
        line = reencode({**event, "seq": number, "prev": previous}) + b"\n"
        previous = sha256_hex(line)
        out.append(line)
    header = events[0].get("data")
    name = header.get("run_id") if isinstance(header, dict) else "run"
    return Raw(str(name), ("run.jsonl",), b"".join(out))


def fix(events: Events, before: Events, kind: str, field: str) -> None:
    """Repair claims, reasons, digests and seeds after an edit, as a careful forger does.

    Nothing that ``before`` shares with ``events`` is edited: it is the honest log of the next mutant too.
    """
    events[0] = orjson.loads(orjson.dumps(events[0]))
    honest = set(map(id, before))
    for index, event in enumerate(events):
        if id(event) not in honest and isinstance(event.get("data"), dict):
            events[index] = {**event, "data": _reasoned(event)}
    _explain(events)
    _header(events[0].get("data"), field)
    if kind == "header" and field in ("data.run_id", "data.nonce"):
        _seeds(events)
    if kind != "footer":
        events[-1] = orjson.loads(orjson.dumps(events[-1]))
        with suppress(ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            reclaim(events)  # claims that cannot be computed stay


def _prefix(event: Mapping[str, Any]) -> str | None:
    """The prefix under which repeat_end explains the nulls of this event; None if the event does."""
    if event.get("kind") == "telemetry" and event["data"].get("source") == "sample":
        return TELEMETRY_PREFIX
    return STEP_PREFIX if event.get("kind") == "step" else None


def _reasoned(event: Mapping[str, Any]) -> dict[str, Any]:
    """The event's data, with a reason for each null and no other reasons."""
    data: dict[str, Any] = event["data"]
    reasons = data.get("reasons")
    if _prefix(event) is not None or not isinstance(reasons, dict):
        return data
    explained = data.get("facts") if "facts" in data else {n: v for n, v in data.items() if n != "reasons"}
    if not isinstance(explained, dict | list):
        return data
    of_steps = {
        name: why for name, why in reasons.items() if name.startswith((STEP_PREFIX, TELEMETRY_PREFIX))
    }
    return {
        **data,
        "reasons": {**of_steps, **{path: reasons.get(path, _WHY) for path in null_paths(explained)}},
    }


def _explain(events: Events) -> None:
    """Let repeat_end explain the nulls of steps and samples."""
    nulls: dict[Any, set[str]] = {}
    for index, event in enumerate(events):
        data = event.get("data")
        if not isinstance(data, dict):
            continue
        prefix, found = _prefix(event), nulls.setdefault(str(event.get("repeat")), set())
        if prefix is not None:
            found |= {prefix + path for path in null_paths(data)}
        elif event.get("kind") == "repeat_end" and isinstance(old := data.get("reasons"), dict):
            of_repeat_end = {
                name: why for name, why in old.items() if not name.startswith((STEP_PREFIX, TELEMETRY_PREFIX))
            }
            reasons = {**of_repeat_end, **{path: old.get(path, _WHY) for path in sorted(found)}}
            if reasons != old:
                events[index] = {**event, "data": {**data, "reasons": reasons}}


def _header(data: Any, field: str) -> None:
    if not isinstance(data, Mapping):
        return
    try:
        if field != "data.settings_digest":
            data["settings_digest"] = sha256_hex(encode(data["settings"]))  # type: ignore[index]
        if field.startswith("data.rules.files"):
            data["rules"]["digest"] = digest_of(data["rules"]["files"])
    except (LookupError, TypeError, ValueError):
        pass  # what has no digest keeps the old one


def _seeds(events: Events) -> None:
    header = events[0]["data"]
    for index, event in enumerate(events):
        if event["kind"] == "repeat_start":
            try:
                seed = seed_hex(header["nonce"], header["run_id"], event["repeat"])
            except (AttributeError, LookupError, TypeError, ValueError):
                return
            events[index] = {**event, "data": {**event["data"], "seed": seed}}
