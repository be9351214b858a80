"""Ed25519 keys: generate, write, read and identify them.

A private key is stored as PKCS #8 in PEM, readable by its owner only; a public key as SubjectPublicKeyInfo
(SPKI). The id of a key is the SHA-256 of its SPKI in DER, so that it follows from the key alone.
"""

from __future__ import annotations

import base64
import binascii
import errno
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from suite.log.canonical import sha256_hex

_MAX_PEM = 16 * 1024
_P = 2**255 - 19  # the field and the constant of edwards25519 (RFC 8032, section 5.1)
_D = -121665 * pow(121666, -1, _P) % _P


class KeyProblem(ValueError):
    """A key cannot be read or generated; the message states what to fix."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key: ``spki`` is its SubjectPublicKeyInfo in DER."""

    spki: bytes

    @property
    def key_id(self) -> str:
        """The key's id: SHA-256 of ``spki``, 64 hexadecimal digits."""
        return sha256_hex(self.spki)

    @property
    def text(self) -> str:
        """``spki`` in base64, as in the registry."""
        return base64.b64encode(self.spki).decode("ascii")

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether ``signature`` is this key's over ``message``."""
        try:
            _loaded(self.spki).verify(signature, message)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """A private key; keep it in memory only while signing."""

    key: Ed25519PrivateKey

    @property
    def public(self) -> PublicKey:
        """The public half."""
        return PublicKey(_spki(self.key.public_key()))

    def sign(self, message: bytes) -> bytes:
        """The 64 bytes of the signature over ``message``."""
        return self.key.sign(message)


def generate() -> PrivateKey:
    """A new key, from the operating system's random numbers."""
    return PrivateKey(Ed25519PrivateKey.generate())


def public_of(text: str) -> PublicKey:
    """The public key from base64 of SPKI DER; KeyProblem unless it is a canonically encoded Ed25519 key."""
    try:
        spki = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise KeyProblem(f"expected base64 of a public key, found: {error}") from None
    public = PublicKey(spki)
    if public.text != text or _spki(_loaded(spki)) != spki:
        raise KeyProblem("expected the canonical encoding of the key, found another")
    if _small_order(spki[-32:]):
        raise KeyProblem("expected a public key with a private key, found a point of small order")
    return public


def read_public(path: Path) -> PublicKey:
    """The public key (SPKI, PEM) in ``path``, as ``keygen`` writes it beside the private one; KeyProblem."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_PEM)
        key = serialization.load_pem_public_key(content)
    except OSError as error:
        raise KeyProblem(f"{path}: {error.strerror}") from None
    except (ValueError, UnsupportedAlgorithm):
        raise KeyProblem(f"{path}: expected a public key (SPKI, PEM), as `make keygen` writes it") from None
    if not isinstance(key, Ed25519PublicKey):
        raise KeyProblem(f"{path}: expected an Ed25519 key, found {type(key).__name__}")
    return public_of(PublicKey(_spki(key)).text)


def _small_order(encoded: bytes) -> bool:
    """Whether a point (RFC 8032, 32 bytes) has order 1, 2, 4 or 8: anybody can sign for such a key.

    Such points have y = 1, -1, 0, or double to a point with y = 0: then y² = -x², and the curve's equation
    -x² + y² = 1 + d x² y² becomes d y⁴ + 2 y² - 1 = 0.
    """
    y = int.from_bytes(encoded, "little") % 2**255  # without the bit of x's sign
    return y % _P in (0, 1, _P - 1) or (_D * y**4 + 2 * y * y - 1) % _P == 0


def _spki(key: Ed25519PublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def _loaded(spki: bytes) -> Ed25519PublicKey:
    try:
        key = serialization.load_der_public_key(spki)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise KeyProblem(f"expected a public key (SPKI, DER), found: {error}") from None
    if not isinstance(key, Ed25519PublicKey):
        raise KeyProblem(f"expected an Ed25519 key, found {type(key).__name__}")
    return key


def write(key: PrivateKey, path: Path) -> Path:
    """Write the private key to ``path`` (mode 0600) and the public key beside it; returns the latter's path.

    Nothing is overwritten: FileExistsError if either file exists. OSError if the folder cannot be written.
    """
    beside = path.with_name(path.stem + ".pub" + path.suffix)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except FileExistsError as error:  # the parent is a file
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), error.filename) from None
    private = key.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    _write_new(beside, public, 0o644)
    try:
        _write_new(path, private, 0o600)
    except OSError:
        beside.unlink()
        raise
    return beside


def _write_new(path: Path, content: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(file.fileno(), mode)  # exactly this mode, whatever the umask
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def read(path: Path) -> PrivateKey:
    """The private key in ``path``; KeyProblem unless it is one as ``keygen`` writes it."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(_MAX_PEM + 1)
    except OSError as error:
        raise KeyProblem(f"{path}: {error.strerror}; `make keygen` creates a key") from None
    if mode & 0o077:
        raise KeyProblem(f"{path}: expected a file that only its owner can read; fix: chmod 600 {path}")
    try:
        key = serialization.load_pem_private_key(content[:_MAX_PEM], password=None)
    except TypeError:
        raise KeyProblem(f"{path}: expected a key without a pass phrase; `make keygen` creates one") from None
    except (ValueError, UnsupportedAlgorithm):
        raise KeyProblem(
            f"{path}: expected a private key (PKCS #8, PEM); `make keygen` creates one"
        ) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyProblem(
            f"{path}: expected an Ed25519 key, found {type(key).__name__}; `make keygen` creates one"
        )
    return PrivateKey(key)
