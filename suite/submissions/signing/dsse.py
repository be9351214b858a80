"""DSSE envelopes (https://github.com/secure-systems-lab/dsse, protocol and envelope 1.0.2), parsed strictly.

The signature covers the payload's type and bytes (PAE), so that bytes signed for one purpose are invalid for
another. Keys are never taken from an envelope: ``keyid`` is an unauthenticated hint, and every key that the
caller trusts is tried. Callers use the payload that :func:`verify` returns and never read the file again.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from suite.log.strict import StrictError, decode
from suite.submissions.signing.keys import PrivateKey, PublicKey

MAX_ENVELOPE = 1 << 20  # bytes
MAX_SIGNATURES = 16
_SIGNATURE_BYTES = 64


class EnvelopeError(ValueError):
    """The bytes are not a valid envelope; the message states why."""


@dataclass(frozen=True, slots=True)
class Signature:
    """One signature: 64 bytes, and the key id that it claims."""

    key_id: str
    signature: bytes


@dataclass(frozen=True, slots=True)
class Envelope:
    """A well-formed envelope; its signatures are not verified yet."""

    payload_type: str
    payload: bytes
    signatures: tuple[Signature, ...]

    def encode(self) -> bytes:
        """The file content of the envelope, with a final line feed."""
        signatures = [{"keyid": one.key_id, "sig": _base64(one.signature)} for one in self.signatures]
        value = {
            "payload": _base64(self.payload),
            "payloadType": self.payload_type,
            "signatures": signatures,
        }
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS) + b"\n"


@dataclass(frozen=True, slots=True)
class VerifiedEnvelope:
    """The verified bytes, the keys that signed them, and the key ids of the other signatures."""

    payload: bytes
    keys: tuple[PublicKey, ...]
    unknown: tuple[str, ...]


def pae(payload_type: str, payload: bytes) -> bytes:
    """The pre-authentication encoding: the bytes that a signature covers."""
    kind = payload_type.encode("utf-8")
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def sign(payload_type: str, payload: bytes, key: PrivateKey) -> Envelope:
    """An envelope over ``payload`` with one signature."""
    signature = Signature(key.public.key_id, key.sign(pae(payload_type, payload)))
    return Envelope(payload_type, payload, (signature,))


def parse(content: bytes) -> Envelope:
    """The envelope in ``content``; EnvelopeError on anything ambiguous.

    At most 1 MiB of strict JSON, three names, canonical base64 with padding, 1 to 16 signatures of 64 bytes
    of which no two are equal or of one key.
    """
    try:
        value = decode(content, MAX_ENVELOPE)
    except StrictError as error:
        raise EnvelopeError(str(error)) from None
    _named(value, {"payload", "payloadType", "signatures"}, "an envelope")
    kind, listed = value["payloadType"], value["signatures"]
    if not isinstance(kind, str) or not 0 < len(kind) <= 128 or not (kind.isascii() and kind.isprintable()):
        raise EnvelopeError("payloadType: expected a media type of at most 128 ASCII characters")
    if not isinstance(listed, list) or not 1 <= len(listed) <= MAX_SIGNATURES:
        raise EnvelopeError(f"signatures: expected a list of 1 to {MAX_SIGNATURES}")
    signatures = tuple(_signature(one) for one in listed)
    for what in ("key_id", "signature"):
        if len({getattr(one, what) for one in signatures}) != len(signatures):
            raise EnvelopeError(f"signatures: expected each {what.replace('_', ' ')} once, found one twice")
    return Envelope(kind, _bytes(value["payload"], "payload"), signatures)


def verify(envelope: Envelope, payload_type: str, keys: Iterable[PublicKey]) -> VerifiedEnvelope:
    """Which of ``keys`` signed the envelope as ``payload_type``.

    EnvelopeError if it is of another type. If the result has no key, no trusted key signed the envelope, and
    its payload must not be used.
    """
    if envelope.payload_type != payload_type:
        raise EnvelopeError(f"payloadType: expected {payload_type}, found {envelope.payload_type}")
    message = pae(payload_type, envelope.payload)
    trusted = tuple(keys)
    found: list[PublicKey] = []
    unknown: list[str] = []
    for one in envelope.signatures:
        signers = [key for key in trusted if key.verifies(one.signature, message)]
        found += [key for key in signers if key not in found]
        if not signers:
            unknown.append(one.key_id)
    return VerifiedEnvelope(envelope.payload, tuple(found), tuple(unknown))


def _signature(value: Any) -> Signature:
    if not isinstance(value, dict):
        raise EnvelopeError("signatures: expected objects of keyid and sig")
    _named(value, {"keyid", "sig"}, "a signature")
    key_id = value["keyid"]
    if not isinstance(key_id, str) or len(key_id) > 128 or not (key_id.isascii() and key_id.isprintable()):
        raise EnvelopeError("keyid: expected at most 128 printable ASCII characters")
    signature = _bytes(value["sig"], "sig")
    if len(signature) != _SIGNATURE_BYTES:
        raise EnvelopeError(f"sig: expected {_SIGNATURE_BYTES} bytes, found {len(signature)}")
    return Signature(key_id, signature)


def _named(value: dict[str, Any], names: set[str], what: str) -> None:
    if set(value) != names:
        raise EnvelopeError(
            f"expected {what} of {', '.join(sorted(names))}, found {len(value)} names"
            f"{' without ' + ', '.join(sorted(names - set(value))) if names - set(value) else ''}"
        )


def _bytes(value: Any, name: str) -> bytes:
    """The bytes of canonical base64: standard alphabet, padding, no spare bits."""
    try:
        content = base64.b64decode(value, validate=True) if isinstance(value, str) else None
    except (binascii.Error, ValueError):
        content = None
    if content is None or _base64(content) != value:
        raise EnvelopeError(f"{name}: expected canonical base64")
    return content


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
