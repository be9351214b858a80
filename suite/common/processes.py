"""Worker processes of loaders: they end with their parent, and their sockets have short paths."""

from __future__ import annotations

import ctypes
import os
import signal
import tempfile
from multiprocessing import util
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # prctl(2)
_LONGEST = 70  # multiprocessing adds to the folder's path; a socket's path has at most 107 bytes (unix(7))
_WORKING_FOLDER = "/proc/self/cwd"


def shorten_sockets() -> None:
    """Let loader processes send their batches where the temporary folder has a long path.

    They use sockets in that folder, whose paths must be short. A worker's temporary folder is also its
    working folder, which has a short path too.
    """
    folder = tempfile.gettempdir()
    if len(folder) > _LONGEST and Path(folder).samefile(_WORKING_FOLDER):
        try:
            tempfile.tempdir = _WORKING_FOLDER
            util.get_temp_dir()  # multiprocessing stores the folder for this process and its children
        finally:
            tempfile.tempdir = folder


def die_with(parent: int) -> None:
    """Make the kernel kill this process when ``parent``, which started it, ends.

    Loader processes hold the worker's pipes open: the harness would wait for one that outlives the worker.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before prctl
        os._exit(1)
