"""The width of the terminal, for text that is folded to it."""

from __future__ import annotations

import os
import shutil
import sys


def text_width() -> int | None:
    """The columns of the terminal, or of the variable COLUMNS; None in a file or pipe."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        return shutil.get_terminal_size().columns
    return None
