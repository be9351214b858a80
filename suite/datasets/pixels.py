"""The digests that identify generated image files, and the lists of them."""

from __future__ import annotations

from collections.abc import Iterable

from suite.common.pixels import pixels_digest

__all__ = ["list_of", "pixels_digest"]


def list_of(rows: Iterable[tuple[str, str]]) -> bytes:
    """The list of a dataset of images (``suite.datasets.image_folder``) from rows (file, SHA-256)."""
    return "".join(f"{digest}  {name}\n" for name, digest in rows).encode()
