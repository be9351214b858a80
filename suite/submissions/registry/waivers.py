"""Waivers: files signed by a key of the registry, and shown in every finding that they apply to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from suite.log.canonical import NotCanonicalError, examine, reencode
from suite.log.finding import Finding
from suite.log.strict import StrictError, decode
from suite.rules.root import LATEST
from suite.rules.schemas import schemas_for
from suite.submissions.registry.model import SubmitterKey, Waiver, parse_time
from suite.submissions.signing import dsse
from suite.submissions.signing.keys import PrivateKey

PAYLOAD_TYPE = "application/vnd.suite.waiver+json"
# An unreadable log and an invalid signature cannot be waived.
NOT_WAIVABLE = ("LOG-", "SIGN-", "REG-")


class WaiverError(ValueError):
    """An invalid waiver; the message states why."""


def sign_waiver(payload: Mapping[str, Any], key: PrivateKey) -> bytes:
    """The file content of a waiver; ``payload`` follows schemas/registry_waiver.json."""
    return dsse.sign(PAYLOAD_TYPE, reencode(payload), key).encode()


def read_waiver(name: str, content: bytes, root: Iterable[SubmitterKey]) -> Waiver:
    """The waiver in ``content``; WaiverError unless a key of ``root`` signed it while valid."""
    try:
        keys = {key.public: key for key in root}
        verified = dsse.verify(dsse.parse(content), PAYLOAD_TYPE, keys)
        if not verified.keys:
            raise WaiverError("no key of root.json signed it")
        payload = decode(verified.payload, dsse.MAX_ENVELOPE)
        examine(payload)
    except (dsse.EnvelopeError, StrictError, NotCanonicalError) as error:
        raise WaiverError(str(error)) from None
    schemas = schemas_for(LATEST)
    if not schemas.valid("registry_waiver", payload):
        path, message = schemas.explain("registry_waiver", payload)[0]
        raise WaiverError(f"{path}: {message}")
    try:
        issued, until = parse_time(payload["issued_at"]), parse_time(payload["until"])
    except ValueError as error:
        raise WaiverError(str(error)) from None
    refusals = [keys[public].lifetime.refusal(issued) for public in verified.keys]
    if None not in refusals:
        raise WaiverError(f"its key is {refusals[0]}, it was issued {payload['issued_at']}")
    not_waivable = [rule for rule in payload["rules"] if rule.startswith(NOT_WAIVABLE)]
    if not_waivable:
        raise WaiverError(f"{not_waivable[0]} cannot be waived")
    return Waiver(name, payload["run"], tuple(payload["rules"]), payload["reason"], until)


def apply_waivers(
    findings: Iterable[Finding], digest: str | None, waivers: Iterable[Waiver], now: datetime
) -> tuple[Finding, ...]:
    """``findings`` on the log with ``digest``; a rule waived at ``now`` flags instead of rejecting."""
    by_rule = {
        rule: waiver
        for waiver in waivers
        if waiver.run == digest and now <= waiver.until
        for rule in waiver.rules
    }
    return tuple(
        found
        if (waiver := by_rule.get(found.rule)) is None
        else replace(
            found,
            severity="flag" if found.severity == "reject" else found.severity,
            expected=f"{found.expected}; {waiver}",
        )
        for found in findings
    )
