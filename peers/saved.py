"""The file ``--out``: settings and every finished row, so that an interrupted series can continue."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from peers.bench import BenchSettings, PeerRow
from peers.cases import PeerCase
from peers.ratios import Measurement

# Seconds of a process outside of its window: imports, weights, tracing, ten warm-up steps. Measured on two
# cores at the batches of ``cases.py`` with four steps, plus 3 s for six more; for estimates only.
STARTUP_S = {"pytorch": 9.0, "tensorflow": 17.0, "mxnet": 11.0, "jax": 15.0}


class OtherSettings(ValueError):
    """The file holds rows that were measured with other settings."""


def shared_settings(settings: BenchSettings) -> dict[str, Any]:
    """The settings that all rows of one file share."""
    names = ("threads", "rounds", "seconds", "wait_policy")
    return {name: getattr(settings, name) for name in names}


def read(path: Path | None, settings: BenchSettings) -> list[PeerRow]:
    """The rows of ``path``, none if it does not exist; OtherSettings if they are not comparable."""
    if path is None or not path.exists():
        return []
    content = json.loads(path.read_text())
    expected = shared_settings(settings)
    found = {name: content.get(name) for name in expected}
    if found != expected:
        raise OtherSettings(f"{path}: expected rows by {expected}, found {found}: name another OUT=FILE")
    return [row_of(record) for record in content["rows"]]


def row_of(record: dict[str, Any]) -> PeerRow:
    """The row from its JSON values ``record``."""
    ours, theirs = ([Measurement(**one) for one in record[side]] for side in ("ours", "theirs"))
    return PeerRow(PeerCase(**record["case"]), ours, theirs, record["parameters"])


def write(path: Path, settings: BenchSettings, rows: Sequence[PeerRow]) -> None:
    """Write all rows so far; an interruption leaves the previous file intact."""
    partial = path.with_name(path.name + ".partial")
    content = shared_settings(settings) | {"rows": [each.record() for each in rows]}
    partial.write_text(json.dumps(content, indent=1) + "\n")
    partial.replace(path)


def estimated_minutes(cases: Sequence[PeerCase], settings: BenchSettings) -> float:
    """Estimated minutes for ``cases``; they take longer where three steps exceed the window."""
    each = sum(STARTUP_S[case.framework] + settings.seconds for case in cases)
    return 2 * settings.rounds * each / 60
