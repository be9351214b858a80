"""Set the state of the page cache before a repeat: cold (evicted) or warm (read once)."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

from suite.datasets.errors import storage_errors

_BLOCK = 1 << 20


def evict(files: Iterable[Path]) -> int:
    """Drop ``files`` from the page cache; returns how many of their bytes are no longer in memory.

    Unwritten pages cannot be dropped, so each file is flushed first. For files on a file system in memory the
    result is zero.
    """
    total = 0
    for path in files:
        with storage_errors(path), path.open("rb") as stream:
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            total += os.fstat(stream.fileno()).st_size - resident(path)
    return total


def warm(files: Iterable[Path]) -> int:
    """Read ``files`` once; returns the number of bytes read."""
    total = 0
    for path in files:
        with storage_errors(path), path.open("rb", buffering=0) as stream:
            while block := stream.read(_BLOCK):
                total += len(block)
    return total


def resident(path: Path) -> int:
    """How many bytes of a file are in the page cache (``mincore``).

    To users who may not write the file, Linux reports every page as present.
    """
    with path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        if size == 0:
            return 0
        # Private and writable, because ctypes takes the address of writable memory only; nothing is written.
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        with mmap.mmap(stream.fileno(), size, flags=mmap.MAP_PRIVATE, prot=protection) as area:
            pages = -(-size // mmap.PAGESIZE)
            vector = (ctypes.c_ubyte * pages)()
            first = (ctypes.c_char * size).from_buffer(area)
            libc = ctypes.CDLL(None, use_errno=True)
            failed = libc.mincore(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(size), vector)
            del first
            if failed:
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code))
    present = [index for index, page in enumerate(vector) if page & 1]
    return sum(min(mmap.PAGESIZE, size - index * mmap.PAGESIZE) for index in present)
