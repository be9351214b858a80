"""What the user asks for: a goal, and the levels of a grid."""

from __future__ import annotations

import re
from dataclasses import dataclass

_GOAL = re.compile(r"\s*([a-z_]+)\s*(>=|<=)\s*([0-9.eE+-]+)\s*")
THROUGHPUT, COST, EPOCH = "throughput", "cost", "epoch"
_RELATIONS = {THROUGHPUT: ">=", COST: "<=", EPOCH: "<="}
MAX_CELLS = 2000  # of a grid: beyond, a table helps nobody
# Options of a grid, and how each value is read.
CPUS, THREADS, MEMORY, BATCH, DEVICES, CACHE = (
    "runtime.cpus", "framework.threads", "runtime.memory", "batch", "devices", "cache",
)  # fmt: skip
AXES = (CPUS, THREADS, MEMORY, BATCH, DEVICES, CACHE)
_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"([0-9]{1,15})([kmgt]?)b?")


class GoalError(ValueError):
    """A goal or a grid is not valid; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound that a configuration must keep: units per second, cost of an epoch, or seconds of an epoch."""

    name: str
    bound: float

    @property
    def text(self) -> str:
        """As the user writes it."""
        return f"{self.name}{_RELATIONS[self.name]}{self.bound:.12g}"

    @property
    def of_epochs(self) -> bool:
        """Whether it bounds something of an epoch, so that the units of an epoch must be known."""
        return self.name != THROUGHPUT

    def least_rate(self, epoch_units: float | None, price: float | None) -> float | None:
        """The units per second that it takes; None where the epoch or the price is not known."""
        if self.name == THROUGHPUT:
            return self.bound
        if epoch_units is None:
            return None
        if self.name == EPOCH:
            return epoch_units / self.bound
        return None if price is None else epoch_units * price / 3600 / self.bound


def read_goal(text: str) -> Goal:
    """``throughput>=2000``, ``cost<=1.50`` or ``epoch<=600`` (s). GoalError."""
    found = _GOAL.fullmatch(text)
    usual = "throughput>=2000, cost<=1.50 (of an epoch) or epoch<=600 (seconds)"
    if found is None or _RELATIONS.get(found[1]) != found[2]:
        raise GoalError(f"GOAL: expected one such as {usual}, found {text!r}")
    try:
        bound = float(found[3])
    except ValueError:
        bound = 0.0
    if not 0 < bound < float("inf"):
        raise GoalError(f"GOAL: expected a number above 0, found {found[3]!r}")
    return Goal(found[1], bound)


def read_grid(text: str) -> dict[str, tuple[str, ...]]:
    """The values of each axis of ``runtime.cpus=1,2,4 batch=32,64``; empty for no grid. GoalError."""
    axes: dict[str, tuple[str, ...]] = {}
    for part in text.split():
        name, _, values = part.partition("=")
        if name not in AXES:
            raise GoalError(f"GRID: expected axes among {', '.join(AXES)}, found {name!r}")
        if name in axes:
            raise GoalError(f"GRID: expected {name} once, found it again")
        axes[name] = tuple(dict.fromkeys(values.split(",")))
        for value in axes[name]:
            if not _valid(name, value):
                raise GoalError(f"GRID: {name}: expected {_EXPECTED[name]}, found {value!r}")
    if CPUS in axes and THREADS in axes:
        raise GoalError(f"GRID: expected one of {CPUS} and {THREADS}, found both")
    count = 1
    for values_ in axes.values():
        count *= len(values_)
    if count > MAX_CELLS:
        raise GoalError(f"GRID: expected at most {MAX_CELLS:,} cells, found {count:,}")
    return axes


_EXPECTED = {
    CPUS: "a number above 0",
    THREADS: "a whole number above 0",
    BATCH: "a whole number above 0",
    DEVICES: "a whole number above 0",
    MEMORY: "a size such as 8g",
    CACHE: "warm or cold",
}


def _valid(name: str, value: str) -> bool:
    if name == CACHE:
        return value in ("warm", "cold")
    if name == MEMORY:
        return _SIZE.fullmatch(value.lower()) is not None and size_of(value) > 0
    if name == CPUS:
        return re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,3})?", value) is not None and float(value) > 0
    return re.fullmatch(r"[0-9]{1,8}", value) is not None and int(value) > 0


def size_of(value: str) -> int:
    """Bytes of a size such as 8g."""
    found = _SIZE.fullmatch(value.lower())
    assert found is not None, value
    return int(found[1]) * _SIZES[found[2]]
