"""The assurance of one result by its signature and the registry: breaches of rules, and the level reached.

L0: the rules pass. L1: signed by a key that the registry holds for the submitter. L2: the run used a nonce of
the registry, which recorded when it received the result. L3 (an auditor repeated the run) is part of the
auditor's signed verdict (:mod:`suite.audit.replayed`), not of the result's files; L4 (hardware attestation)
is not part of this version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from suite.log.files import LOG
from suite.log.model import Record
from suite.log.strict import StrictError, decode
from suite.submissions.registry.model import Breach, Nonce, Registry, SubmitterKey, parse_time
from suite.submissions.signing import dsse
from suite.submissions.signing.statement import ATTESTATION, PAYLOAD_TYPE, encode, statement_of, unequal

WITHIN = timedelta(days=7)  # from the nonce's issue to the result's receipt
LEVELS = ("L0", "L1", "L2")
_NEXT = {
    "L0": f"{ATTESTATION}, signed by a key in submissions/registry/keys.json (`make submit … KEY=`)",
    "L1": "a nonce of the registry in the run, and the registry's record of when it received the result",
    "L2": "a replay by an auditor (L3): `make audit-replay RESULT=…` where the system is",
}


@dataclass(frozen=True, slots=True)
class Assurance:
    """The assurance ``level`` (L0, L1, L2), what the next one requires, and the signers."""

    level: str
    missing: str
    signers: tuple[str, ...] = ()  # key ids of the submitter's keys that count


@dataclass(frozen=True, slots=True)
class SignedResult:
    """A packaged result: the record, the bytes of the files, the attestation and the submitter."""

    record: Record
    files: Mapping[str, bytes]  # run.jsonl, system.json; changes.patch and baseline.json where there are any
    attestation: bytes | None
    submitter: str

    @property
    def started(self) -> datetime:
        """Start of the run by its log (UTC)."""
        return parse_time(self.record.events[0].wall)

    @property
    def ended(self) -> datetime:
        """End of the run by its log (UTC)."""
        return parse_time(self.record.events[-1].wall)


def assess(result: SignedResult, registry: Registry) -> tuple[list[Breach], Assurance]:
    """Breaches of SIGN-… and REG-… rules, and the level that the result has if no other rule rejects it."""
    nonce, nonce_breaches = _nonce(result, registry)
    signers, signature_breaches = _signature(result, registry, nonce)
    breaches = [*signature_breaches, *nonce_breaches]
    if not signers:
        return breaches, Assurance("L0", _NEXT["L0"])
    names = tuple(key.public.key_id for key in signers)
    if nonce is None or nonce_breaches or nonce.received_at is None:
        return breaches, Assurance("L1", _NEXT["L1"], names)
    return breaches, Assurance("L2", _NEXT["L2"], names)


def expected_statement(result: SignedResult, registry: Registry, nonce: Nonce | None) -> dict[str, Any]:
    """The statement that the result's submitter must sign."""
    signed_nonce = None if nonce is None else nonce.as_signed(registry.issuer)
    return statement_of(result.record, result.files, result.submitter, signed_nonce)


def nonce_of(record: Record, registry: Registry, submitter: str) -> Nonce | None:
    """The nonce that the registry issued to ``submitter`` and the run used; None without one."""
    nonce = registry.nonces.get(str(record.header["nonce"]))
    return nonce if nonce is not None and nonce.submitter == submitter else None


