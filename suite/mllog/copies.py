"""Find logs that copy another one: equal, shifted in time, or with small random changes of their times.

The time at which a run happened, its seed and its texts are easily edited; what remains of the original are
the intervals between its events. Those of two honest runs on one system are similar, but their deviations
from the typical interval are not. Pure functions of the intervals that ``suite.mllog.runs`` extracts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, median
from typing import Any

from suite.mllog.runs import MIN_INTERVALS

_ALL_PAIRS = 128  # logs of a folder that are compared each with each
_NEIGHBOURS = 20  # of a log, among logs of other folders that took as long
_AS_LONG = 0.002  # relative difference of two logs that are compared across folders
_MIN_REPEATED = 3  # occurrences of an interval, for a typical value
# The root mean square difference of a copy is at most _SAME_MS. Two honest runs of a stable system may differ
# as little: without an initialisation, two logs must typically differ by more than _DIFFERENT times that.
_SAME_MS = 3.0
_DIFFERENT = 3.0
_MEASURABLE_MS = 20.0  # the least interval that counts for it
_LONG_MS, _MIN_LONG, _CLOSER = 100.0, 5, 20.0  # a copy is this many times closer than two runs typically are
_MIN_PAIRS = 3  # for a typical distance and correlation
_PATTERN = 0.5  # typical correlation from which on the system has a pattern
_VARIABLE_MS = 1000.0  # an interval that occurs once, as initialisation, varies by more than others do
_ONCE = 3.0  # an interval that occurs once differs by at most so many times the others' differences
_CORRELATION, _SIGMAS = 0.95, 6.0  # of the deviations of a copy; standard errors by Fisher's z
_CLIPPED = 3.0  # a deviation counts as at most this many typical ones, so that no outlier decides
_DOMINANT = 0.2  # intervals with smaller deviations than this part of the largest ones are left out


@dataclass(frozen=True, slots=True)
class Candidate:
    """A log, as far as copies are concerned. ``intervals`` holds milliseconds by the keys around them."""

    path: str
    benchmark: str | None
    digests: Mapping[str, str | None]  # of bytes, pace and evaluations
    intervals: Mapping[str, Sequence[float]]
    total_ms: float  # from the first timed event to the last one before run_stop

    @classmethod
    def of(cls, path: str, log: Mapping[str, Any]) -> Candidate:
        """The candidate of a log of a report."""
        intervals: dict[str, list[float]] = {}
        total_ms = 0.0
        for keys, took in log["intervals"]:
            intervals.setdefault(keys, []).append(took)
            total_ms += 0.0 if keys.endswith(" run_stop") else took
        digests = {
            "the bytes": log["sha256"],
            "the times between the events": log["pace"],
            EVALUATIONS: log["evaluated"],
        }
        return cls(path, log["benchmark"], digests, intervals, total_ms)


EVALUATIONS = "the evaluations"  # equal ones alone are no proof: a deterministic run repeats them


def find_copies(folders: Sequence[Sequence[Candidate]]) -> dict[str, str]:
    """For each log that copies another one: what it copies, with the path of the other one."""
    found: dict[str, str] = {}
    first: dict[tuple[str, str], str] = {}
    for log in (log for folder in folders for log in folder):
        for what, digest in log.digests.items():
            original = first.setdefault((what, digest), log.path) if digest else log.path
            if original != log.path:
                found.setdefault(log.path, f"{what} of {original}")
    typical: dict[str, _Typical] = {}
    for folder in folders:
        pairs = list(combinations(folder, 2)) if len(folder) <= _ALL_PAIRS else []
        likenesses = [_likeness(one, other) for one, other in pairs]
        of_folder = _typical(likenesses)
        typical |= dict.fromkeys((log.path for log in folder), of_folder)
        for (one, other), likeness in zip(pairs, likenesses, strict=True):
            _note(found, one, other, likeness.of_copy(of_folder))
    for one, other in _as_long(folders):
        _note(found, one, other, _likeness(one, other).of_copy(typical[one.path]))
    return found


def _note(found: dict[str, str], one: Candidate, other: Candidate, how: str | None) -> None:
    if how is not None and found.get(other.path, EVALUATIONS).startswith(EVALUATIONS):
        found[other.path] = f"the intervals of {one.path}: {how}"


@dataclass(frozen=True, slots=True)
class _Likeness:
    """How alike the intervals of two logs are; None where they have too few."""

    distance: float | None  # relative difference that at least half of the long intervals stay below
    rms_ms: float | None  # root mean square difference
    correlation: float | None  # of the deviations from typical intervals
    count: int  # of these deviations
    once: bool  # whether there are intervals that occur once, such as initialisation
    once_alike: bool  # and whether they differ no more than others

    def of_copy(self, typical: _Typical) -> str | None:
        """What shows that one is a copy of the other; None if nothing does."""
        different = self.once or typical.rms_ms > _DIFFERENT * _SAME_MS
        if different and self.rms_ms is not None and self.rms_ms <= _SAME_MS:
            return f"{self.rms_ms:.1f} ms apart (root mean square)"
        correlates = typical.independent and (self.correlation or 0.0) >= _PATTERN
        alike = self.once_alike and (self.correlation is None or correlates)
        if alike and self.distance is not None and self.distance < typical.distance / _CLOSER:
            return f"{self.distance:.3%} apart, {typical.distance:.3%} is typical of two logs of the folder"
        if not typical.independent or self.correlation is None or self.correlation < _CORRELATION:
            return None
        if math.atanh(min(self.correlation, 1 - 1e-9)) * math.sqrt(self.count - 3) < _SIGMAS:
            return None
        return f"correlation {self.correlation:.3f} of {self.count} deviations from the typical interval"


@dataclass(frozen=True, slots=True)
class _Typical:
    """What is typical of two logs of a folder."""

    distance: float  # 0.0 where there are too few logs
    rms_ms: float
    independent: bool  # whether a correlation of deviations shows a copy


def _typical(likenesses: Sequence[_Likeness]) -> _Typical:
    """Where the deviations of any two logs correlate, the system has a pattern, which shows no copies.

    Unless all logs are copies: then their initialisation took as long, too.
    """
    distances = [one.distance for one in likenesses if one.distance is not None]
    correlated = [one for one in likenesses if one.correlation is not None]
    independent = len(correlated) >= _MIN_PAIRS and (
        median(one.correlation or 0.0 for one in correlated) < _PATTERN
        or sum(one.once_alike for one in correlated) > len(correlated) / 2
    )
    rms_ms = [one.rms_ms for one in likenesses if one.rms_ms is not None]
    return _Typical(
        distance=median(distances) if len(distances) >= _MIN_PAIRS else 0.0,
        rms_ms=median(rms_ms) if len(rms_ms) >= _MIN_PAIRS else 0.0,
        independent=independent,
    )


def _as_long(folders: Sequence[Sequence[Candidate]]) -> Iterator[tuple[Candidate, Candidate]]:
    """Pairs of logs in different folders, of one benchmark, that took as long; in the order of the tree."""
    by_benchmark: dict[str | None, list[tuple[float, int, int, Candidate]]] = {}
    for at, folder in enumerate(folders):
        for index, log in enumerate(folder):
            by_benchmark.setdefault(log.benchmark, []).append((log.total_ms, at, index, log))
    for logs in by_benchmark.values():
        logs.sort(key=lambda one: one[:3])
        for start, (total, at, index, log) in enumerate(logs):
            for other_total, other_at, other_index, other in logs[start + 1 : start + 1 + _NEIGHBOURS]:
                if other_total > total * (1 + _AS_LONG):
                    break
                if at != other_at:
                    yield (log, other) if (at, index) < (other_at, other_index) else (other, log)


def _aligned(one: Candidate, other: Candidate) -> Iterator[tuple[list[float], list[float]]]:
    """The intervals between events of equal keys in both logs, as many as the shorter log has."""
    for keys, took in one.intervals.items():
        if others := other.intervals.get(keys):
            length = min(len(took), len(others))
            yield list(took[:length]), list(others[:length])


def _likeness(one: Candidate, other: Candidate) -> _Likeness:
    repeated: list[float] = []
    once: list[tuple[float, float]] = []  # difference and length
    relative: list[float] = []
    x: list[float] = []
    y: list[float] = []
    deviations = []
    for took, others in _aligned(one, other):
        for a, b in zip(took, others, strict=True):
            if min(a, b) < _MEASURABLE_MS:
                continue
            if len(took) >= _MIN_REPEATED:
                repeated.append(a - b)
            else:
                once.append((a - b, min(a, b)))
            if min(a, b) >= _LONG_MS:
                relative.append(max(1.0, abs(a - b)) / max(a, b))  # times are whole milliseconds
        (scale, of_one), (other_scale, of_other) = _deviations(took), _deviations(others)
        if of_one and of_other:
            deviations.append((math.sqrt(scale * other_scale), of_one, of_other))
    largest = max((scale for scale, _, _ in deviations), default=0.0)
    for scale, of_one, of_other in deviations:
        if scale >= _DOMINANT * largest:
            x += of_one
            y += of_other
    differences = repeated + [difference for difference, _ in once]
    relative.sort()
    typical = _rms(repeated)
    has_once = any(length >= _VARIABLE_MS for _, length in once)
    return _Likeness(
        distance=relative[max(_MIN_LONG, (len(relative) + 1) // 2) - 1]
        if len(relative) >= _MIN_LONG
        else None,
        rms_ms=_rms(differences) if len(differences) >= MIN_INTERVALS else None,
        correlation=_correlation(x, y) if len(x) >= MIN_INTERVALS else None,
        count=len(x),
        once=has_once,
        once_alike=has_once and all(abs(difference) <= _ONCE * typical + _SAME_MS for difference, _ in once),
    )


def _rms(values: Sequence[float]) -> float:
    return math.sqrt(fmean(value * value for value in values)) if values else 0.0


def _correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Of deviations from the median, which is the centre here."""
    product = sum(a * b for a, b in zip(x, y, strict=True))
    return product / math.sqrt(sum(a * a for a in x) * sum(b * b for b in y))


def _deviations(took: Sequence[float]) -> tuple[float, list[float]]:
    """The typical deviation from the median in milliseconds, and all of them in its units; or ``(0, [])``."""
    if len(took) < _MIN_REPEATED:
        return 0.0, []
    middle = median(took)
    scale = median(abs(one - middle) for one in took) or fmean(abs(one - middle) for one in took)
    if scale < _SAME_MS:  # close to the resolution of the times
        return 0.0, []
    return scale, [max(-_CLIPPED, min(_CLIPPED, (one - middle) / scale)) for one in took]
