"""``python -m suite plot``: draw a metric of results as SVG or PNG.

A setting with numbers that differs (batch, devices, threads) is the horizontal axis; otherwise the results
are ordered by value. Results that must not be compared have figures of their own, below each other in a file.
Exit codes: 0; 2 nothing to draw, or the file exists or cannot be written; 13 no renderer or no font for PNG.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from suite.cli.guard import UsageError

if TYPE_CHECKING:
    from suite.figures.results import Measured
    from suite.figures.svg import Figure
    from suite.sandbox.sandbox import Sandbox

_GROUP = ("division", "scale", "data", "mode")
_KEYS = ("workload", "framework", "phase", "precision")
_FOLDER = Path("results/plots")
_MOST = 12  # results of a metric that draws each result by itself
MISSING = 13


def main(args: argparse.Namespace) -> int:
    """Draw and name the file; the exit code as above."""
    from suite.compare.comparable import COMPARE_TASKS
    from suite.figures.results import METRICS, figures
    from suite.figures.svg import stacked
    from suite.sandbox.sandbox import Sandbox

    absent = [path for path in args.results_dir if not path.is_dir()]
    if absent:
        raise UsageError(f"no such folder: {', '.join(map(str, absent))}; expected a folder of results")
    if args.out is not None and args.out.suffix not in (".svg", ".png"):
        raise UsageError(f"--out: expected a name that ends in .svg or .png, found {args.out.name}")
    with Sandbox(COMPARE_TASKS) as sandbox:
        found = {one: path for one, path in _results(sandbox, args.results_dir) if _asked(one, args)}
        if not any(one.row for one in found):
            raise UsageError(
                "expected at least one accepted result, found none; `make summary` lists the results"
            )
        if args.metric in METRICS:
            drawn = figures(found, args.metric)
        else:
            drawn = _curves(sandbox, found, args.metric)
    if not drawn:
        raise UsageError(
            f"no result has the metric {args.metric}; `make summary FORMAT=json` states the reasons"
        )
    out = args.out or _free(_FOLDER / f"{args.metric}.svg", args.force)
    return write(stacked(drawn, f"{args.metric} of {len(found)} results"), out, args.force)


def write(figure: Figure, out: Path, force: bool) -> int:
    """Write a figure to ``out`` and print its name; never over an existing file without ``force``."""
    text = figure.file()
    if out.suffix == ".png":
        try:
            content = png(text)
        except ImportError:
            print(
                "plot: no renderer for PNG is installed; `make plot` installs it from its lock",
                file=sys.stderr,
            )
            return MISSING
        except LookupError as error:
            print(f"plot: {error}", file=sys.stderr)
            return MISSING
    else:
        content = text.encode("utf-8")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("wb" if force else "xb") as file:
            file.write(content)
    except FileExistsError as error:
        raise UsageError(
            f"{out} exists already; choose another name (OUT=) or replace it (FORCE=1)"
        ) from error
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error.strerror or error}") from error
    print(out)
    return 0


def png(svg: str) -> bytes:
    """The figure as PNG, two pixels per px. Raises ImportError without resvg, LookupError without a font."""
    import resvg_py

    blank = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20">{}</svg>'
    letter = blank.format('<text x="4" y="16" font-family="sans-serif">A</text>')
    if resvg_py.svg_to_bytes(svg_string=letter) == resvg_py.svg_to_bytes(svg_string=blank.format("")):
        raise LookupError(
            "PNG needs a font and this system has none: install one (apt install fonts-dejavu-core), or use .svg"
        )
    return bytes(resvg_py.svg_to_bytes(svg_string=svg, zoom=2))


def _free(path: Path, force: bool) -> Path:
    """``path``, or with a number before its suffix if it exists."""
    number, free = 1, path
    while free.exists() and not force:
        number += 1
        free = path.with_stem(f"{path.stem}-{number}")
    return free


def _results(sandbox: Sandbox, folders: list[Path]) -> Iterator[tuple[Measured, Path]]:
    """The results under ``folders``, one for each log, and the N/A cells of a matrix's journal."""
    from suite.compare.result_row import ResultRow, result_folders
    from suite.figures.results import Measured
    from suite.report.grid import NOT_AVAILABLE, entry_of
    from suite.sandbox.sandbox import LimitsError
    from suite.sweep import journal

    seen = set()
    for path in result_folders(folders):
        try:
            answer = sandbox.run("measured", path=path)
        except LimitsError:
            continue  # rejected
        row = ResultRow.of_dict(answer["row"])
        entry = entry_of(row)
        if entry.settled and row.digest not in seen:
            seen.add(row.digest)
            settings, repeats, code = answer["settings"], answer["repeats"], answer["code"]
            yield Measured(entry.group, settings, entry.status, entry.why, row, repeats, code), path
    for folder in folders:
        for line in journal.read(folder):
            if line.status == NOT_AVAILABLE:
                settings = {name.removesuffix("_per_device"): value for name, value in line.key.items()}
                division, scale, data, mode = line.group
                yield Measured((division, scale, data, mode), settings, line.status, line.reason), folder


def _curves(sandbox: Sandbox, found: dict[Measured, Path], metric: str) -> list[Figure]:
    """Figures of step times or telemetry, which are read from the logs a second time."""
    from suite.figures.curves import STEP_ECDF, curve_figures

    if metric != STEP_ECDF and len(found) > _MOST:
        raise UsageError(
            f"METRIC={metric} draws each result by itself: expected at most {_MOST} results, found "
            f"{len(found)}; name one (RESULTS_DIR=results/<run id>) or select (WORKLOAD=, FRAMEWORK=, PHASE=)"
        )
    return curve_figures(
        found, metric, lambda one: sandbox.run("curves", path=found[one]) if one.row is not None else None
    )


def _asked(one: Measured, args: argparse.Namespace) -> bool:
    """Whether the filters include this result."""
    values = dict(zip(_GROUP, one.group, strict=True)) | {name: one.settings.get(name) for name in _KEYS}
    return all(
        not (allowed := getattr(args, name)) or str(values[name]) in allowed.split(",") for name in values
    )
