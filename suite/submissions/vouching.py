"""What signature and registry say of a packaged result, as findings; and making the signature."""

from __future__ import annotations

import os
from pathlib import Path

from suite.log.canonical import MAX_FILE
from suite.log.files import CHANGES, LOG, MAX_CHANGES, read_file
from suite.log.finding import Finding, RecordError
from suite.log.model import Record
from suite.submissions.registry import Registry
from suite.submissions.registry.judge import Assurance, Result, expected_statement, judge, nonce_of
from suite.submissions.rule_table import finding
from suite.submissions.signing import dsse
from suite.submissions.signing.keys import PrivateKey
from suite.submissions.signing.statement import ATTESTATION, PAYLOAD_TYPE, SUBJECTS, ChangedError, encode

_CAPS = {LOG: MAX_FILE, "system.json": 64 * 1024, CHANGES: MAX_CHANGES}


def signed(folder: Path, record: Record, submitter: str, registry: Registry, key: PrivateKey) -> bytes:
    """The envelope over the statement about the files in ``folder``; RecordError if one cannot be read."""
    files, _ = _read(folder)
    statement = expected_statement(
        Result(record, files, None, submitter), registry, nonce_of(record, registry, submitter)
    )
    return dsse.sign(PAYLOAD_TYPE, encode(statement), key).encode()


def vouched(
    folder: Path, record: Record, submitter: str, registry: Registry
) -> tuple[list[Finding], Assurance | None]:
    """Findings by SIGN-… and REG-… rules, and the level of assurance; None where files cannot be read.

    ``record`` is what was checked: files that changed since then are a finding.
    """
    try:
        files, attestation = _read(folder)
        faults, assurance = judge(Result(record, files, attestation, submitter), registry)
    except RecordError as error:
        defect = error.defects[0]
        return [finding("SIGN-001", defect.location, defect.expected, defect.actual)], None
    except ChangedError as error:
        return [finding("SIGN-005", LOG, "the bytes that were checked", str(error))], None
    return [finding(*fault) for fault in faults], assurance


def _read(folder: Path) -> tuple[dict[str, bytes], bytes | None]:
    """The files that a statement is about, and the envelope if there is one; RecordError on anything odd."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        there = set(os.listdir(descriptor))  # noqa: PTH208 - of the open folder, whatever its path
        files = {name: read_file(descriptor, name, _CAPS[name]) for name in SUBJECTS if name in there}
        attestation = None
        if ATTESTATION in there:
            attestation = read_file(descriptor, ATTESTATION, dsse.MAX_ENVELOPE)
    finally:
        os.close(descriptor)
    return files, attestation
