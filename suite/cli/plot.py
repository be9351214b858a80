"""``python -m suite plot``: draw a metric of results as SVG or PNG.

A setting with numbers that differs (batch, devices, threads) is the horizontal axis; otherwise the results
are ordered by value. Results that must not be compared have figures of their own, below each other in a file.
Folders of scaling sets (results/sets/<id>) are drawn as ``scale`` does, without a metric.
Exit codes: 0; 2 nothing to draw, the file exists or cannot be written, or no font for PNG.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from suite.cli.guard import UsageError, progress, relative
from suite.log.safe import safe
from suite.log.units import count

if TYPE_CHECKING:
    from suite.figures.results import Measured
    from suite.figures.svg import Figure
    from suite.sandbox.sandbox import Sandbox

_GROUP = ("division", "scale", "data", "mode")
_KEYS = ("workload", "framework", "phase", "precision")
_FOLDER = Path("results/plots")
_MOST = 12  # results of a metric that draws each result by itself


def main(args: argparse.Namespace) -> int:
    """Draw and name the file; the exit code as above."""
    from suite.compare.comparable import COMPARE_TASKS
    from suite.compare.scaling_set import is_set
    from suite.figures.results import METRICS, figures
    from suite.figures.svg import stacked
    from suite.sandbox.sandbox import Sandbox

    absent = [path for path in args.results_dir if not path.is_dir()]
    if absent:
        raise UsageError(f"no such folder: {', '.join(map(str, absent))}; expected a folder of results")
    if args.out is not None:
        check_name(args.out, "--out", may_exist=args.force)
    with Sandbox(COMPARE_TASKS) as sandbox:
        if all(map(is_set, args.results_dir)):
            drawn, name = [_scaling(sandbox, path) for path in args.results_dir], "scaling"
            title = count(len(drawn), "scaling set")
        else:
            found = {one: path for one, path in _results(sandbox, args.results_dir) if _asked(one, args)}
            if not any(one.row for one in found):
                raise UsageError(
                    "expected at least one accepted result, found none; `make summary` lists the results"
                )
            name, title = args.metric, f"{args.metric} of {len(found)} results"
            drawn = figures(found, name) if name in METRICS else _curves(sandbox, found, name)
            if not drawn:
                raise UsageError(f"no result has the metric {name}{_why(found, name)}")
    out = args.out or _free(_FOLDER / f"{name}.svg", args.force)
    content = encoded(stacked(drawn, title), out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("wb" if args.force else "xb") as file:
            file.write(content)
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error.strerror or error}") from error
    print(out)
    return 0


def _scaling(sandbox: Sandbox, folder: Path) -> Figure:
    """The figure of an accepted scaling set."""
    from suite.compare.scaling import check_set
    from suite.figures.scaling import scaling

    verdict, checked = check_set(sandbox, folder)
    if checked is None or not verdict.accepted:
        raise UsageError(
            f"{safe(folder)}: expected an accepted scaling set; `make check RESULT=…` says why not"
        )
    return scaling(checked)


def _why(found: Iterable[Measured], metric: str) -> str:
    """Why the first result lacks a metric of the table."""
    from suite.figures.results import METRICS

    name = METRICS[metric].name if metric in METRICS else ""
    rows = [one.row for one in found if one.row is not None]
    reasons = [row.metrics[name].reason for row in rows if name in row.metrics and row.metrics[name].reason]
    return f": {safe(reasons[0])}" if reasons else ""


def check_name(out: Path, option: str, *, may_exist: bool) -> None:
    """UsageError if no figure can be written to ``out``, or if it exists and is not to be replaced."""
    if out.suffix not in (".svg", ".png"):
        raise UsageError(f"{option}: expected a name that ends in .svg or .png, found {out.name}")
    if out.exists() and not may_exist:
        raise UsageError(f"{option}: {out} exists already; choose another name, or replace it with FORCE=1")


def encoded(figure: Figure, out: Path) -> bytes:
    """The file ``out`` of a figure: SVG, or PNG with two pixels per px. UsageError for PNG without a font."""
    svg = figure.file()
    if out.suffix == ".svg":
        return svg.encode("utf-8")
    from resvg_py import svg_to_bytes

    from suite.figures.svg import FONTS, Figure, Table, label

    letter = Figure("", "", 20, 20, label(2, 16, "A"), Table((), ()))
    blank = replace(letter, content="")
    if svg_to_bytes(svg_string=letter.file()) == svg_to_bytes(svg_string=blank.file()):
        names = ", ".join(FONTS)
        fix = "install one (apt-get install fonts-dejavu-core), or write a .svg"
        raise UsageError(f"{out.name}: PNG needs one of the fonts {names}; found none; {fix}")
    return svg_to_bytes(svg_string=svg, zoom=2)


def _free(path: Path, force: bool) -> Path:
    """``path``, or with a number before its suffix if it exists."""
    number, free = 1, path
    while free.exists() and not force:
        number += 1
        free = path.with_stem(f"{path.stem}-{number}")
    return free


def _results(sandbox: Sandbox, folders: list[Path]) -> Iterator[tuple[Measured, Path]]:
    """The results under ``folders``, one for each log, and the N/A cells of the journal."""
    from suite.compare.result_row import ResultRow, result_folders
    from suite.figures.results import Measured
    from suite.report.grid import NOT_AVAILABLE, OUTCOMES, entry_of
    from suite.sandbox.sandbox import LimitsError, TaskError
    from suite.sweep import journal

    seen = set()
    for path in result_folders(folders):
        try:
            answer = sandbox.run("measured", path=path)
        except (LimitsError, TaskError) as error:
            progress(f"left out: {relative(path)}: {safe(error)}")
            continue
        row = ResultRow.of_dict(answer["row"])
        entry = entry_of(row)
        if entry.settled and row.digest not in seen:
            seen.add(row.digest)
            settings, repeats, code = answer["settings"], answer["repeats"], answer["code"]
            yield Measured(entry.group, settings, entry.status, entry.why, row, repeats, code), path
    for folder in folders:
        for line in journal.read(folder):
            if line.outcome == OUTCOMES[NOT_AVAILABLE] and line.group:
                settings = {name.removesuffix("_per_device"): value for name, value in line.key.items()}
                division, scale, data, mode = line.group
                yield Measured((division, scale, data, mode), settings, NOT_AVAILABLE, line.reason), folder


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
