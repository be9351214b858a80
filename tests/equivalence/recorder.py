"""Runs one case in one framework's interpreter and writes each array to a separate file.

``python -m tests.equivalence.recorder CASE SCALE VARIANT FRAMEWORK PRECISION THREADS FOLDER``. Gradients and
updates of a large model are gigabytes in float64: they are written one by one, and the comparison maps them.
``index.json`` is written last: a folder without it is incomplete.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

import numpy as np

from suite import workloads
from tests.equivalence.case import Case, chosen
from tests.equivalence.runner import measured

INDEX = "index.json"


def record(case: Case, framework: str, precision: str, folder: Path) -> None:
    """Write the arrays of ``case``, then the index: file by name, parameters, version, seconds, bytes."""
    begun, count = time.monotonic(), 0
    files: dict[str, str] = {}
    for name, array in measured(case, framework, precision, compared_only=True):
        files[name] = f"{len(files):04}.npy"
        np.save(folder / files[name], array)
        count += array.size if name.startswith("update/") else 0
    job = case.job(framework, precision)
    facts = {
        "arrays": files,
        "parameters": count or None,  # of the pair itself; updates are not compared in every precision
        "version": workloads.framework_module(job).Framework(job).describe()["version"],
        "seconds": round(time.monotonic() - begun, 1),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    (folder / INDEX).write_text(json.dumps(facts, indent=1), encoding="utf-8")


def main(arguments: list[str]) -> None:
    """See the module."""
    name, scale, variant, framework, precision, threads, folder = arguments
    record(chosen(name, scale, variant, int(threads)), framework, precision, Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
