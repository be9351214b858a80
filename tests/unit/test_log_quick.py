"""The fast reader reads honest logs, and no log that the careful reader refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

import orjson
import pytest

from suite.log import quick
from suite.log.canonical import MAX_EVENTS, MAX_LINE, ZERO
from suite.log.days import all_exist
from suite.log.finding import RecordError
from suite.log.lines import KINDS
from suite.log.quick import quick_events
from suite.log.reader import careful_events
from suite.rules import LATEST, VERSIONS
from suite.rules.schemas import schemas_for
from tests.fixtures.forged_images import HONEST as HONEST_IMAGES
from tests.fixtures.forged_storage import CONVERSION, LOADED
from tests.fixtures.forged_table import TABLE
from tests.fixtures.good_log import MINI, Good, reference, write_good
from tests.fixtures.honest import NAMES, log_of
from tests.hostile.ways import ways_agree

HONEST = {
    "train": Good(),
    "infer": Good(key=replace(MINI, phase="infer")),
    "quality": Good(mode="quality"),
    "conversion": CONVERSION,
    "load": LOADED,
    "on an H200": reference(),
    "in a container": next(iter(HONEST_IMAGES.values())),
}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """An honest log."""
    return (write_good(tmp_path_factory.mktemp("good"), Good()) / "run.jsonl").read_bytes()


def edited(log: bytes, change: Callable[[list[dict[str, Any]]], object]) -> bytes:
    """The log with changed events, canonical lines and a valid chain."""
    events = [json.loads(line) for line in log.splitlines()]
    change(events)
    lines, previous = [], ZERO
    for event in events:
        if "prev" in event:
            event["prev"] = previous
        line = orjson.dumps(event, option=orjson.OPT_SORT_KEYS) + b"\n"
        previous = sha256(line).hexdigest()
        lines.append(line)
    return b"".join(lines)


@pytest.mark.parametrize("name", HONEST)
def test_honest_log_is_read_by_the_fast_reader(name: str, tmp_path: Path) -> None:
    data = (write_good(tmp_path, HONEST[name]) / "run.jsonl").read_bytes()
    assert quick_events(data) is not None
    assert ways_agree(data)


@pytest.mark.parametrize("name", NAMES)
def test_real_log_is_read_by_the_fast_reader(name: str) -> None:
    assert quick_events(log_of(name)) is not None
    assert ways_agree(log_of(name))


def test_both_readers_agree_on_forged_logs(tmp_path: Path) -> None:
    for number, forged in enumerate(TABLE):
        root = tmp_path / str(number)
        root.mkdir()
        folder = forged.make(root)
        assert ways_agree((folder / "run.jsonl").read_bytes()), forged.rule


def _step(events: list[dict[str, Any]]) -> dict[str, Any]:
    return next(event for event in events if event["kind"] == "step" and event["data"]["step"] == 50)


def _facts(events: list[dict[str, Any]]) -> Any:
    """An object that a schema does not restrict."""
    return next(event for event in events if event["kind"] == "env")["data"]["facts"]


def _on(day: str, *events: dict[str, Any]) -> None:
    """Date the events on ``day``, each at its own time."""
    for event in events:
        event["wall"] = day + event["wall"][10:]


# Each edit makes one value unusual in the middle of the log, which the fast reader must detect.
ODD: dict[str, Callable[[list[dict[str, Any]]], object]] = {
    "a float where a schema takes it for an integer": lambda e: _step(e)["data"].update(units=256.0),
    "a float in the envelope": lambda e: _step(e).update(mono_ns=float(_step(e)["mono_ns"])),
    "a version that is a float": lambda e: _step(e).update(v=1.0),
    "a number that is a float": lambda e: _step(e).update(seq=float(_step(e)["seq"])),
    "a number that is true": lambda e: e[1].update(seq=True),
    "a line less": lambda e: e.remove(_step(e)),
    "a line twice": lambda e: e.insert(e.index(_step(e)), dict(_step(e))),
    "a field of the envelope more": lambda e: _step(e).update(more=1),
    "a field of the envelope less": lambda e: _step(e).pop("wall"),
    "no chain": lambda e: _step(e).pop("prev"),
    "an unknown kind": lambda e: _step(e).update(kind="stop"),
    "a kind that is a schema of something else": lambda e: _step(e).update(kind="system"),
    "a kind that is a schema of anything": lambda e: _step(e).update(kind="common"),
    "data that is a list": lambda e: _step(e).update(data=[]),
    "a field more": lambda e: _step(e)["data"].update(more=1),
    "a field less": lambda e: _step(e)["data"].pop("loss"),
    "nesting": lambda e: _facts(e).update(a=json.loads("[" * 16 + "]" * 16)),
    "a float where a schema takes anything": lambda e: _facts(e).update(a=[1.5]),
    "a long string": lambda e: _facts(e).update(a="x" * 4097),
    "a long string in a list": lambda e: _facts(e).update(a=["x" * 4097]),
    "a long line": lambda e: _facts(e).update(a=["x" * 4000] * 17),
    "a control character": lambda e: _facts(e).update(a="\x01"),
    "a delete character": lambda e: _facts(e).update(a="\x7f"),
    "a large integer": lambda e: _step(e)["data"].update(step_end_ns=2**53),
    "a day that no calendar has": lambda e: _on("2026-02-31", _step(e)),
    "a 29 February of a common year": lambda e: _on("2027-02-29", _step(e)),
    "a header of a day that no calendar has": lambda e: _on("2026-04-31", e[0]),
    "a footer of a day that no calendar has": lambda e: _on("2026-11-31", e[-1]),
    "days that no calendar has": lambda e: _on("2026-09-31", *e),
}


@pytest.mark.parametrize("odd", ODD)
def test_fast_reader_leaves_defects_to_the_careful_reader(odd: str, log: bytes) -> None:
    assert quick_events(edited(log, lambda events: None)) is not None
    data = edited(log, ODD[odd])
    assert quick_events(data) is None
    with pytest.raises(RecordError):
        careful_events(data, partial=False)


def test_date_that_does_not_exist_is_a_defect_in_every_version(log: bytes) -> None:
    logs = {"practice": log, LATEST: log_of(NAMES[0])}
    assert set(logs) == set(VERSIONS)
    for version, data in logs.items():
        spoilt = edited(data, lambda e: _on("2026-02-30", _step(e)))
        assert quick_events(spoilt) is None, version
        with pytest.raises(RecordError) as error:
            careful_events(spoilt, partial=False)
        [defect] = error.value.defects
        assert (defect.rule, defect.expected) == ("LOG-014", "a date that exists in the calendar"), version
        assert defect.location.endswith(".wall")
        assert defect.found.startswith("2026-02-30T")


def test_leap_day_is_read_by_the_fast_reader(log: bytes) -> None:
    data = edited(log, lambda e: _on("2028-02-29", *e))
    assert quick_events(data) is not None
    assert ways_agree(data)


@pytest.mark.parametrize("version", VERSIONS)
def test_date_pattern_only_accepts_parsable_dates(version: str) -> None:
    """The pattern restricts everything but the day of the month: accepted dates can be parsed."""
    pattern = schemas_for(version).schema("common")["$defs"]["wall"]["pattern"]
    days = [f"{year}-{month:02d}-{day:02d}" for year in (2000, 2026, 2028, 2099)
            for month in range(14) for day in range(33)]  # fmt: skip
    walls = [f"{day}T12:00:00.000000Z" for day in days]
    for hour, minute, second in product((0, 23, 24, 25), (0, 59, 60), (0, 59, 60, 61)):
        walls.append(f"2026-11-20T{hour:02d}:{minute:02d}:{second:02d}.000000Z")
    for wall in walls:
        if re.search(pattern, wall):
            try:
                found = datetime.fromisoformat(wall)
            except ValueError:
                found = None
            assert all_exist([wall]) == (found is not None), wall


def test_fast_reader_leaves_unusual_bytes_to_the_careful_reader(log: bytes) -> None:
    cut = log.rindex(b"\n", 0, -1) + 1
    middle = log.index(b"\n", len(log) // 2) + 1
    for data in (
        b"",
        b"\n",
        b"[1]\n",
        b"1\n",
        log[:-1],
        log + b"\n",
        log + log[cut:],
        log[:middle] + b"\n" + log[middle:],
        log[:middle] + log[middle:].replace(b'"kind":"step"', b'"kind": "step"', 1),
        log[:middle] + log[middle:].replace(b'"v":1', b'"v":1e0', 1),
        log[:middle] + log[middle:].replace(b'"phase"', b'"ph\\u0061se"', 1),
        log[:middle] + log[middle:].replace(b"}\n{", b"},{", 1),
        log[:middle] + b"[1]\n" + log[middle:],
        log[:middle] + b" " * (MAX_LINE + 1) + b"\n" + log[middle:],
        log[:middle] + log[middle:].replace(b'"prev":"', b'"prev":"0', 1),
        log[:middle] + log[middle:].replace(b'"rank":0', b'"rank":0,"rank":0', 1),
    ):
        assert quick_events(data) is None
        with pytest.raises(RecordError):
            careful_events(data, partial=False)


def test_non_ascii_letter_is_read_by_the_careful_reader_only(log: bytes) -> None:
    """A log that the fast reader does not accept may be valid."""
    usual, rare = (edited(log, lambda e: _facts(e).update(os=name)) for name in ("Mull", "Müll"))  # noqa: B023
    assert quick_events(usual) is not None
    assert ways_agree(usual)
    assert quick_events(rare) is None
    assert len(careful_events(rare, partial=False)) == log.count(b"\n")


def test_string_limit_applies_beyond_the_schemas() -> None:
    for strings, read in ((["x" * 4096] * 3, True), (["x", "x" * 4097], False)):
        line = orjson.dumps({"a": strings}) + b"\n"
        assert (quick._values([line]) is not None) is read


def test_both_readers_have_the_same_nesting_limit(log: bytes) -> None:
    read = []
    for depth in range(10, 18):  # of lists in facts, which are themselves the third level of their line
        deep = json.loads("[" * depth + "]" * depth)
        data = edited(log, lambda e: _facts(e).update(a=deep))  # noqa: B023
        assert ways_agree(data)
        if quick_events(data) is not None:
            read.append(depth)
        else:
            with pytest.raises(RecordError, match="LOG-003"):
                careful_events(data, partial=False)
    assert read == [10, 11, 12, 13]


@pytest.mark.parametrize("version", VERSIONS)
def test_envelope_schema_guarantees_what_the_fast_reader_assumes(version: str) -> None:
    """The fast reader therefore need not count events, and reads an envelope's fields in this order."""
    envelope = schemas_for(version).schema("envelope")
    assert envelope["properties"]["seq"]["maximum"] == MAX_EVENTS - 1
    fields = ["data", "kind", "mono_ns", "prev", "repeat", "seq", "v", "wall"]
    assert sorted(envelope["properties"]) == sorted(envelope["required"]) == fields
    assert envelope["additionalProperties"] is False


@pytest.mark.parametrize("version", VERSIONS)
def test_all_valid_agrees_with_valid(version: str, log: bytes) -> None:
    schemas = schemas_for(version)
    events = [json.loads(line) for line in log.splitlines()]
    for kind in set(KINDS) & set(schemas.names):
        some = [event["data"] for event in events if event["kind"] == kind]
        rows: list[list[Any]] = [some, [*some, {}], [{}], [*some[:1], None], [1, *some]]
        for values in rows:
            if values:
                each = [schemas.valid(kind, value) for value in values]
                assert schemas.all_valid(kind, values) == all(each)
