"""An audit rejects hostile files in printable text, and accepts no hostile verdict."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from suite.audit import show, vsa
from suite.audit.judgement import AUDIT_TASKS, judged
from suite.sandbox.sandbox import Sandbox
from suite.submissions.signing import dsse, keys
from suite.submissions.signing.statement import PAYLOAD_TYPE
from tests.fixtures.good_log import Good, write_good
from tests.hostile.corpus import ROWS, SYSTEMS

SPOILS = {
    **{name: spoil for name, (_, spoil) in ROWS.items()},
    **{f"system: {n}": s for n, s in SYSTEMS.items()},
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small honest result."""
    return write_good(tmp_path_factory.mktemp("good"), Good(mode="quality"))


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """One sandbox for all tests."""
    with Sandbox(AUDIT_TASKS) as child:
        yield child


@pytest.mark.parametrize("name", SPOILS)
def test_audit_rejects_hostile_file_without_quote(
    name: str, sandbox: Sandbox, good: Path, tmp_path: Path
) -> None:
    result = shutil.copytree(good, tmp_path / "results" / good.name)
    SPOILS[name](result)
    value = judged(sandbox, result, tmp_path / "none")
    assert (value["accepted"], value["level"], value["quote"]) == (False, None, None)
    assert "rejected" in {row["outcome"] for row in (*value["outcomes"], *value["outcomes_of_submission"])}
    assert sandbox.starts == 1
    for line in show.lines(value):
        assert line.isprintable() or not line
        assert not line.startswith(("::", "##["))
    assert json.dumps(value).isascii()


PAYLOADS = {
    "empty": b"{}",
    "list": b"[]",
    "NaN": b'{"a":NaN}',
    "deep": b"[" * 5000,
    "duplicate": b'{"_type":"a","_type":"b"}',
    "no predicate": b'{"_type":"https://in-toto.io/Statement/v1","predicateType":"%s"}'
    % vsa.PREDICATE.encode(),
    "predicate of text": (
        b'{"_type":"https://in-toto.io/Statement/v1","predicateType":"%s","predicate":"x"}'
        % vsa.PREDICATE.encode()
    ),
    "verifier of text": (
        b'{"_type":"https://in-toto.io/Statement/v1","predicateType":"%s","predicate":{"verifier":[]}}'
        % vsa.PREDICATE.encode()
    ),
}


@pytest.mark.parametrize("name", PAYLOADS)
def test_signed_hostile_verdict_is_not_verified(name: str) -> None:
    key = keys.generate()
    with pytest.raises(vsa.SummaryError):
        vsa.verified(dsse.sign(PAYLOAD_TYPE, PAYLOADS[name], key).encode(), [key.public])


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"\xff", b"[" * 100_000, b"x" * (2 << 20), base64.b64encode(b"{}")]
)
def test_other_content_than_an_envelope_is_not_verified(content: bytes) -> None:
    with pytest.raises(vsa.SummaryError):
        vsa.verified(content, [keys.generate().public])
