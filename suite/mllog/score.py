"""The score of a result folder, as MLCommons computes it: olympic mean times scaling.json."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from suite.mllog.check_folder import benchmark_of, required_runs
from suite.mllog.layout import ResultFolder
from suite.mllog.outcomes import CheckOutcome, error, information, passed, warning
from suite.mllog.rounds import DROPPED, NCF_COUNTED, NCF_RUNS, Round
from suite.mllog.runs import MllogRun

_FOLDER = "the folder"


@dataclass(frozen=True, slots=True)
class MlperfScore:
    """Minutes to train: ``minutes`` is ``olympic_mean``, of ``counted`` runs, times ``scaling_factor``.

    Both are None without a score, for which ``reason`` states why. ``tolerated`` runs did not converge and
    count as the slowest. ``copies`` is the number of logs that copy another one.
    """

    minutes: float | None
    olympic_mean: float | None
    scaling_factor: float
    reason: str
    counted: int
    converged: int
    runs: int
    tolerated: int = 0
    copies: int = 0


def mlperf_score(
    runs: Sequence[MllogRun],
    converged: Sequence[bool],
    folder: ResultFolder,
    mlperf_round: Round | None,
    scaling_factor: float | None = 1.0,
) -> MlperfScore:
    """The mean of the minutes to train without the fastest and the slowest run, scaled.

    A run that did not converge counts as the slowest (of unet3d up to four); with more of them there is no
    score. For NCF in v0.5 the first 50 of 100 runs that converged count. ``scaling_factor`` is None where
    scaling.json cannot be read.
    """
    good = [run for run, ok in zip(runs, converged, strict=True) if ok and run.minutes is not None]
    minutes = [run.minutes or 0.0 for run in good]
    missing = len(runs) - len(good)
    factor = 1.0 if scaling_factor is None else scaling_factor

    def without(reason: str) -> MlperfScore:
        return MlperfScore(None, None, factor, reason, 0, len(good), len(runs))

    if folder.weak:
        return without(_weak_scaling(good))
    if scaling_factor is None:
        return without("scaling.json has no usable factor")
    benchmark = benchmark_of(runs, folder)
    drop = DROPPED.get(benchmark or "", 1)
    if required_runs(benchmark, mlperf_round) == NCF_RUNS:
        if len(minutes) < NCF_COUNTED:
            return without(f"{len(minutes)} runs converged, at least {NCF_COUNTED} of {NCF_RUNS} must")
        tolerated, minutes, missing = missing, minutes[:NCF_COUNTED], 0
    else:
        tolerated = missing
    if missing > drop:
        return without(f"{missing} runs did not converge, at most {drop} may")
    counted = sorted(minutes)[drop : len(minutes) - (drop - missing)]
    if not counted:
        return without(f"{len(runs)} runs are too few for an olympic mean")
    mean = math.fsum(counted) / len(counted)
    return MlperfScore(mean * factor, mean, factor, "", len(counted), len(good), len(runs), tolerated)


def _weak_scaling(good: Sequence[MllogRun]) -> str:
    """What MLCommons prints for the instances of one job: their number, and the time that all took."""
    if not good:
        return "weak scaling is scored by throughput"
    first_start_ms = min(run.stops[0].time_ms - 60_000 * (run.minutes or 0.0) for run in good)
    took = (max(run.stops[0].time_ms for run in good) - first_start_ms) / 60_000
    return f"weak scaling is scored by throughput: {len(good)} models in {took:.3f} minutes"


def score_outcome(score: MlperfScore) -> CheckOutcome:
    """The score as the outcome of a check."""
    if score.minutes is None:
        if score.reason.startswith("weak"):
            return information("score", _FOLDER, score.reason)
        return error("score", _FOLDER, "a score", score.reason)
    found = f"{score.minutes:.3f} minutes, mean of {score.counted} runs"
    if score.scaling_factor < 1:
        return warning(
            "score",
            _FOLDER,
            "a factor of at least 1: scaling.json makes a score longer",
            f"{score.scaling_factor:g}",
        )
    return passed("score", _FOLDER, found)
