"""Scratch: the only place where the workers of a run may write, under CACHE_DIR."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import threading
from pathlib import Path


class Scratch:
    """A folder of its own for one run, made when first asked for.

    A lock on it lasts as long as the process: what a killed run left is removed by the next one.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._root: Path | None = None
        self._lock = -1
        self._removing = threading.Lock()

    def folder(self, name: str) -> Path:
        """The folder ``name`` inside; OSError where it cannot be made."""
        if self._root is None:
            self._place.mkdir(parents=True, exist_ok=True)
            _sweep(self._place)
            made = Path(tempfile.mkdtemp(prefix="new-", dir=self._place))
            self._lock = _locked(made)
            self._root = made.rename(made.with_name("run-" + made.name.removeprefix("new-")))
        folder = self._root / name
        folder.mkdir(exist_ok=True)
        return folder

    def remove(self) -> None:
        """Remove everything; nothing happens where nothing was made.

        Two threads may ask at once (a check that was cut off, and who undoes it): a descriptor that is closed
        a second time may be somebody else's by then, so the second waits and finds nothing.
        """
        with self._removing:
            if self._root is not None:
                shutil.rmtree(self._root, ignore_errors=True)
                os.close(self._lock)
                self._root = None


def _sweep(place: Path) -> None:
    for left in place.glob("run-*"):
        with contextlib.suppress(OSError):  # in use, or swept by another run
            lock = _locked(left)
            shutil.rmtree(left, ignore_errors=True)
            os.close(lock)


def _locked(folder: Path) -> int:
    """A descriptor that locks ``folder`` until it is closed; OSError where another holds the lock."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
