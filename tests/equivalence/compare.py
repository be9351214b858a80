"""How far two frameworks are apart, and how far they may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]

# A tensor's gradient may be zero but for rounding (that of a bias in front of a normalisation): a norm below
# this part of all tensors' together does not make a difference larger.
NEGLIGIBLE = 1e-6

# Largest allowed difference by the first word of the name.
FP64 = dict.fromkeys(
    ("outputs", "gradient", "update", "losses", "first loss", "inference", "evaluated"), 1e-8
)
FP32 = {"outputs": 1e-4, "first loss": 1e-5, "inference": 1e-4}
ROUNDING = 2.0**29  # how much coarser float32 rounds than float64
FORWARD = ("outputs", "first loss")  # of one pass: what magnifies rounding in the one does so in the other


def in_norm(a: NDArray[Any], b: NDArray[Any], least: float = 0.0) -> float:
    """Norm of the difference over the larger norm, or over ``least`` where both are smaller.

    Infinite where shapes differ or a value is not finite.
    """
    if a.shape != b.shape or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return float("inf")
    a, b = a.astype(np.float64), b.astype(np.float64)
    larger = max(float(np.linalg.norm(a)), float(np.linalg.norm(b)), least)
    return float(np.linalg.norm(a - b) / larger) if larger else 0.0


def in_maximum(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Largest difference over the largest value; infinite where shapes differ or a value is not finite."""
    if a.shape != b.shape or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return float("inf")
    larger = max(np.abs(a).max(), np.abs(b).max())
    return float(np.abs(a - b).max() / larger) if larger else 0.0


def differences(a: Arrays, b: Arrays, precision: str) -> dict[str, float]:
    """Every compared name with its difference. ValueError where the two hold different names."""
    if set(a) != set(b):
        raise ValueError(f"expected equal names, found only in one: {sorted(set(a) ^ set(b))}")
    first = {"first loss": in_maximum(a["losses"][:1], b["losses"][:1])}
    if precision == "fp64":
        least = {kind: NEGLIGIBLE * together(a, kind) for kind in ("gradient", "update")}
        norms = {name: in_norm(a[name], b[name], least.get(name.split("/")[0], 0.0)) for name in sorted(a)}
        return norms | first
    found = {}
    for name in sorted(a):
        kind = name.split("/")[0]
        if kind in ("outputs", "inference", "update"):
            found[name] = (in_norm if kind == "update" else in_maximum)(a[name], b[name])
    return found | first


def together(arrays: Arrays, kind: str) -> float:
    """The norm of all arrays named ``kind/...``, as of one vector."""
    squares = (np.sum(np.square(array)) for name, array in arrays.items() if name.startswith(f"{kind}/"))
    return float(np.sqrt(sum(squares)))


def excesses(
    found: Mapping[str, float],
    precision: str,
    fp32_update: float | None = None,
    exact: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """The differences that are over their bound; updates in fp32 count only where a bound is given.

    ``exact`` are the largest differences of the same case in float64, by kind. A deep network that learnt
    nothing magnifies rounding by thousands, in float32 as in float64: where what the latter shows, at the
    former's coarseness, is so many times the bound, the bound is as much wider.
    """
    bounds = FP64 if precision == "fp64" else FP32 | {"update": fp32_update or float("inf")}
    if precision == "fp32" and exact is not None:
        wider = {kind: ROUNDING * exact.get(kind, 0.0) / bound for kind, bound in bounds.items()}
        wider |= dict.fromkeys(FORWARD, max(wider[kind] for kind in FORWARD))
        bounds = {kind: bound * max(1.0, wider[kind]) for kind, bound in bounds.items()}
    return {name: value for name, value in found.items() if not value <= bounds[name.split("/")[0]]}
