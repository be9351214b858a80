"""Run pairs and plain scripts interleaved and compare them: ``make bench-peers``.

Fresh processes A B, B A, A B …, with the same threads and batches. Each measures as many steps as fill a
window; where steps differ in size, both sides measure the same steps. ``peers/ratios.py`` has the verdict.
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
from peers.cases import GENSIM, OURS, SIDES, THEIRS, PeerCase
from peers.ratios import Measurement, PeerRatio, deciding_clock, ratio
from suite.containers.engines.native import worker_environment
from suite.contract.traits import traits_of
from suite.workloads import specification

PROCESSORS = os.cpu_count() or 1
TIMEOUT_S = 900
TEXT_WORDS = 300_000  # gensim trains on them for seconds on one core


class SideFailed(RuntimeError):
    """A process that did not finish; the message is the last line that it wrote."""


@dataclass(frozen=True, slots=True)
class BenchSettings:
    """Number of rounds, window length, threads, wait policy and environments."""

    rounds: int
    seconds: float
    threads: int
    wait_policy: str  # of OpenMP: passive or active
    root: Path  # the folder of the peers' environments


@dataclass
class PeerRow:
    """One comparison with all measurements, ours and theirs by round."""

    case: PeerCase
    ours: list[Measurement] = field(default_factory=list)
    theirs: list[Measurement] = field(default_factory=list)
    parameters: dict[str, int] = field(default_factory=dict)

    @property
    def clock(self) -> str:
        """The deciding clock."""
        return deciding_clock([*self.ours, *self.theirs], PROCESSORS)

    def ratio(self, clock: str) -> PeerRatio:
        """The ratio of ours to theirs by ``clock``."""
        return ratio(*([reading.rate(clock) for reading in side] for side in (self.ours, self.theirs)))

    def record(self) -> dict[str, Any]:
        """The row as JSON values."""
        ratios = {clock: asdict(self.ratio(clock)) for clock in ("wall", "cpu")}
        return {
            **asdict(self),
            "clock": self.clock,
            "ratios": ratios,
            "verdict": self.ratio(self.clock).verdict,
        }


class PeerBench:
    """Starts the processes. ``report`` receives a line about each environment that is created or fetched."""

    def __init__(self, settings: BenchSettings, report: Callable[[str], None]) -> None:
        self._settings, self._report = settings, report

    def row(self, case: PeerCase) -> PeerRow:
        """Measure one case; SideFailed if a process does not finish."""
        row, steps = PeerRow(case), 0
        with tempfile.TemporaryDirectory(prefix="peers-") as scratch:
            if case.reads_text:
                text.write(Path(scratch), case.scale, case.variant, TEXT_WORDS)
            for round_ in range(self._settings.rounds):
                for side in SIDES if round_ % 2 == 0 else SIDES[::-1]:
                    values = self._run(case, side, Path(scratch), steps)
                    if not case.has_equal_steps:
                        steps = steps or values["steps"]  # those of the first process, which is ours
                    measurements = row.ours if side == OURS else row.theirs
                    measurements.append(
                        Measurement(values["units"], values["wall_s"], values["cpu_s"], values["others_s"])
                    )
                    row.parameters[side] = values["parameters"]
        return row

    def _run(self, case: PeerCase, side: str, scratch: Path, steps: int) -> dict[str, Any]:
        if case.peer == GENSIM and side == THEIRS:
            python = environments.gensim(self._settings.root, self._report)
            arguments = ["peers.gensim_word2vec", "--scale", case.scale, "--variant", case.variant]
            arguments += ["--phase", case.phase, "--seconds", str(self._settings.seconds)]
            arguments += ["--threads", str(self._settings.threads)]
            if case.reads_text:
                arguments += ["--text", str(scratch / "text8"), "--words", str(TEXT_WORDS)]
            return self._process([str(python), "-m", *arguments], scratch, [], {})
        python = environments.framework(case.framework, self._report)
        folders = []
        if side == THEIRS and case.framework == "pytorch":
            folders.append(environments.torchvision(self._settings.root, python, self._report))
        arguments = ["peers.arm", side]
        for name in ("workload", "framework", "phase", "precision", "scale", "variant", "batch"):
            arguments += [f"--{name}", str(getattr(case, name))]
        arguments += ["--threads", str(self._settings.threads), "--seconds", str(self._settings.seconds)]
        arguments += ["--steps", str(steps)] if steps else []
        arguments += ["--data-dir", str(scratch)] if case.reads_text else []
        variables = traits_of(case.framework).variables.get("cpu", {})  # for both sides
        return self._process([str(python), "-m", *arguments], scratch, folders, variables)

    def _process(
        self, argv: list[str], scratch: Path, folders: list[Path], variables: Mapping[str, str]
    ) -> dict[str, Any]:
        threads, path = self._settings.threads, environments.search_path(folders)
        settings = worker_environment(str(scratch), str(scratch), path, threads, self._settings.wait_policy)
        environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "CUDA_VISIBLE_DEVICES": "",
            **settings,
            **variables,
        }
        try:
            done = subprocess.run(
                argv, capture_output=True, text=True, check=False, timeout=TIMEOUT_S, env=environment
            )
        except subprocess.TimeoutExpired as error:
            raise SideFailed(f"no result after {TIMEOUT_S} s") from error
        if done.returncode:
            raise SideFailed((done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1])
        values: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return values


HEADER = (
    "workload",
    "framework",
    "peer",
    "phase",
    "precision",
    "batch",
    "ours",
    "theirs",
    "ratio",
    "range",
    "by",
)


def table_line(row: PeerRow) -> tuple[str, ...]:
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


def parameter_note(row: PeerRow) -> str:
    """A line with the numbers of trainable parameters if they differ, else empty."""
    counts: Mapping[str, int] = row.parameters
    if counts.get(OURS) == counts.get(THEIRS):
        return ""
    return f"  parameters: ours {counts.get(OURS):,}, theirs {counts.get(THEIRS):,}"


def measured_rows(
    bench: PeerBench, cases: list[PeerCase], report: Callable[[str], None]
) -> Iterator[PeerRow | None]:
    """Measure and print each case; yields its row, None if a side failed."""
    report(formatted(HEADER))
    for case in cases:
        try:
            row = bench.row(case)
        except SideFailed as problem:
            report(f"{case.workload} {case.framework} against {case.peer}, {case.phase}: failed: {problem}")
            yield None
            continue
        report(formatted(table_line(row)))
        if note := parameter_note(row):
            report(note)
        yield row
