"""The passes of a fingerprint, and which runs must have bitwise equal fingerprints."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from suite.log.canonical import encode, reencode, sha256_hex
from suite.log.model import Event, Record

Pass = Mapping[str, Any]
# Relative loss difference from which rounding errors dominate a training: honest machines then differ.
_ROUNDING_DOMINATES = 0.5
_KEY = ("workload", "framework", "phase", "scale", "variant")
_FRAMEWORK = ("version", "cuda", "cudnn", "device", "device_name", "capability", "threads")
_CPU = ("vendor", "flags")


def common_pass(event: Event) -> Pass | None:
    """The pass on the common batch, which is equal in all runs; None without one."""
    return next((one for one in event["passes"] if one["name"] == "common"), None)


def own_pass(event: Event) -> Pass | None:
    """The pass on the run's own batch, which follows from its seed; None without one."""
    return next((one for one in event["passes"] if one["name"] == "own"), None)


def demanded(tolerances: Iterable[float]) -> list[float]:
    """The tolerances that rules use: infinite from the step where rounding errors dominate.

    Example: the losses of ``resnet50_cifar10`` on a CPU in float64 and on an H200 in float32 agreed within
    4 % over seven steps, and differed by 26 % at the eighth, 81 % at the eleventh and 1 % at the last.
    """
    dominated = False
    limits = []
    for tolerance in tolerances:
        dominated = dominated or tolerance >= _ROUNDING_DOMINATES
        limits.append(math.inf if dominated else tolerance)
    return limits


def computed(one: Pass) -> str:
    """The digest of everything that a pass computed."""
    return sha256_hex(encode({name: value for name, value in one.items() if name != "name"}))


def bitwise_class(record: Record) -> str | None:
    """The digest of everything that decides the last bit of a fingerprint.

    It covers container image, code, framework, device or instruction set, driver and threads. Runs with equal
    digests compute bitwise equal fingerprints on one batch. None where an operation was not deterministic, or
    no container image defines the libraries.
    """
    event, image = record.fingerprint, record.header["image"]
    first = record.repeats[0] if record.repeats else None
    inside, outside = (None, None) if first is None else (first.env("inside"), first.env("outside"))
    if event is None or not record.computes or event["nondeterministic"]:
        return None
    if inside is None or outside is None:
        return None
    if image is None or image["config_digest"] is None:
        return None
    framework, cpu = inside["facts"].get("framework"), outside["facts"].get("cpu")
    accelerators = outside["facts"].get("accelerators")
    deciding = {
        "image": image["config_digest"],
        "code": record.header["code_digest"],
        "rules": record.header["rules"]["version"],
        "key": {name: record.header["key"][name] for name in _KEY},
        "framework": _some(framework, _FRAMEWORK),
        "cpu": _some(cpu, _CPU),
        "driver": accelerators.get("driver") if isinstance(accelerators, Mapping) else None,
    }
    # Parts of several lines, each checked by the reader: together they may be longer than one line.
    return sha256_hex(reencode(deciding) + b"\n")


def _some(facts: object, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: facts.get(name) if isinstance(facts, Mapping) else None for name in names}
