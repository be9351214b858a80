"""A scaling set: the folder ``results/sets/<id>`` whose ``set.json`` names the runs of each group.

A group consists of the arms for one number N of devices, measured interleaved: a ``single`` device beside
idle ones, N ``independent`` replicas and, in training, N ``synchronous`` ranks that exchange gradients. Every
arm is an ordinary result beside the set. Among the submissions the set is in
``<submitter>/sets/<system>/<id>``, and its runs are where other submissions are. The file holds no measured
number: all are computed from the logs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from suite.log.canonical import encode
from suite.log.files import read_file
from suite.log.finding import Defect, RecordError
from suite.log.nulls import null_paths
from suite.rules.root import LATEST
from suite.rules.schemas import schemas_for
from suite.submissions import SETS, TREES

FORMAT = "suite-scaling-set/1"
FILE = "set.json"
WEAK, STRONG = "weak", "strong"
SINGLE, INDEPENDENT, SYNCHRONOUS = "single", "independent", "synchronous"
_MAX_BYTES = 64 * 1024
_NO_CAUSE, _NO_FAILURE = "no efficiency above the limit was explained", "no run of the group failed"


@dataclass(frozen=True, slots=True)
class Arm:
    """One run of a group: the name of its folder and the SHA-256 of its log."""

    run_id: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Failure:
    """How a run of a group failed: the exit code of ``suite run``, and the message."""

    exit_code: int
    message: str


@dataclass(frozen=True, slots=True)
class Group:
    """The arms for one number of devices, by name; none after a failure."""

    devices: int
    arms: Mapping[str, Arm]
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class ScalingSet:
    """The content of ``set.json``. ``batch`` is per device (weak) or global (strong)."""

    workload: str
    framework: str
    phase: str
    scaling: str
    batch: int
    devices: tuple[int, ...]  # the requested numbers above 1, ascending
    cause: str | None
    groups: tuple[Group, ...] = ()

    @property
    def arms(self) -> tuple[str, ...]:
        """The names of the arms of every group: inference has no synchronous one."""
        return (SINGLE, INDEPENDENT) if self.phase == "infer" else (SINGLE, INDEPENDENT, SYNCHRONOUS)

    @property
    def folder_pattern(self) -> str:
        """What the name of the set's folder matches: what was measured, and a digest of the options."""
        run_ids = [arm.run_id for group in self.groups for arm in group.arms.values()]
        any_name = "[a-z0-9_]+"
        of_run = map(re.escape, run_ids[0].split("-")[4:6]) if run_ids else (any_name, any_name)
        names = map(re.escape, (self.workload, self.framework, self.phase))
        return "-".join((*names, *of_run, self.scaling, "[0-9a-f]{8}"))

    def batch_of(self, devices: int) -> int:
        """The batch per device of a run on so many devices."""
        return self.batch if self.scaling == WEAK else self.batch // devices

    def with_group(self, group: Group) -> ScalingSet:
        """The set with ``group`` instead of an earlier one of as many devices."""
        others = [one for one in self.groups if one.devices != group.devices]
        return replace(self, groups=tuple(sorted([*others, group], key=lambda one: one.devices)))

    def encoded(self) -> bytes:
        """The canonical bytes of ``set.json``."""
        groups = [_explained(asdict(group), _NO_FAILURE) for group in self.groups]
        fields = {**asdict(self), "format": FORMAT, "groups": groups}
        return encode(_explained(fields, _NO_CAUSE))

    @classmethod
    def of_dict(cls, value: Mapping[str, Any]) -> ScalingSet:
        """The set from the checked JSON values of its file."""
        groups = tuple(
            Group(
                group["devices"],
                {name: Arm(**arm) for name, arm in group["arms"].items()},
                None if group["failure"] is None else Failure(**group["failure"]),
            )
            for group in value["groups"]
        )
        names = ("workload", "framework", "phase", "scaling", "batch", "cause")
        parts = {name: value[name] for name in names}
        return cls(**parts, devices=tuple(value["devices"]), groups=groups)


def _explained(fields: dict[str, Any], why: str) -> dict[str, Any]:
    own = {name: value for name, value in fields.items() if name != "groups"}
    return {**fields, "reasons": dict.fromkeys(null_paths(own), why)}


def run_folder(folder: Path, workload: str, run_id: str) -> Path:
    """Where the run ``run_id`` of the set in ``folder`` is: beside the folder of sets, or a submission."""
    sets, above, submitter = folder.absolute().parents[:3]
    if sets.name == SETS or above.name != SETS:
        return above / run_id
    results, practice = (submitter / tree / sets.name / workload / run_id for tree in TREES)
    return practice if practice.is_dir() else results


def is_set(path: Path) -> bool:
    """Whether ``path`` is the folder of a scaling set, or its file."""
    return os.path.lexists(path / FILE) or (path.name == FILE and not path.is_dir())


def read_set(path: Path) -> dict[str, Any]:
    """The checked JSON values of ``set.json`` in ``path``: hostile input. RecordError with SET-001."""
    folder = path.parent if path.name == FILE else path
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _refused("the folder of a scaling set", os.strerror(error.errno or 0)) from error
    try:
        data = read_file(descriptor, FILE, _MAX_BYTES)
    except RecordError as error:
        raise _refused(error.defects[0].expected, error.defects[0].found) from error
    finally:
        os.close(descriptor)
    try:
        value: dict[str, Any] = orjson.loads(data)
        canonical = encode(value) == data
    except (ValueError, TypeError, RecursionError) as error:
        raise _refused("one canonical line of JSON", type(error).__name__) from error
    if not canonical:
        raise _refused("one canonical line of JSON", "another spelling")
    schemas = schemas_for(LATEST)
    if not schemas.valid("scaling_set", value):
        raise RecordError(
            [
                Defect(
                    "SET-001", f"{FILE}{'.' if at else ''}{at}", "what schemas/scaling_set.json allows", text
                )
                for at, text in schemas.explain("scaling_set", value)
            ]
        )
    if value["cause"] is not None and not value["cause"].strip():
        raise RecordError([Defect("SET-001", f"{FILE}.cause", "a cause in words, or null", "blanks")])
    return value


def _refused(expected: str, found: str) -> RecordError:
    return RecordError([Defect("SET-001", FILE, expected, found)])
