"""The statement that a submitter signs: an in-toto Statement v1 about the files of a result.

All of it follows from the folder and the registry. A verifier recomputes the statement and compares it as a
whole, so that no signed value is trusted because it is signed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from suite.log.canonical import reencode, sha256_hex
from suite.log.files import BASELINE, CHANGES, LOG
from suite.log.model import Record
from suite.submissions.signing import merkle

ATTESTATION = "attestation.dsse.json"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT = "https://in-toto.io/Statement/v1"
# A name, not an address, because the project owns no domain; the schemas of the rules are named in the same
# way ("urn:suite:1.0:header").
PREDICATE = "urn:suite:attestation:run:1"
SUBJECTS = (LOG, "system.json", CHANGES, BASELINE)  # in this order, if present


class ChangedError(ValueError):
    """The files differ from those that the record was read from."""


def statement_of(
    record: Record, files: Mapping[str, bytes], submitter: str, nonce: Mapping[str, str] | None
) -> dict[str, Any]:
    """The statement about a result: JSON values, integers only.

    ``record`` was read from ``files[LOG]``; ``files`` holds the bytes of each of SUBJECTS in the folder;
    ``nonce`` is the registry's (value, issuer, issuedAt) or None. ChangedError if ``record`` does not match
    those bytes or ``system.json`` is missing.
    """
    data = files[LOG]
    if sha256_hex(data) != record.digest:
        raise ChangedError(f"{LOG}: expected the bytes that were checked, found others")
    if "system.json" not in files:
        raise ChangedError("expected system.json, found none")
    lines = [line + b"\n" for line in data.split(b"\n")[:-1]]
    header = record.header
    return {
        "_type": STATEMENT,
        "subject": [
            {"name": name, "digest": {"sha256": sha256_hex(files[name])}}
            for name in SUBJECTS
            if name in files
        ],
        "predicateType": PREDICATE,
        "predicate": {
            "suite": header["suite_version"],
            "rules": {"version": header["rules"]["version"], "digest": header["rules"]["digest"]},
            "runId": record.run_id,
            "submitter": submitter,
            "attempt": header["attempt"],
            "nonce": None if nonce is None else dict(nonce),
            "events": len(lines),
            "headHash": sha256_hex(lines[-1]),
            "merkleRoot": merkle.root(lines),
            "imageDigest": _image(header["image"]),
            "codeDigest": header["code_digest"],
            "datasetDigest": header["dataset"]["digest"],
            "scores": _scores(record),
        },
    }


def encode(statement: Mapping[str, Any]) -> bytes:
    """The canonical encoding of a statement, which is signed and compared with signed payloads."""
    return reencode(statement)


def unequal(found: Any, wanted: Any, location: str = "") -> Iterator[tuple[str, str, str]]:
    """(location, expected, found) wherever the values of a statement differ, also in type: 1 is not true."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        for name in dict.fromkeys([*wanted, *found]):
            path = f"{location}.{name}" if location else str(name)
            if name not in found or name not in wanted:
                yield path, *(("there", "not there") if name in wanted else ("not there", "there"))
            else:
                yield from unequal(found[name], wanted[name], path)
    elif isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        for index, (one, other) in enumerate(zip(found, wanted, strict=True)):
            yield from unequal(one, other, f"{location}.{index}")
    elif type(found) is not type(wanted) or found != wanted:
        yield location, str(wanted), str(found)


def _image(image: Mapping[str, Any] | None) -> str | None:
    """The digest of the image manifest; None for native runs and unpublished container images."""
    digest: str | None = None if image is None else image.get("manifest_digest")
    return digest


def _scores(record: Record) -> dict[str, list[int | None]]:
    """Windows and units of the repeats, in integers: the throughput is all units over all windows."""
    done = [repeat for repeat in record.repeats if repeat.end is not None]
    return {"windowNs": [repeat.window_ns for repeat in done], "units": [repeat.units for repeat in done]}
