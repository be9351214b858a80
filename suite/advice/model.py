"""The model of the step time, fitted to measured cells, with intervals from cells that were held out.

On an accelerator the input pipeline works beside the device, so that the slower of the two sets the time;
on a processor both share the cores:

    accelerator: t = max(a + b B, B d max(c / v, s)) + e 2 (d - 1) / d
    processor:   t = max(a + h log2(v / d) + b B + B d c / v, B d s) + e 2 (d - 1) / d

B: batch per device; d: devices of a node; v: processors of a node, on a processor at most the threads of the
ranks. The parameters a (s), b (s per sample of the batch), c (processor seconds per sample), h (s that each
doubling of a rank's threads adds to a step, because they wait for each other), s (s per sample that the disk
needs, one for each state of the page cache but ``warm``) and e (s of an exchange) are not negative. A term is
fitted only where the cells vary what it depends on. Synthetic data on an accelerator are neither read nor
decoded, so that c and s are left out: results have more processors where they have more devices, which would
else be taken for work of the processors.

Cells of several loaders are fitted together: each loader has its own c, and on an accelerator, where loaders
may decode images, the device takes g times as long with it (of the first loader g is 1).

Real machines differ from this formula, and cells that were held out decide between three forms of it. In the
form ``core`` the process that drives the device takes u of a processor from the loader: c / (v - u). The form
``local`` adds to that the mean log residual of near cells: a device computes another batch with another
kernel, and the slower of two parts does not hide the faster one completely.

Intervals are CV+ (Barber et al., "Predictive inference with the jackknife+", 2021): the model is fitted again
without some cells, and the log residuals of these bound the prediction. They contain the error of the model
and of the fit, not only the noise of repeats. Residuals are scaled by the mean error of the cells that the
same part limits: the speed of a device repeats within a few tenths of a percent, that of a few processors
does not. Each is multiplied by 1 + 1/n: the same n residuals chose the form, which makes them too small.
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

from suite.log.units import count

Floats = NDArray[np.float64]

COVERAGE = 0.9  # of an interval, with enough cells
FOLDS = 20  # at most: with fewer cells each is held out alone
PLAIN, CORE, LOCAL = "plain", "core", "local"
_STARTS = 6  # of the fit to all cells: a maximum has local minima
_NEAR = (0.7, 0.4, 0.7)  # widths, as factors of 2, in which residuals are alike: processors, batch, devices
_LOSS_SCALE = 0.05  # residuals beyond 5 % count linearly: one disturbed cell does not move the others
_BETTER = 0.9  # a form with more parameters needs at most this share of the error of a simpler one
_SHRINKAGE = 2.0  # in the mean error of a part's cells the mean of all cells counts as so many cells
_MOST_TAKEN = 0.9  # of a processor: what one process may take from the loader
_TOWARDS_ONE = 0.05  # weight of log(g) as a residual: g is 1 where no cell shows it
CPUS, DEVICE, DISK = "cpus", "device", "disk"


@dataclass(frozen=True, slots=True)
class Point:
    """One configuration: what the step time depends on."""

    cpus: float  # processors that the ranks of a node may use; on a processor at most their threads
    batch: int  # per device
    devices: int = 1  # of a node
    cache: str = "warm"
    loader: str = ""


@dataclass(frozen=True, slots=True)
class Prediction:
    """A step time in s with its interval, and what limits it: cpus, device or disk."""

    step_s: float
    low_s: float
    high_s: float
    binds: str


class TooFewCells(ValueError):
    """There are not more cells than parameters; the message states both numbers."""


class _Layout:
    """The parameters of one form for cells with these levels, and the step times that they give."""

    def __init__(self, points: Sequence[Point], form: str, *, processor: bool, host_works: bool) -> None:
        self.processor = processor
        self.batches = sorted({float(point.batch) for point in points})
        self.cpus = sorted({float(point.cpus) for point in points})
        devices = {point.devices for point in points}
        caches = sorted({point.cache for point in points})
        self.caches = [name for name in caches if name != "warm"] if host_works and len(self.cpus) > 1 else []
        self.loaders = sorted({point.loader for point in points})
        alone = len(self.loaders) == 1
        self.c_of = {loader: "c" if alone else f"c.{loader}" for loader in self.loaders}
        self.names = ["a"]
        self.names += ["b"] if len(self.batches) > 1 else []
        for loader in self.loaders:
            varied = len({point.cpus for point in points if point.loader == loader}) > 1
            self.names += [self.c_of[loader]] if host_works and varied else []
        self.names += [] if processor else [f"g.{loader}" for loader in self.loaders[1:]]
        self.names += ["h"] if processor and len(self.cpus) > 1 else []
        self.names += ["e"] if len(devices) > 1 else []
        self.names += [f"s.{name}" for name in self.caches]
        of_loader = host_works and not processor and len(self.cpus) > 2
        self.names += ["u"] if form != PLAIN and of_loader else []
        self.size = len(self.names)

    def start(self, rows: Rows, times: Floats, random: np.random.Generator | None) -> Floats:
        """A start of the fit: every term explains a share of the times, drawn or equal."""
        shares = np.full(self.size, 0.5) if random is None else random.uniform(0.05, 1.2, self.size)
        middle = {
            "a": float(times.min()),
            "b": float(np.median(times / rows.batch)),
            "c": float(np.median(times * rows.cpus / (rows.batch * rows.devices))),
            "h": float(times.min()),
            "e": float(times.min()) * 0.1,
            "u": _MOST_TAKEN,
        }
        disk = float(np.median(times / (rows.batch * rows.devices)))
        return np.array(
            [
                1.0 if name[0] == "g" else share * middle.get(name[0], disk)
                for share, name in zip(shares, self.names, strict=True)
            ]
        )

    def parts(self, theta: Floats, rows: Rows) -> tuple[Floats, Floats, Floats, Floats]:
        """(device, processors, disk, exchange): seconds of each part of a step, one per row."""
        value = dict(zip(self.names, theta, strict=True))
        device = value["a"] + value.get("b", 0.0) * rows.batch
        device += value.get("h", 0.0) * np.log2(np.maximum(rows.cpus / rows.devices, 1.0))
        work = np.zeros_like(device)  # processor seconds of a sample
        for loader in self.loaders:
            mine = rows.loader == loader
            work[mine] = value.get(self.c_of[loader], 0.0)
            device[mine] *= value.get(f"g.{loader}", 1.0)
        loaded = rows.batch * rows.devices
        cpus = work * loaded / np.maximum(rows.cpus - value.get("u", 0.0), 0.1)
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
        scale = np.maximum(self.start(rows, times, None), 1e-12)
        high = np.array(
            [_MOST_TAKEN / scale[at] if name == "u" else np.inf for at, name in enumerate(self.names)]
        )
        logs = np.log(times)
        factors = [at for at, name in enumerate(self.names) if name[0] == "g"]

        def residuals(scaled: Floats) -> Floats:
            apart = np.log(self.times(scaled * scale, rows)) - logs
            return np.concatenate([apart, _TOWARDS_ONE * np.log(np.maximum(scaled[factors], 1e-9))])

        best: Any = None
        for start in starts:
            at = np.clip(start / scale, 1e-9, high - 1e-9)
            found = least_squares(
                residuals, at, bounds=(0.0, high), loss="soft_l1", f_scale=_LOSS_SCALE, max_nfev=200
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
    loader: NDArray[np.str_]

    @classmethod
    def of(cls, points: Sequence[Point]) -> Rows:
        """The columns of ``points``."""
        return cls(
            np.array([float(point.cpus) for point in points]),
            np.array([float(point.batch) for point in points]),
            np.array([float(point.devices) for point in points]),
            np.array([point.cache for point in points]),
            np.array([point.loader for point in points]),
        )

    def at(self, index: NDArray[np.intp]) -> Rows:
        """Some of the rows."""
        numbers = (self.cpus[index], self.batch[index], self.devices[index])
        return Rows(*numbers, self.cache[index], self.loader[index])


@dataclass(frozen=True)
class _Fit:
    """One form, fitted to some cells; ``residuals`` are log(measured / by the formula) of these cells."""

    layout: _Layout
    theta: Floats
    rows: Rows
    residuals: Floats

    def times(self, rows: Rows, *, local: bool) -> Floats:
        """The step times in s, with the mean residual of near cells if ``local``."""
        times = self.layout.times(self.theta, rows)
        if not local:
            return times
        distance = np.zeros((len(times), len(self.residuals)))
        for width, name in zip(_NEAR, ("cpus", "batch", "devices"), strict=True):
            apart = np.log2(getattr(rows, name))[:, None] - np.log2(getattr(self.rows, name))[None, :]
            distance += (apart / width) ** 2
        weights = np.exp(-distance / 2) * (rows.cache[:, None] == self.rows.cache[None, :])
        # 1 in the divisor: far from all cells nothing is corrected, beside one cell half of its residual
        found: Floats = times * np.exp(weights @ self.residuals / (1 + weights.sum(axis=1)))
        return found


@dataclass(frozen=True)
class _Chosen:
    """The form with the least error of held-out cells: its fit, the fits without each fold, the errors."""

    form: str
    fit: _Fit
    folds: tuple[_Fit, ...]
    errors: Floats  # by cell: |log(predicted without its fold / measured)|

    def times(self, fit: _Fit, rows: Rows) -> Floats:
        return fit.times(rows, local=self.form == LOCAL)


def parameter_count(points: Sequence[Point], *, processor: bool, host_works: bool = True) -> int:
    """The number of parameters of the plain form for cells at ``points``."""
    return _Layout(points, PLAIN, processor=processor, host_works=host_works).size


class StepTime:
    """The fitted model. TooFewCells unless there is at least one cell more than parameters.

    ``host_works``: whether the processors work on each sample.
    """

    def __init__(
        self, points: Sequence[Point], times_s: Sequence[float], *, processor: bool, host_works: bool = True
    ) -> None:
        self.points, self.processor = tuple(points), processor
        self._rows, self._times = Rows.of(points), np.array(times_s, dtype=np.float64)
        self._random = np.random.default_rng(0)
        self.parameters = parameter_count(points, processor=processor, host_works=host_works)
        if len(points) <= self.parameters:
            raise TooFewCells(
                f"a prediction needs at least {self.parameters + 1} cells for "
                f"{count(self.parameters, 'parameter')} of the model, found {len(points)}"
            )
        self._fold_of = self._random.permutation(len(points)) % min(len(points), FOLDS)
        found: _Chosen | None = None
        for forms in ((PLAIN,), (CORE, LOCAL)):
            layout = _Layout(points, forms[0], processor=processor, host_works=host_works)
            fit, folds = self._fitted(layout)
            for form in forms:
                chosen = _Chosen(form, fit, folds, self._errors(folds, local=form == LOCAL))
                if found is None or chosen.errors.mean() < _BETTER * found.errors.mean():
                    found = chosen
        assert found is not None
        self._chosen = found

    def _fitted(self, layout: _Layout) -> tuple[_Fit, tuple[_Fit, ...]]:
        """The fit to all cells, and the fits without each fold."""
        draws = [None, *[self._random for _ in range(_STARTS - 1)]]
        starts = [layout.start(self._rows, self._times, draw) for draw in draws]
        fit = self._fit(layout, np.arange(len(self.points)), starts)
        folds = []
        for fold in range(int(self._fold_of.max()) + 1):
            kept = np.flatnonzero(self._fold_of != fold)
            folds.append(self._fit(layout, kept, [fit.theta, starts[0]]))
        return fit, tuple(folds)

    def _fit(self, layout: _Layout, kept: NDArray[np.intp], starts: Sequence[Floats]) -> _Fit:
        rows, times = self._rows.at(kept), self._times[kept]
        theta = layout.fit(rows, times, starts)
        return _Fit(layout, theta, rows, np.log(times / layout.times(theta, rows)))

    def _errors(self, folds: Sequence[_Fit], *, local: bool) -> Floats:
        errors = np.zeros(len(self.points))
        for fold, fit in enumerate(folds):
            held = np.flatnonzero(self._fold_of == fold)
            predicted = fit.times(self._rows.at(held), local=local)
            errors[held] = np.abs(np.log(predicted / self._times[held]))
        return errors

    @property
    def form(self) -> str:
        """``plain``, ``core`` or ``local``."""
        return self._chosen.form

    @property
    def values(self) -> dict[str, float]:
        """The parameters by name; those of one loader among several as ``c.dali``."""
        fit = self._chosen.fit
        return dict(zip(fit.layout.names, map(float, fit.theta), strict=True))

    @property
    def loaders(self) -> list[str]:
        """The loaders whose cells were fitted; the first is the one that g compares with."""
        return self._chosen.fit.layout.loaders

    def values_of(self, loader: str) -> dict[str, float]:
        """The parameters of one loader, by their letters."""
        return {
            name.removesuffix(f".{loader}"): value
            for name, value in self.values.items()
            if name[0] not in "cg" or name.endswith(f".{loader}") or "." not in name
        }

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """The least and the greatest value of each parameter in the fits that leave cells out."""
        names = self._chosen.fit.layout.names
        values = [[float(fit.theta[at]) for fit in self._chosen.folds] for at in range(len(names))]
        return {name: (min(some), max(some)) for name, some in zip(names, values, strict=True)}

    @cached_property
    def held_out_error(self) -> float:
        """The median relative error of cells that were held out."""
        return float(np.median(np.expm1(self._chosen.errors)))

    @property
    def coverage(self) -> float:
        """The nominal coverage of the intervals: 90 %, or n / (n + 1) with fewer than nine cells."""
        return min(COVERAGE, len(self.points) / (len(self.points) + 1))

    def predict(self, points: Sequence[Point], widen: float = 1.0) -> list[Prediction]:
        """The step times of ``points``; ``widen`` multiplies the width of the intervals."""
        chosen, rows = self._chosen, Rows.of(points)
        times = chosen.times(chosen.fit, rows)
        logs = np.log([chosen.times(fit, rows) for fit in chosen.folds])[self._fold_of]
        limits = self._limits(rows)
        errors = self._scaled_errors[:, None] * np.array([self._scales[part] for part in limits])
        low = _quantile(logs - errors, lower=True)
        high = _quantile(logs + errors, lower=False)
        middle = np.log(times)
        low = middle + widen * np.minimum(low - middle, 0.0)
        high = middle + widen * np.maximum(high - middle, 0.0)
        columns = zip(times, np.exp(low), np.exp(high), limits, strict=True)
        return [Prediction(float(at), float(least), float(most), str(by)) for at, least, most, by in columns]

    def _limits(self, rows: Rows) -> NDArray[np.str_]:
        """The part that sets the time of each row: cpus, device or disk."""
        device, cpus, disk, _ = self._chosen.fit.layout.parts(self._chosen.fit.theta, rows)
        if self.processor:
            device, cpus = np.zeros_like(device), device + cpus  # one part: the processor computes the model
        found: NDArray[np.str_] = np.array([DEVICE, CPUS, DISK])[
            np.stack([device, cpus, disk]).argmax(axis=0)
        ]
        return found

    @cached_property
    def _scales(self) -> dict[str, float]:
        """By part: the mean error of the cells that it limits, shrunk towards that of all cells."""
        errors, limits = self._chosen.errors, self._limits(self._rows)
        found = {}
        for part in (DEVICE, CPUS, DISK):
            mine = errors[limits == part]
            mean = (mine.sum() + _SHRINKAGE * errors.mean()) / (len(mine) + _SHRINKAGE)
            found[part] = max(float(mean), 1e-12)
        return found

    @cached_property
    def _scaled_errors(self) -> Floats:
        """The error of each cell over the scale of the part that limits it, times 1 + 1/n."""
        scales = np.array([self._scales[part] for part in self._limits(self._rows)])
        found: Floats = self._chosen.errors / scales * (1 + 1 / len(self.points))
        return found


def _quantile(values: Floats, *, lower: bool) -> Floats:
    """The conformal quantile over the first axis: the outermost value where there are too few."""
    number = len(values)
    rank = min(number, math.ceil(COVERAGE * (number + 1)))
    ordered = np.sort(values, axis=0)
    found: Floats = ordered[number - rank] if lower else ordered[rank - 1]
    return found
