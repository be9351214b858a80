"""The recomputed score of a result folder: the mean without the fastest and the slowest runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from suite.mllog.check_folder import benchmark_of, required_runs
from suite.mllog.layout import ResultFolder
from suite.mllog.outcomes import CheckOutcome, failed, passed, undecided
from suite.mllog.rounds import DROPPED, NCF_COUNTED, NCF_RUNS, Round
from suite.mllog.runs import MllogRun

_FOLDER = "the folder"


@dataclass(frozen=True, slots=True)
class MlperfScore:
    """Minutes to train, or None with the reason; the mean covers ``counted`` runs."""

    minutes: float | None
    reason: str
    counted: int
    converged: int


def mlperf_score(
    runs: Sequence[MllogRun], converged: Sequence[bool], folder: ResultFolder, mlperf_round: Round | None
) -> MlperfScore:
    """The mean of the minutes from run_start to run_stop, without the fastest and the slowest run.

    A run that did not converge counts as the slowest (of unet3d up to four); with more of them there is no
    score. For NCF in v0.5 the first 50 of 100 runs that converged count. Not scaled by reference convergence.
    """
    minutes = [run.minutes for run, ok in zip(runs, converged, strict=True) if ok and run.minutes is not None]
    benchmark = benchmark_of(runs, folder)
    required = required_runs(benchmark, mlperf_round)
    if folder.weak:
        return MlperfScore(None, "weak scaling is scored by throughput", 0, len(minutes))
    if required is None:
        return MlperfScore(None, "the number of runs that the round requires is unknown", 0, len(minutes))
    if len(runs) != required:
        return MlperfScore(None, f"expected {required} runs, found {len(runs)}", 0, len(minutes))
    drop = DROPPED.get(benchmark or "", 1)
    missing = len(runs) - len(minutes)
    if required == NCF_RUNS:
        minutes, missing = minutes[:NCF_COUNTED], 0 if len(minutes) >= NCF_COUNTED else drop + 1
    if missing > drop:
        return MlperfScore(
            None, f"{len(runs) - len(minutes)} runs did not converge, at most {drop} may", 0, len(minutes)
        )
    counted = sorted(minutes)[drop : len(minutes) - (drop - missing)]
    return MlperfScore(math.fsum(counted) / len(counted), "", len(counted), len(minutes))


def score_outcome(score: MlperfScore) -> CheckOutcome:
    """The score as the outcome of a check."""
    if score.minutes is not None:
        return passed("score", _FOLDER, f"{score.minutes:.3f} minutes, mean of {score.counted} runs")
    if "unknown" in score.reason or "weak" in score.reason:
        return undecided("score", _FOLDER, score.reason)
    return failed("score", _FOLDER, "a score", score.reason)
