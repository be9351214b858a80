"""``make equivalence``: every workload compared between the frameworks, as a table.

``python -m tests.equivalence.table [--workload a,b] [--scale mini|reference]
[--precision fp64|fp32] [--out FILE.md] [--cache-dir DIR] [--threads N]``
computes the missing rows, prints a line for each case and precision, and exits with 1 where a bound is broken
or a framework fails. Rows are stored as JSON, beside FILE or in the cache, and are valid for the code whose
digest they name: an interrupted command continues.

``python -m tests.equivalence.table --world 2,3 [--workload a,b]`` compares so many ranks with one process
instead, at mini scale (see :mod:`tests.equivalence.world`).
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from suite import workloads
from suite.cli.parsing import parse
from suite.cli.verbs import VERBS
from suite.environments.errors import EnvironmentMissing
from tests.equivalence import table_text, world
from tests.equivalence.case import FRAMEWORKS, Case, load, names
from tests.equivalence.interpreters import find, run
from tests.equivalence.recorded import PRECISIONS, Row, Stopped, code_digest, compute

SCALES = ("mini", "reference")
USAGE = 2


class Rows:
    """The rows measured so far, in a JSON file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._rows: dict[tuple[str, str, str, str], Row] = {}
        if file.is_file():
            rows = map(Row.of_json, json.loads(file.read_text(encoding="utf-8")))
            self._rows = {row.key: row for row in rows}

    def find(self, case: Case, precision: str) -> Row | None:
        """The row of ``case``, measured with any code."""
        return self._rows.get((case.workload, case.scale, case.variant, precision))

    def add(self, row: Row) -> None:
        """Store ``row``, replacing an older one; the file is replaced atomically."""
        self._rows[row.key] = row
        rows = [self._rows[key].as_json() for key in sorted(self._rows)]
        self._file.parent.mkdir(parents=True, exist_ok=True)
        partial = self._file.with_suffix(".partial")
        partial.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        partial.replace(self._file)


def cases(scale: str, wanted: Iterable[str] = ()) -> list[Case]:
    """The cases of ``scale``, ordered by their work."""
    found = [case for name in names() if not wanted or name in wanted for case in load(name).at(scale)]

    def work(case: Case) -> int:
        return workloads.specification(case.workload).window_flop(case.job("pytorch", "fp32").key)

    return sorted(found, key=work)


def fill(
    rows: Rows, wanted: Sequence[Case], precisions: Sequence[str], cache: Path, threads: int
) -> list[str]:
    """Compute every row that is missing or of other code; returns the problems found."""
    wrong = []
    for precision in precisions:
        for case in wanted:
            row = rows.find(case, precision)
            if row is None or row.code != code_digest(case.workload):
                try:
                    exact = rows.find(case, "fp64") if precision == "fp32" else None
                    if exact is not None and (exact.over or exact.code != code_digest(case.workload)):
                        exact = None  # of other code, or of pairs that differ by more than rounding
                    row = compute(case, precision, cache, threads, exact)
                except (Stopped, ValueError) as error:
                    wrong.append(str(error))
                    print(f"STOPPED {error}", flush=True)
                    continue
                rows.add(row)
            print(table_text.line(row), flush=True)
            wrong += [
                f"{row.workload} {row.variant} {precision}: {name}: {value:.1e}"
                for name, value in row.over.items()
            ]
    return wrong


def compare_worlds(wanted: Sequence[Case], sizes: Sequence[int]) -> list[str]:
    """Compare every case on every number of ranks with one process; returns the problems found."""
    wrong = []
    for case, framework, size in itertools.product(wanted, world.FRAMEWORKS, sizes):
        name = f"{case.workload} in {framework} on {size} ranks"
        done = run(framework, "tests.equivalence.world", framework, case.workload, str(size))
        if done.returncode:
            wrong.append(f"{name}: {done.stderr.strip()[-400:]}")
            continue
        found = json.loads(done.stdout.splitlines()[-1])[world.HONEST]
        largest = max(found["differences"].values())
        line = f"{name}: largest difference {largest:.1e}, bound {world.BOUNDS[framework]:.0e}"
        line += "" if found["equal"] else "; the ranks' weights differ"
        print(line, flush=True)
        if largest > world.BOUNDS[framework] or not found["equal"]:
            wrong.append(line)
    return wrong


def main(arguments: Sequence[str]) -> int:
    """See the module."""
    options = parse(VERBS["equivalence"], arguments, __doc__ or "")
    wanted = [name for name in options.workload.split(",") if name]
    if unknown := set(wanted) - set(names()):
        print(f"workload: expected some of {', '.join(names())}, found {', '.join(sorted(unknown))}")
        return USAGE
    sizes = [int(size) if size.isdigit() else 0 for size in options.world.split(",") if size]
    if any(size < 2 for size in sizes) or (sizes and options.scale != "mini"):
        print(f"world: expected numbers of ranks such as 2,3, at mini scale, found {options.world}")
        return USAGE
    for framework in world.FRAMEWORKS if sizes else FRAMEWORKS:
        if find(framework) is None:
            print(f"no environment for {framework}: make environments FRAMEWORK={framework}")
            return USAGE
    if sizes:
        wrong = compare_worlds(cases("mini", wanted), sizes)
        for problem in wrong:
            print(f"FAILED {problem}")
        return 1 if wrong else 0
    cache = options.cache_dir.absolute() / "equivalence"
    rows = Rows(options.out.with_suffix(".json") if options.out else cache / "rows.json")
    try:
        precisions = [options.precision] if options.precision else PRECISIONS
        wrong = fill(
            rows,
            cases(options.scale, wanted),
            precisions,
            cache,
            options.threads or min(2, os.cpu_count() or 1),
        )
    except EnvironmentMissing as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    finally:
        if options.out:
            every = {scale: cases(scale) for scale in SCALES}
            file = options.out.with_name(f"{options.out.stem}-gpu.json")
            on_gpu = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []
            options.out.write_text(table_text.page(every, rows.find, on_gpu), encoding="utf-8")
    for problem in wrong:
        print(f"FAILED {problem}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
