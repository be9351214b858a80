"""How far curves of losses and norms may be apart that were computed in different places.

Rounding is all that may differ, and how much it makes is measured: in the rules, for each workload; and in
float64, whose differences between the same two places are those of float32, so much finer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from suite.audit.items import ComparedItem, exactly, numbers
from suite.contract import STEPS
from suite.log.fingerprint import Pass, demanded
from suite.log.model import Record
from suite.rules import Rules

# Relative tolerance of step 0 by precision, and how it grows: e to the power of growth times step.
_FIRST = {"fp64": 1e-8, "fp32": 1e-5, "tf32": 1e-3, "bf16": 1e-2, "fp16": 1e-2}
_LEAST_GROWTH = math.log(1000.0) / STEPS
_MOST_APART = 0.1  # of the last steps, unless the rules know of more
GRADIENTS_FP32 = 1e-4  # of a gradient's norm, as of outputs
ROUNDING = 2.0**29  # how much coarser float32 rounds than float64
# A difference of float64 foretells that of float32 to about this factor: ResNet-50 in three frameworks.
_ROOM, _COARSEST = 10.0, 0.5
_FIELDS = {"train": ("losses", "gradient_norms"), "infer": ("output_norms",)}


def envelope(record: Record, rules: Rules, precision: str, steps: int = STEPS) -> list[float]:
    """How far the loss of each step may be from the submission's, relatively, where bits need not be equal.

    It starts at what one step's rounding makes and grows as the rules saw rounding grow in this workload
    (``fingerprint.tolerances``), at least to a thousandfold over a repeat; without limit once they dominate.
    """
    known = rules.workload(record.key.workload)["fingerprint"]["tolerances"].get(record.key.variant) or ()
    seen = [float(text) for text in known]
    growth, most = _LEAST_GROWTH, _MOST_APART
    if len(seen) > 1:
        growth = max(growth, math.log(seen[-1] / seen[0]) / (len(seen) - 1))
        most = max(most, *seen)
    first = _FIRST[precision]
    return demanded(min(most, first * math.exp(min(growth * step, 50.0))) for step in range(steps))


def passes(
    record: Record,
    wanted: Sequence[Pass],
    found: Sequence[Pass],
    rules: Rules,
    exact: str | None = None,
) -> Iterator[ComparedItem]:
    """The passes of a fingerprint against the same computed elsewhere, as many steps as both have.

    ``exact`` says why they must agree bit for bit; None where they need not.
    """
    pairs = [(one, other) for one in wanted for other in found if one["name"] == other["name"]]
    fields = _FIELDS[record.key.phase]
    coarse = {field: _coarseness(pairs, field) for field in fields}
    for one, other in pairs:
        name, precision = f"fingerprint {one['name']}", one["precision"]
        yield exactly(
            f"{name}: initial parameters", one["parameters"]["initial"], other["parameters"]["initial"]
        )
        for field in fields:
            steps = min(len(one[field]), len(other[field]))
            room = None if exact else bounds(record, rules, precision, steps, field, coarse[field])
            yield numbers(
                f"{name}: {field.replace('_', ' ')} ({precision})",
                one[field][:steps],
                other[field][:steps],
                room,
                why_exact=exact or "",
            )


def _coarseness(pairs: Sequence[tuple[Pass, Pass]], field: str) -> float:
    """What the float64 pass foretells of float32: its largest difference, at the latter's coarseness.

    A deep network that learnt nothing magnifies rounding by thousands, in float32 as in float64.
    """
    largest = 0.0
    for one, other in pairs:
        if one["precision"] == "fp64":
            for wanted, told in zip(one[field], other[field], strict=False):
                known = float.fromhex(wanted)
                off = abs(float.fromhex(told) - known) / abs(known) if known else 0.0
                largest = max(largest, off if math.isfinite(off) else 0.0)
    return min(_COARSEST, _ROOM * ROUNDING * largest) if largest <= _FIRST["fp64"] else 0.0


def bounds(
    record: Record, rules: Rules, precision: str, steps: int, field: str, coarse: float = 0.0
) -> list[float]:
    """The equivalence bounds of each step: float64 1e-8; float32 1e-5 of a first loss, 1e-4 of norms.

    From step 1 on a loss of float32 follows from updates: then what the rules saw rounding make counts, and
    what float64 foretells (``coarse``); of norms from step 0 on.
    """
    if precision == "fp64":
        return [_FIRST["fp64"]] * steps
    known = rules.workload(record.key.workload)["fingerprint"]["tolerances"].get(record.key.variant)
    after = envelope(record, rules, "fp32", steps) if known is None else [float(text) for text in known]
    after = demanded(max(one, coarse) for one in after)
    if field == "losses":
        return [_FIRST["fp32"], *after[1:steps]][:steps]
    return [max(GRADIENTS_FP32, one) for one in after[:steps]]
