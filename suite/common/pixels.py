"""A digest of an image's decoded pixels; it identifies the image whatever its encoder."""

from __future__ import annotations

import hashlib

from suite.common.decoder import decode


def pixels_digest(content: bytes, name: str) -> str:
    """SHA-256 of the decoded ``content``: a line with width and height, then rows of RGB; BadData."""
    image = decode(content, name)
    head = f"{image.width} {image.height}\n".encode()
    return hashlib.sha256(head + image.tobytes()).hexdigest()
