"""Waivers: signed by a key of the registry, outside of what they are about, and shown wherever they apply."""

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
from suite.submissions.registry.model import SubmitterKey, Waiver, moment
from suite.submissions.signing import dsse
from suite.submissions.signing.keys import PrivateKey

PAYLOAD_TYPE = "application/vnd.suite.waiver+json"
# A log that cannot be read and a signature that does not hold are no matter of judgement.
NEVER = ("LOG-", "SIGN-", "REG-")


class WaiverError(ValueError):
    """A waiver that does not count; the message says why."""


def signed(payload: Mapping[str, Any], key: PrivateKey) -> bytes:
    """The file of a waiver: ``payload`` is as schemas/registry_waiver.json says."""
    return dsse.sign(PAYLOAD_TYPE, reencode(payload), key).encode()


def read_waiver(name: str, content: bytes, root: Iterable[SubmitterKey]) -> Waiver:
    """The waiver in ``content``; WaiverError unless a key of ``root`` that was valid then signed it."""
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
        issued, until = moment(payload["issued_at"]), moment(payload["until"])
    except ValueError as error:
        raise WaiverError(str(error)) from None
    refusals = [keys[public].lifetime.refusal(issued) for public in verified.keys]
    if None not in refusals:
        raise WaiverError(f"its key is {refusals[0]}, it was issued {payload['issued_at']}")
    never = [rule for rule in payload["rules"] if rule.startswith(NEVER)]
    if never:
        raise WaiverError(f"{never[0]} cannot be waived")
    return Waiver(name, payload["run"], tuple(payload["rules"]), payload["reason"], until)


def applied(
    findings: Iterable[Finding], digest: str | None, waivers: Iterable[Waiver], now: datetime
) -> tuple[Finding, ...]:
    """``findings`` on the log with ``digest``: what is waived at ``now`` flags and does not reject."""
    known = {
        rule: waiver
        for waiver in waivers
        if waiver.run == digest and now <= waiver.until
        for rule in waiver.rules
    }
    return tuple(
        found
        if (waiver := known.get(found.rule)) is None
        else replace(
            found,
            severity="flag" if found.severity == "reject" else found.severity,
            expected=f"{found.expected}; {waiver}",
        )
        for found in findings
    )
