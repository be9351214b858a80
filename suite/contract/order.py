"""The frozen stream on Python integers, which the checker uses too. Standard library only."""

from __future__ import annotations

import hashlib

MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


def mix(z: int) -> int:
    """The SplitMix64 finaliser: a bijection of 64-bit integers."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def derive(*key: str | int) -> int:
    """A 64-bit stream key from any mixture of strings and integers, by SHA-256 of their tagged text."""
    text = "\x1f".join(f"{'i' if isinstance(part, int) else 's'}{part}" for part in key)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def draw(key: int, position: int) -> int:
    """The 64-bit number at ``position`` of the stream ``key`` (equal to ``Stream.bits``)."""
    return mix((key + (position + 1) * _GAMMA) & MASK)


def permutation(count: int, *key: str | int) -> list[int]:
    """A permutation of range(count), equal to ``Stream(*key).permutation(count)``."""
    base = derive(*key)
    return sorted(range(count), key=lambda position: draw(base, position))
