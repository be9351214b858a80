"""Bands of the loss (rule TRAIN-009) from honest trainings: ``python -m tools.loss_bands RESULTS CURVES``.

Prints, for each scale and workload, the rows of ``loss_curve`` from training results below folders and the
curves that ``tools.loss_curves`` printed; docs/gaming.md explains the margins. Nothing is written: a
person adds the rows to the rules.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from suite.checker.training import curve
from suite.contract import Key
from suite.log.files import read_folder
from suite.log.finding import RecordError
from suite.log.model import Record
from suite.log.reader import record_of

LEAST = 0.05  # relative: the smallest margin
FEW, ENOUGH = 12.0, 8.0  # margins in standard deviations of the logarithms, the latter from MANY repeats on
MANY = 15
Curves = Sequence[tuple[float, float, float]]
_Work = tuple[str, str, str, int, str]


def band(values: Sequence[float], others: Sequence[Sequence[float]] = ()) -> list[str]:
    """Lower and upper bound around the values of honest repeats, as decimal strings.

    ``others`` are the values in other precisions: seeds have equal effects in all precisions, and a few
    repeats alone may lie close to each other by chance. Of gnmt at batch 128 five in bf16 varied by 0.4 %,
    five in fp16 by 1.6 %.

    The rule rejects, so the bands are wider than every observed deviation: in gnmt one of twenty repeats,
    whose last steps had other sentence lengths, was 5.6 deviations off.
    """
    groups = [[math.log(value) for value in group] for group in (values, *others)]
    freedom = sum(len(logs) - 1 for logs in groups)
    if freedom < 1:
        raise ValueError("expected at least two repeats of one precision")
    deviation = math.sqrt(
        sum(statistics.variance(logs) * (len(logs) - 1) for logs in groups if len(logs) > 1) / freedom
    )
    margin = max((ENOUGH if freedom >= MANY - 1 else FEW) * deviation, LEAST)
    middle = statistics.fmean(groups[0])
    return [f"{math.exp(bound):.4g}" for bound in (middle - margin, middle + margin)]


def rows(variant: str, batch: int, data: str, curves: Mapping[str, Curves]) -> list[dict[str, Any]]:
    """Rows of ``loss_curve`` as the rules hold them, from the curves of honest repeats in each precision."""
    columns = {precision: tuple(zip(*found, strict=True)) for precision, found in curves.items()}
    table = []
    for precision, found in curves.items():
        row: dict[str, Any] = {"variant": variant, "batch": batch, "data": data, "precisions": [precision]}
        for at, name in enumerate(("start", "middle", "end")):
            others = [columns[other][at] for other in curves if other != precision]
            row[name] = band(columns[precision][at], others)
        table.append({**row, "repeats": len(found)})
    return table


def main(sources: Sequence[str]) -> int:
    """Print the rows of all completed throughput trainings in ``sources``; 2 if there is none."""
    absent = [source for source in sources if not Path(source).exists()]
    if absent or not sources:
        return _refused(f"expected results or curves, found {absent[0] if absent else 'no argument'}")
    found: dict[_Work, dict[str, list[tuple[float, float, float]]]] = defaultdict(lambda: defaultdict(list))
    folders = [Path(source) for source in sources if Path(source).is_dir()]
    logs = sorted({path for folder in folders for path in folder.rglob("run.jsonl")})
    for path in logs:
        try:
            record = record_of(read_folder(path.parent))
        except RecordError as error:
            return _refused(f"{path}: expected a log that can be read, found {error.defects[0].found}")
        if record.completed and record.mode == "throughput" and record.key.phase == "train":
            found[_work(record.key)][record.key.precision] += _curves(record)
    for file in sorted({Path(source) for source in sources} - set(folders)):
        for line in map(json.loads, file.read_text("utf-8").splitlines()):
            key = Key(**line["key"])
            found[_work(key)][key.precision].append(tuple(line["curve"]))
    if not found:
        return _refused(f"expected completed trainings in mode throughput, found none of {len(logs)} logs")
    table: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for (scale, workload, variant, batch, data), curves in sorted(found.items()):
        try:
            table[f"{scale}/{workload}"] += rows(variant, batch, data, dict(sorted(curves.items())))
        except ValueError as error:
            repeats = ", ".join(f"{len(found)} in {precision}" for precision, found in sorted(curves.items()))
            work = f"{scale}/{workload}, variant {variant}, batch {batch}, {data} data"
            return _refused(f"{work}: {error}, found {repeats}")
    print(json.dumps(table, indent=2))
    return 0


def _work(key: Key) -> _Work:
    """The properties of a row except its precision."""
    return key.scale, key.workload, key.variant, key.batch, key.data


def _curves(record: Record) -> list[tuple[float, float, float]]:
    """Start, middle and end of the loss per unit of work, of every repeat."""
    return [
        curve([loss for loss in repeat.global_losses if loss is not None], repeat.global_units)
        for repeat in record.repeats
    ]


def _refused(why: str) -> int:
    print(f"loss_bands: {why}; `make run … PHASE=train` leaves results under results/", file=sys.stderr)
    return 2


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tools.loss_bands", description=__doc__)
    parser.add_argument("sources", nargs="+", metavar="RESULTS|CURVES")
    sys.exit(main(parser.parse_args().sources))
