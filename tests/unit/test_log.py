"""The format of the log: the reader accepts exactly what the writer writes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from suite.contract.seeds import seed_hex, seed_of
from suite.harness.log import LogExistsError, LogWriter, NoSpaceError, ReadOnlyError
from suite.log import canonical, lines
from suite.log.canonical import MAX_INTEGER, NotCanonicalError, encode, sha256_hex
from suite.log.files import Raw
from suite.log.finding import Defect, RecordError
from suite.log.model import Event, Record, Repeat
from suite.log.nulls import null_paths, unexplained
from suite.log.reader import read_result, record_of
from suite.log.safe import safe
from tests.fixtures.forging import lines_of, rewrite
from tests.fixtures.good_log import Good, header_of, write_good

QUICK = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def rules_of(error: pytest.ExceptionInfo[RecordError]) -> set[str]:
    return {defect.rule for defect in error.value.defects}


def read_or_defects(raw: Raw) -> Record | list[Defect]:
    """The record in some bytes, or its defects; any other exception is a fault of the reader."""
    try:
        return record_of(raw)
    except RecordError as error:
        return error.defects


# --- canonical encoding


def test_encoding_is_sorted_dense_and_ends_in_a_line_feed() -> None:
    assert encode({"b": [1, True, None], "a": "ü"}) == '{"a":"ü","b":[1,true,null]}\n'.encode()


@pytest.mark.parametrize(
    "value",
    [
        1.0,
        float("nan"),
        2**53,
        -(2**53),
        {1: 2},
        {"ü": 1},
        "a\nb",
        "\x1b[2J",
        "\x7f",
        "\ud800",
        b"x",
        {"a": {1}},
    ],
)
def test_encoding_refuses_other_values(value: object) -> None:
    with pytest.raises(NotCanonicalError):
        encode({"value": value})


def test_encoding_enforces_size_limits() -> None:
    deep: Any = 1
    for _ in range(16):
        deep = [deep]
    for value in ({"deep": deep}, {"long": "x" * 4097}, {"wide": ["x" * 4096] * 17}):
        with pytest.raises(NotCanonicalError):
            encode(value)
    assert encode({"most": MAX_INTEGER, "least": -MAX_INTEGER})


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-MAX_INTEGER, MAX_INTEGER) | st.text("abz09 ü€𝄞", max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abz_", max_size=5), inner, max_size=4)
    ),
    max_leaves=20,
)


@QUICK
@given(st.dictionaries(st.text("abz_", max_size=5), plain, max_size=5))
def test_encoded_value_is_decoded_again(value: dict[str, Any]) -> None:
    line = encode(value)
    assert lines.parse_line(line[:-1], "line 1") == value
    assert json.loads(line) == value


# --- reader


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**54), 2**54)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
        | st.tuples(inner)
    ),
    max_leaves=12,
)


@QUICK
@given(ANYTHING, st.integers(0, 18))
def test_values_that_the_careful_examination_refuses_are_not_encoded(value: Any, depth: int) -> None:
    for _ in range(depth):
        value = [value]
    try:
        canonical.examine(value)
    except NotCanonicalError:
        with pytest.raises(NotCanonicalError):
            encode(value)
    else:
        canonical.examine(value, encode(value))


SPELLINGS = {  # of the same value, or of none
    "LOG-004": lambda line: line[:-1],
    "LOG-007": lambda line: b"{ " + line[1:],
    "LOG-006": lambda line: b'{"kind":"step",' + line[1:],
    "LOG-003": lambda line: line[:-1] + b" " * canonical.MAX_LINE + b"}",
}


@pytest.mark.parametrize("rule", SPELLINGS)
@pytest.mark.parametrize("position", [0, 1, 31, 32, 69])
def test_one_bad_line_is_reported_alone(position: int, rule: str) -> None:
    """The fast reader reads several lines together."""
    data, previous = b"", canonical.ZERO
    for seq in range(70):
        line = encode({"data": {}, "kind": "step", "prev": previous, "seq": seq})[:-1]
        line = SPELLINGS[rule](line) + b"\n" if seq == position else line + b"\n"
        data, previous = data + line, sha256_hex(line)
    with pytest.raises(RecordError) as error:
        lines.parse(data, False)
    assert [(defect.rule, defect.location) for defect in error.value.defects] == [
        (rule, f"line {position + 1}")
    ]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_good(tmp_path_factory.mktemp("good"), Good())


def test_reader_returns_the_record_of_a_good_log(good: Path) -> None:
    record = read_result(good)
    assert record.run_id == good.name
    assert record.completed
    assert record.digest == sha256_hex((good / "run.jsonl").read_bytes())
    assert record.header["division"] == record.division == "practice"
    assert len(record.repeats) == 5
    for repeat in record.repeats:
        assert len(repeat.steps) == 110
        assert len(repeat.durations_ns()) == 100
        assert repeat.clocks[0]["at"] == "repeat_start"
        assert repeat.counters("window_open") is not None
        assert len(repeat.samples("window")) == 1
        assert repeat.env("outside") is not repeat.env("inside")
    assert record.pooled_ns is not None
    assert len(record.pooled_ns) == 500
    assert read_result(good / "run.jsonl").digest == record.digest


def damage(good: Path, edit: Callable[[bytes], bytes], name: str = "x.partial") -> Raw:
    return Raw(name, ("run.jsonl",), edit((good / "run.jsonl").read_bytes()))


@QUICK
@given(data=st.data())
def test_damaged_bytes_are_defects_or_the_same_log(good: Path, data: st.DataObject) -> None:
    log = (good / "run.jsonl").read_bytes()
    at = data.draw(st.integers(0, len(log) - 1))
    length = data.draw(st.integers(0, 40))
    new = data.draw(
        st.binary(max_size=12) | st.sampled_from([b'"', b"\n", b"{", b"null", b"1e5", b"NaN", b"\\u0000"])
    )
    changed = log[:at] + new + log[at + length :]
    record = read_or_defects(Raw(good.name, ("run.jsonl",), changed))
    if isinstance(record, Record):
        assert changed == log
        assert record.digest == sha256_hex(log)
    else:
        assert record


@QUICK
@given(st.binary(max_size=200) | st.text(max_size=60).map(str.encode))
def test_reader_refuses_any_bytes_with_record_error(data: bytes) -> None:
    for name in ("result", "result.partial"):
        with pytest.raises(RecordError):
            record_of(Raw(name, ("run.jsonl",), data))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@QUICK
@given(
    value=json_values,
    position=st.sampled_from(["data", "kind", "mono_ns", "repeat", "v", "wall"]),
    line=st.integers(0, 8),
)
def test_wrong_value_in_any_field_is_a_defect(good: Path, value: Any, position: str, line: int) -> None:
    events = lines_of(good)[:9]
    if value == events[line][position]:
        return
    events[line][position] = value
    previous, out = "0" * 64, b""
    for event in events:
        text = json.dumps(
            {**event, "prev": previous}, sort_keys=True, separators=(",", ":"), ensure_ascii=False
        )
        raw = text.encode("utf-8", "surrogatepass") + b"\n"
        previous = sha256_hex(raw)
        out += raw
    record = read_or_defects(Raw("x.partial", ("run.jsonl",), out))
    if isinstance(record, Record):
        assert position in ("mono_ns", "repeat")
        assert not record.completed
    else:
        assert record


@pytest.mark.parametrize("cut", [1, 50, 500, 5_000])
def test_partial_log_is_read_up_to_its_last_line(good: Path, cut: int) -> None:
    raw = damage(good, lambda data: data[:-cut])
    record = record_of(raw)
    assert record.partial
    assert record.footer is None
    assert len(record.repeats) == 5


def test_reader_refuses_control_characters(good: Path) -> None:
    raw = damage(good, lambda data: data.replace(b'"not a quality run"', b'"not\\n"'))
    with pytest.raises(RecordError) as error:
        record_of(raw)
    assert rules_of(error) == {"LOG-018"}


def test_reader_refuses_links_pipes_devices_and_folders(good: Path, tmp_path: Path) -> None:
    makers: dict[str, Callable[[Path], object]] = {
        "link": lambda path: path.symlink_to(good / "run.jsonl"),
        "dangling": lambda path: path.symlink_to("nowhere"),
        "pipe": os.mkfifo,
        "folder": Path.mkdir,
    }
    for name, make in makers.items():
        (tmp_path / name).mkdir()
        make(tmp_path / name / "run.jsonl")
        with pytest.raises(RecordError) as error:
            read_result(tmp_path / name)
        assert rules_of(error) == {"LOG-001"}
    for path in (tmp_path / "missing", Path("/proc/self/fd"), good / "run.jsonl" / "x"):
        with pytest.raises(RecordError):
            read_result(path)


def test_reader_refuses_a_file_of_another_size_than_stated(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    (folder / "run.jsonl").touch()
    with pytest.raises(RecordError) as error:
        read_result(folder)
    assert rules_of(error) == {"LOG-012"}
    with pytest.raises(RecordError):  # a regular file of size 0 that has bytes
        read_result(Path("/proc/self"))


def test_reader_refuses_unknown_files(good: Path, tmp_path: Path) -> None:
    folder = tmp_path / good.name
    folder.mkdir()
    (folder / "run.jsonl").write_bytes((good / "run.jsonl").read_bytes())
    (folder / "system.json").write_text("{}")
    assert read_result(folder).files == ("run.jsonl", "system.json")
    (folder / "weights.bin").touch()
    with pytest.raises(RecordError) as error:
        read_result(folder)
    assert rules_of(error) == {"LOG-002"}


# --- nulls, seeds, output


def test_unexplained_reports_nulls_and_reasons() -> None:
    data = {"a": None, "b": [{"c": None}, 1], "reasons": {"a": "why", "z": "idle", "step.loss": "elsewhere"}}
    assert set(null_paths({"a": None, "b": [{"c": None}]})) == {"a", "b.0.c"}
    assert unexplained(data) == ({"b.0.c"}, {"z"})
    assert unexplained({"side": "inside", "facts": {"x": {"y": None}}, "reasons": {"x.y": "why"}}) == (
        set(),
        set(),
    )


def test_seeds_depend_on_every_part() -> None:
    seeds = {
        seed_hex(nonce, run_id, repeat)
        for nonce in (None, "00" * 31 + "01")
        for run_id in ("a", "ab")
        for repeat in (0, 1, 256)
    }
    assert len(seeds) == 12
    assert all(len(seed) == 16 for seed in seeds)
    assert seed_of(None, "a", 0) == int(seed_hex(None, "a", 0), 16)
    assert seed_hex(None, "a", 0) == seed_hex("00" * 32, "a", 0)
    with pytest.raises(ValueError, match="nonce"):
        seed_of("00", "a", 0)


def test_seed_is_the_documented_hash() -> None:
    text = b"suite-seed/1" + bytes(32) + bytes([0, 0, 0, 2]) + b"ab" + bytes([0, 0, 0, 3])
    assert seed_hex(None, "ab", 3) == sha256_hex(text)[:16]


@pytest.mark.parametrize(
    "text", ["\x1b[2J", "a\nb", "\u202eabc", "\u2066", "\x9b", "\ud800", "\u2028", "\x00"]
)
def test_safe_escapes_hostile_text(text: str) -> None:
    shown = safe(text)
    assert shown.isascii()
    assert shown.isprintable()


@QUICK
@given(st.text())
def test_safe_output_is_short_and_printable(text: str) -> None:
    shown = safe(text)
    assert "\n" not in shown
    assert "\x1b" not in shown
    assert len(shown) <= 120 * 10 + 1
    assert shown.encode("utf-8").decode() == shown


# --- writer


def test_writer_keeps_the_partial_name_until_the_end(tmp_path: Path) -> None:
    header = header_of(Good())
    folder = tmp_path / header["run_id"]
    log = LogWriter(folder, header)
    assert not folder.exists()
    log.event("repeat_start", {"seed": "0" * 16}, 0)
    assert len((log.partial / "run.jsonl").read_bytes().splitlines()) == 2  # on disk line by line
    with pytest.raises(NotCanonicalError):
        log.event("step", {"loss": 0.5}, 0)
    assert len((log.partial / "run.jsonl").read_bytes().splitlines()) == 2
    assert log.close("aborted", None, {"claims": "why"}, rename=False) == log.partial
    assert not folder.exists()
    with pytest.raises(ValueError, match="closed"):
        log.event("env", {}, 0)


def test_writer_never_overwrites_a_result(tmp_path: Path) -> None:
    header = header_of(Good())
    folder = tmp_path / header["run_id"]
    first = LogWriter(folder, header)
    with pytest.raises(LogExistsError):
        LogWriter(folder, header)
    first.close("completed", {}, {})
    with pytest.raises(LogExistsError):
        LogWriter(folder, header)
    assert sorted(path.name for path in tmp_path.iterdir()) == [folder.name]


def test_writer_times_never_decrease(tmp_path: Path) -> None:
    header = header_of(Good())
    log = LogWriter(tmp_path / header["run_id"], header)
    log.event("env", {}, 0, 5_000)
    log.event("env", {}, 0, 4_000)
    log.abandon()
    assert [event["mono_ns"] for event in lines_of(log.partial)][1:] == [5_000, 5_000]
    assert log.offset(log.origin_ns + 7) == 7


def test_writer_explains_full_disk_and_read_only_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = header_of(Good())

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(NoSpaceError, match="RESULTS_DIR"):
            LogWriter(tmp_path / header["run_id"], header)
    assert list(tmp_path.iterdir()) == []

    def refused(path: Path, *_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", refused)
        with pytest.raises(ReadOnlyError, match="RESULTS_DIR"):
            LogWriter(tmp_path / header["run_id"], header)


def test_result_folder_has_the_name_of_the_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="named after the run id"):
        LogWriter(tmp_path / "other", header_of(Good()))


def test_header_with_a_repeat_is_a_defect(tmp_path: Path) -> None:
    """It would create a repeat without a start, on which rules rely."""
    folder = rewrite(write_good(tmp_path), lambda events: events[0].update(repeat=5))
    with pytest.raises(RecordError) as caught:
        read_result(folder)
    assert [defect.rule for defect in caught.value.defects] == ["LOG-016"]


def test_null_fields_excludes_absent_fields() -> None:
    rows: list[dict[str, Any]] = [
        {"rank": 0, "phase": "warmup", "loss": None},
        {"rank": 0, "phase": "warmup", "loss": "0x0.0p+0", "bytes_in": 5},
        {"rank": 0, "phase": "measured", "loss": None, "bytes_in": 6},
    ]
    events = [Event(number, "step", 0, number, "", row) for number, row in enumerate(rows)]
    assert Repeat(0, tuple(events)).null_fields == {"loss"}
    assert Repeat(0, tuple(events)).column("bytes_in") == (None, 5, 6)
    assert Repeat(0, tuple(events[1:2])).null_fields == set()
    assert Repeat(0, ()).null_fields == set()


def test_steps_of_selects_by_rank_and_phase() -> None:
    phases = ("warmup", "measured")
    rows = [(rank, phase) for phase in phases for _ in range(2) for rank in (0, 1, 2)]
    events = [
        Event(number, "step", 0, number, "", {"rank": rank, "phase": phase})
        for number, (rank, phase) in enumerate(rows)
    ]
    several, one = Repeat(0, tuple(events)), Repeat(0, tuple(events[1::3]))
    assert several.ranks == (0, 1, 2)
    assert several.steps_of(1) == one.steps_of(1) == one.steps == tuple(events[1::3])
    assert several.steps_of(2, "measured") == tuple(events[8::3])
    assert one.steps_of(1, "warmup") == (events[1], events[4])
    assert several.steps_of(3) == one.steps_of(0) == one.steps_of(1, "tail") == ()
