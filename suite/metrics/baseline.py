"""Baselines of machines: the strict reader of their logs and of shared files, and the figures in them.

A log ``suite-baseline/1`` is a chained log as that of a run (:mod:`suite.log.lines`); its events are in
``baseline.schema.json``. Every figure is computed here from the windows. A shared file,
``suite-baseline-shared/1``, holds the windows without the facts about the machine.
"""

from __future__ import annotations

import json
import math
import os
import re
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import jsonschema_rs

from suite.log import strict
from suite.log.canonical import sha256_hex
from suite.log.files import read_file, read_folder
from suite.log.finding import RecordError
from suite.log.lines import parse
from suite.log.safe import safe
from suite.metrics.baseline_conditions import conditions

SHARED = "suite-baseline-shared/1"
WINDOWS = 5  # of every series, at least
MAX_SHARED = 1 << 20  # bytes
_SCHEMA = Path(__file__).with_name("baseline.schema.json")
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")


class BaselineProblem(ValueError):
    """A log or a shared file that is no valid baseline; the message is safe to print."""


@dataclass(frozen=True, slots=True)
class Cohort:
    """A kind of machine: model and online threads of the processor, and the number of GPUs by model."""

    cpu: str
    threads: int
    gpus: Mapping[str, int]

    @property
    def folder(self) -> str:
        """The name of its folder: ``intel-r-xeon-r-processor-2-threads``."""
        parts = [f"{self.cpu} {self.threads} threads"]
        parts += [f"{self.gpus[name]} x {name}" for name in sorted(self.gpus)]
        return _NOT_IN_NAMES.sub("-", " ".join(parts).lower()).strip("-")[:200]

    def __str__(self) -> str:
        gpus = [f"{self.gpus[name]} × {name}" for name in sorted(self.gpus)]
        return ", ".join([f"{self.cpu}, {self.threads} threads", *gpus])


@dataclass(frozen=True)
class Series:
    """One quantity: units of work per call, and windows of (calls, elapsed ns)."""

    unit: str
    work: int
    method: str
    windows: tuple[tuple[int, int], ...]

    @property
    def rates(self) -> list[float]:
        """Units of work per second of each window."""
        return [self.work * calls / elapsed * 1e9 for calls, elapsed in self.windows]

    @cached_property
    def rate(self) -> float:
        """The figure: the median over the windows, in units per second."""
        return statistics.median(self.rates)

    @cached_property
    def log_rate(self) -> float:
        """The logarithm of the figure: comparisons are of logarithms."""
        return math.log(self.rate)

    @cached_property
    def deviation(self) -> float:
        """The deviation of the windows as a fraction: of their logarithms, so that 0.01 is about 1 %."""
        return statistics.stdev([math.log(rate) for rate in self.rates])


@dataclass(frozen=True, slots=True)
class Baseline:
    """A checked baseline. ``machine`` identifies the machine without naming it; None if nothing does.

    ``digest`` is that of the log. ``conditions`` are sentences about what limited the machine. Only a log has
    ``gpus``, the digests of the GPUs' UUIDs in the order of the series, and ``disk``, file system and model
    of the disk.
    """

    digest: str
    when: str
    suite: str
    quick: bool
    cohort: Cohort
    machine: str | None
    series: Mapping[str, Series]
    missing: Mapping[str, str]
    conditions: tuple[str, ...]
    gpus: tuple[str, ...] = ()
    disk: Mapping[str, Any] | None = None

    @classmethod
    def of_dict(cls, value: Mapping[str, Any]) -> Baseline:
        """The baseline from the values of :meth:`as_dict`, which follow the schema."""
        return cls(
            digest=value["log"],
            when=value["when"],
            suite=value["suite"],
            quick=value["quick"],
            cohort=Cohort(**value["cohort"]),
            machine=value["machine"],
            series={
                name: Series(
                    one["unit"], one["work"], one["method"], tuple((c, ns) for c, ns in one["windows"])
                )
                for name, one in value["series"].items()
            },
            missing=value["missing"],
            conditions=tuple(value["conditions"]),
        )

    def as_dict(self) -> dict[str, Any]:
        """The baseline as JSON values: those of the file to share."""
        cohort = {"cpu": self.cohort.cpu, "threads": self.cohort.threads, "gpus": dict(self.cohort.gpus)}
        return {
            "format": SHARED, "log": self.digest, "when": self.when, "suite": self.suite, "quick": self.quick,
            "cohort": cohort, "machine": self.machine,
            "series": {
                name: {"unit": one.unit, "work": one.work, "method": one.method,
                       "windows": [list(window) for window in one.windows]}
                for name, one in self.series.items()
            },
            "missing": dict(self.missing), "conditions": list(self.conditions),
        }  # fmt: skip

    def shared(self) -> bytes:
        """The file to share, as ``<digest>.json``."""
        return (json.dumps(self.as_dict(), indent=1, sort_keys=True) + "\n").encode()


