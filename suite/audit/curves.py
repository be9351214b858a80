"""The tolerances between curves of losses and norms that two systems computed.

The curves may differ by rounding only. Its size was measured: the rules have it for each workload, and the
float64 pass of the two systems shows it on a finer scale than the float32 pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from suite.audit.items import ComparedItem, exactly, incomparable, numbers
from suite.contract import STEPS
from suite.log.fingerprint import Pass, demanded
from suite.log.model import Record
from suite.rules import Rules

# Relative tolerance of step 0 by precision, and how it grows: e to the power of growth times step.
_FIRST = {"fp64": 1e-8, "fp32": 1e-5, "tf32": 1e-3, "bf16": 1e-2, "fp16": 1e-2}
_LEAST_GROWTH = math.log(1000.0) / STEPS
_MOST_APART = 0.1  # relative, of the last steps, unless the rules allow more
GRADIENTS_FP32 = 1e-4  # relative, of the norms of gradients and outputs
ROUNDING = 2.0**29  # the ratio of the rounding errors of float32 and float64
# A difference in float64 predicts that in float32 to about this factor (ResNet-50 in three frameworks).
_ROOM, _COARSEST = 10.0, 0.5
_FIELDS = {"train": ("losses", "gradient_norms"), "infer": ("output_norms",)}


def envelope(record: Record, rules: Rules, precision: str, steps: int = STEPS) -> list[float]:
    """The relative tolerance of the loss of each step, where bits need not be equal.

    It starts at the rounding of one step and grows as the rules measured it for this workload
    (``fingerprint.tolerances``), at least by a factor of a thousand over a repeat. It is infinite from the
    step where rounding errors dominate.
    """
    known = rules.workload(record.key.workload)["fingerprint"]["tolerances"].get(record.key.variant) or ()
    measured = [float(text) for text in known]
    growth, most = _LEAST_GROWTH, _MOST_APART
    if len(measured) > 1:
        growth = max(growth, math.log(measured[-1] / measured[0]) / (len(measured) - 1))
        most = max(most, *measured)
    first = _FIRST[precision]
    return demanded(min(most, first * math.exp(min(growth * step, 50.0))) for step in range(steps))


def passes(
    record: Record,
    wanted: Sequence[Pass],
    found: Sequence[Pass],
    rules: Rules,
    exact: str | None = None,
) -> Iterator[ComparedItem]:
    """Compare the passes of two fingerprints, over as many steps as both have.

    ``exact`` is the reason why they must agree bit for bit; None where they need not.
    """
    pairs = [(one, other) for one in wanted for other in found if one["name"] == other["name"]]
    fields = _FIELDS[record.key.phase]
    predicted = {field: _predicted_difference(pairs, field) for field in fields}
    for one, other in pairs:
        name, precision = f"fingerprint {one['name']}", one["precision"]
        yield exactly(
            f"{name}: initial parameters", one["parameters"]["initial"], other["parameters"]["initial"]
        )
        if "output_norms" in one and not any(map(float.fromhex, one["output_norms"])):
            because = "all zero: it has the norms of detections, of which there are none, and not of scores"
            yield incomparable(f"{name}: output norms", because)
            continue
        for field in fields:
            steps = min(len(one[field]), len(other[field]))
            room = None if exact else bounds(record, rules, precision, steps, field, predicted[field])
            yield numbers(
                f"{name}: {field.replace('_', ' ')} ({precision})",
                one[field][:steps],
                other[field][:steps],
                room,
                why_exact=exact or "",
            )


def _predicted_difference(pairs: Sequence[tuple[Pass, Pass]], field: str) -> float:
    """The relative float32 difference that the largest difference in the float64 pass predicts.

    A deep untrained network magnifies rounding by thousands, in float32 as in float64.
    """
    largest = 0.0
    for one, other in pairs:
        if one["precision"] == "fp64":
            for wanted, found in zip(one[field], other[field], strict=False):
                known = float.fromhex(wanted)
                difference = abs(float.fromhex(found) - known) / abs(known) if known else 0.0
                largest = max(largest, difference if math.isfinite(difference) else 0.0)
    return min(_COARSEST, _ROOM * ROUNDING * largest) if largest <= _FIRST["fp64"] else 0.0


def bounds(
    record: Record, rules: Rules, precision: str, steps: int, field: str, predicted: float = 0.0
) -> list[float]:
    """The equivalence bounds of each step: float64 1e-8; float32 1e-5 of a first loss, 1e-4 of norms.

    From step 1 on, a float32 loss depends on updates: its bound is the tolerance that the rules measured, or
    the difference that float64 predicts (``predicted``). For norms this holds from step 0 on.
    """
    if precision == "fp64":
        return [_FIRST["fp64"]] * steps
    known = rules.workload(record.key.workload)["fingerprint"]["tolerances"].get(record.key.variant)
    after = envelope(record, rules, "fp32", steps) if known is None else [float(text) for text in known]
    after = demanded(max(one, predicted) for one in after)
    if field == "losses":
        return [_FIRST["fp32"], *after[1:steps]][:steps]
    return [max(GRADIENTS_FP32, one) for one in after[:steps]]
