"""Seeds of repeats, derived from the registry's nonce and the run id."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

_DOMAIN = b"suite-seed/1"


def seed_of(nonce: str | None, run_id: str, repeat: int) -> int:
    """The 64-bit seed of repeat ``repeat``.

    First 8 bytes, big-endian, of SHA-256 over: the domain "suite-seed/1"; 32 bytes of the registry's nonce
    (given as 64 hexadecimal digits), or 32 zero bytes; the length of the run id in 4 bytes, then its UTF-8
    bytes; the repeat in 4 bytes. Raises ValueError on a nonce of another length.
    """
    noise = bytes(32) if nonce is None else bytes.fromhex(nonce)
    if len(noise) != 32:
        raise ValueError(f"nonce: expected 64 hexadecimal digits, found {2 * len(noise)}")
    name = run_id.encode()
    text = _DOMAIN + noise + len(name).to_bytes(4, "big") + name + repeat.to_bytes(4, "big")
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big")


def fingerprint_passes(
    limits: Mapping[str, Any], phase: str, nonce: str | None, run_id: str
) -> list[dict[str, Any]]:
    """The passes of the fingerprint of ``phase``, as the harness sends them to a worker.

    ``limits`` is the section ``fingerprint`` of the rules' limits. The pass ``common`` has seed 0 and the
    same batch in every run; the batch of the pass ``own`` derives from the seed of repeat 0, so a result
    copied from another run differs.
    """
    own = {"seed": seed_of(nonce, run_id, 0), "salt": [seed_hex(nonce, run_id, 0)]}
    common = {"seed": 0, "salt": []}
    return [{**one, **(own if one["name"] == "own" else common)} for one in limits["passes"][phase]]


def seed_hex(nonce: str | None, run_id: str, repeat: int) -> str:
    """The seed in the log's format: 16 hexadecimal digits (JSON numbers are exact only up to 2**53)."""
    return f"{seed_of(nonce, run_id, repeat):016x}"