def read_log(folder: Path) -> Baseline:
    """The baseline in the folder of a log; BaselineProblem unless it is complete and follows the format."""
    try:
        raw = read_folder(folder)
        events = parse(raw.data, partial=False)
    except RecordError as error:
        raise BaselineProblem(f"{safe(folder.name)}: {safe(error, 400)}") from None
    for number, event in enumerate(events, 1):
        _fits("envelope", event, f"line {number}")
        _fits(event["kind"], event["data"], f"line {number} ({event['kind']})")
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        by_kind.setdefault(event["kind"], []).append(event["data"])
    header = _outer(events, by_kind, raw.name)
    missing = _unique(by_kind.get("missing", []), "missing")
    cohort = Cohort(**header["cohort"])
    return Baseline(
        digest=sha256_hex(raw.data),
        when=events[0]["wall"],
        suite=header["suite"],
        quick=header["quick"],
        cohort=cohort,
        machine=header["machine"],
        series=_series(by_kind, missing),
        missing={name: str(one["reason"]) for name, one in missing.items()},
        conditions=conditions([event for event in events if event["kind"] == "conditions"]),
        **_facts({one["source"]: one["facts"] for one in by_kind.get("facts", [])}),
    )


def _facts(by_source: Mapping[str, Any]) -> dict[str, Any]:
    """``gpus`` and ``disk`` of the facts, whose contents no schema restricts."""
    accelerators = by_source.get("host", {}).get("accelerators")
    devices = accelerators.get("devices") if isinstance(accelerators, Mapping) else None
    known = [one for one in devices if isinstance(one, Mapping)] if isinstance(devices, list) else []
    return {"gpus": tuple(str(one.get("uuid")) for one in known), "disk": by_source.get("disk")}


def read_shared(path: Path) -> Baseline:
    """The baseline in a shared file; BaselineProblem if it does not follow the format."""
    baseline = read_shared_file(path)
    if path.name != f"{baseline.digest}.json":
        raise BaselineProblem(
            f"{safe(path.name)}: expected the name {baseline.digest}.json, after the digest of its log"
        )
    return baseline


def read_shared_file(path: Path) -> Baseline:
    """As :func:`read_shared`, whatever the name of the file."""
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            value = strict.decode(read_file(folder, path.name, MAX_SHARED), MAX_SHARED)
        finally:
            os.close(folder)
    except (OSError, RecordError, strict.StrictError) as error:
        raise BaselineProblem(f"{safe(path.name)}: {safe(error, 400)}") from None
    _fits("shared", value, path.name)
    return Baseline.of_dict(value)


def _outer(
    events: list[dict[str, Any]], by_kind: Mapping[str, list[dict[str, Any]]], name: str
) -> dict[str, Any]:
    """The header; BaselineProblem unless the log has one at its start and a footer at its end."""
    for kind, at in (("header", 0), ("footer", -1)):
        if events[at]["kind"] != kind or len(by_kind[kind]) != 1:
            raise BaselineProblem(f"{kind}: expected one, at the {'end' if at else 'start'} of the log")
    header, footer = by_kind["header"][0], by_kind["footer"][0]
    if header["run_id"] != name:
        raise BaselineProblem(f"run_id: expected the folder's name {safe(name)}, found {header['run_id']}")
    if footer["events"] != len(events) or footer["outcome"] != "completed":
        raise BaselineProblem(
            f"footer: expected {len(events)} events and outcome completed, found {footer['events']} and "
            f"{footer['outcome']}; measure again: make baseline"
        )
    if (header["machine"] is None) != ("machine" in header["reasons"]):
        raise BaselineProblem("header: expected a reason if and only if machine is null")
    return header


def _series(by_kind: Mapping[str, list[dict[str, Any]]], missing: Mapping[str, object]) -> dict[str, Series]:
    """The series with their windows; each is numbered from 0, and its result was checked."""
    declared = _unique(by_kind.get("series", []), "series")
    checks = _unique(by_kind.get("check", []), "check")
    windows: dict[str, list[dict[str, Any]]] = {name: [] for name in declared}
    for one in by_kind.get("window", []):
        if one["name"] not in windows:
            raise BaselineProblem(f"window: expected a series of the log, found {one['name']}")
        windows[one["name"]].append(one)
    if both := declared.keys() & missing.keys():
        raise BaselineProblem(f"{min(both)}: expected windows or a reason, found both")
    if declared.keys() != checks.keys():
        name = min(declared.keys() ^ checks.keys())
        raise BaselineProblem(f"{name}: expected a series with one check, found one without the other")
    found = {}
    for name, one in declared.items():
        if Decimal(checks[name]["error"]) > Decimal(checks[name]["limit"]):
            raise BaselineProblem(
                f"{name}: expected an error of at most {checks[name]['limit']}, found {checks[name]['error']}"
            )
        numbers = [window["window"] for window in windows[name]]
        if len(numbers) < WINDOWS or numbers != list(range(len(numbers))):
            raise BaselineProblem(f"{name}: expected windows 0 to {WINDOWS - 1} at least, found {numbers}")
        pairs = tuple((window["calls"], window["elapsed_ns"]) for window in windows[name])
        found[name] = Series(one["unit"], one["work"], one["method"], pairs)
    return found


def _unique(events: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    found = {one["name"]: one for one in events}
    if len(found) != len(events):
        raise BaselineProblem(f"{kind}: expected each name once, found {len(events) - len(found)} again")
    return found


def _fits(name: str, value: Any, location: str) -> None:
    """BaselineProblem with the first violation of a schema."""
    violation = next(_violations(name, value), None)
    if violation is not None:
        raise BaselineProblem(f"{safe(location)}: {safe(violation, 300)}")


def _violations(name: str, value: Any) -> Iterator[str]:
    for error in _validator(name).iter_errors(value):
        path = ".".join(map(str, error.instance_path))
        yield f"{path}: {error.message}" if path else error.message


@cache
def _validator(name: str) -> Any:
    schema = json.loads(_SCHEMA.read_text("utf-8"))
    return jsonschema_rs.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": schema["$defs"]})
