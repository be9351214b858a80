"""Signed submissions and the registry: each rule has a forgery that breaks it; honest trees break none."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from suite.log.files import read_folder
from suite.log.reader import record_of
from suite.submissions import package as submission
from suite.submissions.registry import read_registry
from suite.submissions.registry.assurance import SignedResult, assess
from suite.submissions.registry.model import Registry
from suite.submissions.signing import dsse, keys
from suite.submissions.signing.statement import ATTESTATION, PAYLOAD_TYPE, PREDICATE, STATEMENT
from suite.submissions.system import encode
from tests.fixtures.forging import Events, rewrite
from tests.fixtures.good_log import Good
from tests.fixtures.registered import ORG, Registrar, entry, nonce, receipt, result
from tests.fixtures.registered import moment as day

VALUE = "5e" * 32
REGISTRY = Path(__file__).resolve().parents[2] / "submissions" / "registry"
SUBMITTING = Path(__file__).resolve().parents[2] / "docs" / "submitting.md"
Forge = Callable[[Registrar], object]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A result without a nonce; read only."""
    return result(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def nonced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A result with a nonce; read only."""
    return result(tmp_path_factory.mktemp("nonced"), Good(nonce=VALUE))


@pytest.fixture
def tree(tmp_path: Path) -> Registrar:
    """A tree with a registry and no submission."""
    return Registrar(tmp_path / "submissions")


def attestation(tree: Registrar) -> Path:
    (run,) = tree.runs()
    return run / ATTESTATION


def payload(tree: Registrar) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(dsse.parse(attestation(tree).read_bytes()).payload)
    return found


def sign_again(tree: Registrar, value: Any, *signers: keys.PrivateKey, kind: str = PAYLOAD_TYPE) -> None:
    """Files that an attacker with other keys writes."""
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    parts = [dsse.sign(kind, content, key).signatures[0] for key in signers or (tree.key,)]
    attestation(tree).write_bytes(dsse.Envelope(kind, content, tuple(parts)).encode())


# ---- honest trees
def test_submit_without_key_packages_unsigned_at_l0(tree: Registrar, plain: Path) -> None:
    tree.rows("keys")
    assert tree.submit(plain, key=False) == 0
    assert not attestation(tree).exists()
    assert tree.state() == ({}, ["L0"])


@pytest.mark.parametrize(("life", "found"), [
    ({}, {"SIGN-002": "reject"}), ({"revoked": day(20)}, {"SIGN-002": "reject"}),
    ({"start": 1}, {}), ({"end": -1}, {}), ({"revoked": day(-1)}, {}), ({"submitter": "other-labs"}, {}),
])  # fmt: skip
def test_unsigned_result_of_a_submitter_with_a_key_is_rejected(
    tree: Registrar, plain: Path, life: dict[str, Any], found: dict[str, str]
) -> None:
    """Impersonation: anybody can write into a submitter's folder, and nobody else can sign."""
    tree.rows("keys")
    assert tree.submit(plain, key=False) == 0
    tree.rows("keys", entry(tree.key, **life))
    assert tree.state() == (found, [None if found else "L0"])


def test_submit_without_key_is_refused_where_the_submitter_has_one(
    tree: Registrar, plain: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tree.submit(plain, key=False) == 1
    errors = capsys.readouterr().err
    assert "SIGN-002" in errors
    assert f"a signature by the registered key {tree.key.public.key_id[:16]}" in errors
    assert "Give KEY= with the registered key." in errors
    assert tree.runs() == []


def test_submit_with_key_signs_the_copy_and_reaches_l1(
    tree: Registrar, plain: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(path.name for path in plain.iterdir())
    assert tree.submit(plain) == 0
    assert "assurance: L1; for the next level: a nonce" in capsys.readouterr().out
    assert sorted(path.name for path in plain.iterdir()) == before
    assert tree.state() == ({}, ["L1"])
    statement = payload(tree)
    assert (statement["_type"], statement["predicateType"]) == (STATEMENT, PREDICATE)
    assert [one["name"] for one in statement["subject"]] == ["run.jsonl", "system.json"]
    assert statement["predicate"]["submitter"] == ORG
    assert statement["predicate"]["nonce"] is None
    assert statement["predicate"]["events"] == len((plain / "run.jsonl").read_bytes().splitlines())


def test_nonce_and_receipt_reach_l2(tree: Registrar, nonced: Path) -> None:
    """An invented log reaches L2 too: nothing ran. The description of the level must not claim more."""
    tree.rows("nonces", nonce(VALUE))
    assert tree.submit(nonced) == 0
    assert tree.state() == ({}, ["L1"])  # the registry has no receipt yet
    tree.rows("nonces", nonce(VALUE, **receipt(nonced)))
    assert tree.state() == ({}, ["L2"])
    signed_nonce = payload(tree)["predicate"]["nonce"]
    assert (signed_nonce["value"], signed_nonce["issuer"]) == (VALUE, "test-registry")
    ((checked,), _) = submission.check_tree(tree.root)
    assert checked.assurance is not None
    assert "a replay by an auditor (L3)" in checked.assurance.missing
    (row,) = [line for line in SUBMITTING.read_text().splitlines() if line.startswith("| L2 |")]
    assert "existed, byte for byte" in row
    assert row.endswith("whether anything ran, only L3 shows |")


def test_additional_signatures_are_accepted(tree: Registrar, plain: Path) -> None:
    auditor = keys.generate()
    tree.rows("keys", entry(tree.key), entry(auditor, "auditor"))
    assert tree.submit(plain) == 0
    sign_again(tree, payload(tree), tree.key, auditor)
    assert tree.state() == ({}, ["L1"])


def test_other_encoding_of_statement_is_accepted(tree: Registrar, plain: Path) -> None:
    assert tree.submit(plain) == 0
    sign_again(tree, json.dumps(payload(tree), indent=4).encode())
    assert tree.state() == ({}, ["L1"])


def test_honest_signed_results_break_no_rule(tree: Registrar, tmp_path: Path) -> None:
    for number in range(20):
        assert tree.submit(result(tmp_path / "results", Good(run_hex=f"{number:08x}"))) == 0
    assert tree.state() == ({}, ["L1"] * 20)


def test_unregistered_key_is_refused_before_packaging(
    tree: Registrar, plain: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree.rows("keys")
    assert tree.submit(plain) == 1
    assert "SIGN-002" in capsys.readouterr().err
    assert tree.runs() == []


def test_submit_writes_nothing_without_consent(
    tree: Registrar, plain: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tree.submit(plain, yes=False) == 2
    shown = capsys.readouterr()
    assert "--yes" in shown.err
    signer = f"signature by key: {tree.key.public.key_id}"
    expected = (
        "system.json.submitter: example-labs",
        "log run_id: ",
        "log git.commit: ",
        "log boot (hashed): ",
    )
    for text in (*expected, "outside.cpu.model: Example CPU", signer):
        assert text in shown.out
    assert tree.runs() == []


# ---- forgeries
def moved_payload_type(tree: Registrar) -> None:
    value = json.loads(attestation(tree).read_bytes())
    attestation(tree).write_text(json.dumps({**value, "payloadType": "application/json"}))


def edited_system(tree: Registrar) -> None:
    (run,) = tree.runs()
    value = json.loads((run / "system.json").read_text())
    (run / "system.json").write_bytes(encode({**value, "cooling": "liquid"}))


def edited_log(tree: Registrar) -> None:
    """A field that no rule of a log reads is changed, and the hash chain is recomputed."""
    (run,) = tree.runs()

    def forge(events: Events) -> None:
        events[0]["data"]["git"]["commit"] = "0" * 40

    rewrite(run, forge)


def edited_payload(tree: Registrar) -> None:
    value = json.loads(attestation(tree).read_bytes())
    found = payload(tree)
    found["predicate"]["attempt"] = 2
    value["payload"] = base64.b64encode(json.dumps(found).encode()).decode()
    attestation(tree).write_text(json.dumps(value))


def foreign_key(tree: Registrar) -> None:
    unregistered = keys.generate()
    sign_again(tree, payload(tree), unregistered)


def changed_predicate_type(tree: Registrar) -> None:
    sign_again(tree, {**payload(tree), "predicateType": "https://slsa.dev/verification_summary/v1"})


def link_instead_of_envelope(tree: Registrar) -> None:
    content = attestation(tree).read_bytes()
    attestation(tree).unlink()
    (tree.root.parent / "elsewhere").write_bytes(content)
    attestation(tree).symlink_to(tree.root.parent / "elsewhere")


def revoked(tree: Registrar) -> None:
    tree.rows("keys", entry(tree.key, revoked=day(20)))


SIGNATURES: list[tuple[str, str, Forge]] = [
    ("SIGN-001", "garbage behind it", lambda tree: attestation(tree).open("ab").write(b"x")),
    ("SIGN-001", "empty", lambda tree: attestation(tree).write_bytes(b"")),
    ("SIGN-001", "too large", lambda tree: attestation(tree).open("ab").write(b" " * (1 << 20))),
    ("SIGN-001", "another payload type", moved_payload_type),
    ("SIGN-002", "signed with an unregistered key", foreign_key),
    ("SIGN-002", "payload edited", edited_payload),
    ("SIGN-002", "key not registered", lambda tree: tree.rows("keys")),
    ("SIGN-003", "another's key", lambda tree: tree.rows("keys", entry(tree.key, "other-labs"))),
    ("SIGN-004", "expired", lambda tree: tree.rows("keys", entry(tree.key, end=-1))),
    ("SIGN-004", "not valid yet", lambda tree: tree.rows("keys", entry(tree.key, start=1))),
    ("SIGN-004", "revoked", revoked),
    ("SIGN-005", "system.json edited", edited_system),
    ("SIGN-005", "log edited", edited_log),
    ("SIGN-005", "another predicate", changed_predicate_type),
    ("SIGN-005", "no statement", lambda tree: sign_again(tree, b"hello")),
    ("SIGN-005", "a list", lambda tree: sign_again(tree, b"[]")),
    (
        "SIGN-007",
        "additional signature with an unregistered key",
        lambda tree: sign_again(tree, payload(tree), tree.key, keys.generate()),
    ),
]


@pytest.mark.parametrize(("rule", "name", "forge"), SIGNATURES, ids=[name for _, name, _ in SIGNATURES])
def test_forged_signature_breaks_its_rule(
    tree: Registrar, plain: Path, rule: str, name: str, forge: Forge
) -> None:
    assert tree.submit(plain) == 0
    forge(tree)
    severity = submission.rules()[rule]["severity"]
    extra = {"SIGN-007": "flag"} if rule == "SIGN-002" else {}
    found, levels = tree.state()
    assert found.pop(rule) == severity
    assert found.items() <= extra.items()
    assert levels == (["L1"] if severity == "flag" else [None])


def test_link_instead_of_envelope_is_refused(tree: Registrar, plain: Path) -> None:
    assert tree.submit(plain) == 0
    link_instead_of_envelope(tree)
    assert tree.findings() == {"LOG-001": "reject"}


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list):
        for name in value if isinstance(value, dict) else range(len(value)):
            yield from leaves(value[name], (*path, name))
    else:
        yield path


def altered(value: Any) -> Iterator[Any]:
    """Other values and other types, also those that compare equal in Python."""
    yield None if value is not None else 0
    yield [value]
    if isinstance(value, int):
        yield from (value + 1, -value, str(value), True)
    if isinstance(value, str):
        yield from (value + " ", value.upper() + "x", "")


def judged(tree: Registrar, registry: Registry) -> Callable[[bytes], set[str]]:
    """The rules that an envelope breaks; the folder is read only once."""
    (run,) = tree.runs()
    record = record_of(read_folder(run))
    files = {name: (run / name).read_bytes() for name in ("run.jsonl", "system.json")}

    def ask(content: bytes) -> set[str]:
        faults, assurance = assess(SignedResult(record, files, content, ORG), registry)
        assert assurance.level == ("L0" if faults else "L1")
        return {fault.rule for fault in faults}

    return ask


def test_every_field_of_the_statement_is_compared(tree: Registrar, plain: Path) -> None:
    assert tree.submit(plain) == 0
    good, ask = payload(tree), judged(tree, read_registry(tree.folder))

    def signed(value: Any) -> bytes:
        return dsse.sign(PAYLOAD_TYPE, json.dumps(value).encode(), tree.key).encode()

    assert ask(signed(good)) == set()
    tried = 0
    for path in leaves(good):
        for wrong in altered(_at(good, path)):
            forged = copy.deepcopy(good)
            _at(forged, path[:-1])[path[-1]] = wrong
            assert ask(signed(forged)) == {"SIGN-005"}, (path, wrong)
            tried += 1
        forged = copy.deepcopy(good)
        del _at(forged, path[:-1])[path[-1]]
        assert ask(signed(forged)) == {"SIGN-005"}, path
    for name in ([], ["predicate"], ["predicate", "rules"], ["subject", 0]):
        forged = copy.deepcopy(good)
        _at(forged, tuple(name))["waived"] = True
        assert ask(signed(forged)) == {"SIGN-005"}
    assert tried > 80


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for name in path:
        value = value[name]
    return value


def test_closed_result_without_signature_is_flagged(tree: Registrar, plain: Path) -> None:
    raw = read_folder(plain)
    record = record_of(raw)
    header = replace(record.header, data={**record.header.data, "division": "closed"})
    files = {"run.jsonl": raw.data, "system.json": b"{}"}
    closed = SignedResult(replace(record, header=header), files, None, ORG)
    faults, assurance = assess(closed, Registry())
    assert ([fault.rule for fault in faults], assurance.level) == (["SIGN-006"], "L0")
    assert submission.rules()["SIGN-006"]["severity"] == "flag"
    assert assess(SignedResult(record, files, None, ORG), Registry())[0] == []


def test_every_rule_of_signatures_has_a_forgery() -> None:
    known = {rule for rule in submission.rules() if rule.startswith("SIGN-")}
    assert {rule for rule, _, _ in SIGNATURES} | {"SIGN-006"} == known
