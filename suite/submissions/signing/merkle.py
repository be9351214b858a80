"""The Merkle tree hash of RFC 6962, section 2.1: one digest of all lines.

It lets the owner of a log disclose single lines with their path to the root.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def root(leaves: Sequence[bytes]) -> str:
    """The tree hash of ``leaves`` as 64 hexadecimal digits; without leaves, the hash of the empty string."""
    if not leaves:
        return hashlib.sha256(b"").hexdigest()
    # Complete pairs level by level; an odd last node moves up unhashed, which is RFC 6962's recursive split.
    level = [hashlib.sha256(b"\0" + leaf).digest() for leaf in leaves]
    while len(level) > 1:
        pairs = [
            hashlib.sha256(b"\1" + level[at] + level[at + 1]).digest() for at in range(0, len(level) - 1, 2)
        ]
        level = pairs + level[len(pairs) * 2 :]
    return level[0].hex()
