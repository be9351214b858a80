"""Verdicts with a replay: its items, its outcome, and the level that the result then reaches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from suite.audit.items import ComparedItem, counted, different, exactly
from suite.audit.items import lines as item_lines
from suite.audit.replay import compare, lacking, level, seeds, select
from suite.contract.seeds import seed_hex
from suite.log.canonical import sha256_hex
from suite.log.files import Raw
from suite.log.reader import record_of
from suite.rules import load
from suite.submissions.signing import merkle

HELD, DIFFERS, INCOMPLETE = "held", "different", "incomplete"
_NEXT = "an attestation of image and device by hardware (L4), which this version does not record"


def root_of(data: bytes) -> str:
    """The Merkle root of a log's lines, as in a submission's statement."""
    return merkle.root([line + b"\n" for line in data.split(b"\n")[:-1]])


def compared(submitted: Raw, again: Raw, nonce: str) -> list[ComparedItem]:
    """All items of a replay, including that the repeats were drawn with ``nonce``.

    RecordError where either log cannot be read.
    """
    wanted, found = record_of(submitted), record_of(again)
    header = wanted.header
    of = len(wanted.repeats)
    drawn = select(root_of(submitted.data), nonce, max(1, min(len(found.repeats), of)), of)
    expected = [seed_hex(header["nonce"], wanted.run_id, repeat) for repeat in drawn]
    chosen = exactly("drawn repeats", ", ".join(expected), ", ".join(seeds(found)))
    return [chosen, *compare(wanted, found, load(header["rules"]["version"]))]


def with_replay(
    value: Mapping[str, Any], items: Sequence[ComparedItem], nonce: str, submitted: bytes, again: bytes | None
) -> dict[str, Any]:
    """The verdict ``value`` (:func:`suite.audit.judgement.judged`) with the result of a replay.

    ``again`` is the replay's log; None if the replay was not started because :func:`identity` items differ.
    """
    outcome = DIFFERS if different(items) else INCOMPLETE if level(items) is None else HELD
    replay = {
        "nonce": nonce,
        "merkle_root": root_of(submitted),
        "log": None if again is None else sha256_hex(again),
        "outcome": outcome,
        "lacking": lacking(items),
        "on_top_of": value["level"],
        "items": [item.as_dict() for item in items],
    }
    found = {**value, "replay": replay}
    if outcome == HELD and value["level"] is not None:
        found |= {"level": "L3", "missing": _missing(value)}
    return found


def _missing(value: Mapping[str, Any]) -> str:
    """What is missing below L3, and for the next level."""
    base = value["level"]
    return _NEXT if base == "L2" else f"{value['missing']} (without the replay it is {base}); then {_NEXT}"


def lines(value: Mapping[str, Any]) -> Iterator[str]:
    """The replay in ``value`` as lines that are safe to print."""
    replay = value["replay"]
    yield f"nonce:  {replay['nonce']}"
    yield f"root:   {replay['merkle_root']}"
    yield from item_lines(replay["items"])
    yield ""
    yield f"replay {replay['outcome']}: {counted(replay['items'])}"
    if replay["outcome"] == INCOMPLETE:
        yield f"not compared, and needed for L3: {', '.join(replay['lacking'])}"
    if replay["outcome"] == HELD:
        yield f"assurance level: {value['level']}; for the next: {value['missing']}"