def _signature(
    result: SignedResult, registry: Registry, nonce: Nonce | None
) -> tuple[list[SubmitterKey], list[Breach]]:
    """The submitter's valid keys that signed, and the breaches of the envelope."""
    if result.attestation is None:
        # Anybody can write into a folder: who has registered a key signs with it, so that others cannot.
        own = [key for key in registry.keys if key.submitter == result.submitter]
        if known := [key.public.key_id[:16] for key in own if key.lifetime.covers(result.ended)]:
            wanted = f"a signature by the registered key {' or '.join(known)}… of {result.submitter}"
            return [], [Breach("SIGN-002", ATTESTATION, wanted, "none")]
        if result.record.division == "closed":
            return [], [Breach("SIGN-006", ATTESTATION, "a signature: the result is closed", "none")]
        return [], []
    keys = {key.public: key for key in registry.keys}
    try:
        envelope = dsse.parse(result.attestation)
        verified = dsse.verify(envelope, PAYLOAD_TYPE, keys)
    except dsse.EnvelopeError as error:
        return [], [Breach("SIGN-001", ATTESTATION, "a DSSE envelope of a statement", str(error))]
    faults = [
        Breach("SIGN-007", f"{ATTESTATION}, signatures", "keys of the registry", f"the unknown key {hint}")
        for hint in verified.unknown
    ]
    if not verified.keys:
        return [], [Breach("SIGN-002", ATTESTATION, "a signature by a key of the registry", "no valid one")]
    signing_keys = [keys[public] for public in verified.keys if keys[public].submitter == result.submitter]
    if not signing_keys:
        found = ", ".join(sorted({keys[public].submitter for public in verified.keys}))
        return [], [*faults, Breach("SIGN-003", ATTESTATION, f"a key of {result.submitter}", f"of {found}")]
    refusals = {key.public.key_id: key.lifetime.refusal(result.ended) for key in signing_keys}
    for name, refusal in refusals.items():
        if refusal is not None:
            faults.append(
                Breach(
                    "SIGN-004",
                    f"{ATTESTATION}, key {name}",
                    f"valid at {result.ended:%Y-%m-%dT%H:%MZ}",
                    refusal,
                )
            )
    differences = _differences(verified.payload, expected_statement(result, registry, nonce))
    faults += [
        Breach("SIGN-005", f"{ATTESTATION}, {where}", wanted, found) for where, wanted, found in differences
    ]
    valid = [key for key in signing_keys if refusals[key.public.key_id] is None]
    return ([] if differences else valid), faults


def _differences(payload: bytes, wanted: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(location, expected, actual) where the signed payload differs from the recomputed statement."""
    if payload == encode(wanted):
        return []
    try:
        found = decode(payload, dsse.MAX_ENVELOPE)
    except StrictError as error:
        return [("payload", "the statement about this result", str(error))]
    # Equal values in another encoding (spaces, order of names) are no difference.
    return list(unequal(found, wanted, "payload"))[:10]


def _nonce(result: SignedResult, registry: Registry) -> tuple[Nonce | None, list[Breach]]:
    """The registry's nonce of the run, and the breaches that concern it."""
    value = result.record.header["nonce"]
    if value is None:
        return None, []
    where = result.record.header.location("nonce")
    nonce = registry.nonces.get(value)
    if nonce is None or nonce.submitter != result.submitter:
        found = "one that it never issued" if nonce is None else f"one issued to {nonce.submitter}"
        return None, [
            Breach("REG-002", where, f"a nonce that the registry issued to {result.submitter}", found)
        ]
    faults = []
    if nonce.used_by not in (None, result.record.run_id):
        faults.append(Breach("REG-003", where, "a nonce that no other run used", f"that of {nonce.used_by}"))
    elif nonce.received not in (None, result.record.digest):
        # A run id can be chosen freely: only the digest shows that the log is the one received.
        faults.append(Breach("REG-013", LOG, f"the log as received, {nonce.received}", result.record.digest))
    issued = parse_time(nonce.issued_at)
    if result.started < issued:
        start_location = result.record.header.location("wall")
        faults.append(
            Breach(
                "REG-004", start_location, f"a run after its nonce ({nonce.issued_at})", f"{result.started}"
            )
        )
    last = result.ended if nonce.received_at is None else parse_time(nonce.received_at)
    if last > issued + WITHIN:
        wanted = f"run and received within {WITHIN.days} days of {nonce.issued_at}"
        faults.append(Breach("REG-005", where, wanted, f"{last}"))
    if last < result.ended:
        faults.append(Breach("REG-005", where, f"received after the run ended ({result.ended})", f"{last}"))
    return nonce, faults
