"""The model of the step time, fitted to measured cells, with intervals from cells that were held out.

On an accelerator the input pipeline works beside the device, so that the slower of the two sets the time;
on a processor both share the cores:

    accelerator: t = max(a + b B, B d max(c / v, s)) + e 2 (d - 1) / d
    processor:   t = max(a + b B + B d c / v, B d s) + e 2 (d - 1) / d

B: batch per device; d: devices of a node; v: processors of a node, on a processor at most the threads of the
ranks. The parameters a (s), b (s per sample of the batch), c (processor seconds per sample), s (s per sample
that the disk needs, one for each state of the page cache but ``warm``) and e (s of an exchange) are not
negative. A term is fitted only where the cells vary what it depends on.

Real machines differ from this formula, and cells that were held out decide between three forms of it. In the
form ``core`` the process that drives the device takes u of a processor from the loader: c / (v - u). The form
``levels`` adds to that a factor for each measured batch and number of processors, held near 1 by a penalty: a
device computes another batch with another kernel.

Intervals are CV+ (Barber et al., "Predictive inference with the jackknife+", 2021): the model is fitted again
without some cells, and the log residuals of these bound the prediction. They contain the error of the model
and of the fit, not only the noise of repeats.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

Floats = NDArray[np.float64]

COVERAGE = 0.9  # of an interval, with enough cells
FOLDS = 20  # at most: with fewer cells each is held out alone
PLAIN, CORE, LEVELS = "plain", "core", "levels"
_FORMS = (PLAIN, CORE, LEVELS)
_STARTS = 6  # of the fit to all cells: a maximum has local minima
_DEVIATION = 0.2  # of the residuals' weight: the penalty on the logarithm of a level's factor
_LOSS_SCALE = 0.05  # residuals beyond 5 % count linearly: one disturbed cell does not move the others
_BETTER = 0.9  # a form with more parameters needs at most this share of the error of a simpler one
_MOST_TAKEN = 0.9  # of a processor: what one process may take from the loader
CPUS, DEVICE, DISK = "processors", "device", "disk"


@dataclass(frozen=True, slots=True)
class Point:
    """One configuration: what the step time depends on."""

    cpus: float  # processors that the ranks of a node may use; on a processor at most their threads
    batch: int  # per device
    devices: int = 1  # of a node
    cache: str = "warm"


@dataclass(frozen=True, slots=True)
class Prediction:
    """A step time in s with its interval, and what limits it: processors, device or disk."""

    step_s: float
    low_s: float
    high_s: float
    binds: str


class TooFewCells(ValueError):
    """There are not more cells than parameters; the message states both numbers."""


class _Layout:
    """The parameters of one form for cells with these levels, and the step times that they give."""

    def __init__(self, points: Sequence[Point], form: str, *, processor: bool) -> None:
        self.processor = processor
        self.batches = sorted({float(point.batch) for point in points})
        self.cpus = sorted({float(point.cpus) for point in points})
        devices = {point.devices for point in points}
        caches = sorted({point.cache for point in points})
        self.caches = [name for name in caches if name != "warm"] if len(self.cpus) > 1 else []
        self.names = ["a"]
        self.names += ["b"] if len(self.batches) > 1 else []
        self.names += ["c"] if len(self.cpus) > 1 else []
        self.names += ["e"] if len(devices) > 1 else []
        self.names += [f"s.{name}" for name in self.caches]
        self.names += ["u"] if form != PLAIN and not processor and len(self.cpus) > 2 else []
        self.plain = len(self.names)
        of_batches = len(self.batches) if form == LEVELS and len(self.batches) > 2 else 0
        of_cpus = len(self.cpus) if form == LEVELS and len(self.cpus) > 2 else 0
        self.at_batches = slice(self.plain, self.plain + of_batches)
        self.at_cpus = slice(self.plain + of_batches, self.plain + of_batches + of_cpus)
        self.size = self.plain + of_batches + of_cpus

    def start(self, rows: Rows, times: Floats, random: np.random.Generator | None) -> Floats:
        """A start of the fit: every term explains a share of the times, drawn or equal."""
        shares = np.full(self.plain, 0.5) if random is None else random.uniform(0.05, 1.2, self.plain)
        middle = {
            "a": float(times.min()),
            "b": float(np.median(times / rows.batch)),
            "c": float(np.median(times * rows.cpus / (rows.batch * rows.devices))),
            "e": float(times.min()) * 0.1,
            "u": _MOST_TAKEN,
        }
        disk = float(np.median(times / (rows.batch * rows.devices)))
        theta = np.zeros(self.size)
        theta[: self.plain] = [
            share * middle.get(name, disk) for share, name in zip(shares, self.names, strict=True)
        ]
        return theta

    def parts(self, theta: Floats, rows: Rows) -> tuple[Floats, Floats, Floats, Floats]:
        """(device, processors, disk, exchange): seconds of each part of a step, one per row."""
        value = dict(zip(self.names, theta[: self.plain], strict=True))
        device = value["a"] + value.get("b", 0.0) * rows.batch
        loaded = rows.batch * rows.devices
        cpus = value.get("c", 0.0) * loaded / np.maximum(rows.cpus - value.get("u", 0.0), 0.1)
        device = device * _factor(theta[self.at_batches], self.batches, rows.batch)
        cpus = cpus * _factor(theta[self.at_cpus], self.cpus, rows.cpus)
        disk = np.zeros_like(device)
        for name in self.caches:
            disk = np.where(rows.cache == name, value[f"s.{name}"] * loaded, disk)
        return device, cpus, disk, value.get("e", 0.0) * 2 * (rows.devices - 1) / rows.devices

    def times(self, theta: Floats, rows: Rows) -> Floats:
        """The step times in s."""
        device, cpus, disk, exchange = self.parts(theta, rows)
        compute = device + cpus if self.processor else np.maximum(device, cpus)
        return np.maximum(np.maximum(compute, disk) + exchange, 1e-12)

    def fit(self, rows: Rows, times: Floats, starts: Sequence[Floats]) -> Floats:
        """The parameters with the least cost, from the best of ``starts``."""
        scale = np.ones(self.size)
        scale[: self.plain] = np.maximum(self.start(rows, times, None)[: self.plain], 1e-12)
        low = np.full(self.size, -1.0)
        low[: self.plain] = 0.0
        high = np.full(self.size, 1.0)
        high[: self.plain] = [
            _MOST_TAKEN / scale[at] if name == "u" else np.inf for at, name in enumerate(self.names)
        ]
        logs = np.log(times)

        def residuals(scaled: Floats) -> Floats:
            theta = scaled * scale
            found: Floats = np.log(self.times(theta, rows)) - logs
            return np.concatenate([found, _DEVIATION * theta[self.plain :]])

        best: Any = None
        for start in starts:
            at = np.clip(start / scale, low + 1e-9, high - 1e-9)
            found = least_squares(
                residuals, at, bounds=(low, high), loss="soft_l1", f_scale=_LOSS_SCALE, max_nfev=300
            )
            if best is None or found.cost < best.cost:
                best = found
        theta: Floats = best.x * scale
        return theta


@dataclass(frozen=True)
class Rows:
    """Points as columns."""

    cpus: Floats
    batch: Floats
    devices: Floats
    cache: NDArray[np.str_]

    @classmethod
    def of(cls, points: Sequence[Point]) -> Rows:
        """The columns of ``points``."""
        return cls(
            np.array([float(point.cpus) for point in points]),
            np.array([float(point.batch) for point in points]),
            np.array([float(point.devices) for point in points]),
            np.array([point.cache for point in points]),
        )

    def at(self, index: NDArray[np.intp]) -> Rows:
        """Some of the rows."""
        return Rows(self.cpus[index], self.batch[index], self.devices[index], self.cache[index])


def _factor(logs: Floats, levels: Sequence[float], at: Floats) -> Floats:
    """The factors of levels from their logarithms, interpolated between measured levels."""
    if len(logs) == 0:
        return np.ones_like(at)
    return np.exp(np.interp(np.log(at), np.log(levels), logs))


@dataclass(frozen=True)
class _Fit:
    form: str
    layout: _Layout
    theta: Floats
    folds: tuple[Floats, ...]  # the parameters without each fold
    fold_of: NDArray[np.intp]  # by cell
    residuals: Floats  # by cell: |log(predicted without its fold / measured)|

    @property
    def error(self) -> float:
        return float(np.mean(self.residuals))


class StepTime:
    """The fitted model. TooFewCells unless there is at least one cell more than parameters."""

    def __init__(
        self, points: Sequence[Point], times_s: Sequence[float], *, processor: bool, seed: int = 0
    ) -> None:
        self.points, self.processor = tuple(points), processor
        self._rows, self._times = Rows.of(points), np.array(times_s, dtype=np.float64)
        self._random = np.random.default_rng(seed)
        self.parameters = len(_Layout(points, PLAIN, processor=processor).names)
        if len(points) <= self.parameters:
            raise TooFewCells(
                f"a prediction needs at least {self.parameters + 1} cells for the {self.parameters} "
                f"parameters of the model, found {len(points)}"
            )
        count = len(points)
        folds = self._random.permutation(count) % min(count, FOLDS)
        fits = [self._fitted(form, folds) for form in _FORMS]
        self._fit = fits[0]
        for fit in fits[1:]:
            if fit.error < _BETTER * self._fit.error:
                self._fit = fit

    def _fitted(self, form: str, fold_of: NDArray[np.intp]) -> _Fit:
        layout = _Layout(self.points, form, processor=self.processor)
        draws = [None, *[self._random for _ in range(_STARTS - 1)]]
        theta = layout.fit(
            self._rows, self._times, [layout.start(self._rows, self._times, draw) for draw in draws]
        )
        folds, residuals = [], np.zeros(len(self.points))
        for fold in range(int(fold_of.max()) + 1):
            kept, held = np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)
            rows, times = self._rows.at(kept), self._times[kept]
            without = layout.fit(rows, times, [theta, layout.start(rows, times, None)])
            residuals[held] = np.abs(np.log(layout.times(without, self._rows.at(held)) / self._times[held]))
            folds.append(without)
        return _Fit(form, layout, theta, tuple(folds), fold_of, residuals)

    @property
    def form(self) -> str:
        """``plain`` or ``levels``."""
        return self._fit.form

    @property
    def values(self) -> dict[str, float]:
        """The parameters by name."""
        layout = self._fit.layout
        return dict(zip(layout.names, map(float, self._fit.theta[: layout.plain]), strict=True))

    @cached_property
    def held_out_error(self) -> float:
        """The median relative error of cells that were held out."""
        return float(np.median(np.expm1(self._fit.residuals)))

    @property
    def coverage(self) -> float:
        """The nominal coverage of the intervals: 90 %, or n / (n + 1) with fewer than nine cells."""
        return min(COVERAGE, len(self.points) / (len(self.points) + 1))

    def predict(self, points: Sequence[Point], widen: float = 1.0) -> list[Prediction]:
        """The step times of ``points``; ``widen`` multiplies the width of the intervals."""
        fit, rows = self._fit, Rows.of(points)
        times = fit.layout.times(fit.theta, rows)
        without = np.array([fit.layout.times(theta, rows) for theta in fit.folds])[fit.fold_of]
        logs = np.log(without)
        low = _quantile(logs - fit.residuals[:, None], lower=True)
        high = _quantile(logs + fit.residuals[:, None], lower=False)
        middle = np.log(times)
        low = middle + widen * np.minimum(low - middle, 0.0)
        high = middle + widen * np.maximum(high - middle, 0.0)
        device, cpus, disk, _ = fit.layout.parts(fit.theta, rows)
        return [
            Prediction(
                float(times[i]),
                float(np.exp(low[i])),
                float(np.exp(high[i])),
                self._binds(device[i], cpus[i], disk[i]),
            )
            for i in range(len(points))
        ]

    def _binds(self, device: float, cpus: float, disk: float) -> str:
        if self.processor:
            return DISK if disk > device + cpus else CPUS
        return max(((device, DEVICE), (cpus, CPUS), (disk, DISK)))[1]


def _quantile(values: Floats, *, lower: bool) -> Floats:
    """The conformal quantile over the first axis: the outermost value where there are too few."""
    count = len(values)
    rank = min(count, math.ceil(COVERAGE * (count + 1)))
    ordered = np.sort(values, axis=0)
    found: Floats = ordered[count - rank] if lower else ordered[rank - 1]
    return found


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes by m0 + m1 B d, from measured peaks; ``margin`` is the largest relative error above the line."""

    base: float
    per_sample: float
    margin: float

    @classmethod
    def fitted(cls, batches: Sequence[int], peaks: Sequence[int]) -> Memory | None:
        """The line through ``peaks``; None without any. One batch alone gives a constant."""
        if not peaks:
            return None
        x, y = np.array(batches, dtype=np.float64), np.array(peaks, dtype=np.float64)
        if len(set(batches)) == 1:
            return cls(float(y.max()), 0.0, 0.0)
        found = least_squares(
            lambda theta: (theta[0] + theta[1] * x / x.max()) * y.max() / y - 1,
            (0.5, 0.5),
            bounds=(0, np.inf),
        )
        base, per_sample = found.x[0] * y.max(), found.x[1] * y.max() / x.max()
        return cls(base, per_sample, max(0.0, float(np.max(y / (base + per_sample * x) - 1))))

    def upper(self, batch: int) -> float:
        """The upper bound for ``batch``: the line, its largest error, and 5 %."""
        return (self.base + self.per_sample * batch) * (1 + self.margin) * 1.05
