"""The seed of a repeat: derived, never chosen."""

from __future__ import annotations

import hashlib

_DOMAIN = b"suite-seed/1"


def seed_of(nonce: str | None, run_id: str, repeat: int) -> int:
    """The 64-bit seed of repeat ``repeat``.

    First 8 bytes, big-endian, of SHA-256 over: the domain "suite-seed/1"; 32 bytes of the registry's nonce
    (given as 64 hexadecimal digits), or 32 zero bytes; the length of the run id in 4 bytes, then its UTF-8
    bytes; the repeat in 4 bytes. Raises ValueError on a nonce of another length.
    """
    noise = bytes(32) if nonce is None else bytes.fromhex(nonce)
    if len(noise) != 32:
        raise ValueError(f"a nonce has 64 hexadecimal digits, found {2 * len(noise)}")
    name = run_id.encode()
    text = _DOMAIN + noise + len(name).to_bytes(4, "big") + name + repeat.to_bytes(4, "big")
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big")


def seed_hex(nonce: str | None, run_id: str, repeat: int) -> str:
    """The seed as the log holds it: 16 hexadecimal digits (it may exceed 2**53)."""
    return f"{seed_of(nonce, run_id, repeat):016x}"
