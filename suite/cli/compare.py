"""``python -m suite compare A B``: what differs between two results, their ratio, and whether it is real.

Two results, or one with the history of its key and machine: every difference first, then the ratio B / A
with its 95 % interval. Three or more results: the fastest first, and each of the others compared with it.
With loads and other runs: the share that the run on real data reaches of min(synthetic, load).

Exit codes: 0 compared, and the gate, if requested, holds · 1 a result is rejected, withdrawn or has no
score · 2 usage or internal error · 4 not comparable · 5 the gate fails: slower by more than --fail-slower ·
6 undecidable: the interval holds that loss.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

from suite.cli.guard import UsageError

if TYPE_CHECKING:
    from suite.checker.sandboxed import VerdictSummary
    from suite.compare.compare import Comparison, Gate
    from suite.compare.history import HistoryComparison
    from suite.report.compare_text import Block
    from suite.report.junit import JunitCase

COMPARED, REJECTED, UNLIKE, SLOWER, UNDECIDABLE = 0, 1, 4, 5, 6


class ResultRefused(Exception):
    """A result that cannot be compared, because it is rejected, withdrawn or has no score."""

    def __init__(self, side: str, verdict: VerdictSummary) -> None:
        self.verdict = verdict
        self.withdrawn = verdict.value.get("withdrawn")
        state = "without a score" if verdict.accepted else "withdrawn" if self.withdrawn else "rejected"
        super().__init__(
            f"{side} is {state}, and not compared" + (f": {self.withdrawn}" if self.withdrawn else "")
        )


def main(args: argparse.Namespace) -> int:
    """Compare and print; the exit code is that of the gate."""
    _check_usage(args)
    if args.baseline is not None:
        return with_history(args)
    if len(args.results) > 2:
        return input_bound(args) if len(set(map(_is_load, args.results))) == 2 else ranked(args)
    return with_each_other(args, args.results)


def _check_usage(args: argparse.Namespace) -> None:
    from suite.compare.ranking import MOST

    number = len(args.results)
    if args.baseline is None and not 2 <= number <= MOST:
        raise UsageError(
            f"expected two results (make: A= and B=) or up to {MOST} (make: RESULTS='… … …'), found {number}"
        )
    if args.baseline is not None and number != 1:
        raise UsageError(f"expected one result beside --baseline (make: RESULT=), found {number}")
    if args.add and args.baseline is None:
        raise UsageError("--add goes with --baseline DIR")
    if args.fail_slower is not None and number > 2:
        raise UsageError(f"--fail-slower compares B with A: expected two results, found {number}")


def with_each_other(args: argparse.Namespace, paths: Sequence[Path]) -> int:
    """Compare the results in ``paths``, A and B."""
    from suite.compare.compare import NotComparable, compare
    from suite.report.compare_text import blocks

    try:
        a, b = comparable_results(dict(zip(("A", "B"), paths, strict=True)))
        if a["sha256"] == b["sha256"]:
            raise UsageError("A and B are one log: expected two runs")
        found = compare(a, b, args.fail_slower)
    except ResultRefused as error:
        return _report_refusal(args, error, REJECTED)
    except NotComparable as error:
        return _report_refusal(args, error, UNLIKE)
    show(args, list(blocks(found)), found.as_dict())
    _junit(args, cases_of(found))
    return gate_code(found.gate)


def ranked(args: argparse.Namespace) -> int:
    """Compare three or more results with the fastest of them."""
    from suite.compare.compare import NotComparable
    from suite.compare.ranking import rank
    from suite.report.junit import PASSED, SKIPPED, JunitCase
    from suite.report.ranking_text import blocks, sentence

    try:
        results = comparable_results(dict(zip(ascii_uppercase, args.results, strict=False)))
        digests = [result["sha256"] for result in results]
        if len(set(digests)) < len(digests):
            first, second = _equal_pair(digests)
            raise UsageError(f"{first} and {second} are one log: expected different runs")
        found = rank(results)
    except ResultRefused as error:
        return _report_refusal(args, error, REJECTED)
    except NotComparable as error:
        return _report_refusal(args, error, UNLIKE)
    show(args, list(blocks(found)), found.as_dict())
    fastest = found.rows[0].label
    _junit(
        args,
        [
            JunitCase(
                f"compare {row.label} with {fastest}",
                SKIPPED if row.speed is None else PASSED,
                sentence(row, fastest),
            )
            for row in found.rows[1:]
        ],
    )
    return COMPARED


def _is_load(path: Path) -> bool:
    """Whether the result in ``path`` has the run id of a load; its log decides later."""
    from suite.contract import LOAD_PHASES

    return any(f"-{phase}-" in path.resolve().name for phase in LOAD_PHASES)


def input_bound(args: argparse.Namespace) -> int:
    """Compare a run on real data with the slower of its load and its run on synthetic batches."""
    from suite.cli.archives import problem_of
    from suite.compare.input_bound import input_bounds
    from suite.compare.result_row import checked_rows
    from suite.report.compare_text import TextLine
    from suite.report.junit import FAILED, PASSED, JunitCase

    for problem in filter(None, map(problem_of, args.results)):
        raise UsageError(f"expected results' folders, found {problem}")
    rows = checked_rows(args.results)
    if unscored := [row for row in rows if not row.metrics]:
        first = unscored[0]
        text = f"{first.run_id} has no score: {first.status}: {first.why}"
        print(f"compare: {text}", file=sys.stderr)
        _junit(args, [JunitCase("input bound", FAILED, text)])
        return REJECTED
    found = input_bounds(rows)
    if not found:
        text = (
            "NOT COMPARABLE: beside a load, expected a run on real data and one on synthetic data of its "
            "workload, framework, phase, batch, loader, storage format, threads and machine, found others"
        )
        print(f"compare: {text}", file=sys.stderr)
        _junit(args, [JunitCase("input bound", FAILED, text)])
        return UNLIKE
    show(args, [TextLine(one.sentence) for one in found], {"input_bounds": [one.as_dict() for one in found]})
    _junit(args, [JunitCase(f"input bound of {one.run_id}", PASSED, one.sentence) for one in found])
    return COMPARED


def _equal_pair(digests: Sequence[str]) -> tuple[str, str]:
    """The labels of the first two results with the same log."""
    second = next(at for at, digest in enumerate(digests) if digest in digests[:at])
    return ascii_uppercase[digests.index(digests[second])], ascii_uppercase[second]


def with_history(args: argparse.Namespace) -> int:
    """Compare one result with the history in ``--baseline``, and with ``--add`` add it."""
    from suite.compare import history
    from suite.report.history_text import blocks

    try:
        (result,) = comparable_results({"the result": args.results[0]})
        known = history.read(args.baseline) if args.baseline.exists() or not args.add else []
        found = history.compare_with_history(result, known, args.fail_slower)
    except ResultRefused as error:
        return _report_refusal(args, error, REJECTED)
    show(args, list(blocks(found)), found.as_dict())
    _junit(args, cases_of_history(found))
    if args.add:
        _add(args.baseline, result)
    return gate_code(found.gate)


def _add(folder: Path, result: dict[str, Any]) -> None:
    from suite.compare import history
    from suite.log.safe import safe

    try:
        path = history.add(folder, result)
    except OSError as error:
        raise UsageError(f"the history cannot be written: {error.strerror}: {error.filename}") from error
    print(
        "compare: it is in the history already" if path is None else f"compare: added {safe(path)}",
        file=sys.stderr,
    )


def comparable_results(paths: dict[str, Path]) -> list[dict[str, Any]]:
    """The data of each result for a comparison, checked in the sandbox. Raises ResultRefused, UsageError."""
    from suite.cli.archives import problem_of
    from suite.compare.comparable import COMPARE_TASKS, comparable_in
    from suite.sandbox.sandbox import Sandbox

    found = []
    with Sandbox(COMPARE_TASKS) as sandbox:
        for side, path in paths.items():
            if (problem := problem_of(path)) is not None:
                raise UsageError(f"{side}: expected a result's folder, found {problem}")
            verdict, value = comparable_in(sandbox, path)
            if value is None:
                raise ResultRefused(side, verdict)
            found.append(value)
    return found


def _report_refusal(args: argparse.Namespace, error: Exception, code: int) -> int:
    """Print why nothing is compared, and write it as JUnit XML if requested."""
    from suite.cli.check import print_verdict
    from suite.log.safe import safe
    from suite.report.junit import FAILED, JunitCase

    if isinstance(error, ResultRefused) and not error.withdrawn:
        print_verdict(error.verdict, sys.stderr, brief=True)
    text = str(error).replace("not comparable", "NOT COMPARABLE")
    print(f"compare: {safe(text, 1000)}", file=sys.stderr)
    name = "both results are accepted" if code == REJECTED else "the results are comparable"
    _junit(args, [JunitCase(name, FAILED, str(error), kind="rejected" if code == REJECTED else "unlike")])
    return code


def show(args: argparse.Namespace, parts: Sequence[Block], value: dict[str, Any]) -> None:
    """Print the comparison in the requested format."""
    from suite.cli.terminal import text_width
    from suite.report.compare_text import to_markdown, to_text

    if args.format == "json":
        print(json.dumps(value, indent=2, allow_nan=False))
    else:
        sys.stdout.write(to_markdown(parts) if args.format == "md" else to_text(parts, text_width()))


def gate_code(gate: Gate | None) -> int:
    """The exit code of the gate's outcome."""
    from suite.compare.ratio import FAILS, HOLDS

    if gate is None or gate.outcome == HOLDS:
        return COMPARED
    return SLOWER if gate.outcome == FAILS else UNDECIDABLE


