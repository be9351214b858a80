"""The generic mutators: the values by which a forger might replace one value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

FACTORS = (0.9, 0.99, 1.1, 2.0)
DROP = object()  # the new "value" of a field that is deleted
_HEX_FLOAT = re.compile(r"-?0x[01]\.[0-9a-f]+p[+-][0-9]+")
_DIGEST = re.compile(r"(?:sha256:)?[0-9a-f]{16,}")
_DECIMAL = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?")

# Terms of one kind; a value in a row is replaced by the other values of the row.
TERMS = (
    ("train", "infer"), ("benchmark", "conversion"), ("throughput", "quality"),
    ("closed", "open", "practice"),
    ("trial", "submission"), ("offline", "single_stream"), ("fp32", "tf32", "bf16", "fp16", "fp64"),
    ("reference", "mini"), ("real", "synthetic"), ("warm", "cold"), ("pytorch", "tensorflow", "mxnet"),
    ("native", "dali", "pillow"), ("docker", "podman", "apptainer", "enroot", "native"), ("local", "slurm"),
    ("warmup", "measured"), ("outside", "inside"), ("counters", "sample"), ("common", "own"),
    ("window_open", "window_close", "repeat_start", "repeat_end"), ("soak", "window", "tail", "window_open"),
    ("device", "host_completion", "host_dispatch"), ("completed", "aborted", "out_of_memory"),
    ("float32", "float16", "bfloat16", "float64"), ("mini", "official", "custom", "synthetic"),
    ("pair", "base"), ("none", "host", "bridge"), ("private", "host"), ("engine", "file"),
    ("ncf", "gnmt", "resnet50"), ("f8", "f64", "v1.5", "small"),
)  # fmt: skip


def mutations(value: Any) -> Iterator[tuple[str, Any]]:
    """(name, new value) of every generic mutation of ``value``, none of them equal to it."""
    seen = [value]
    for name, new in _all(value):
        if not any(type(new) is type(old) and new == old for old in seen):
            seen.append(new)
            yield name, new
    yield "delete", DROP


def _all(value: Any) -> Iterator[tuple[str, Any]]:
    if value is None:
        yield from (("retype", 0), ("retype to text", "a"))
        return
    yield "null", None
    if isinstance(value, bool):
        yield from (("other", not value), ("retype", int(value)))
    elif isinstance(value, int):
        yield from (("one more", value + 1), ("one less", value - 1), ("sign", -value), ("zero", 0))
        yield from ((f"times {factor}", _scaled(value, factor)) for factor in FACTORS)
        yield "retype", str(value)
    elif isinstance(value, str):
        yield from _of_text(value)
    elif isinstance(value, list):
        yield from (
            ("empty", []),
            ("twice the last", [*value, *value[-1:]]),
            ("without the first", value[1:]),
        )
        yield from (("exchanged", value[1::-1] + value[2:]), ("retype", {}))
    elif isinstance(value, dict):
        yield from (("empty", {}), ("one field more", {**value, "zzz": 1}), ("retype", []))


def _scaled(value: int, factor: float) -> int:
    """Rounded away from ``value``, so that small counts change too."""
    new = round(value * factor)
    return new if new != value else value + (1 if factor > 1 else -1)


def _of_text(value: str) -> Iterator[tuple[str, Any]]:
    yield from (("retype", 1), ("no text", ""))
    if _HEX_FLOAT.fullmatch(value):
        number = float.fromhex(value)
        yield from (("one bit more", (number * (1 + 2**-52)).hex()), ("sign", (-number).hex()))
        yield from ((f"times {factor}", (number * factor).hex()) for factor in FACTORS)
        yield "zero", (0.0).hex()
    elif _DIGEST.fullmatch(value):
        last = "0" if value[-1] != "0" else "1"
        yield from (("one digit", value[:-1] + last), ("zeros", value[:-16] + "0" * 16))
    else:
        if _DECIMAL.fullmatch(value):
            yield from ((f"times {factor}", f"{float(value) * factor:.12g}") for factor in FACTORS)
        for row in TERMS:
            if value in row:
                yield from ((f"term {term}", term) for term in row)
        yield (
            "another text",
            value + "x" if not value[-1:].isdigit() else value[:-1] + _other_digit(value[-1]),
        )


def _other_digit(digit: str) -> str:
    return str((int(digit) + 1) % 10)
