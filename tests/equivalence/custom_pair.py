"""Tests a custom pair as the suite's pairs are tested: against the contract and against the suite's pairs.

``python -m tests.equivalence.custom_pair WORKLOAD FRAMEWORK FILE`` runs the contract checks on FILE, then
compares its results in fp64 and fp32 with those of the suite's pairs in every framework that has an
environment (``SUITE_PYTHON_<FRAMEWORK>`` names another interpreter). Exit code 0: FILE is equivalent to the
suite's pair; 1: it differs, with a list of differences; 2: it could not be tested.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from suite.environments.errors import EnvironmentMissing
from tests.equivalence import compare
from tests.equivalence.case import FRAMEWORKS, Case, load, names
from tests.equivalence.interpreters import find, run

PRECISIONS = ("fp64", "fp32")


class Untested(Exception):
    """The test could not run; the message states what is missing."""


class Failed(Exception):
    """A pair ended before it could be compared."""


def contract_problems(case: str, framework: str, file: Path) -> Iterator[str]:
    """The contract checks that ``file`` fails."""
    done = run(framework, "tests.equivalence.contract_checks", case, framework, str(file))
    print(done.stdout, end="")
    failed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("FAILED")]
    yield from (f"{case}: {name}" for name in failed)
    if len(failed) != done.returncode:
        yield f"{case}: the contract checks ended early: {_end_of_output(done)}"


def equivalence_problems(case: str, framework: str, file: Path, folder: Path) -> Iterator[str]:
    """The differences of ``file`` from the suite's pairs that exceed their bounds."""
    try:
        custom = _computed(case, framework, folder / "custom", file)
    except Failed as error:
        yield f"{case}: nothing to compare, it ended early: {error}"
        return
    for other in FRAMEWORKS:
        if find(other) is None:
            print(f"{case} not compared with {other}: no environment; make environments makes it")
            continue
        try:
            suites = _computed(case, other, folder / other)
        except Failed as error:
            raise Untested(f"the suite's pair of {case} in {other} failed: {error}") from error
        for precision in PRECISIONS:
            yield from _problems(load(case), other, precision, custom[precision], suites[precision])


def _problems(case: Case, other: str, precision: str, custom: Any, suites: Any) -> Iterator[str]:
    comparison = f"{case.workload} {precision}, against {other}"
    try:
        found = compare.differences(custom, suites, precision)
    except ValueError as error:
        yield f"{comparison}: {error}"
        return
    name, largest = max(found.items(), key=lambda item: item[1])
    print(f"{comparison}: largest difference {largest:.1e} in {name}")
    for name, value in compare.excesses(found, precision, case.update_bound).items():
        yield f"{comparison}: {name}, by {value:.1e}"


def _computed(case: str, framework: str, folder: Path, file: Path | None = None) -> dict[str, Any]:
    """The results of the suite's pair, or of ``file``, by precision."""
    folder.mkdir(parents=True)
    wanted = [precision if file is None else f"{precision}={file}" for precision in PRECISIONS]
    done = run(framework, "tests.equivalence.runner", case, framework, str(folder), *wanted)
    if done.returncode != 0:
        raise Failed(_end_of_output(done))
    found = {}
    for precision in PRECISIONS:
        with np.load(folder / f"{precision}.npz") as arrays:
            found[precision] = dict(arrays)
    return found


def _end_of_output(done: subprocess.CompletedProcess[str]) -> str:
    return done.stderr.strip()[-2000:] or f"exit code {done.returncode} and no message"


def problems(workload: str, framework: str, file: Path) -> list[str]:
    """All problems of ``file``; raises Untested if the test cannot run."""
    cases = [name for name in names() if load(name).workload == workload]
    if not cases:
        known = sorted({load(name).workload for name in names()})
        raise Untested(f"workload: expected one of {', '.join(known)}, found {workload!r}")
    if framework not in FRAMEWORKS:
        raise Untested(f"framework: expected one of {', '.join(FRAMEWORKS)}, found {framework!r}")
    if not file.is_file():
        raise Untested(f"pair: expected a Python file, found none at {file}")
    if find(framework) is None:
        raise Untested(f"no environment for {framework}: make environments FRAMEWORK={framework}")
    found: list[str] = []
    with tempfile.TemporaryDirectory(prefix="suite-custom-pair-") as folder:
        for case in cases:
            found += contract_problems(case, framework, file)
            found += equivalence_problems(case, framework, file, Path(folder) / case)
    return found


def main(arguments: list[str]) -> int:
    """See the module."""
    if len(arguments) != 3:
        print("expected WORKLOAD FRAMEWORK FILE, such as ncf pytorch path/pair.py", file=sys.stderr)
        return 2
    workload, framework, file = arguments
    try:
        found = problems(workload, framework, Path(file).absolute())
    except (Untested, EnvironmentMissing, subprocess.TimeoutExpired) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for problem in found:
        print(f"FAILED {problem}")
    verdict = "does not keep" if found else "keeps"
    print(f"{file} {verdict} the contract of a pair of {workload} in {framework}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
