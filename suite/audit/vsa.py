"""The signed verdict: a DSSE envelope around an in-toto Statement v1 with a SLSA verification summary.

The predicate is https://slsa.dev/spec/v1.0/verification_summary. Its parsing rules allow extension fields
whose names are URIs; one contains the outcomes of the rules. A verifier derives the whole statement from the
result again and compares it, because a signature alone proves nothing about the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from suite import __version__
from suite.log.canonical import reencode
from suite.log.strict import StrictError, decode
from suite.submissions.signing import dsse
from suite.submissions.signing.keys import PrivateKey, PublicKey
from suite.submissions.signing.statement import PAYLOAD_TYPE, STATEMENT, unequal

PREDICATE = "https://slsa.dev/verification_summary/v1"
EXTENSION = "urn:suite:audit:1"
PASSED, FAILED = "PASSED", "FAILED"
_MOST = 50  # reported differences


class SummaryError(ValueError):
    """A summary that cannot be made or is not valid; the message states the reason."""


def statement_of(value: Mapping[str, Any], verifier: PublicKey, at: str) -> dict[str, Any]:
    """The statement of ``verifier``, at time ``at``, about a verdict (:func:`suite.audit.judgement.judged`).

    Raises SummaryError if the log could not be read, because then the statement has no subject, and for a
    withdrawn result, about which nothing is published.
    """
    if value["withdrawal"] is not None:
        raise SummaryError("its submitter withdrew the result")
    if value["sha256"] is None:
        raise SummaryError("the log could not be read, so that there is no digest to sign")
    replay = value.get("replay")
    holds = value["accepted"] and (replay is None or replay["outcome"] != "different")
    level = f"SUITE_{value['level']}" if holds and value["level"] else FAILED
    files = value["files"] or {"run.jsonl": value["sha256"]}
    policy = value["policy"]
    return {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted(files.items())],
        "predicateType": PREDICATE,
        "predicate": {
            # One verifier per key: who trusts the key trusts this verifier only.
            "verifier": {"id": f"urn:suite:verifier:{verifier.key_id}", "version": {"suite": __version__}},
            "timeVerified": at,
            "resourceUri": f"urn:suite:log:sha256:{value['sha256']}",
            "policy": {
                "uri": f"urn:suite:rules:{policy['version']}",
                "digest": {"sha256": policy["digest"]},
            },
            "inputAttestations": [
                {"uri": f"urn:suite:file:{name}", "digest": {"sha256": digest}}
                for name, digest in sorted(value["inputs"].items())
            ],
            "verificationResult": PASSED if holds else FAILED,
            "verifiedLevels": [level],
            EXTENSION: {
                "runId": value["run_id"],
                "rules": value["rules"],
                "scored": value["scored"],
                "missing": value["missing"],
                "outcomes": _short(value["outcomes"]),
                "submission": _short(value["outcomes_of_submission"]),
                **({} if replay is None else {"replay": _replay(replay)}),
            },
        },
    }


def _replay(replay: Mapping[str, Any]) -> dict[str, Any]:
    """The nonce, log and items of a replay; everybody with both logs can derive them again."""
    return {
        "nonce": replay["nonce"],
        "merkleRoot": replay["merkle_root"],
        "log": replay["log"],
        "outcome": replay["outcome"],
        "onTopOf": replay["on_top_of"],
        "items": {
            item["name"] if item["repeat"] is None else f"{item['name']}, repeat {item['repeat']}": item[
                "outcome"
            ]
            for item in replay["items"]
        },
    }


def replayed_with(statement: Mapping[str, Any]) -> str | None:
    """The auditor's nonce in a statement about a replay; None for an audit without a replay."""
    replay = _replay_in(statement)
    return None if replay is None else str(replay.get("nonce"))


def ran(statement: Mapping[str, Any]) -> bool:
    """Whether a statement is about a replay that has a log."""
    replay = _replay_in(statement)
    return replay is not None and replay.get("log") is not None


def _replay_in(statement: Mapping[str, Any]) -> Mapping[str, Any] | None:
    predicate = statement["predicate"]
    extension = predicate.get(EXTENSION) if isinstance(predicate, dict) else None
    replay = extension.get("replay") if isinstance(extension, dict) else None
    return replay if isinstance(replay, dict) else None


def _short(rows: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Rule -> outcome, followed by a colon and the reason if the rule was not applied."""
    return {
        row["rule"]: f"{row['outcome']}: {row['because']}" if row["because"] else row["outcome"]
        for row in rows
    }


def now() -> str:
    """The time in UTC, to the second, as a summary states it."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def signed(value: Mapping[str, Any], key: PrivateKey) -> bytes:
    """The file of the summary of ``value``, signed with ``key``."""
    return dsse.sign(PAYLOAD_TYPE, reencode(statement_of(value, key.public, now())), key).encode()


def verified(content: bytes, keys: Iterable[PublicKey]) -> tuple[dict[str, Any], PublicKey]:
    """The statement in ``content`` and the trusted key that signed it; SummaryError if none of ``keys`` did.

    The predicate type is checked after the signature, because the key may sign other kinds of statements.
    """
    try:
        found = dsse.verify(dsse.parse(content), PAYLOAD_TYPE, keys)
        if not found.keys:
            raise SummaryError("none of the given keys signed it")
        statement = decode(found.payload, dsse.MAX_ENVELOPE)
    except (dsse.EnvelopeError, StrictError) as error:
        raise SummaryError(str(error)) from None
    kind = statement.get("predicateType")
    if statement.get("_type") != STATEMENT or kind != PREDICATE:
        raise SummaryError(f"predicateType: expected {PREDICATE}, found {kind}")
    predicate = statement.get("predicate")
    verifier = predicate.get("verifier") if isinstance(predicate, dict) else None
    named = verifier.get("id") if isinstance(verifier, dict) else None
    for key in found.keys:
        if named == f"urn:suite:verifier:{key.key_id}":
            return statement, key
    raise SummaryError(f"verifier.id: expected that of a key that signed it, found {named}")


def differences(
    statement: Mapping[str, Any], value: Mapping[str, Any], key: PublicKey
) -> list[tuple[str, str, str]]:
    """(location, expected, found) wherever a summary differs from the one that follows from the result.

    The time of verification cannot be derived; it must only be well-formed.
    """
    predicate = statement["predicate"]
    at = str(predicate.get("timeVerified"))
    try:
        datetime.strptime(at, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        return [("predicate.timeVerified", "a time such as 2026-11-20T17:16:00Z", at)]
    wanted = statement_of(value, key, at)
    return list(unequal(statement, wanted))[:_MOST]
