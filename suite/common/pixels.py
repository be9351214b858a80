"""What identifies a picture whatever its encoder: the pixels that are seen when it is decoded."""

from __future__ import annotations

import hashlib

from suite.common.decoder import decode


def pixels_digest(content: bytes, name: str) -> str:
    """SHA-256 of what ``content`` shows: a line with width and height, then rows of RGB; BadData."""
    picture = decode(content, name)
    head = f"{picture.width} {picture.height}\n".encode()
    return hashlib.sha256(head + picture.tobytes()).hexdigest()
