"""Run pairs and plain scripts in turn, and tell how they compare: ``make bench-peers``.

Fresh processes A B, B A, A B …, with the same threads and batches. Each measures as many steps as fill a
window; where steps differ in size, the very same ones. How the ratios are judged stands in
``peers/ratios.py``.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from peers import environments, text
from peers.cases import GENSIM, OURS, SIDES, THEIRS, Case
from peers.ratios import Ratio, Reading, deciding_clock, ratio
from suite.containers.engines.native import worker_environment
from suite.workloads import specification

PROCESSORS = os.cpu_count() or 1
TIMEOUT_S = 900
TEXT_WORDS = 300_000  # that gensim trains on: seconds on one core


class ArmFailed(RuntimeError):
    """A side that did not finish; the message is the last line that it wrote."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How to measure."""

    rounds: int
    seconds: float
    threads: int
    wait_policy: str  # of OpenMP, passive or active
    root: Path  # where the peers' environments are


@dataclass
class Row:
    """One comparison with all that was read, ours and theirs by round."""

    case: Case
    ours: list[Reading] = field(default_factory=list)
    theirs: list[Reading] = field(default_factory=list)
    parameters: dict[str, int] = field(default_factory=dict)

    @property
    def clock(self) -> str:
        """The clock that decides."""
        return deciding_clock([*self.ours, *self.theirs], PROCESSORS)

    def ratio(self, clock: str) -> Ratio:
        """Ours over theirs by ``clock``."""
        return ratio(*([reading.rate(clock) for reading in side] for side in (self.ours, self.theirs)))

    def record(self) -> dict[str, Any]:
        """All of it as JSON values."""
        ratios = {clock: asdict(self.ratio(clock)) for clock in ("wall", "cpu")}
        return {
            **asdict(self),
            "clock": self.clock,
            "ratios": ratios,
            "verdict": self.ratio(self.clock).verdict,
        }


class Bench:
    """Starts the processes. ``say`` gets a line about what is being made or fetched."""

    def __init__(self, settings: Settings, say: Callable[[str], None]) -> None:
        self._settings, self._say = settings, say

    def row(self, case: Case) -> Row:
        """Measure one case; ArmFailed where a side does not finish."""
        row, steps = Row(case), 0
        alike = case.steps_are_alike
        with tempfile.TemporaryDirectory(prefix="peers-") as scratch:
            if case.reads_text:
                text.write(Path(scratch), case.scale, case.variant, TEXT_WORDS)
            for turn in range(self._settings.rounds):
                for side in SIDES if turn % 2 == 0 else SIDES[::-1]:
                    found = self._run(case, side, Path(scratch), steps)
                    if not alike:
                        steps = steps or found["steps"]  # those of the very first process, ours
                    keep = row.ours if side == OURS else row.theirs
                    keep.append(
                        Reading(found["units"], *(found[name] for name in ("wall_s", "cpu_s", "others_s")))
                    )
                    row.parameters[side] = found["parameters"]
        return row

    def _run(self, case: Case, side: str, scratch: Path, steps: int) -> dict[str, Any]:
        if case.peer == GENSIM and side == THEIRS:
            python = environments.gensim(self._settings.root, self._say)
            words = ["peers.gensim_word2vec", "--scale", case.scale, "--variant", case.variant]
            words += ["--phase", case.phase, "--seconds", str(self._settings.seconds)]
            words += ["--threads", str(self._settings.threads)]
            if case.reads_text:
                words += ["--text", str(scratch / "text8"), "--words", str(TEXT_WORDS)]
            return self._process([str(python), "-m", *words], scratch, [])
        python = environments.framework(case.framework, self._say)
        folders = []
        if side == THEIRS and case.framework == "pytorch":
            folders.append(environments.torchvision(self._settings.root, python, self._say))
        words = ["peers.arm", side]
        for name in ("workload", "framework", "phase", "precision", "scale", "variant", "batch"):
            words += [f"--{name}", str(getattr(case, name))]
        words += ["--threads", str(self._settings.threads), "--seconds", str(self._settings.seconds)]
        words += ["--steps", str(steps)] if steps else []
        words += ["--data-dir", str(scratch)] if case.reads_text else []
        return self._process([str(python), "-m", *words], scratch, folders)

    def _process(self, argv: list[str], scratch: Path, folders: list[Path]) -> dict[str, Any]:
        threads, path = self._settings.threads, environments.search_path(folders)
        settings = worker_environment(str(scratch), str(scratch), path, threads, self._settings.wait_policy)
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "CUDA_VISIBLE_DEVICES": "", **settings}
        try:
            done = subprocess.run(
                argv, capture_output=True, text=True, check=False, timeout=TIMEOUT_S, env=environment
            )
        except subprocess.TimeoutExpired as error:
            raise ArmFailed(f"nothing after {TIMEOUT_S} s") from error
        if done.returncode:
            raise ArmFailed((done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1])
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return found


HEADER = (
    "workload",
    "framework",
    "beside",
    "phase",
    "precision",
    "batch",
    "ours",
    "theirs",
    "ratio",
    "range",
    "by",
)


def table_line(row: Row) -> tuple[str, ...]:
    """The cells of one row: median rates per second of the deciding clock, their ratio and its range."""
    case, clock = row.case, row.clock
    found = row.ratio(clock)
    rates = (
        sorted(reading.rate(clock) for reading in side)[len(side) // 2] for side in (row.ours, row.theirs)
    )
    several = len(specification(case.workload).VARIANTS[case.scale]) > 1
    name = f"{case.workload} {case.variant}" if several else case.workload
    return (
        *(name, case.framework, case.peer, case.phase, case.precision, str(case.batch)),
        *(f"{rate:,.4g}" if rate < 1000 else f"{rate:,.0f}" for rate in rates),
        f"{found.median:.2f}",
        f"{found.least:.2f}–{found.most:.2f}",
        f"{clock}, {found.verdict}",
    )


def formatted(cells: tuple[str, ...]) -> str:
    """One line of the table for a terminal."""
    widths = (18, 10, 17, 5, 9, 7, 10, 10, 5, 11)
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)]
    return "  ".join([*padded, *cells[len(widths) :]]).rstrip()


def by_same_parameters(row: Row) -> str:
    """A sentence where both sides do not train equally many numbers, else nothing."""
    counts: Mapping[str, int] = row.parameters
    if counts.get(OURS) == counts.get(THEIRS):
        return ""
    return f"  parameters: ours {counts.get(OURS):,}, theirs {counts.get(THEIRS):,}"


def measured(bench: Bench, cases: list[Case], say: Callable[[str], None]) -> Iterator[Row | None]:
    """Each case's row as it is done, printed; None where a side failed."""
    say(formatted(HEADER))
    for case in cases:
        try:
            row = bench.row(case)
        except ArmFailed as problem:
            say(f"{case.workload} {case.framework} beside {case.peer}, {case.phase}: failed: {problem}")
            yield None
            continue
        say(formatted(table_line(row)))
        if note := by_same_parameters(row):
            say(note)
        yield row
