"""A small sample of the fuzzing (``python -m tests.hostile.fuzz`` is the whole), and hypothesis on a line."""

from __future__ import annotations

import contextlib
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from suite.audit import vsa
from suite.log.canonical import (
    MAX_DEPTH,
    MAX_STRING,
    NotCanonicalError,
    encode,
    examine,
    plain_text,
    reencode,
    surely_plain,
)
from suite.log.finding import RecordError
from suite.log.lines import parse, parse_line
from suite.submissions import system
from suite.submissions.registry.assurance import Assurance
from tests.hostile import fuzz, signed
from tests.hostile.mutators import Choice

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just("x" * 5000)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)
QUICK = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


def test_fuzz_sample_has_no_fault() -> None:
    outcomes, faults, compared = fuzz.run(500, seed=20261122)
    assert faults == []
    assert sum(outcomes.values()) == 500
    assert len(outcomes) > 15, "the mutators reach many rules"
    assert compared > 200


def test_fuzz_input_follows_from_seed_and_index() -> None:
    draws = [[Choice(1, index).below(1 << 60) for _ in range(3)] for index in (4, 5, 4)]
    assert draws[0] == draws[2] != draws[1]


def test_fuzz_finds_a_fault_of_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("data")

    monkeypatch.setattr(fuzz, "check_raw", broken)
    outcomes, faults, _ = fuzz.run(20, seed=1)
    assert outcomes["FAULT"] == len(faults) > 5
    assert faults[0].startswith("seed 1, index ")


def test_fuzz_finds_validators_that_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "_oracle", lambda version, name: lambda value: False)
    good: dict[str, Any] = {"at": "never"}
    assert fuzz.differing([{"kind": "clock", "data": good}]) == []
    monkeypatch.setattr(fuzz, "_oracle", lambda version, name: lambda value: True)
    assert fuzz.differing([{"kind": "clock", "data": good}]) == ["envelope", "clock"]


@QUICK
@given(st.binary(max_size=300))
def test_parse_line_returns_a_line_or_a_defect(data: bytes) -> None:
    for read in (lambda: parse(data, False), lambda: parse(data, True), lambda: parse_line(data, "line 1")):
        with contextlib.suppress(RecordError):
            read()


@QUICK
@given(VALUES)
@example(float("inf"))
def test_parse_line_accepts_exactly_encoded_lines(value: Any) -> None:
    """The reader accepts exactly what the writer writes."""
    try:
        written = encode({"a": value})
    except NotCanonicalError:
        written = None
    try:
        spelt = orjson.dumps({"a": value}, option=orjson.OPT_SORT_KEYS)
    except (TypeError, ValueError):  # beyond 64 bits, or lone surrogates: no JSON of it exists
        assert written is None
        return
    if orjson.loads(spelt) != {"a": value}:  # infinity and NaN, for which orjson writes null
        assert written is None
        return
    try:
        assert parse_line(spelt, "line 1") == {"a": value}
        read = True
    except RecordError:
        read = False
    same_spelling = written is not None and written[:-1] == spelt
    assert read == same_spelling


@QUICK
@given(st.lists(VALUES, min_size=1, max_size=3), st.integers(min_value=0, max_value=MAX_DEPTH + 2))
def test_surely_plain_agrees_with_examine(values: list[Any], depth: int) -> None:
    """For short lines of plain text, surely_plain agrees with examine."""
    for _ in range(depth):
        values = [[value] for value in values]
    try:
        lines = [reencode({"a": value, "data": {"b": value}}) for value in values]
    except (TypeError, ValueError):
        return
    if not all(plain_text(line) and len(line) <= MAX_STRING for line in lines):
        return
    events = [orjson.loads(line) for line in lines]
    refused = False
    for event in events:
        try:
            examine(event)
        except NotCanonicalError:
            refused = True
    assert surely_plain(events) is not refused


@QUICK
@given(st.binary(max_size=200) | VALUES.map(lambda value: repr(value).encode("utf-8", "surrogatepass")))
def test_any_bytes_are_a_system_description_or_an_error(data: bytes) -> None:
    with contextlib.suppress(system.SystemProblem):
        system.defects(system.parse(data))


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> signed.Signed:
    """Signed files and a registry, valid before any edit."""
    return signed.Signed(tmp_path_factory.mktemp("signed"))


@pytest.mark.parametrize(
    ("target", "outcomes"),
    [
        ("attestation", {"found by SIGN-001", "found by SIGN-002", "found by SIGN-005"}),
        ("verdict", {"does not hold", "differs"}),
        ("registry", {"found by REG-001", "found by REG-009"}),
    ],
)
def test_fuzz_finds_no_accepted_edit_of_signed_files(
    target: str, outcomes: set[str], honest: signed.Signed
) -> None:
    found = {honest.one(target, Choice(20261122, index)) for index in range(80)}
    assert {f"{target}: {outcome}" for outcome in outcomes} <= found


def test_fuzz_reports_an_accepted_edit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulates a registry that accepts any signed statement, and an audit that compares nothing."""
    monkeypatch.setattr(signed, "assess", lambda *_: ([], Assurance("L2", "")))
    monkeypatch.setattr(vsa, "differences", lambda *_: [])
    _, faults, _ = fuzz.run(200, seed=1)
    for what in ("statement", "verdict"):
        assert any(f"a {what} holds that does not follow from the result" in fault for fault in faults)
