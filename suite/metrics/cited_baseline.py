"""The baseline that a result cites: its part of the header, and the file that a submission carries.

The header has the figures that the rules BASE-003 and BASE-004 and ``make compare`` need, so that a log can
be judged alone. The file beside the log, :data:`suite.log.files.BASELINE`, has all windows of all series.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from suite.log.files import BASELINE
from suite.log.safe import safe
from suite.metrics.baseline import Baseline, BaselineProblem, Series, read_shared_file

_OF_HOST = ("cpu.gemm_fp32", "cpu.triad", "cpu.page_cache_read", "cpu.jpeg")
_DISK = "disk.read"
_OF_GPU = ("triad", "h2d")
_LONGEST = 500  # characters of a method in the log


def gemm_series(gpu: str, precision: str) -> tuple[str, str]:
    """The names of the GEMM series of a GPU, such as ``gpu0``, in ``precision``."""
    return f"{gpu}.gemm_{precision}_first", f"{gpu}.gemm_{precision}_plateau"


def citation(
    baseline: Baseline, gpus: Mapping[str, str], precision: str, *, same_disk: bool
) -> dict[str, Any]:
    """The ``baseline`` of a header. ``gpus``: name of a GPU in the baseline -> digest of its UUID.

    Rates are integers of units per second. The disk's are left out unless the data are on the ``same_disk``.
    """
    wanted = [*_OF_HOST, *([_DISK] if same_disk else [])]
    for gpu in gpus:
        wanted += [*gemm_series(gpu, precision), *(f"{gpu}.{name}" for name in _OF_GPU)]
    return {
        "log": baseline.digest,
        "when": baseline.when,
        "quick": baseline.quick,
        "cpu": text(baseline.cohort.cpu),
        "threads": baseline.cohort.threads,
        "gpus": dict(gpus),
        "series": {name: _figure(baseline.series[name]) for name in wanted if name in baseline.series},
    }


def text(value: str) -> str:
    """``value`` as the schema of the log has texts: printable ASCII, of at most 500 characters."""
    return safe(value, _LONGEST).encode("ascii", "replace").decode()[:_LONGEST]


def _figure(series: Series) -> dict[str, Any]:
    return {"unit": series.unit, "rate": max(1, round(series.rate)), "method": text(series.method)}


def file_difference(folder: Path, files: Iterable[str], cited: Mapping[str, Any] | None) -> tuple[str, str]:
    """(expected, found) where the file in ``folder`` is not the one of ``cited``; two empty texts if it is.

    ``files`` are the names in the folder, ``cited`` is the ``baseline`` of the header.
    """
    present = BASELINE in files
    if cited is None:
        return ("no such file, because the log cites no baseline", "a file") if present else ("", "")
    if not present:
        return f"the shared file of the baseline {cited['log']}", "no such file"
    try:
        baseline = read_shared_file(folder / BASELINE)
    except BaselineProblem as problem:
        return "a shared file as make baseline writes it", str(problem)
    if baseline.digest != cited["log"]:
        return f"the baseline {cited['log']}, as in the log", baseline.digest
    stated = {"when": baseline.when, "quick": baseline.quick, "threads": baseline.cohort.threads}
    stated |= {"cpu": text(baseline.cohort.cpu)}
    for name, value in stated.items():
        if cited[name] != value:
            return f"{name} {cited[name]}, as in the log", str(value)
    for name, figure in cited["series"].items():
        mine = baseline.series.get(name)
        if mine is None or _figure(mine) != figure:
            found = "no such series" if mine is None else f"{_figure(mine)['rate']} {mine.unit}/s"
            return f"{name}: {figure['rate']} {figure['unit']}/s by the same method, as in the log", found
    return "", ""
