"""Reading ``submissions/registry/``: fixed names, regular files, one read of each, every entry checked.

Anybody may propose changes to the registry, so it is read as strictly as a submission.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from suite.log.canonical import NotCanonicalError, examine
from suite.log.files import read_file
from suite.log.finding import RecordError
from suite.log.strict import StrictError, decode
from suite.rules.root import LATEST, SHIPPED
from suite.rules.schemas import Schemas
from suite.submissions.registry.model import (
    Benchmark,
    Breach,
    Lifetime,
    Nonce,
    Reference,
    Registry,
    SubmitterKey,
    Waiver,
    Withdrawal,
    parse_time,
)
from suite.submissions.registry.waivers import WaiverError, read_waiver
from suite.submissions.signing.dsse import MAX_ENVELOPE
from suite.submissions.signing.keys import KeyProblem, public_of

FOLDER = "registry"
FILES = ("root", "keys", "nonces", "attempts")
WITHDRAWALS, REFERENCES = "withdrawals", "references"
OPTIONAL = (WITHDRAWALS, REFERENCES)  # without a file nothing is withdrawn, and there are no references
WAIVERS = "waivers"
_SUFFIX = ".dsse.json"
_MAX_BYTES = 32 << 20
_MAX_WAIVERS = 10_000


def read_registry(folder: Path) -> Registry:
    """The registry in ``folder``; an empty one where there is no such folder.

    ``faults`` has the breaches of rules REG-001 and REG-009. Entries of a file with a fault are ignored: a
    signature by an unreadable key is no signature.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return Registry()
    except OSError as error:
        return Registry(faults=(_fault("", "a folder", os.strerror(error.errno or 0)),))
    try:
        return _read(descriptor)
    finally:
        os.close(descriptor)


@cache
def registry_schemas() -> Schemas:
    """The schemas of the registry's files: those of the rules, and beside this module the optional ones."""
    own = {f"registry_{name}": Path(__file__).with_name(f"registry_{name}.json") for name in OPTIONAL}
    return Schemas(SHIPPED.files(LATEST, "schemas") | own)


def _read(folder: int) -> Registry:
    names = set(os.listdir(folder))
    known = (*FILES, *OPTIONAL)
    faults = [
        _fault(name, f"only README.md, {WAIVERS} and {', '.join(known)} (.json)", "another name")
        for name in sorted(names - {"README.md", WAIVERS, *(f"{one}.json" for one in known)})
    ]
    documents = {
        name: _document(folder, name, faults)
        for name in known
        if name not in OPTIONAL or f"{name}.json" in names
    }
    root = documents["root"] or {"issuer": "", "device_salt": "", "keys": []}
    root_keys = _keys("root", root, faults)
    submitter_keys = _keys("keys", documents["keys"], faults)
    shared = {key.public.key_id for key in root_keys} & {key.public.key_id for key in submitter_keys}
    if shared:
        faults.append(_fault("keys.json", "keys other than those in root.json", min(shared)))
        submitter_keys = ()
    return Registry(
        issuer=root["issuer"],
        device_salt=root["device_salt"],
        root=root_keys,
        keys=submitter_keys,
        nonces=_nonces(documents["nonces"], faults),
        attempts=_attempts(documents["attempts"], faults),
        waivers=_waivers(folder, root_keys, faults),
        withdrawals=_withdrawals(documents.get(WITHDRAWALS), faults),
        references=_references(documents.get(REFERENCES), faults),
        faults=tuple(faults),
    )


def _document(folder: int, name: str, faults: list[Breach]) -> dict[str, Any] | None:
    """The parsed file ``name``; None and a fault if it does not match its schema."""
    file, schemas = f"{name}.json", registry_schemas()
    try:
        value = decode(read_file(folder, file, _MAX_BYTES), _MAX_BYTES)
        examine(value)
    except RecordError as error:
        faults.append(_fault(file, error.defects[0].expected, error.defects[0].found))
        return None
    except (StrictError, NotCanonicalError) as error:
        faults.append(_fault(file, "strict JSON", str(error)))
        return None
    if not schemas.valid(f"registry_{name}", value):
        path, message = schemas.explain(f"registry_{name}", value)[0]
        faults.append(_fault(f"{file}, {path}", f"what schemas/registry_{name}.json allows", message))
        return None
    return value


