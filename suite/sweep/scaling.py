"""Scaling sets: the plans of their arms, and the folder that keeps a set until the next command."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from suite.compare.scaling_set import (
    FILE,
    INDEPENDENT,
    SINGLE,
    STRONG,
    SYNCHRONOUS,
    ScalingSet,
    read_set,
)
from suite.containers.engines import choice as engines
from suite.contract import EXCHANGE_OPTIONS, Key
from suite.log.canonical import sha256_hex
from suite.log.finding import RecordError
from suite.log.safe import safe
from suite.plan.compose import composer
from suite.plan.custom import custom_code
from suite.plan.errors import BadConfiguration, StorageProblem, Unsupported
from suite.plan.machine import Machine, detect_machine
from suite.plan.plan import Plan
from suite.plan.resolve import resolve
from suite.plan.settings import Settings
from suite.submissions import SETS
from suite.sweep.planning import device_name_of
from suite.sweep.results import configuration, last_run

MOST_GROUPS = 16  # of a set, as its schema allows


@dataclass(frozen=True, slots=True)
class PlannedSet:
    """A set as it was asked for, still without groups, and the plan of each arm by number of devices."""

    folder: Path
    content: ScalingSet
    plans: Mapping[int, Mapping[str, Plan]]

    def seconds(self, devices: int) -> float | None:
        """How long the runs of a group took before with the same settings; None if one never ran.

        The log of an interleaved run begins and ends with those of the others: common time counts once.
        """
        spans = []
        for plan in self.plans[devices].values():
            last = last_run(plan, custom_code(plan.settings, plan.accelerator))
            if last is None or last.seconds is None:
                return None
            spans.append((last.started.timestamp(), last.seconds))
        total, end = 0.0, -math.inf
        for start, seconds in sorted(spans):
            total += max(0.0, start + seconds - max(start, end))
            end = max(end, start + seconds)
        return total


def plan_set(
    options: Sequence[str],
    counts: Sequence[int],
    scaling: str,
    cause: str | None,
    code: str,
    machine: Machine | None = None,
) -> PlannedSet:
    """Plan every arm for ``machine`` (None: this one). ``counts`` are the numbers of devices.

    ``options`` are those of a run, without devices. Sets of equal options, code and device share a folder. A
    Refusal if one arm cannot be run.
    """
    several = tuple(sorted({count for count in counts if count > 1}))
    if not several:
        raise BadConfiguration("devices: expected at least one number above 1, such as 1,2,4")
    _refuse_many(several)
    machine, find = machine or detect_machine(), cache(engines.find)
    if cause is not None and (not cause.strip() or re.fullmatch("[ -~]{1,500}", cause) is None):
        raise BadConfiguration(
            f"cause: expected up to 500 printable ASCII characters, not all blank, found {cause!r}"
        )
    # Options of the synchronous arm alone: the other arms exchange nothing.
    exchange = [option for option in options if option.partition("=")[0] in EXCHANGE_OPTIONS]
    others = [option for option in options if option not in exchange]
    if f"strategy={INDEPENDENT}" in exchange:
        raise BadConfiguration(f"strategy: expected an exchange, found {INDEPENDENT}, an arm of every set")
    with composer() as compose:
        single = _resolved(compose, [*others, "devices=1"], machine, find)
        key, batch = single.key, single.key.batch
        assert isinstance(key, Key)
        if key.loads:
            raise BadConfiguration(f"phase: a scaling set trains or infers, found {key.phase}")
        if exchange and key.phase == "infer":
            raise BadConfiguration(f"{exchange[0]}: inference exchanges nothing; leave it out")
        if scaling == STRONG:
            _refuse_indivisible(batch, several)
        content = ScalingSet(key.workload, key.framework, key.phase, scaling, batch, several, cause)
        plans: dict[int, dict[str, Plan]] = {}
        for count in several:
            shared = [*others, f"devices={count}"]
            if key.scenario != "single_stream":  # its batch is 1
                shared.append(f"batch={content.batch_of(count)}")
            further = {
                INDEPENDENT: [] if key.phase == "infer" else [f"strategy={INDEPENDENT}"],
                SYNCHRONOUS: exchange,
            }
            plans[count] = {SINGLE: _resolved(compose, [*others, "devices=1"], machine, find)} | {
                name: _resolved(compose, [*shared, *further[name]], machine, find)
                for name in content.arms
                if name != SINGLE
            }
            if single.settings.reuse_compiled:  # after its replicas, one of which has compiled for it
                plans[count][SINGLE] = plans[count].pop(SINGLE)
    identity = {
        SINGLE: configuration(single, custom_code(single.settings, single.accelerator)),
        "exchange": exchange,
        "scaling": scaling,
        "code": code,
        "device": device_name_of(single),
    }
    names = (key.workload, key.framework, key.phase, key.precision, key.scale, scaling)
    digest = sha256_hex(json.dumps(identity, sort_keys=True).encode())[:8]
    folder = single.settings.results_dir / SETS / "-".join((*names, digest))
    return PlannedSet(folder, content, plans)


def _resolved(
    compose: Callable[[Sequence[str]], Settings], options: Sequence[str], machine: Machine, find: object
) -> Plan:
    settings = compose(options)
    if settings.launcher != "local":
        raise Unsupported(
            f"launcher: expected local, found {settings.launcher}; submit the whole set as a job of one node"
        )
    if settings.nodes > 1:
        raise Unsupported(f"nodes: a scaling set is of one node, found {settings.nodes}")
    if settings.mode != "throughput":
        raise BadConfiguration(f"mode: a scaling set measures throughput, found {settings.mode}")
    if settings.purpose != "trial":
        raise BadConfiguration(
            "purpose: expected trial: the runs of a scaling set are no attempts at a closed result"
        )
    if settings.batch_max:
        raise BadConfiguration("batch: expected a number, found max: the arms would have different batches")
    if settings.min_seconds is not None:
        raise BadConfiguration(
            "min_seconds: the windows of the arms would have different steps; choose STEPS, the same for all"
        )
    return resolve(settings, machine, find)  # type: ignore[arg-type]


def _refuse_indivisible(batch: int, counts: Sequence[int]) -> None:
    rest = [count for count in counts if batch % count]
    if rest:
        raise BadConfiguration(
            "batch: strong scaling divides the global batch: expected a multiple of "
            f"{', '.join(map(str, rest))}, found {batch}"
        )


def _refuse_many(devices: Sequence[int]) -> None:
    if len(devices) > MOST_GROUPS:
        raise BadConfiguration(
            f"devices: expected at most {MOST_GROUPS} numbers above 1 in a set, found {len(devices)}: "
            f"{', '.join(map(str, devices))}"
        )


def stored_set(planned: PlannedSet) -> ScalingSet:
    """The set in the folder of ``planned`` with its groups, extended by what is asked for now; or a new one.

    The numbers of devices of earlier commands stay: no group can be left out by asking for fewer.
    """
    asked = planned.content
    if not (planned.folder / FILE).exists():
        return asked
    try:
        before = ScalingSet.of_dict(read_set(planned.folder))
    except RecordError as error:
        raise StorageProblem(
            f"{error}; remove the folder {planned.folder.name} to begin a new set"
        ) from error
    devices = tuple(sorted({*before.devices, *asked.devices}))
    _refuse_many(devices)
    return replace(asked, devices=devices, cause=asked.cause or before.cause, groups=before.groups)


def write_set(folder: Path, content: ScalingSet) -> None:
    """Write ``set.json``: an interruption leaves the earlier file. OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{FILE}.new"
    with draft.open("wb") as file:
        file.write(content.encoded())
        file.flush()
        os.fsync(file.fileno())
    draft.replace(folder / FILE)


def plain_message(text: str) -> str:
    """``text`` as ``set.json`` can hold it: printable ASCII of at most 500 characters."""
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in safe(text))[:500]
