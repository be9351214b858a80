"""Simulate the factors k of the thresholds of baselines and write suite/compare/baseline_factors.py.

``python -m tools.baseline_factors`` takes some minutes; the seed is fixed, so its output is always the same.
For M independent series the family-wise probability ALPHA belongs to the quantile (1 − ALPHA)^(1/M) of one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ALPHA, SEED, DRAWS, CHUNK = 0.01, 20261124, 2_000_000, 100_000
WINDOWS = 5
TESTS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
COUNTS = (*range(5, 31), 35, 40, 50, 75, 100, 200)
SIBLINGS = (2, 3, 4, 8, 16)
TARGET = Path(__file__).resolve().parents[1] / "suite" / "compare" / "baseline_factors.py"


def of_group(random: np.random.Generator, count: int, size: int) -> Any:
    """|x − median| / σ̂ of a figure x and ``count`` others, all alike."""
    from suite.compare.baseline_deviation import robust_deviation

    others, own = random.standard_normal((size, count)), random.standard_normal(size)
    return np.abs(own - np.median(others, axis=1)) / robust_deviation(others)


def of_siblings(random: np.random.Generator, count: int, size: int) -> Any:
    """The same of one of ``count`` devices, whose σ̂ is that of the windows, pooled over the devices."""
    windows = random.standard_normal((size // 4, count, WINDOWS))
    figures = np.median(windows, axis=2)
    pooled = np.sqrt(np.mean(np.var(windows, axis=2, ddof=1), axis=1))
    return np.abs(figures[:, 0] - np.median(figures[:, 1:], axis=1)) / pooled


def row(simulate: Callable[[np.random.Generator, int, int], Any], count: int) -> tuple[float, ...]:
    random = np.random.default_rng([SEED, count])
    values = np.concatenate([simulate(random, count, CHUNK) for _ in range(DRAWS // CHUNK)])
    return tuple(float(np.quantile(values, (1 - ALPHA) ** (1 / tests))) for tests in TESTS)


def main() -> None:
    lines = [
        '"""Factors of suite/compare/baseline_deviation.py, made by `python -m tools.baseline_factors`."""',
        "",
        f"TESTS = {TESTS}  # the columns: at most so many series",
    ]
    for name, counts, simulate, what in (
        ("FACTORS", COUNTS, of_group, "figures to compare with"),
        ("SIBLING_FACTORS", SIBLINGS, of_siblings, "devices"),
    ):
        lines += [f"{name} = {{  # by the number of {what}"]
        for count in counts:
            numbers = ", ".join(f"{value:.2f}" for value in row(simulate, count))
            lines.append(f"    {count}: ({numbers}),")
            print(name, lines[-1].strip(), flush=True)
        lines += ["}"]
    TARGET.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
