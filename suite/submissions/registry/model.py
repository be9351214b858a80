"""The contents of the registry as typed, frozen objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from suite.submissions.signing.keys import PublicKey


class Breach(NamedTuple):
    """A breach of a rule: the rule's id, and location, expected and found as in a finding."""

    rule: str
    location: str
    expected: str
    found: str
    between: tuple[str, str] | None = None  # the locations of the two submissions, the earlier one first
    severity: str | None = None  # where it is not that of the rule


def parse_time(text: str) -> datetime:
    """A time of the registry or a log ("2026-11-20T17:16:00Z"), in UTC; ValueError for an invalid date."""
    return datetime.fromisoformat(text).astimezone(UTC)


@dataclass(frozen=True, slots=True)
class Lifetime:
    """When a key may sign. A revoked key may be stolen: all its signatures are invalid, earlier ones too."""

    not_before: datetime
    not_after: datetime
    revoked: datetime | None

    def covers(self, at: datetime) -> bool:
        """Whether the key was registered and not yet revoked at ``at``."""
        return self.not_before <= at <= self.not_after and (self.revoked is None or at < self.revoked)

    def refusal(self, at: datetime) -> str | None:
        """Why a signature over a run that ended at ``at`` is invalid; None if it is valid."""
        if self.revoked is not None:
            return f"revoked {self.revoked:%Y-%m-%d}"
        if not self.not_before <= at <= self.not_after:
            return f"valid from {self.not_before:%Y-%m-%dT%H:%MZ} to {self.not_after:%Y-%m-%dT%H:%MZ}"
        return None


@dataclass(frozen=True, slots=True)
class SubmitterKey:
    """A submitter's key; ``submitter`` is empty for a key of the registry itself."""

    public: PublicKey
    lifetime: Lifetime
    submitter: str = ""
    organisation: str = ""


@dataclass(frozen=True, slots=True)
class Nonce:
    """A random number issued for one run, and the registry's record of receiving that run."""

    value: str
    submitter: str
    issued_at: str
    used_by: str | None  # the run's id
    received_at: str | None
    received: str | None  # SHA-256 of run.jsonl as it was received

    def as_signed(self, issuer: str) -> dict[str, str]:
        """The nonce as part of a statement."""
        return {"value": self.value, "issuer": issuer, "issuedAt": self.issued_at}


class Benchmark(NamedTuple):
    """The unit for which attempts are counted: a submitter's system and the digest of the benchmark key."""

    submitter: str
    system: str
    digest: str


@dataclass(frozen=True, slots=True)
class Waiver:
    """Rules that are waived for one run, named by the digest of its log; signed by a key of the registry."""

    name: str
    run: str
    rules: tuple[str, ...]
    reason: str
    until: datetime

    def __str__(self) -> str:
        return f"waived until {self.until:%Y-%m-%d} by {self.name}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """A submitter's withdrawal of one result, which the digest of its log names; the result stays."""

    sha256: str  # of run.jsonl
    run_id: str
    submitter: str
    withdrawn_at: str
    reason: str

    def __str__(self) -> str:
        return f"withdrawn {self.withdrawn_at} by {self.submitter}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Reference:
    """A result that the throughput of others is compared with; the digest of its log names it."""

    sha256: str  # of run.jsonl
    run_id: str
    submitter: str
    basis: str  # "measured" by the project, or "replayed" by an auditor
    recorded_at: str


@dataclass(frozen=True, slots=True)
class Registry:
    """The whole registry. ``faults`` reports the entries that could not be read."""

    issuer: str = ""
    device_salt: str = ""
    root: tuple[SubmitterKey, ...] = ()
    keys: tuple[SubmitterKey, ...] = ()
    nonces: Mapping[str, Nonce] = field(default_factory=dict)
    attempts: Mapping[Benchmark, Mapping[int, str]] = field(default_factory=dict)
    waivers: tuple[Waiver, ...] = ()
    withdrawals: Mapping[str, Withdrawal] = field(default_factory=dict)  # by the digest of the log
    references: Mapping[str, Reference] = field(default_factory=dict)  # by the digest of the log
    faults: tuple[Breach, ...] = ()
