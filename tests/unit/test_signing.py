"""Keys, envelopes and Merkle roots: strict, and compatible with securesystemslib."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from securesystemslib import dsse as oracle
from securesystemslib import signer

from suite.cli import main
from suite.log.strict import StrictError, decode
from suite.submissions.registry import read_registry
from suite.submissions.signing import dsse, keys, merkle

ROOT = Path(__file__).resolve().parents[2]
KIND = "application/vnd.in-toto+json"
KEY = keys.generate()
OTHER = keys.generate()
ORDER = 2**252 + 27742317777372353535851937790883648493  # of Ed25519's group (RFC 8032)


def test_securesystemslib_accepts_envelope_of_the_suite() -> None:
    made = dsse.sign(KIND, b'{"a":1}', KEY)
    theirs = oracle.Envelope.from_dict(json.loads(made.encode()))
    public = signer.SSlibKey.from_crypto(KEY.key.public_key(), keyid=KEY.public.key_id)
    assert theirs.pae() == dsse.pae(KIND, b'{"a":1}')
    assert set(theirs.verify([public], 1)) == {KEY.public.key_id}


def test_suite_accepts_envelope_of_securesystemslib() -> None:
    theirs = oracle.Envelope(b"\x00\xff payload", KIND, {})
    theirs.sign(signer.CryptoSigner(KEY.key))
    theirs.sign(signer.CryptoSigner(OTHER.key))
    envelope = dsse.parse(json.dumps(theirs.to_dict()).encode())
    found = dsse.verify(envelope, KIND, [OTHER.public, KEY.public])
    assert found.payload == b"\x00\xff payload"
    assert set(found.keys) == {KEY.public, OTHER.public}  # independent of the hints
    assert found.unknown == ()


def test_pae_matches_example_of_specification() -> None:
    assert dsse.pae("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=200), st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1))
def test_encoded_envelope_is_decoded_to_the_same_value(payload: bytes, kind: str) -> None:
    made = dsse.sign(kind[:100], payload, KEY)
    assert dsse.parse(made.encode()) == made


def test_keyid_is_only_a_hint_and_unknown_key_is_not_trusted() -> None:
    made = dsse.sign(KIND, b"x", KEY)
    renamed = dsse.Envelope(KIND, b"x", (dsse.Signature(OTHER.public.key_id, made.signatures[0].signature),))
    assert dsse.verify(renamed, KIND, [OTHER.public, KEY.public]).keys == (KEY.public,)
    found = dsse.verify(renamed, KIND, [OTHER.public])
    assert (found.keys, found.unknown) == ((), (OTHER.public.key_id,))


def test_signature_for_another_payload_type_is_invalid() -> None:
    made = dsse.sign("application/other", b"x", KEY)
    with pytest.raises(dsse.EnvelopeError, match="payloadType"):
        dsse.verify(made, KIND, [KEY.public])
    moved = dsse.Envelope(KIND, made.payload, made.signatures)
    assert dsse.verify(moved, KIND, [KEY.public]).keys == ()


def test_signature_encoding_is_canonical() -> None:
    made = dsse.sign(KIND, b"x", KEY)
    signature = made.signatures[0].signature
    scalar = int.from_bytes(signature[32:], "little") + ORDER
    malleable = signature[:32] + scalar.to_bytes(32, "little")
    assert KEY.public.verifies(signature, dsse.pae(KIND, b"x"))
    assert not KEY.public.verifies(malleable, dsse.pae(KIND, b"x"))


def changed(**changes: Any) -> bytes:
    return json.dumps({**json.loads(dsse.sign(KIND, b"hello", KEY).encode()), **changes}).encode()


def one(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(dsse.sign(KIND, b"hello", KEY).encode())["signatures"][0]
    return {**found, **changes}


GARBAGE: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "not JSON": lambda: b"{",
    "a list": lambda: b"[]",
    "bad UTF-8": lambda: b'{"payload":"\xff"}',
    "too large": lambda: changed(payload="A" * (1 << 20)),
    "deep": lambda: b'{"payload":' + b"[" * 5000 + b"]" * 5000 + b"}",
    "a float": lambda: changed(payload=1.0),
    "twice the same name": lambda: dsse.sign(KIND, b"x", KEY).encode()[:-2] + b',"payload":""}',
    "an unknown name": lambda: changed(extra=1),
    "no signatures": lambda: changed(signatures=[]),
    "signatures no list": lambda: changed(signatures={}),
    "seventeen signatures": lambda: changed(signatures=[one(keyid=str(at)) for at in range(17)]),
    "one signature twice": lambda: changed(signatures=[one(), one(keyid="other")]),
    "one key twice": lambda: changed(signatures=[one(), one(sig=base64.b64encode(bytes(64)).decode())]),
    "a signature of 63 bytes": lambda: changed(signatures=[one(sig=base64.b64encode(bytes(63)).decode())]),
    "a signature with a key": lambda: changed(signatures=[one(key="mine")]),
    "a signature without its name": lambda: changed(signatures=[{"sig": one()["sig"]}]),
    "a keyid of another type": lambda: changed(signatures=[one(keyid=1)]),
    "a keyid with a control character": lambda: changed(signatures=[one(keyid="\x1b[31m")]),
    "base64 without padding": lambda: changed(payload="aGVsbG8"),
    "base64 with spare bits": lambda: changed(payload="aGVsbG9="),
    "base64 of another alphabet": lambda: changed(payload="_-8="),
    "base64 with a line break": lambda: changed(payload="aGVs\nbG8="),
    "payload no string": lambda: changed(payload=None),
    "no type": lambda: changed(payloadType=""),
    "a type with a line break": lambda: changed(payloadType="a\nb"),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_invalid_envelope_is_refused(name: str) -> None:
    with pytest.raises(dsse.EnvelopeError):
        dsse.parse(GARBAGE[name]())


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_reader_returns_envelope_or_refusal_for_any_bytes(content: bytes) -> None:
    with pytest.raises(dsse.EnvelopeError):
        dsse.parse(content)


def recursive(leaves: list[bytes]) -> bytes:
    """RFC 6962's recursive definition: split at the largest power of two below the count."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\0" + leaves[0]).digest()
    half = 1 << ((len(leaves) - 1).bit_length() - 1)
    return hashlib.sha256(b"\1" + recursive(leaves[:half]) + recursive(leaves[half:])).digest()


