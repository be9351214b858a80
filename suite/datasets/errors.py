"""Errors of datasets: each message names what was expected, what was found, and the fix."""

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
    """The dataset is not on this machine; a run never fetches it by itself."""


class DatasetCorrupt(DatasetError):
    """A file differs from the rules, the manifest or the publisher's checksum."""

    def __init__(self, file: str, expected: str, found: str, fix: str) -> None:
        super().__init__(f"{file}: expected {expected}, found {found}. {fix}")
        self.file, self.expected, self.found, self.fix = file, expected, found, fix


class FetchFailed(DatasetError):
    """The download from the official address failed or is incomplete."""


class ScoringError(DatasetError):
    """Predictions that cannot be scored: wrong arrays, shapes or values. The worker violated the protocol."""

    exit_code = 24


class StorageError(DatasetError):
    """The data folder cannot be written or read."""

    exit_code = 15


class NoSpace(StorageError):
    """The disk, or the quota on it, is full."""


class ReadOnly(StorageError):
    """The data folder may not be written to."""


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn operating system errors about ``path`` into the types above."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoSpace(f"{path}: {reason}. Free space there or choose another DATA_ROOT.") from error
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise ReadOnly(f"{path}: {reason}. Choose a DATA_ROOT that you may write to.") from error
        raise StorageError(f"{path}: {reason}. Check DATA_ROOT.") from error
