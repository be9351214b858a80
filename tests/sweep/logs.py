"""The honest logs that are mutated, and the verdict on one that was."""

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
from suite.record.canonical import ZERO, encode, reencode, sha256_hex
from suite.record.files import Raw
from suite.record.nulls import STEP_PREFIX, TELEMETRY_PREFIX, null_paths
from suite.record.seeds import seed_hex
from suite.rules import Rules
from suite.rules.load import digest_of
from tests.fixtures.forged import reclaim
from tests.fixtures.forged_forms import CONVERSION
from tests.fixtures.forging import Events, lines_of
from tests.fixtures.good_container import Container, rules_of
from tests.fixtures.good_log import REFERENCE, Good, reference, write_good

NONCE = "5e" * 32
LONG = {"step_ns": 30_000_000, "jitter_ns": 600_000}  # windows of three seconds: energy can be told
LOGS: dict[str, Good] = {
    "train": reference(**LONG),
    "infer": reference(key=replace(REFERENCE, phase="infer"), nonce=NONCE, **LONG),
    "processor": reference(
        key=replace(REFERENCE, precision="fp32"), devices=(), mark_kind="host_completion", **LONG
    ),
    "quality": reference(key=replace(REFERENCE, data="real"), mode="quality"),
    "conversion": CONVERSION,
    "container": reference(container=Container(), differences=(("DIV-005", "a trial of the pair"),), **LONG),
}


@cache
def rules(version: str) -> Rules:
    """One object for each version: it keeps what it has read."""
    return rules_of(version)


def honest(name: str, folder: str | None = None) -> Events:
    """The events of one of ``LOGS``, or of the result in ``folder``."""
    if folder is not None:
        return lines_of(Path(folder))
    with tempfile.TemporaryDirectory() as results:
        return lines_of(write_good(Path(results), LOGS[name]))


def judge(events: Events) -> Verdict:
    """The verdict on ``events`` with numbering and chain made whole, in a folder of the run's name."""
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
    return check_raw(Raw(str(name), ("run.jsonl",), b"".join(out)), rules)


def mend(events: Events, before: Events, kind: str, field: str) -> None:
    """What a careful forger does after every edit: claims, reasons, seals and seeds follow it."""
    events[0] = orjson.loads(orjson.dumps(events[0]))
    for event, told in zip(events, before, strict=False):
        if event is not told and isinstance(event.get("data"), dict):
            _reason(event["data"], events)
    _header(events[0].get("data"), field)
    if kind == "header" and field in ("data.run_id", "data.nonce"):
        _seeds(events)
    if kind != "footer":
        events[-1] = orjson.loads(orjson.dumps(events[-1]))
        with suppress(ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            reclaim(events)  # where nothing can be claimed the old claims stay


def _reason(data: dict[str, Any], events: Events) -> None:
    """Nulls get reasons, and reasons without nulls go."""
    reasons = data.get("reasons")
    if not isinstance(reasons, dict):
        return
    told = data.get("facts") if "facts" in data else {n: v for n, v in data.items() if n != "reasons"}
    if isinstance(told, dict | list):
        nulls = null_paths(told)
        kept = {
            name: why for name, why in reasons.items() if name.startswith((STEP_PREFIX, TELEMETRY_PREFIX))
        }
        data["reasons"] = {**kept, **{path: reasons.get(path, "not measured") for path in nulls}}


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
