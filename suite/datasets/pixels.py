"""What identifies generated image files: the pixels that are seen when they are decoded."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from suite.workloads.decoder import decode


def pixels_digest(content: bytes, name: str) -> str:
    """SHA-256 of what ``content`` shows: a line with width and height, then rows of RGB; BadData."""
    picture = decode(content, name)
    head = f"{picture.width} {picture.height}\n".encode()
    return hashlib.sha256(head + picture.tobytes()).hexdigest()


def list_of(rows: Iterable[tuple[str, str]]) -> bytes:
    """The list of a dataset of images (``suite.datasets.image_folder``) from rows (file, SHA-256)."""
    return "".join(f"{digest}  {name}\n" for name, digest in rows).encode()