def test_merkle_root_matches_rfc_6962() -> None:
    for count in range(70):
        leaves = [bytes([at]) * at for at in range(count)]
        assert merkle.root(leaves) == recursive(leaves).hex()
    # Known answers of Certificate Transparency's test vectors: the empty tree, and one empty leaf.
    assert merkle.root([]) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert merkle.root([b""]) == "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"


def small_order() -> list[bytes]:
    """The encodings of the eight points whose order divides 8, from the curve's equation."""
    p = 2**255 - 19
    d = -121665 * pow(121666, -1, p) % p
    root = pow(2, (p - 1) // 4, p)  # a square root of -1

    def square_roots(value: int) -> list[int]:
        found = pow(value, (p + 3) // 8, p)
        return [r for one in (found, found * root % p) for r in (one, p - one) if r * r % p == value % p]

    ys = [1, p - 1, 0]
    for sign in square_roots(1 + d):
        ys += square_roots((sign - 1) * pow(d, -1, p))
    return [(y | bit << 255).to_bytes(32, "little") for y in dict.fromkeys(ys) for bit in (0, 1)]


def test_small_order_key_is_refused() -> None:
    prefix = KEY.public.spki[:-32]
    forged = (1).to_bytes(32, "little") + bytes(32)  # R is the identity, S is 0
    points = small_order()
    assert len(points) == 10  # those of x = 0 with either sign
    hazards = 0
    for point in points:
        weak = keys.PublicKey(prefix + point)
        hazards += any(weak.verifies(forged, b"%d" % number) for number in range(200))
        with pytest.raises(keys.KeyProblem):
            keys.public_of(weak.text)
    assert hazards >= 6  # the library accepts these forged signatures
    assert all(keys.public_of(keys.generate().public.text) for _ in range(50))


def test_keygen_writes_private_mode_and_never_overwrites(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "keys" / "mine.pem"
    old = os.umask(0)
    try:
        assert main(["keygen", "--out", str(file), "--submitter", "my-company"]) == 0
    finally:
        os.umask(old)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    out = capsys.readouterr().out
    entry = json.loads(out[out.index("{") :])
    key = keys.read(file)
    assert entry["submitter"] == "my-company"
    assert (entry["key_id"], entry["spki"]) == (key.public.key_id, key.public.text)
    assert keys.public_of(entry["spki"]) == key.public
    spki = base64.b64decode(entry["spki"])
    assert entry["key_id"] == hashlib.sha256(spki).hexdigest()
    assert b"BEGIN PUBLIC KEY" in (tmp_path / "keys" / "mine.pub.pem").read_bytes()
    before = file.read_bytes()
    assert main(["keygen", "--out", str(file)]) == 2
    assert "never overwritten" in capsys.readouterr().err
    (tmp_path / "keys" / "mine.pub.pem").unlink()
    assert main(["keygen", "--out", str(file)]) == 2
    assert file.read_bytes() == before
    assert sorted(path.name for path in file.parent.iterdir()) == ["mine.pem"]


def test_register_adds_the_key_to_the_registry_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, tree = tmp_path / "mine.pem", tmp_path / "submissions"
    shutil.copytree(ROOT / "submissions" / "registry", tree / "registry")
    before = read_registry(tree / "registry").keys
    keys.write(KEY, file)
    register = ["register", "--key", str(file), "--submissions", str(tree)]
    mine = ["--submitter", "my-company", "--organisation", "My Company"]
    assert main([*register, *mine[:3], ""]) == 2
    assert "keys.0.organisation" in capsys.readouterr().err
    assert read_registry(tree / "registry").keys == before
    assert main([*register, *mine]) == 0
    registry = read_registry(tree / "registry")
    assert registry.faults == ()
    (added,) = registry.keys[len(before) :]
    assert (added.public, added.submitter, added.organisation) == (KEY.public, "my-company", "My Company")
    content = (tree / "registry" / "keys.json").read_bytes()
    assert main([*register, *mine]) == 0
    assert "has this key already" in capsys.readouterr().out
    assert main([*register, "--submitter", "another", "--organisation", "Another"]) == 2
    assert "has this key for my-company" in capsys.readouterr().err
    assert (tree / "registry" / "keys.json").read_bytes() == content
    assert main([*register[:3], "--submissions", str(tmp_path), *mine]) == 2
    assert "found no such file: run this in the project's folder" in capsys.readouterr().err


def test_keygen_reports_unwritable_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["keygen", "--out", str(tmp_path / "file" / "key.pem")]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_unusable_key_is_refused_with_fix(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    file = tmp_path / "key.pem"
    with pytest.raises(keys.KeyProblem, match="make keygen"):
        keys.read(file)
    keys.write(KEY, file)
    file.chmod(0o644)
    with pytest.raises(keys.KeyProblem, match="chmod 600"):
        keys.read(file)
    file.chmod(0o600)
    file.write_bytes(b"nothing")
    with pytest.raises(keys.KeyProblem, match="PKCS #8"):
        keys.read(file)
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    locked = serialization.BestAvailableEncryption(b"secret")
    file.write_bytes(KEY.key.private_bytes(pem, pkcs8, locked))
    with pytest.raises(keys.KeyProblem, match="pass phrase"):
        keys.read(file)
    curve = ec.generate_private_key(ec.SECP256R1())
    file.write_bytes(curve.private_bytes(pem, pkcs8, serialization.NoEncryption()))
    with pytest.raises(keys.KeyProblem, match="Ed25519"):
        keys.read(file)
    public = curve.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    other = base64.b64encode(public).decode()
    for text in (
        other,
        "AAAA",
        "?",
        KEY.public.text + "\n",
        KEY.public.text[:-1],
    ):
        with pytest.raises(keys.KeyProblem):
            keys.public_of(text)


@pytest.mark.parametrize(
    "content",
    [b'{"a":NaN}', b'{"a":1e5}', b'{"a":-0.0}', b'{"a":"\\ud800"}', b'{"\\ud800":1}',
     b'{"a":12345678901234567}',
     b"\xef\xbb\xbf{}", '{"a":1}'.encode("utf-16"), b'{"a":1,"a":1}', b'{"a":{"b":1,"b":2}}', b'"a"', b"null",
     b'{"a":' * 17 + b"1" + b"}" * 17],
)  # fmt: skip
def test_strict_decoder_refuses_ambiguous_json(content: bytes) -> None:
    with pytest.raises(StrictError):
        decode(content, 4096)


def test_strict_decoder_reads_unambiguous_json() -> None:
    assert decode(b' {"a": [1, -2, null, true, "\\u00e9"]}\n', 4096) == {"a": [1, -2, None, True, "é"]}
    with pytest.raises(StrictError, match="at most 4 bytes"):
        decode(b'{"a":1}', 4)
