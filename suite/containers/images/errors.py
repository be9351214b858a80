"""What can go wrong while the image of a pair is found, built or published."""

from __future__ import annotations


class ImageProblem(Exception):
    """There is no image to run: the message says what was expected, found and where, and how to fix it."""
