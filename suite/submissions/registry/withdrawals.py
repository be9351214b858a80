"""Withdrawn results: the withdrawal of a log, and entries that name no result of the tree."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from suite.submissions.registry.model import Breach, Registry, Withdrawal
from suite.submissions.registry.read import FOLDER, WITHDRAWALS, read_registry

_LEVELS = 5  # of a run's folder: <root>/<submitter>/<results|practice>/<system>/<workload>/<run id>


def withdrawal_of(folder: Path, digest: str | None, registry: Registry | None = None) -> Withdrawal | None:
    """The withdrawal of the log in ``folder``, which has this digest; None if nobody withdrew it.

    It is in ``registry``, where one is given, or in the registry of the tree of submissions that ``folder``
    lies in by its layout. Without a ``registry``, a copy elsewhere is not known to be withdrawn.
    """
    if digest is None:
        return None
    found = None if registry is None else registry.withdrawals.get(digest)
    of_tree = _registry_above(folder.absolute().parent)
    if found is not None or of_tree is None:
        return found
    try:
        status = os.lstat(f"{of_tree}/{WITHDRAWALS}.json")
    except OSError:
        return None
    return _withdrawals(of_tree, status.st_mtime_ns, status.st_size, status.st_ino).get(digest)


@lru_cache(maxsize=1024)
def _registry_above(workload: Path) -> Path | None:
    """The folder of the registry of the tree that ``workload``, the folder above a run's, may lie in."""
    above = workload.resolve().parents
    return above[_LEVELS - 2] / FOLDER if len(above) >= _LEVELS - 1 else None


@lru_cache(maxsize=8)
def _withdrawals(folder: Path, *_version: int) -> Mapping[str, Withdrawal]:
    """Those of one version of a registry's file, which is read once for all results of a tree."""
    return read_registry(folder).withdrawals


def without_result(
    registry: Registry, results: Iterable[tuple[Withdrawal | None, str, str]]
) -> Iterator[Breach]:
    """A breach for each withdrawal that names no result of its submitter in the tree.

    ``results``: the withdrawal that names the log of each, and the run id and submitter of its folder.
    """
    named = {one for one, *folder in results if one is not None and folder == [one.run_id, one.submitter]}
    for number, one in enumerate(registry.withdrawals.values()):
        if one not in named:
            yield Breach(
                "REG-001",
                f"registry, {WITHDRAWALS}.json, withdrawals.{number}",
                f"a result of {one.submitter} in the tree: a withdrawn result stays there",
                f"none with run id {one.run_id} and SHA-256 {one.sha256}",
            )