def _keys(name: str, document: Mapping[str, Any] | None, faults: list[Breach]) -> tuple[SubmitterKey, ...]:
    keys: dict[str, SubmitterKey] = {}
    for number, row in enumerate(document["keys"] if document else ()):
        where = f"{name}.json, keys.{number}"
        try:
            public = public_of(row["spki"])
            revoked = None if row["revoked"] is None else parse_time(row["revoked"])
            lifetime = Lifetime(parse_time(row["not_before"]), parse_time(row["not_after"]), revoked)
        except (KeyProblem, ValueError) as error:
            faults.append(_fault(where, "an Ed25519 key and its dates", str(error)))
            return ()
        if public.key_id != row["key_id"]:
            faults.append(_fault(f"{where}.key_id", f"{public.key_id}, the SHA-256 of spki", row["key_id"]))
            return ()
        if public.key_id in keys or lifetime.not_before >= lifetime.not_after:
            faults.append(_fault(where, "each key once, valid for some time", public.key_id))
            return ()
        keys[public.key_id] = SubmitterKey(
            public, lifetime, row.get("submitter", ""), row.get("organisation", "")
        )
    return tuple(keys.values())


def _nonces(document: Mapping[str, Any] | None, faults: list[Breach]) -> dict[str, Nonce]:
    nonces: dict[str, Nonce] = {}
    for number, row in enumerate(document["nonces"] if document else ()):
        where, used = f"nonces.json, nonces.{number}", row["used"] or {}
        try:
            issued = parse_time(row["issued_at"])
            received = parse_time(used.get("received_at", row["issued_at"]))
        except ValueError as error:
            faults.append(_fault(where, "valid dates", str(error)))
            return {}
        if row["value"] in nonces or received < issued:
            faults.append(_fault(where, "each nonce once, received after it was issued", row["value"]))
            return {}
        nonces[row["value"]] = Nonce(
            row["value"],
            row["submitter"],
            row["issued_at"],
            used_by=used.get("run_id"),
            received_at=used.get("received_at"),
            received=used.get("sha256"),
        )
    return nonces


def _attempts(document: Mapping[str, Any] | None, faults: list[Breach]) -> dict[Benchmark, dict[int, str]]:
    ledger: dict[Benchmark, dict[int, str]] = {}
    runs: set[str] = set()
    for number, row in enumerate(document["attempts"] if document else ()):
        counted = ledger.setdefault(Benchmark(row["submitter"], row["system"], row["benchmark"]), {})
        if row["attempt"] in counted or row["run_id"] in runs:
            where = f"attempts.json, attempts.{number}"
            faults.append(
                _fault(where, "each attempt and each run once", f"{row['attempt']}, {row['run_id']}")
            )
            return {}
        counted[row["attempt"]] = row["run_id"]
        runs.add(row["run_id"])
    return ledger


def _withdrawals(document: Mapping[str, Any] | None, faults: list[Breach]) -> dict[str, Withdrawal]:
    withdrawals: dict[str, Withdrawal] = {}
    for number, row in enumerate(document["withdrawals"] if document else ()):
        where = f"{WITHDRAWALS}.json, withdrawals.{number}"
        try:
            parse_time(row["withdrawn_at"])
        except ValueError as error:
            faults.append(_fault(f"{where}.withdrawn_at", "a valid date", str(error)))
            return {}
        if row["sha256"] in withdrawals:
            faults.append(_fault(where, "each log once", row["sha256"]))
            return {}
        withdrawals[row["sha256"]] = Withdrawal(**row)
    return withdrawals


def _references(document: Mapping[str, Any] | None, faults: list[Breach]) -> dict[str, Reference]:
    references: dict[str, Reference] = {}
    for number, row in enumerate(document["references"] if document else ()):
        where = f"{REFERENCES}.json, references.{number}"
        try:
            parse_time(row["recorded_at"])
        except ValueError as error:
            faults.append(_fault(f"{where}.recorded_at", "a valid date", str(error)))
            return {}
        if row["sha256"] in references:
            faults.append(_fault(where, "each log once", row["sha256"]))
            return {}
        references[row["sha256"]] = Reference(**row)
    return references


def _waivers(folder: int, root: tuple[SubmitterKey, ...], faults: list[Breach]) -> tuple[Waiver, ...]:
    try:
        inner = os.open(WAIVERS, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return ()
    except OSError as error:
        faults.append(_fault(WAIVERS, "a folder", os.strerror(error.errno or 0)))
        return ()
    waivers = []
    try:
        names = sorted(set(os.listdir(inner)) - {"README.md"})  # noqa: PTH208 - of the open folder
        for name in names[:_MAX_WAIVERS]:
            try:
                if not name.endswith(_SUFFIX):
                    raise WaiverError(f"expected a name that ends in {_SUFFIX}")
                waivers.append(read_waiver(name, read_file(inner, name, MAX_ENVELOPE), root))
            except (WaiverError, RecordError) as error:
                faults.append(
                    Breach(
                        "REG-009",
                        f"registry, {WAIVERS}/{name}",
                        "a waiver that a key of root.json signed",
                        str(error),
                    )
                )
    finally:
        os.close(inner)
    return tuple(waivers)


def _fault(location: str, expected: str, actual: str) -> Breach:
    return Breach("REG-001", f"registry, {location}".removesuffix(", "), expected, actual)
