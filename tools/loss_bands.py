"""Bands of the loss (rule TRAIN-009) from honest results: ``python -m tools.loss_bands RESULTS...``.

Prints, for each scale and workload, the rows of ``loss_curve`` that the training results below these folders
settle; docs/gaming.md says by which margins. Nothing is written: a person puts them into the rules.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from suite.checker.learning import curve
from suite.record.files import read_folder
from suite.record.finding import RecordError
from suite.record.model import Record
from suite.record.reader import record_of

LEAST = 0.05  # relative: the smallest margin
FEW, ENOUGH = 12.0, 8.0  # margins in standard deviations of the logarithms, the latter from MANY repeats on
MANY = 15
_Row = tuple[str, str, str, int, str, str]
_Curves = Sequence[tuple[float, float, float]]


def band(values: Sequence[float]) -> list[str]:
    """Lower and upper edge around the values of honest repeats, as decimal strings.

    The rule rejects, so that its bands are for a run that is as far out as none was seen: in gnmt one of
    twenty repeats, whose seed put other lengths of sentences into its last steps, lay 5.6 deviations off.
    """
    logs = [math.log(value) for value in values]
    middle, deviation = statistics.fmean(logs), statistics.stdev(logs)
    margin = max((ENOUGH if len(logs) >= MANY else FEW) * deviation, LEAST)
    return [f"{math.exp(edge):.4g}" for edge in (middle - margin, middle + margin)]


def row(variant: str, batch: int, data: str, precision: str, curves: _Curves) -> dict[str, Any]:
    """A row of ``loss_curve`` as the rules hold it, from the curves of honest repeats."""
    columns = dict(zip(("start", "middle", "end"), zip(*curves, strict=True), strict=True))
    bands = {name: band(column) for name, column in columns.items()}
    words = {"variant": variant, "batch": batch, "data": data, "precisions": [precision]}
    return {**words, **bands, "repeats": len(curves)}


def main(folders: Sequence[str]) -> int:
    """Print the rows; every completed throughput training below ``folders`` counts. 2 where there is none."""
    absent = [folder for folder in folders if not Path(folder).is_dir()]
    if absent or not folders:
        return _refused(f"expected folders with results, found {absent[0] if absent else 'no argument'}")
    found: dict[_Row, list[tuple[float, float, float]]] = defaultdict(list)
    logs = sorted({path for folder in folders for path in Path(folder).rglob("run.jsonl")})
    for path in logs:
        try:
            record = record_of(read_folder(path.parent))
        except RecordError as error:
            return _refused(f"{path}: expected a log that can be read, found {error.defects[0].actual}")
        key = record.key
        if record.completed and record.mode == "throughput" and key.phase == "train":
            named = (key.scale, key.workload, key.variant, key.batch, key.precision, key.data)
            found[named] += _curves(record)
    if not found:
        return _refused(f"expected completed trainings in mode throughput, found none of {len(logs)} logs")
    table: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for (scale, workload, variant, batch, precision, data), curves in sorted(found.items()):
        table[f"{scale}/{workload}"].append(row(variant, batch, data, precision, curves))
    print(json.dumps(table, indent=2))
    return 0


def _curves(record: Record) -> list[tuple[float, float, float]]:
    """Start, middle and end of the loss per unit of work, of every repeat and worker."""
    return [
        curve(
            [loss for loss in repeat.losses(worker) if loss is not None],
            repeat.column("units", worker),
        )
        for repeat in record.repeats
        for worker in repeat.workers
    ]


def _refused(why: str) -> int:
    print(f"loss_bands: {why}; `make run … PHASE=train` leaves results under results/", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
