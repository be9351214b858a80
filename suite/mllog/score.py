"""The score of a folder of logs, recomputed: the mean without the fastest and the slowest runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from suite.mllog.check_folder import benchmark_of, required_runs
from suite.mllog.outcomes import CheckOutcome, failed, passed, undecided
from suite.mllog.places import Place
from suite.mllog.rounds import DROPPED, NCF_COUNTED, NCF_RUNS, Round
from suite.mllog.runs import PublishedRun

_PLACE = "the folder"


@dataclass(frozen=True, slots=True)
class MlperfScore:
    """Minutes to train, or None with the reason; ``counted`` runs are in the mean."""

    minutes: float | None
    reason: str
    counted: int
    converged: int


def score_of(
    runs: Sequence[PublishedRun], converged: Sequence[bool], place: Place, known: Round | None
) -> MlperfScore:
    """The olympic mean of minutes from run_start to run_stop.

    One run that did not converge may be the slowest that is left out (four of unet3d); with more there is no
    score. Of NCF in v0.5 the first 50 of 100 that converged count. No scaling by reference convergence.
    """
    good = [run.minutes for run, ok in zip(runs, converged, strict=True) if ok and run.minutes is not None]
    benchmark = benchmark_of(runs, place)
    wanted = required_runs(benchmark, known)
    if place.weak:
        return MlperfScore(None, "weak scaling is scored by throughput", 0, len(good))
    if wanted is None:
        return MlperfScore(None, "the number of runs that the round asks for is not known", 0, len(good))
    if len(runs) != wanted:
        return MlperfScore(None, f"expected {wanted} runs, found {len(runs)}", 0, len(good))
    drop = DROPPED.get(benchmark or "", 1)
    lost = len(runs) - len(good)
    if wanted == NCF_RUNS:
        good, lost = good[:NCF_COUNTED], 0 if len(good) >= NCF_COUNTED else drop + 1
    if lost > drop:
        return MlperfScore(
            None, f"{len(runs) - len(good)} runs did not converge, at most {drop} may", 0, len(good)
        )
    ordered = sorted(good)
    left = ordered[drop : len(ordered) - (drop - lost)]
    return MlperfScore(math.fsum(left) / len(left), "", len(left), len(good))


def outcome_of(score: MlperfScore) -> CheckOutcome:
    """The score as the outcome of a check."""
    if score.minutes is not None:
        return passed("score", _PLACE, f"{score.minutes:.3f} minutes, mean of {score.counted} runs")
    if "not known" in score.reason or "weak" in score.reason:
        return undecided("score", _PLACE, score.reason)
    return failed("score", _PLACE, "a score", score.reason)
