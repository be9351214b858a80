"""The error of finding, building or publishing the container image of a pair."""

from __future__ import annotations


class ImageProblem(Exception):
    """There is no container image to run; the message names expected, found, where, and the fix."""
