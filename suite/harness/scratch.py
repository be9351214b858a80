"""Scratch: the only folder in which the workers of a run may write, under CACHE_DIR."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import tempfile
import threading
from pathlib import Path

_CACHE = "cache"  # the folder that suite.containers.engines.workers gives to compilers
# Traces of PyTorch (suite/frameworks/pytorch/kept.py) are for the repeats of one run, whose code and options
# are equal: their facts do not tell apart everything that a change of the code could alter.
_OF_THE_RUN = "traced"


class Scratch:
    """The scratch folder of one run, made at the first use below ``parent``.

    The process holds a lock on it: the next run removes the folder of a killed run. Its folder ``cache`` is
    for what workers compile. It begins as a copy of ``compiled``, if that is given. Runs one after the other
    have the same folder, because compilers keep absolute paths: PyTorch would not find again which variant of
    a kernel is the fastest.
    """

    def __init__(self, parent: Path, compiled: Path | None = None) -> None:
        self._parent = parent
        self._compiled = compiled
        self._root: Path | None = None
        self._lock = -1
        self._removing = threading.Lock()

    def folder(self, name: str) -> Path:
        """The folder ``name`` inside; OSError if it cannot be made."""
        if self._root is None:
            self._parent.mkdir(parents=True, exist_ok=True)
            _sweep(self._parent)
            made = Path(tempfile.mkdtemp(prefix="new-", dir=self._parent))
            self._lock = _locked(made)
            (made / _CACHE).mkdir()  # another run's rename would replace an empty folder
            self._root = _numbered(made)
            if self._compiled is not None:
                _copy_missing(self._compiled, self._root / _CACHE)
        folder = self._root / name
        folder.mkdir(exist_ok=True)
        return folder

    def keep_compiled(self) -> None:
        """Add to ``compiled`` what the workers compiled. Raises OSError."""
        if self._compiled is not None and self._root is not None:
            _copy_missing(self._root / _CACHE, self._compiled)

    def remove(self) -> None:
        """Remove the folder if it was made.

        Two threads may call this at once (a check of the doctor that timed out, and its clean-up). The second
        waits, so that no descriptor is closed twice.
        """
        with self._removing:
            if self._root is not None:
                shutil.rmtree(self._root, ignore_errors=True)
                os.close(self._lock)
                self._root = None


def clean_debug_files(folder: Path) -> None:
    """Remove the empty debug files in ``folder``, and the folder if nothing is left in it."""
    for path in folder.glob("*.log"):
        if path.stat().st_size == 0:
            path.unlink()
    with contextlib.suppress(OSError):  # it contains something, or does not exist
        folder.rmdir()


def _copy_missing(source: Path, target: Path) -> None:
    """Copy the files below ``source`` that ``target`` lacks, but for those that are of one run only.

    Symbolic links, which may lead outside, are left out. Other runs may do the same at this time: a file
    appears in ``target`` whole. Triton lists the files of a kernel by absolute paths (``__grp__*``), and
    compiles the kernel again if they are missing: the copies list paths below ``target``.
    """
    old, new = (json.dumps(f"{folder}/")[:-1].encode() for folder in (source, target))
    for folder, folders, names in os.walk(source):
        folders[:] = [name for name in folders if name != _OF_THE_RUN]
        into = target / Path(folder).relative_to(source)
        into.mkdir(parents=True, exist_ok=True)
        for path in (Path(folder) / name for name in names):
            if path.is_symlink() or not path.is_file() or (into / path.name).exists():
                continue
            part = into / f".{path.name[:100]}.{os.getpid()}"
            shutil.copy2(path, part)
            if path.name.startswith("__grp__"):
                part.write_bytes(path.read_bytes().replace(old, new))
            part.rename(into / path.name)


def _numbered(made: Path) -> Path:
    """``made``, which is not empty, under the first name ``run-N`` that no other run has."""
    number = 0
    while True:
        try:
            return made.rename(made.with_name(f"run-{number}"))
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
        number += 1


def _sweep(parent: Path) -> None:
    for left in parent.glob("run-*"):
        with contextlib.suppress(OSError):  # in use, or removed by another run
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
