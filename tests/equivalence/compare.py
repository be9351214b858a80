"""Differences between two frameworks, and their bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]

# A tensor's gradient may be zero except for rounding (such as a bias before a normalisation): differences are
# relative to at least this share of the norm of all tensors together.
NEGLIGIBLE = 1e-6

# Largest allowed difference, by the part of the name before the first slash.
FP64 = dict.fromkeys(
    ("outputs", "gradient", "update", "losses", "first loss", "inference", "evaluated"), 1e-8
)
FP32 = {"outputs": 1e-4, "first loss": 1e-5, "inference": 1e-4}
ROUNDING = 2.0**29  # ratio of float32's rounding error to float64's
FORWARD = ("outputs", "first loss")  # results of one forward pass: rounding is magnified in both alike


def in_norm(a: NDArray[Any], b: NDArray[Any], least: float = 0.0) -> float:
    """Norm of the difference relative to the larger norm, at least ``least``.

    Infinite where shapes differ or a value is not finite.
    """
    if a.shape != b.shape or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return float("inf")
    a, b = a.astype(np.float64), b.astype(np.float64)
    larger = max(float(np.linalg.norm(a)), float(np.linalg.norm(b)), least)
    return float(np.linalg.norm(a - b) / larger) if larger else 0.0


def in_maximum(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Largest difference relative to the largest value; infinite for other shapes or non-finite values."""
    if a.shape != b.shape or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return float("inf")
    larger = max(np.abs(a).max(), np.abs(b).max())
    return float(np.abs(a - b).max() / larger) if larger else 0.0


def differences(a: Arrays, b: Arrays, precision: str) -> dict[str, float]:
    """The difference of every compared array by name. ValueError where the names differ."""
    if set(a) != set(b):
        raise ValueError(f"expected equal names, found only in one: {sorted(set(a) ^ set(b))}")
    first = {"first loss": in_maximum(a["losses"][:1], b["losses"][:1])}
    if precision == "fp64":
        least = {kind: NEGLIGIBLE * total_norm(a, kind) for kind in ("gradient", "update")}
        norms = {name: in_norm(a[name], b[name], least.get(name.split("/")[0], 0.0)) for name in sorted(a)}
        return norms | first
    found = {}
    for name in sorted(a):
        kind = name.split("/")[0]
        if kind in ("outputs", "inference", "update"):
            found[name] = (in_norm if kind == "update" else in_maximum)(a[name], b[name])
    return found | first


def first_excess(arrays: Iterable[tuple[str, NDArray[Any]]], truth: Arrays) -> tuple[str, float] | None:
    """The first of ``arrays`` (name, values) beyond its bound in float64, and its difference from ``truth``.

    None if all keep their bounds. It reads no further, so that a computation of ``arrays`` one by one ends.
    """
    least = {kind: NEGLIGIBLE * total_norm(truth, kind) for kind in ("gradient", "update")}
    for name, array in arrays:
        kind = name.split("/")[0]
        difference = in_norm(array, truth[name], least.get(kind, 0.0))
        if not difference <= FP64[kind]:
            return name, difference
    return None


def total_norm(arrays: Arrays, kind: str) -> float:
    """The norm of all arrays named ``kind/...`` as one vector."""
    squares = (np.sum(np.square(array)) for name, array in arrays.items() if name.startswith(f"{kind}/"))
    return float(np.sqrt(sum(squares)))


def excesses(
    found: Mapping[str, float],
    precision: str,
    fp32_update: float | None = None,
    exact: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """The differences above their bounds; updates in fp32 count only where ``fp32_update`` is given.

    ``exact`` holds the largest differences of the same case in float64, by kind. An untrained deep network
    magnifies rounding errors by thousands, in float32 as in float64: where the float64 difference, scaled to
    float32's rounding, exceeds the bound, the bound is widened by the same factor.
    """
    bounds = FP64 if precision == "fp64" else FP32 | {"update": fp32_update or float("inf")}
    if precision == "fp32" and exact is not None:
        wider = {kind: ROUNDING * exact.get(kind, 0.0) / bound for kind, bound in bounds.items()}
        wider |= dict.fromkeys(FORWARD, max(wider[kind] for kind in FORWARD))
        bounds = {kind: bound * max(1.0, wider[kind]) for kind, bound in bounds.items()}
    return {name: value for name, value in found.items() if not value <= bounds[name.split("/")[0]]}
