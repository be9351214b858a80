"""Fuzzing of signed files and the registry's files: attestation, verdict, keys, nonces, attempts, waivers.

Each input is an honest file that was edited: its bytes, its values, or the signed payload, which is then
signed anew, as its submitter could. What comes out can be printed, and nothing that was changed holds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from suite.audit import vsa
from suite.audit.examine import examine
from suite.log.files import read_folder
from suite.log.reader import record_of
from suite.log.safe import safe
from suite.submissions.registry import Registry, read_registry
from suite.submissions.registry import waivers as waiver_files
from suite.submissions.registry.assurance import SignedResult, assess, expected_statement
from suite.submissions.registry.model import Breach
from suite.submissions.rule_table import finding_of
from suite.submissions.signing import dsse
from suite.submissions.signing.keys import PrivateKey
from suite.submissions.signing.statement import PAYLOAD_TYPE, encode
from suite.submissions.text import finding_line
from tests.fixtures.good_log import Good, write_good
from tests.fixtures.registered import ORG, entry, life, moment, nonce, receipt, today
from tests.hostile.mutators import Choice, mutate_bytes, mutate_value

NONCE, RUN = "5e" * 32, "1" * 64
GOOD = Good(out_of_memory_in=0, nonce=NONCE)
WAIVER = "waivers/one.dsse.json"
TARGETS = ("attestation", "verdict", "registry")


def _key(number: int) -> PrivateKey:
    """The same key on every machine, so that an input follows from seed and index."""
    return PrivateKey(Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32))


SUBMITTERS, REGISTRYS = _key(1), _key(2)


def _registry(log: Path) -> dict[str, Any]:
    """The honest registry: file -> value; it received the result in ``log``."""
    rows = {
        "keys": [entry(SUBMITTERS)],
        "nonces": [nonce(NONCE, **receipt(log)), nonce("6f" * 32)],
        "attempts": [
            {
                "submitter": ORG,
                "system": "a-system",
                "benchmark": "2" * 64,
                "attempt": 1,
                "run_id": GOOD.run_id,
            }
        ],
    }
    root = {"format": "suite-registry-root/1", "issuer": "test-registry", "device_salt": "suite-device/1"}
    found: dict[str, Any] = {"root.json": root | {"keys": [life(REGISTRYS)]}}
    return found | {f"{n}.json": {"format": f"suite-registry-{n}/1", n: row} for n, row in rows.items()}


def _waiver() -> dict[str, Any]:
    dates = {"issued_at": moment(), "until": today(5)}
    return {
        "format": "suite-registry-waiver/1",
        "run": RUN,
        "rules": ["DIV-010"],
        "reason": "a test",
        **dates,
    }


class Signed:
    """The honest files, below ``root``, and the outcome of an edit of each."""

    def __init__(self, root: Path) -> None:
        result = write_good(root / "signed", GOOD)
        self.folder = root / "registry"
        (self.folder / "waivers").mkdir(parents=True)
        self.files = {name: json.dumps(value).encode() for name, value in _registry(result).items()}
        self.files[WAIVER] = waiver_files.sign_waiver(_waiver(), REGISTRYS)
        for name, content in self.files.items():
            (self.folder / name).write_bytes(content)
        self.registry = read_registry(self.folder)
        record = record_of(read_folder(result))
        self.result = SignedResult(
            record, {"run.jsonl": (result / "run.jsonl").read_bytes(), "system.json": b"{}"}, None, ORG
        )
        receipt = self.registry.nonces[NONCE]
        self.statement = expected_statement(self.result, self.registry, receipt)
        self.value = examine(result, root, Registry()) | {"outcomes_of_submission": []}
        honest = dsse.sign(PAYLOAD_TYPE, encode(self.statement), SUBMITTERS).encode()
        if self.registry.faults or self._judged(honest, self.registry) != ([], "L2"):
            raise AssertionError("what is edited is not honest")
        self.summary = vsa.statement_of(self.value, SUBMITTERS.public, moment())

    def one(self, target: str, choice: Choice) -> str:
        """One edited file, judged: its outcome."""
        judged: dict[str, Callable[[Choice], str]] = {
            "attestation": self._attestation, "verdict": self._verdict, "registry": self._registry,
        }  # fmt: skip
        return f"{target}: {judged[target](choice)}"

    def _attestation(self, choice: Choice) -> str:
        content = _edited(PAYLOAD_TYPE, encode(self.statement), SUBMITTERS, choice)
        faults, assurance = self._judged(content, self.registry)
        if assurance != "L0" and not faults and json.loads(dsse.parse(content).payload) != self.statement:
            raise AssertionError("a statement holds that does not follow from the result")
        return _outcome(faults) if faults else assurance

    def _judged(self, attestation: bytes | None, registry: Registry) -> tuple[list[Breach], str]:
        asked = SignedResult(self.result.record, self.result.files, attestation, ORG)
        faults, assurance = assess(asked, registry)
        _printed(faults)
        return faults, assurance.level

    def _verdict(self, choice: Choice) -> str:
        payload = json.dumps(self.summary, sort_keys=True).encode()
        content = _edited(PAYLOAD_TYPE, payload, SUBMITTERS, choice)
        try:
            statement, key = vsa.verified(content, [SUBMITTERS.public])
            found = vsa.differences(statement, self.value, key)
        except vsa.SummaryError as error:
            _plain(safe(error, 1000))
            return "does not hold"
        for row in found:
            _plain(" ".join(map(safe, row)))
        if not found and _but_its_time(statement) != _but_its_time(self.summary):
            raise AssertionError("a verdict holds that does not follow from the result")
        return "differs" if found else "holds"

    def _registry(self, choice: Choice) -> str:
        name = choice.of(tuple(self.files))
        if name == WAIVER:
            content = _edited(waiver_files.PAYLOAD_TYPE, json.dumps(_waiver()).encode(), REGISTRYS, choice)
        else:
            content = _spoilt(self.files[name], choice)
        try:
            (self.folder / name).write_bytes(content)
            found = read_registry(self.folder)
        finally:
            (self.folder / name).write_bytes(self.files[name])
        faults, _ = self._judged(dsse.sign(PAYLOAD_TYPE, encode(self.statement), SUBMITTERS).encode(), found)
        _printed(found.faults)
        return _outcome([*found.faults, *faults]) if found.faults or faults else "no fault"


def _edited(kind: str, payload: bytes, key: PrivateKey, choice: Choice) -> bytes:
    """An envelope around ``payload``: that is edited and signed, or the envelope is."""
    if choice.below(2):
        return dsse.sign(kind, _spoilt(payload, choice), key).encode()
    return _spoilt(dsse.sign(kind, payload, key).encode(), choice)


def _spoilt(content: bytes, choice: Choice) -> bytes:
    """A document with its bytes edited, or its values."""
    if choice.below(2):
        return mutate_bytes(content, choice)
    return json.dumps(mutate_value(json.loads(content), choice), ensure_ascii=False).encode()


def _outcome(faults: Iterable[Breach]) -> str:
    return f"found by {min(fault.rule for fault in faults)}"


def _printed(faults: Iterable[Breach]) -> None:
    for fault in faults:
        _plain(finding_line(finding_of(fault)))


def _plain(text: str) -> None:
    if not text.isprintable() or text.startswith("::"):
        raise AssertionError(f"printed as it is: {text!a}")


def _but_its_time(statement: Mapping[str, Any]) -> dict[str, Any]:
    """A statement without the time of verification, which cannot be derived."""
    found = json.loads(json.dumps(statement))
    with suppress(KeyError):
        del found["predicate"]["timeVerified"]
    return dict(found)