def junit_of_failures(args: argparse.Namespace, failed: Sequence[tuple[str, str]]) -> None:
    """Write the runs that failed, as (side, message), as JUnit XML if requested."""
    from suite.report.junit import FAILED, JunitCase

    _junit(args, [JunitCase(f"{side} has run", FAILED, why) for side, why in failed])


def cases_of(found: Comparison) -> list[JunitCase]:
    """One test case per metric, and one for the gate."""
    from suite.report.junit import PASSED, SKIPPED, JunitCase

    differing = "\n".join(f"{one.group}: {one.name}: {one.a} and {one.b}" for one in found.differences)
    cases = [
        JunitCase("the results are comparable", PASSED, f"{len(found.differences)} differences", differing)
    ]
    cases += [
        JunitCase(f"compare {row.label}", SKIPPED if row.ratio is None else PASSED, row.sentence)
        for row in found.rows
    ]
    return cases + _gate_case(found.gate)


def cases_of_history(found: HistoryComparison) -> list[JunitCase]:
    """One test case for the comparison with the history, and one for the gate."""
    from suite.report.history_text import sentence
    from suite.report.junit import PASSED, SKIPPED, JunitCase

    outcome = SKIPPED if found.ratio is None else PASSED
    return [JunitCase(f"{found.metric} in its history", outcome, sentence(found)), *_gate_case(found.gate)]


def _gate_case(gate: Gate | None) -> list[JunitCase]:
    from suite.compare.ratio import HOLDS
    from suite.report.junit import FAILED, PASSED, JunitCase

    if gate is None:
        return []
    outcome = PASSED if gate.outcome == HOLDS else FAILED
    name = f"not slower by more than {100 * gate.loss:.4g} %"
    return [JunitCase(name, outcome, f"{gate.outcome}: {gate.why}", kind=gate.outcome)]


def _junit(args: argparse.Namespace, cases: Sequence[JunitCase]) -> None:
    from suite.log.safe import safe
    from suite.report import junit

    if args.junit is None:
        return
    try:
        junit.write(args.junit, "compare", cases)
    except OSError as error:
        raise UsageError(
            f"--junit: {error.strerror}: {safe(args.junit)}; give --junit a file that can be written"
        ) from error
