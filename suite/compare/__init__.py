"""Comparisons: two results with each other, one result with its history, and results as summary rows.

The package can be called: ``suite.compare(a, b)`` is :func:`suite.compare.loaded.compare_loaded`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from suite.compare.compare import Comparison
    from suite.compare.loaded import Result


class _CallableModule(ModuleType):
    """A module that is called as the function of the same name: ``suite.compare`` is both."""

    def __call__(self, a: Result | Path | str, b: Result | Path | str) -> Comparison:
        from suite.compare.loaded import compare_loaded

        return compare_loaded(a, b)


sys.modules[__name__].__class__ = _CallableModule
