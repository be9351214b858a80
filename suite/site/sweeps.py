"""The sweeps that a site shows: the journal of a folder of results, reduced in the sandbox to cells.

A journal is hostile input: it states outcomes and reasons, never a number. Throughputs come from the checked
results that it names, if these measured what the cell says.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from suite.checker.sandboxed import limit_finding
from suite.compare.journal import JOURNAL, JournalLine, SweepLine, lines_of
from suite.log.files import read_file
from suite.log.finding import RecordError
from suite.log.safe import safe
from suite.sandbox.sandbox import LimitsError, Sandbox, TaskError
from suite.site.cache import Cache, code_digest

MOST_SWEEPS = 100  # of a site: the newest
MOST_CELLS = 10_000  # of all sweeps together
_MOST_BYTES = 32 << 20  # of a journal
_LONGEST_REASON = 500  # characters
_ID = re.compile(r"[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class JournalCell:
    """The last line of one cell; ``references`` are the run ids of a reference cell, in order."""

    options: tuple[str, ...]
    outcome: str
    reason: str
    run_id: str
    references: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JournalSweep:
    """The cells of one sweep that have ended, of ``cells``; without an id, those of matrices."""

    identity: str
    cells: int
    study: str
    wall: str
    ended: tuple[JournalCell, ...] = field(default=())
    axes: tuple[str, ...] = ()  # options that differ between all of its cells; empty if that is not known


@dataclass(frozen=True, slots=True)
class Journal:
    """The sweeps of a journal, the newest first; ``problem`` is why it could not be read."""

    sweeps: tuple[JournalSweep, ...] = ()
    left_out: int = 0  # sweeps beyond the limits
    problem: str = ""


def read_journal(root: Path, cache: Cache, tasks: str) -> Journal:
    """The journal in ``root``, from the cache if it has not changed; empty without one."""
    digest = cache.digest(root / JOURNAL)
    if not digest:
        return Journal()
    key = f"{sha256(f'{digest} {code_digest()}'.encode()).hexdigest()}.journal"
    value = cache.read(key)
    if value is None:
        try:
            with Sandbox(tasks) as sandbox:
                value = sandbox.run("journal", path=root)
        except (LimitsError, TaskError) as error:
            found = limit_finding(error).found if isinstance(error, LimitsError) else str(error)
            return Journal(problem=safe(found, _LONGEST_REASON))
        cache.write(key, value)
    sweeps = tuple(
        JournalSweep(**{**one, "ended": tuple(map(_cell, one["ended"])), "axes": tuple(one["axes"])})
        for one in value["sweeps"]
    )
    return Journal(sweeps, value["left_out"], value["problem"])


def _cell(value: Mapping[str, Any]) -> JournalCell:
    lists = {name: tuple(value[name]) for name in ("options", "references")}
    return JournalCell(**{**value, **lists})


def journal_of(folder: Path) -> dict[str, Any]:
    """What pages show of the journal in ``folder``, as JSON values; runs in the sandbox."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            text = read_file(descriptor, JOURNAL, _MOST_BYTES).decode("utf-8", "replace")
        finally:
            os.close(descriptor)
    except (RecordError, OSError) as error:
        return {"sweeps": [], "left_out": 0, "problem": safe(f"{JOURNAL}: {error}", _LONGEST_REASON)}
    begun: dict[str, SweepLine | None] = {}
    cells: dict[str, dict[tuple[str, ...], JournalLine]] = {}
    references: dict[tuple[str, tuple[str, ...]], dict[int, str]] = {}
    for line in lines_of(text):
        if isinstance(line, SweepLine):
            if _ID.fullmatch(line.sweep):
                begun.pop(line.sweep, None)  # the newest command counts, and orders the sweeps
                begun[line.sweep] = line
            continue
        if line.sweep and line.sweep not in begun:  # a scaling set: it has a page of its own
            continue
        cells.setdefault(line.sweep, {})[line.options] = line
        if line.reference is not None and line.outcome == "ok":
            references.setdefault((line.sweep, line.options), {})[line.reference] = line.run_id
    if "" in cells:
        begun = {"": None, **begun}
    found: list[dict[str, Any]] = []
    left = MOST_CELLS
    for identity, first in reversed(begun.items()):
        ended = cells.get(identity, {})
        if len(found) == MOST_SWEEPS or len(ended) > left:
            break
        left -= len(ended)
        found.append(
            {
                "identity": identity,
                "cells": len(ended) if first is None else first.cells,
                "study": "" if first is None else first.study,
                "wall": "" if first is None else first.wall,
                "axes": [] if first is None else list(first.axes),
                "ended": list(_ended(ended, identity, references)),
            }
        )
    return {"sweeps": found, "left_out": len(begun) - len(found), "problem": ""}


def _ended(
    lines: Mapping[tuple[str, ...], JournalLine],
    identity: str,
    references: Mapping[tuple[str, tuple[str, ...]], Mapping[int, str]],
) -> Iterator[dict[str, Any]]:
    for options, line in lines.items():
        measured = references.get((identity, options), {})
        yield {
            "options": list(options),
            "outcome": line.outcome,
            "reason": line.reason[:_LONGEST_REASON],
            "run_id": line.run_id,
            "references": [measured[number] for number in sorted(measured)],
        }
