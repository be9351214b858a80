"""The attestation of a packaged result: sign it, and check it against the registry."""

from __future__ import annotations

import os
from pathlib import Path

from suite.log.canonical import MAX_FILE
from suite.log.files import BASELINE, CHANGES, LOG, MAX_CHANGES, read_file
from suite.log.finding import Finding, RecordError
from suite.log.model import Record
from suite.metrics.baseline import MAX_SHARED
from suite.submissions import system
from suite.submissions.registry import Registry
from suite.submissions.registry.assurance import (
    Assurance,
    SignedResult,
    assess,
    expected_statement,
    nonce_of,
)
from suite.submissions.rule_table import finding, finding_of
from suite.submissions.signing import dsse
from suite.submissions.signing.keys import PrivateKey
from suite.submissions.signing.statement import ATTESTATION, PAYLOAD_TYPE, SUBJECTS, ChangedError, encode

_MAX_BYTES = {LOG: MAX_FILE, "system.json": system.MAX_BYTES, CHANGES: MAX_CHANGES, BASELINE: MAX_SHARED}


def sign_result(folder: Path, record: Record, submitter: str, registry: Registry, key: PrivateKey) -> bytes:
    """The signed envelope about the files in ``folder``; RecordError if a file cannot be read."""
    files, _ = _read(folder)
    statement = expected_statement(
        SignedResult(record, files, None, submitter), registry, nonce_of(record, registry, submitter)
    )
    return dsse.sign(PAYLOAD_TYPE, encode(statement), key).encode()


def check_attestation(
    folder: Path, record: Record, submitter: str, registry: Registry
) -> tuple[list[Finding], Assurance | None]:
    """Findings by SIGN-… and REG-… rules, and the assurance level; None where files cannot be read.

    ``record`` is the checked log: a file that changed since then is a finding.
    """
    try:
        files, attestation = _read(folder)
        faults, assurance = assess(SignedResult(record, files, attestation, submitter), registry)
    except RecordError as error:
        defect = error.defects[0]
        return [finding("SIGN-001", defect.location, defect.expected, defect.found)], None
    except ChangedError as error:
        return [finding("SIGN-005", LOG, "the bytes that were checked", str(error))], None
    return [finding_of(fault) for fault in faults], assurance


def _read(folder: Path) -> tuple[dict[str, bytes], bytes | None]:
    """The files that a statement covers, and the envelope if present; RecordError for an irregular file."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        names = set(os.listdir(descriptor))  # noqa: PTH208 - of the open folder, not of its path
        files = {name: read_file(descriptor, name, _MAX_BYTES[name]) for name in SUBJECTS if name in names}
        attestation = None
        if ATTESTATION in names:
            attestation = read_file(descriptor, ATTESTATION, dsse.MAX_ENVELOPE)
    finally:
        os.close(descriptor)
    return files, attestation
