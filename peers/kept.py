"""What ``--out`` holds: settings and every finished row, so that a series goes on where it was cut."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from peers.bench import Row, Settings
from peers.cases import Case
from peers.ratios import Reading

# Seconds that a process takes besides its window: imports, weights, tracing, ten warm steps. Seen on two
# cores at the batches of ``cases.py`` with four, and 3 s reckoned for six more; for estimates only.
STARTUP_S = {"pytorch": 9.0, "tensorflow": 17.0, "mxnet": 11.0}


class OtherSettings(ValueError):
    """The file holds rows that were measured in another way."""


def how(settings: Settings) -> dict[str, Any]:
    """The settings that rows of one file share."""
    names = ("threads", "rounds", "seconds", "wait_policy")
    return {name: getattr(settings, name) for name in names}


def read(path: Path | None, settings: Settings) -> list[Row]:
    """The rows of ``path``, none where it is not there; OtherSettings where they are not comparable."""
    if path is None or not path.exists():
        return []
    held = json.loads(path.read_text())
    found = {name: held.get(name) for name in how(settings)}
    if found != how(settings):
        raise OtherSettings(f"{path}: expected rows by {how(settings)}, found {found}: name another OUT")
    return [row(record) for record in held["rows"]]


def row(record: dict[str, Any]) -> Row:
    """The row that wrote ``record``."""
    ours, theirs = ([Reading(**reading) for reading in record[side]] for side in ("ours", "theirs"))
    return Row(Case(**record["case"]), ours, theirs, record["parameters"])


def write(path: Path, settings: Settings, rows: Sequence[Row]) -> None:
    """All rows so far; a cut leaves the former file whole."""
    partial = path.with_name(path.name + ".partial")
    held = how(settings) | {"rows": [each.record() for each in rows]}
    partial.write_text(json.dumps(held, indent=1) + "\n")
    partial.replace(path)


def estimated_minutes(cases: Sequence[Case], settings: Settings) -> float:
    """About how long ``cases`` take: longer where three steps do not fit into a window."""
    each = sum(STARTUP_S[case.framework] + settings.seconds for case in cases)
    return 2 * settings.rounds * each / 60
