"""The parser of MLPerf's three formats, with the irregularities of published logs; it never raises."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from suite.mllog import parse as parser
from suite.mllog.events import V05, V06, V07, MllogEvent
from suite.mllog.parse import MAX_LINE, MAX_SHOWN, TooManyEvents, parse
from tests.fixtures.mlperf_logs import mll, mllog, mlp, run_v05, run_v06, run_v07

QUICK = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


def one(line: str) -> MllogEvent:
    """The one event of a line that has no fault."""
    log = parse(line.encode("latin-1"))
    assert log.malformed == 0, log.shown
    (event,) = log.events
    return event


@pytest.mark.parametrize(
    ("lines", "log_format"), [(run_v05(), V05), (run_v06(), V06), (run_v07(), V07)], ids=[V05, V06, V07]
)
def test_parser_reads_every_line_of_honest_log(lines: list[str], log_format: str) -> None:
    log = parse("\n".join(lines).encode())
    assert (len(log.events), log.malformed, log.formats) == (len(lines), 0, (log_format,))
    assert [event.line for event in log.events] == list(range(1, len(lines) + 1))


def test_parser_reads_v05_time_location_and_optional_value() -> None:
    event = one(':::MLPv0.5.0 ncf 1541731867.0725 (ncf.py:450) eval_accuracy: {"epoch": 0, "value": 0.4302}')
    assert (event.format, event.key, event.value) == (V05, "eval_accuracy", {"epoch": 0, "value": 0.4302})
    assert event.time_ms == pytest.approx(1541731867072.5, abs=1e-3)
    assert event.metadata == {"file": "ncf.py", "lineno": 450, "benchmark": "ncf"}
    assert one(mlp("gnmt", "run_start", 5.0)).value is None
    assert one(":::MLPv0.5.0 gnmt 1543821710.639405489 (<string>:1) run_clear_caches").metadata["lineno"] == 1
    assert one(":::MLPv0.5.0 minigo 1543821710.5 (a/b:c.sh:12) run_final").metadata["file"] == "a/b:c.sh"
    assert one(":::MLPv0.5.0 ncf 1.5 (a.scala:139) lr: 1.45439E-7").value == 1.45439e-7


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{'key': 'apt', 'value': 'it is None'}", {"key": "apt", "value": "it is None"}),
        ('{"success": True}', {"success": True}),
        ("None", None),
        ("['a', False, 3]", ["a", False, 3]),
    ],
)
def test_parser_reads_v05_values_in_python_repr(text: str, value: Any) -> None:
    assert one(f":::MLPv0.5.0 ssd 1.0 (info.sh:0) misc_info: {text}").value == value


@pytest.mark.parametrize(
    "text", ["__import__('os')", "(1, 2)", "{'a': 'it''s'}", "{'a': \"b'", "adam", "'" * 5000, "[None" * 900]
)
def test_parser_counts_other_v05_values_as_malformed(text: str) -> None:
    log = parse(f":::MLPv0.5.0 ssd 1.0 (info.sh:0) misc_info: {text}".encode())
    assert (len(log.events), log.malformed) == (0, 1)


def test_parser_reads_v06_value_and_metadata() -> None:
    event = one(
        ':::MLL 1560822683.386 eval_accuracy: {"value": 20.12, "metadata": {"epoch_num": 1, "lineno": 535}}'
    )
    assert (event.format, event.value, event.event_type) == (V06, 20.12, None)
    assert event.time_ms == pytest.approx(1560822683386)
    assert event.metadata["epoch_num"] == 1
    # The names in the other order, as some logs have them.
    assert one(':::MLL 1.5 submission_org: {"metadata": {"lineno": 184}, "value": "An Org, Inc"}').value
    # Headers written by hand have no time, and some times have more digits.
    assert one(':::MLL 0.0 submission_org: {"value": "an org", "metadata": {}}').time_ms == 0
    assert one(':::MLL 1560186768.2640412 cache_clear: {"value": null}').metadata == {}


def test_parser_reads_six_fields_of_v07() -> None:
    event = one(mllog("eval_accuracy", 0.2052, 1593019421784, epoch_num=1))
    assert (event.format, event.time_ms, event.event_type) == (V07, 1593019421784, "POINT_IN_TIME")
    assert (event.key, event.value, event.metadata["epoch_num"]) == ("eval_accuracy", 0.2052, 1)
    untyped = json.loads(mllog("seed", 1, 2)[9:])
    del untyped["event_type"]
    assert one(":::MLLOG " + json.dumps(untyped)).event_type is None


def test_parser_reads_loadgen_order_float_times_and_threads() -> None:
    metadata = {"is_error": False, "is_warning": False, "file": "a.cc", "line_no": 1, "pid": 7, "tid": 8}
    line = {"key": "result_validity", "value": "VALID", "time_ms": 12.345678, "namespace": "mlperf::logging"}
    line |= {"event_type": "POINT_IN_TIME", "metadata": metadata}
    event = one(":::MLLOG " + json.dumps(line))
    assert (event.time_ms, event.process) == (12.345678, "mlperf::logging pid 7 tid 8")


@pytest.mark.parametrize(
    ("before", "process"),
    [
        ("0: ", "rank 0"),
        ("13:", "rank 13"),
        ("[1,0]<stdout>:", "rank 1,0"),
        ("[rank3]: ", "rank 3"),
        (" 45%|####      | 12/26 [00:01<00:01]", ""),
        ("NCF_RAW_", ""),
        ("I1122 12:00:14.874658 140303 mlperf_log.py:136] ", ""),
        ("2018-11-15 11:07:35 ", ""),
        ("\xff\xfe\x00", ""),
        ("Ã¼ber ", ""),
    ],
)
@pytest.mark.parametrize("line", [mllog("seed", 1, 2), mll("seed", 1, 2), mlp("ncf", "seed", 2, 1)])
def test_parser_drops_text_before_token(before: str, process: str, line: str) -> None:
    event = one(before + line)
    assert (event.key, event.value, event.process) == ("seed", 1, process)


def test_parser_separates_events_of_ranks_on_one_line() -> None:
    first, second = mllog("epoch_start", ":::MLLOG {}", 5, epoch_num=1), mllog("epoch_stop", None, 6)
    log = parse(f"0: {first}1: {second}\n{mll('a', 1, 1)} {mlp('ncf', 'b', 2)} {first[:40]}{second}".encode())
    assert [(e.key, e.process) for e in log.events] == [
        ("epoch_start", "rank 0"), ("epoch_stop", "rank 1"), ("a", ""), ("b", ""), ("epoch_stop", ""),
    ]  # fmt: skip
    assert log.events[0].value == ":::MLLOG {}"
    assert (log.malformed, log.shown[0].line) == (1, 2)


def test_parser_handles_other_output_line_ends_and_truncated_line() -> None:
    whole = mllog("seed", 1, 2)
    log = parse(f"Epoch 1\r\n{whole}\r\n  1/2\r{whole}\r\n:: ML :::mllog\n{whole}\n{whole[:-9]}".encode())
    assert (log.lines, len(log.events), log.malformed) == (6, 3, 1)
    assert [event.line for event in log.events] == [2, 3, 5]
    assert (log.shown[0].line, log.shown[0].text) == (6, whole[:-9])
    assert parse(b"") == parse(b"")
    assert parse(b"").lines == 0


def _with(**changes: Any) -> str:
    return ":::MLLOG " + json.dumps({**json.loads(mllog("seed", 1, 2)[9:]), **changes})


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (":::MLLOG", "not in the format of v0.7"),
        (":::MLLOG []", "not in the format of v0.7"),
        (':::MLLOG {"key": ', "not JSON"),
        (_with(key=""), "expected a key"),
        (_with(key=7), "expected a key"),
        (_with(time_ms="1593019421784"), "expected time_ms"),
        (_with(time_ms=None), "expected time_ms"),
        (_with(time_ms=True), "expected time_ms"),
        (_with(time_ms=float("nan")), "expected time_ms"),
        (_with(time_ms=float("inf")), "expected time_ms"),
        (_with(time_ms=10**400), "expected time_ms"),
        (_with(metadata=[1]), "expected metadata"),
        (_with(event_type=3), "expected event_type"),
        (_with() + " trailing", "text after the event"),
        (_with(value=1).replace('"value"', '"key": "seed", "value"'), "a name twice"),
        (_with().replace("1,", "1" * 5000 + ","), "too many digits"),
        (':::MLLOG {"key": "a", "time_ms": 1, "value": ' + "[" * 20 + "]" * 20 + "}", "nested too deeply"),
        (':::MLLOG {"key": "a", "time_ms": 1, "value": ' + "[" * 9000, "nested too deeply"),
        (":::MLL 1.5 run_start", "expected an object"),
        (':::MLL x run_start: {"value": 1}', "not in the format of v0.6"),
        (':::MLL 1.5 a: {"value": 1, "metadata": 3}', "expected an object"),
        (":::MLPv0.5.0 [1df9b2ab-3dc8][1570666471.29151][0]", "not in the format of v0.5"),
        (":::MLPv0.6.0 ncf 1.0 (a.py:1) b", "expected one of"),
        (":::MLLOG " * 2000, "events in a line"),
        (":::MLLOG " + " " * MAX_LINE, "a line of"),
    ],
)  # fmt: skip
def test_parser_counts_and_shows_malformed_lines(line: str, why: str) -> None:
    log = parse(f"{mllog('a', 1, 1)}\n{line}\n{mllog('b', 1, 1)}".encode())
    assert [event.key for event in log.events] == ["a", "b"]
    assert log.malformed == 1
    assert why in log.shown[0].why
    assert log.shown[0].line == 2
    assert len(log.shown[0].text) <= 400


def test_parser_keeps_only_first_malformed_lines() -> None:
    log = parse(b":::MLLOG {\n" * 1000)
    assert (log.malformed, len(log.shown)) == (1000, MAX_SHOWN)


def test_parser_refuses_too_many_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parser, "MAX_EVENTS", 10)
    text = "\n".join([mllog("a", 1, 1)] * 10)
    assert len(parse(text.encode()).events) == 10
    with pytest.raises(TooManyEvents, match="over 10 events"):
        parse(f"{text}\n{text}".encode())
    with pytest.raises(TooManyEvents, match="over 10 events"):
        parse(b":::MLLOG {\n" * 11)


PIECES = st.sampled_from(
    [":::MLLOG ", ":::MLL ", ":::MLPv0.5.0 ", ":::ML", "ncf ", "1541731867.5 ", "(a.py:1) ", "run_start",
     '{"value": 1, "metadata": {}}', '{"key": "a", "time_ms": 1, "value": ', "{'a': None}", "NaN", "}", "]",
     "[", '"', "'", "\\", "\r", "\n", "\x00", "0: ", ": ", "1e999", "-1", "\u00e9", "\udcff"]
)  # fmt: skip
MADE = st.lists(PIECES, max_size=30).map("".join).map(lambda text: text.encode("utf-8", "surrogatepass"))


@QUICK
@given(st.binary(max_size=400) | MADE)
@example(b':::MLLOG {"key": "a", "time_ms": -Infinity}')
@example(b":::MLPv0.5.0 ncf 1. (" + b":" * 300 + b"1) x")
def test_parser_never_raises_on_random_bytes(data: bytes) -> None:
    log = parse(data)
    assert log.malformed >= len(log.shown)
    timestamps = data.count(b":::ML")
    assert len(log.events) + log.malformed <= timestamps
    assert all(event.line <= log.lines for event in log.events)


SCALARS = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=20)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@QUICK
@given(VALUES)
def test_parser_round_trips_values(value: Any) -> None:
    lines = (mllog("a", value, 1), mll("a", value, 1000), mlp("ncf", "a", 1000, value))
    events = parse("\n".join(lines).encode()).events
    assert [event.value for event in events] == [value] * 3


def test_parser_reads_ten_times_the_lines_in_about_ten_times_the_time() -> None:
    lines = []
    for index in range(100_000):
        rank, at = index % 8, 1_593_830_663_063 + index
        if index % 3 == 0:
            lines.append(f"{rank}: " + mllog("tracked_stats", {"loss": 0.69, "rate": 1234.5}, at, step=index))
        elif index % 3 == 1:
            lines.append(mll("eval_accuracy", 20.12, at, epoch_num=index))
        else:
            lines.append(mlp("ncf", "eval_accuracy", at, {"epoch": index, "value": 0.43}))
    seconds = []
    for count in (10_000, 100_000):
        data = "\n".join(lines[:count]).encode()
        started = time.process_time()
        log = parse(data)
        seconds.append(time.process_time() - started)
        assert (len(log.events), log.malformed) == (count, 0)
    assert seconds[1] < 40 * seconds[0]  # 100 times if every line were compared with those before it


@pytest.mark.parametrize(
    "data",
    [
        b':::MLLOG {"a": ' * 15_000,
        b":::MLPv0.5.0 x 1.0 (" + b":1" * 100_000,
        b":::MLPv0.5.0 x 1.0 (a:1) b: " + b"True " * 40_000,
        (b":::MLLOG " + b"9" * 200_000 + b"\n") * 10,
        b":::MLL 1.5 a: " + b"'" * 200_000,
        b"\r" * 300_000 + b":::MLLOG {" * 20_000,
    ],
    ids=["tokens", "colons", "literals", "digits", "quotes", "ends"],
)
def test_parser_time_is_bounded_for_hostile_lines(data: bytes) -> None:
    started = time.process_time()
    assert parse(data).malformed > 0
    assert time.process_time() - started < 5.0
