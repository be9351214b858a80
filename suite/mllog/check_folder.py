"""What a folder of logs lets anybody verify: its runs side by side, its names, its system's description."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from suite.mllog.outcomes import CheckOutcome, failed, passed, undecided
from suite.mllog.places import Place
from suite.mllog.rounds import (
    FIRST_SEEDED,
    NCF_RUNS,
    RUNS,
    Round,
    benchmark_name,
)
from suite.mllog.runs import PublishedRun

# The names that MLPerf's own checker asks of a description; those of v0.5's entry.json are others.
SYSTEM_NAMES = (
    "submitter", "division", "status", "system_name", "number_of_nodes", "host_processors_per_node",
    "host_processor_model_name", "host_processor_core_count", "host_processor_vcpu_count",
    "host_processor_frequency", "host_processor_caches", "host_processor_interconnect",
    "host_memory_capacity", "host_storage_type", "host_storage_capacity", "host_networking",
    "host_networking_topology", "host_memory_configuration", "accelerators_per_node",
    "accelerator_model_name", "accelerator_host_interconnect", "accelerator_frequency",
    "accelerator_on-chip_memories", "accelerator_memory_configuration", "accelerator_memory_capacity",
    "accelerator_interconnect", "accelerator_interconnect_topology", "cooling", "hw_notes", "framework",
    "other_software_stack", "operating_system", "sw_notes",
)  # fmt: skip
_MAY_BE_EMPTY = (
    "hw_notes",
    "sw_notes",
    "cooling",
    "host_processor_interconnect",
    "host_memory_configuration",
)
_PLACE = "the folder"


def required_runs(benchmark: str | None, known: Round | None) -> int | None:
    """How many logs the rules of the round ask for; None where this is not known."""
    if benchmark == "ncf" and known == (0, 5):
        return NCF_RUNS
    return RUNS.get(benchmark or "")


def benchmark_of(runs: Sequence[PublishedRun], place: Place) -> str | None:
    """The benchmark that all logs name; that of the folder where they name none; None where they differ."""
    named = {name for run in runs for name in run.told["submission_benchmark"]}
    names = {benchmark_name(name) for name in named}
    if not names and place.benchmark is not None:
        return benchmark_name(place.benchmark)
    return names.pop() if len(names) == 1 else None


def check_folder(
    runs: Sequence[PublishedRun],
    place: Place,
    system: tuple[str, Mapping[str, Any]] | None,
    known: Round | None,
) -> Iterator[CheckOutcome]:
    """The checks of runs that lie in one folder."""
    yield _runs(runs, place, known)
    yield _seeds(runs, known)
    yield _equal(runs)
    yield _folder(runs, place)
    yield _system(runs, place, system, known)


def _runs(runs: Sequence[PublishedRun], place: Place, known: Round | None) -> CheckOutcome:
    benchmark = benchmark_of(runs, place)
    wanted = required_runs(benchmark, known)
    if wanted is None:
        return undecided(
            "runs", _PLACE, f"the number of runs of {benchmark or 'several benchmarks'} is not known"
        )
    expected = f"{wanted} logs of {benchmark}"
    if place.weak:  # instances of one job, of which there may be more
        return (
            passed("runs", _PLACE, f"{len(runs)}")
            if len(runs) >= wanted
            else failed("runs", _PLACE, expected, f"{len(runs)}")
        )
    return (
        passed("runs", _PLACE, expected)
        if len(runs) == wanted
        else failed("runs", _PLACE, expected, f"{len(runs)}")
    )


def _seeds(runs: Sequence[PublishedRun], known: Round | None) -> CheckOutcome:
    """Two runs share no seed that was logged at one place of the source (MLPerf's own rule, from v1.0 on)."""
    owners: dict[tuple[str, str, str], str] = {}
    shared = ""
    for run in runs:
        for seed in dict.fromkeys(run.seeds):
            other = owners.setdefault(seed, run.name)
            if other != run.name and not shared:
                shared = f"seed {seed[2]} in {other} and {run.name}"
    without = [run.name for run in runs if not run.seeds]
    told = shared or (f"no seed in {without[0]}, {len(without)} in all" if without else "")
    if not told:
        return passed("seeds", _PLACE, f"{len(owners)} seeds of {len(runs)} runs")
    if known is not None and known < FIRST_SEEDED:
        return undecided("seeds", _PLACE, f"{told}; no rule before v1.0")
    return failed("seeds", _PLACE, "a seed of its own in each log", told)


def _equal(runs: Sequence[PublishedRun]) -> CheckOutcome:
    names = sorted({name for run in runs for name in run.settings})
    for name in names:
        values: dict[str | None, str] = {}
        for run in runs:
            values.setdefault(run.settings.get(name), run.name)
        if len(values) > 1:
            told = ", ".join(f"{value or 'none'} in {where}" for value, where in list(values.items())[:3])
            return failed("equal settings", _PLACE, f"one value of {name}", told)
    if not names:
        return undecided("equal settings", _PLACE, "no setting is told")
    return passed("equal settings", _PLACE, f"{len(names)} settings in {len(runs)} runs")


def _folder(runs: Sequence[PublishedRun], place: Place) -> CheckOutcome:
    if place.benchmark is None:
        return undecided("folder", _PLACE, "not <org>/results/<system>/<benchmark>")
    for run in runs:
        for name in run.told["submission_benchmark"]:
            if benchmark_name(name) != benchmark_name(place.benchmark):
                return failed("folder", run.name, f"benchmark {place.benchmark}", name)
        for name in run.told["submission_org"]:
            if place.org is not None and _plain(name) != _plain(place.org):
                return failed("folder", run.name, f"organisation {place.org}", name)
    return passed("folder", _PLACE, f"{place.org}, {place.system}, {place.benchmark}")


def _system(
    runs: Sequence[PublishedRun],
    place: Place,
    system: tuple[str, Mapping[str, Any]] | None,
    known: Round | None,
) -> CheckOutcome:
    if place.system is None:
        return undecided("system", _PLACE, "not <org>/results/<system>/<benchmark>")
    if system is None:
        if known == (0, 5):
            return undecided("system", _PLACE, "no entry.json")
        return failed("system", _PLACE, f"systems/{place.system}.json", "none")
    name, value = system
    if name != "entry.json":
        missing = [field for field in SYSTEM_NAMES if field not in value]
        if missing:
            return failed("system", name, f"the field {missing[0]}", f"{len(missing)} fields are missing")
        empty = [
            field for field in SYSTEM_NAMES if field not in _MAY_BE_EMPTY and not str(value[field]).strip()
        ]
        if empty:
            return failed("system", name, f"a value of {empty[0]}", f"{len(empty)} fields are empty")
    return _agreement(runs, place, name, value)


def _agreement(
    runs: Sequence[PublishedRun], place: Place, name: str, value: Mapping[str, Any]
) -> CheckOutcome:
    """Who, division and status must agree; submission_platform is free text and no system's name."""
    pairs = (
        ("submission_org", "submitter"),
        ("submission_division", "division"),
        ("submission_status", "status"),
    )
    submitter = str(value.get("submitter", place.org))
    if _plain(submitter) != _plain(place.org or ""):
        return failed("system", name, f"submitter {place.org}, as the folder", submitter)
    for run in runs:
        for key, field in pairs:
            for word in run.told[key]:
                described = str(value.get(field, ""))
                same = (
                    status_of(word) == status_of(described)
                    if field == "status"
                    else _plain(word) == _plain(described)
                )
                if field in value and not same:
                    return failed("system", run.name, f"{key} as {name} has it: {described}", word)
    return passed("system", name, f"{len(value)} fields")


def _plain(text: str) -> str:
    """Letters and digits alone: an organisation is spelled with and without spaces and capitals."""
    return "".join(re.findall(r"[^\W_]+", text.casefold()))


def status_of(text: str) -> str:
    """The status of a system, however it is spelled; the text itself where it is none."""
    plain = _plain(text)
    for part, status in (("cloud", "cloud"), ("prem", "onprem"), ("preview", "preview"), ("rdi", "research")):
        if part in plain:
            return status
    if "research" in plain:
        return "research"
    return "onprem" if plain == "available" else plain
