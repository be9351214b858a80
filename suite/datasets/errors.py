"""What can go wrong with a dataset, as types: each message says what was expected and how to fix it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class DatasetError(Exception):
    """Any failure of this package; ``exit_code`` is the command's."""

    exit_code = 12


class UnknownDataset(DatasetError):
    """No rules describe a dataset of this name."""


class DatasetMissing(DatasetError):
    """The dataset is not on this machine, and only a person may decide to fetch it."""


class DatasetCorrupt(DatasetError):
    """Bytes differ from what the rules, the manifest or the publisher promise."""

    def __init__(self, file: str, expected: str, found: str, fix: str) -> None:
        super().__init__(f"{file}: expected {expected}, found {found}. {fix}")
        self.file, self.expected, self.found, self.fix = file, expected, found, fix


class FetchFailed(DatasetError):
    """The official address could not be read to the end."""


class ScoringError(DatasetError):
    """Predictions that cannot be scored: wrong arrays, shapes or values. The worker broke the protocol."""

    exit_code = 24


class StorageError(DatasetError):
    """The place for the data cannot be written or read."""

    exit_code = 15


class NoSpace(StorageError):
    """The disk, or the quota on it, is full."""


class ReadOnly(StorageError):
    """The place may not be written to."""


@contextmanager
def storage(place: Path) -> Iterator[None]:
    """Turn operating system errors about ``place`` into the types above."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoSpace(f"{place}: {reason}. Free space there or choose another DATA_ROOT.") from error
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise ReadOnly(f"{place}: {reason}. Choose a DATA_ROOT that you may write to.") from error
        raise StorageError(f"{place}: {reason}. Check DATA_ROOT.") from error
