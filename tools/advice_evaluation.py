"""How good the advice is: `python -m tools.advice_evaluation RESULTS_DIR`, or `--synthetic`.

Of a full grid of results (one workload, framework, phase …, all loaders) a share of the cells is drawn at
random, the model is fitted to these, and the cells that were held out are compared with its predictions:

* the median and the 90th percentile of the relative error, and how many 90 % intervals contain the cell;
* the choice: for goals at even quantiles of all throughputs, the smallest configuration of any loader that
  surely reaches the goal, without one the smallest at 99 % of it, after the cells that `make advise` asks
  for next, which are part of the share. A choice is good if its measured throughput is at least 95 % of the
  goal and its price at most 5 % above that of the cheapest configuration that reaches the goal. The price is
  that of its processors and devices (`--device-price`);
* advised cells that ran out of memory;
* the same errors for plain interpolation: linear in the logarithms, the nearest cell outside of the hull.

`--synthetic` draws grids from the model and from processes that it does not contain.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import griddata

from suite.advice.advise import Advisor
from suite.advice.cells import Cell, Config, Group, read_groups
from suite.advice.goal import BATCH, CPUS, DEVICES, THROUGHPUT, Goal
from suite.advice.report import answer_of, title_of

Floats = NDArray[np.float64]
_NEAR = 0.05


@dataclass
class Score:
    """What was found over all draws of one group."""

    errors: list[float] = field(default_factory=list)
    inside: list[bool] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    good: list[bool] = field(default_factory=list)
    short: int = 0  # choices that do not reach their goal
    none: int = 0
    out_of_memory: int = 0
    unpredicted: int = 0
    widths: list[float] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """The figures as JSON values; None where nothing was predicted."""
        if not self.errors:
            return {"predicted": 0, "unpredicted": self.unpredicted}
        return {
            "predicted": len(self.errors),
            "unpredicted": self.unpredicted,
            "median_error": float(np.median(self.errors)),
            "p90_error": float(np.quantile(self.errors, 0.9)),
            "coverage": float(np.mean(self.inside)),
            "median_width": float(np.median(self.widths)),
            "plain_median_error": float(np.median(self.plain)),
            "plain_p90_error": float(np.quantile(self.plain, 0.9)),
            "goals": len(self.good),
            "good_choices": float(np.mean(self.good)) if self.good else None,
            "short_choices": self.short,
            "no_choice": self.none,
            "advised_out_of_memory": self.out_of_memory,
        }


@dataclass(frozen=True)
class Options:
    """How a grid is evaluated."""

    share: float = 0.25  # of the cells that the fit sees
    goals: int = 10
    follow: int = 2
    device_price: float = 50.0

    def price(self, config: Config) -> float:
        """The price of a configuration, in that of a processor."""
        return config.devices * self.device_price + config.cpus


def evaluate(groups: Sequence[Group], options: Options, *, draws: int, seed: int = 0) -> Score:
    """Fit ``groups``, one of each loader, to a random ``share`` of their cells, ``draws`` times; compare."""
    score = Score()
    random = np.random.default_rng(seed)
    cells = [(at, cell) for at, group in enumerate(groups) for cell in group.cells]
    for _ in range(draws):
        drawn = [cells[at] for at in random.permutation(len(cells))]
        count = max(2, int(options.share * len(cells)))
        kept = _some(groups, drawn[:count])
        for at, group in enumerate(kept):
            held = [cell for owner, cell in drawn[count:] if owner == at]
            _predictions(score, Advisor(group, kept), held)
        # The cells that the advice asks for are part of the share.
        _choices(score, _some(groups, drawn[: max(2, count - options.follow)]), groups, options)
    return score


def _some(groups: Sequence[Group], cells: Sequence[tuple[int, Cell]]) -> list[Group]:
    """The groups with these of their cells, in the order of the grid."""
    kept = []
    for at, group in enumerate(groups):
        mine = {cell.config for owner, cell in cells if owner == at}
        kept.append(replace(group, cells=tuple(cell for cell in group.cells if cell.config in mine)))
    return kept


def _predictions(score: Score, advisor: Advisor, held: Sequence[Cell]) -> None:
    """Errors and coverage of the cells that were held out."""
    pairs = [(cell, advisor.row(cell.config)) for cell in held]
    known = [(cell, row) for cell, row in pairs if cell.per_second and row.per_second]
    score.unpredicted += sum(1 for cell, row in pairs if cell.per_second and not row.per_second)
    for cell, row in known:
        rate = cell.per_second or 0.0
        score.errors.append(abs((row.per_second or 0) / rate - 1))
        score.inside.append((row.low or 0) <= rate <= (row.high or 0))
        score.widths.append((row.high or 0) / (row.low or 1) - 1)
    if known:
        times = _interpolated(advisor, [cell.config for cell, _ in known])
        score.plain += [
            abs((cell.step_s or 0) / time - 1) for (cell, _), time in zip(known, times, strict=True)
        ]


def _interpolated(advisor: Advisor, configs: Sequence[Config]) -> Floats:
    """Step times by linear interpolation of the measured ones, in logarithms."""
    timed = advisor.timed
    columns = [_column([cell.config for cell in timed], name) for name in ("cpus", "batch", "devices")]
    used = [i for i, column in enumerate(columns) if len(set(column)) > 1]
    wanted = [_column(configs, name) for name in ("cpus", "batch", "devices")]
    known, asked = (np.array([some[i] for i in used]).T for some in (columns, wanted))
    logs = np.log([cell.step_s or 0.0 for cell in timed])
    if not used:
        return np.full(len(configs), float(np.exp(logs.mean())))
    if len(used) == 1:
        order = np.argsort(known[:, 0])
        on_line: Floats = np.exp(np.interp(asked[:, 0], known[order, 0], logs[order]))
        return on_line
    nearest = griddata(known, logs, asked, method="nearest")
    try:
        linear = griddata(known, logs, asked, method="linear")
    except Exception as error:  # noqa: BLE001 - qhull refuses points on one line with an error of its own
        print(f"plain interpolation takes the nearest cell: {str(error).splitlines()[0]}", file=sys.stderr)
        linear = np.full(len(configs), np.nan)
    found: Floats = np.exp(np.where(np.isnan(linear), nearest, linear))
    return found


def _column(configs: Sequence[Config], name: str) -> list[float]:
    return [float(np.log(getattr(config, name))) for config in configs]


def _choices(score: Score, kept: Sequence[Group], full: Sequence[Group], options: Options) -> None:
    """The choice for goals at even quantiles of the measured throughputs."""
    rates = [cell.per_second for group in full for cell in group.cells if cell.per_second]
    for bound in np.quantile(rates, (np.arange(options.goals) + 0.5) / options.goals):
        goal = Goal(THROUGHPUT, float(bound))
        cell = _chosen(kept, full, goal, options.follow)
        score.none += cell is None
        score.out_of_memory += cell is not None and cell.per_second is None
        rate = 0.0 if cell is None else cell.per_second or 0.0
        score.short += 0 < rate < goal.bound
        best = min(
            options.price(one.config)
            for group in full
            for one in group.cells
            if (one.per_second or 0) >= goal.bound
        )
        enough = cell is not None and rate >= goal.bound * (1 - _NEAR)
        score.good.append(enough and options.price(cell.config) <= best * (1 + _NEAR) if cell else False)


def _chosen(kept: Sequence[Group], full: Sequence[Group], goal: Goal, follow: int) -> Cell | None:
    """The cell of the row that is advised for ``goal``, after ``follow`` more cells that were asked for."""
    truth = [{cell.config: cell for cell in group.cells} for group in full]
    grid = {
        name: tuple(dict.fromkeys(f"{getattr(config, part):g}" for cells in truth for config in cells))
        for name, part in ((CPUS, "cpus"), (BATCH, "batch"), (DEVICES, "devices"))
    }
    for left in range(follow, -1, -1):
        advisors = [Advisor(group, kept) for group in kept]
        advised = [
            (advisor, [advisor.row(config) for config in cells])
            for advisor, cells in zip(advisors, truth, strict=True)
        ]
        answer = answer_of(advised, goal, None, grid, None)
        owners = {id(group): at for at, group in enumerate(kept)}
        asked = [(owners[id(group)], config) for group, config in answer.next_cells]
        asked = [(at, config) for at, config in asked if config in truth[at]]
        if not left or not asked:
            break
        at, config = asked[0]
        kept = [
            replace(group, cells=(*group.cells, truth[at][config])) if at == owner else group
            for owner, group in enumerate(kept)
        ]
    found = answer.smallest or answer.closest
    if found is None:
        return None
    advisor, row = found
    return truth[advisors.index(advisor)].get(row.config)


# ------------------------------------------------------------------------------------------ synthetic
_CPUS = (1, 2, 3, 4, 6, 8, 12, 16)
_BATCHES = (32, 48, 64, 96, 128, 192, 256, 384, 512)
_CAPACITY = 32 << 30  # bytes of a device
PROCESSES = ("model", "smooth minimum", "batch steps", "one core taken", "all three")


def synthetic(process: str, noise: float, seed: int) -> Group:
    """A full grid of one accelerator's cells, drawn from ``process`` with log-normal noise.

    "model" is the formula of :mod:`suite.advice.model`; the others deviate from it as their names say. The
    largest batch runs out of memory.
    """
    random = np.random.default_rng(seed)
    a, b = random.uniform(0.002, 0.01), random.uniform(1e-4, 3e-4)
    c = b * random.uniform(2, 10)
    all_three = process == "all three"
    steps = np.exp(random.normal(0, 0.05, len(_BATCHES)))
    cells = []
    for config in (Config(float(cpus), batch, 1) for cpus in _CPUS for batch in _BATCHES):
        device, cpus = a + b * config.batch, config.cpus
        if process == "batch steps" or all_three:
            device *= steps[_BATCHES.index(config.batch)]
        if process == "one core taken" or all_three:
            cpus = max(cpus - 0.6, 0.4)
        host = config.batch * c / cpus
        power = 6.0 if process == "smooth minimum" or all_three else None
        time = max(device, host) if power is None else (device**power + host**power) ** (1 / power)
        time *= float(np.exp(random.normal(0, noise)))
        wait = 100 * max(0.0, 1 - device / time)
        peak = (1 << 30) + config.batch * (64 << 20)
        if peak > _CAPACITY:  # the largest batch
            cells.append(Cell(config, None, run_ids=("run",)))
            continue
        units = float(config.batch)
        bounds = (units / time * 0.995, units / time * 1.005)  # as narrow as those of a GPU's results
        cells.append(Cell(config, time, *bounds, units, peak, input_wait_percent=wait))
    names = ("workload", "variant", "framework", "phase", "precision", "scale", "data")
    key: dict[str, Any] = dict.fromkeys(names, "synthetic")
    key |= {"scenario": "offline", "nodes": 1, "loader": "native", "storage": None, "strategy": None}
    key["data"] = "real"  # the loader works on each sample
    return Group(key, "samples", "a device", False, tuple(cells), capacity_bytes=_CAPACITY)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", nargs="?", type=Path, help="a folder with full grids of results")
    parser.add_argument("--synthetic", action="store_true", help="draw the grids instead")
    parser.add_argument("--share", type=float, default=0.25, help="of the cells that the fit sees")
    parser.add_argument("--draws", type=int, default=10, help="random shares of each grid")
    parser.add_argument("--goals", type=int, default=10, help="of each draw, at even quantiles")
    parser.add_argument(
        "--follow", type=int, default=2, help="cells that the advice may ask for, in the share"
    )
    parser.add_argument("--device-price", type=float, default=50.0, help="in that of a processor")
    parser.add_argument("--noise", type=float, default=0.02, help="of a synthetic cell's time")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(arguments)
    if given.synthetic == (given.results is not None):
        parser.error("expected either RESULTS or --synthetic")
    found: dict[str, Score] = {}
    options = Options(given.share, given.goals, given.follow, given.device_price)
    if given.synthetic:
        for process in PROCESSES:
            scores = [
                evaluate([synthetic(process, given.noise, seed)], options, draws=1, seed=seed)
                for seed in range(given.draws)
            ]
            found[process] = _merged(scores)
    else:
        groups, unused = read_groups([given.results])
        for why in unused:
            print(f"not used: {why}", file=sys.stderr)
        alike: dict[str, list[Group]] = {}
        for group in groups:
            alike.setdefault(repr(group.alike), []).append(group)
        found = {
            "; ".join(map(title_of, some)): evaluate(some, options, draws=given.draws)
            for some in alike.values()
        }
    summaries = {name: score.summary() for name, score in found.items()}
    print(json.dumps(summaries, indent=2) if given.json else "\n".join(_lines(summaries)))
    return 0


def _merged(scores: Sequence[Score]) -> Score:
    total = Score()
    for score in scores:
        for name in ("errors", "inside", "plain", "good", "widths"):
            getattr(total, name).extend(getattr(score, name))
        for name in ("short", "none", "out_of_memory", "unpredicted"):
            setattr(total, name, getattr(total, name) + getattr(score, name))
    return total


def _lines(summaries: dict[str, dict[str, Any]]) -> list[str]:
    lines = []
    for name, found in summaries.items():
        lines.append(name)
        if not found["predicted"]:
            lines.append(f"  nothing predicted ({found['unpredicted']} cells held out)")
            continue
        shown = {key: f"{100 * value:.1f} %" for key, value in found.items() if isinstance(value, float)}
        error = f"error {shown['median_error']} (90th percentile {shown['p90_error']})"
        plain = f"plain interpolation {shown['plain_median_error']} ({shown['plain_p90_error']})"
        intervals = f"90 % intervals contain {shown['coverage']}, width {shown['median_width']}"
        cells = f"{found['predicted']} cells predicted, {found['unpredicted']} refused"
        lines += [f"  {error}; {plain}", f"  {intervals}; {cells}"]
        if not found["goals"]:
            continue
        good = f"{found['goals']} goals: {shown['good_choices']} good, {found['no_choice']} without a choice"
        bad = f"{found['short_choices']} short of it, {found['advised_out_of_memory']} out of memory"
        lines.append(f"  {good}, {bad}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
