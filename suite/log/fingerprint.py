"""What a fingerprint says, and where it must say the same bits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from suite.log.canonical import encode, sha256_hex
from suite.log.model import Event, Record

Pass = Mapping[str, Any]
# Relative: rounding that has grown so far decides where a training goes, and honest machines part.
_CHAOS = 0.5
_KEY = ("workload", "framework", "phase", "scale", "variant")
_FRAMEWORK = ("version", "cuda", "cudnn", "device", "device_name", "capability", "threads")
_CPU = ("vendor", "flags")


def common(event: Event) -> Pass | None:
    """The pass on everybody's batch; None without one."""
    return next((one for one in event["passes"] if one["name"] == "common"), None)


def own(event: Event) -> Pass | None:
    """The pass on a batch that no other run has; None without one."""
    return next((one for one in event["passes"] if one["name"] == "own"), None)


def demanded(tolerances: Iterable[float]) -> list[float]:
    """The tolerances that rules use: infinite from the step where rounding errors dominate.

    Of ``resnet50_cifar10`` a CPU in float64 and an H200 in float32 agreed within 4 % over seven steps, were
    26 % apart at the eighth, 81 % at the eleventh, and 1 % at the last.
    """
    found: list[float] = []
    for one in tolerances:
        found.append(math.inf if one >= _CHAOS or (found and found[-1] == math.inf) else one)
    return found


def computed(one: Pass) -> str:
    """The digest of all that a pass computed."""
    return sha256_hex(encode({name: value for name, value in one.items() if name != "name"}))


def bitwise_class(record: Record) -> str | None:
    """The digest of what decides the last bit: runs of one class have the same fingerprint on one batch.

    Image, code, framework, device or instruction set, driver and threads. None where an operation had no
    deterministic form, or no image says which libraries computed.
    """
    event, image = record.fingerprint, record.header["image"]
    first = record.repeats[0] if record.repeats else None
    inside, outside = (None, None) if first is None else (first.env("inside"), first.env("outside"))
    if event is None or record.conversion is not None or event["nondeterministic"]:
        return None
    if inside is None or outside is None:
        return None
    if image is None or image["config_digest"] is None:
        return None
    framework, cpu = inside["facts"].get("framework"), outside["facts"].get("cpu")
    accelerators = outside["facts"].get("accelerators")
    decided = {
        "image": image["config_digest"],
        "code": record.header["code_digest"],
        "rules": record.header["rules"]["version"],
        "key": {name: record.header["key"][name] for name in _KEY},
        "framework": _some(framework, _FRAMEWORK),
        "cpu": _some(cpu, _CPU),
        "driver": accelerators.get("driver") if isinstance(accelerators, Mapping) else None,
    }
    return sha256_hex(encode(decided))


def _some(facts: object, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: facts.get(name) if isinstance(facts, Mapping) else None for name in names}
