"""The checks of one result folder: its runs compared, its names, its system description."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from suite.mllog.layout import ResultFolder
from suite.mllog.outcomes import CheckOutcome, failed, passed, undecided
from suite.mllog.rounds import (
    FIRST_SEEDED,
    NCF_RUNS,
    RUNS,
    Round,
    benchmark_name,
)
from suite.mllog.runs import MllogRun

# The fields that MLPerf's checker requires of a system description; entry.json of v0.5 has others.
SYSTEM_FIELDS = (
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
_FOLDER = "the folder"


def required_runs(benchmark: str | None, mlperf_round: Round | None) -> int | None:
    """How many logs the rules of the round require; None where that is unknown."""
    if benchmark == "ncf" and mlperf_round == (0, 5):
        return NCF_RUNS
    return RUNS.get(benchmark or "")


def benchmark_of(runs: Sequence[MllogRun], folder: ResultFolder) -> str | None:
    """The benchmark that all logs name, else that of the folder; None where the logs differ."""
    names = {benchmark_name(name) for run in runs for name in run.submission_values["submission_benchmark"]}
    if not names and folder.benchmark is not None:
        return benchmark_name(folder.benchmark)
    return names.pop() if len(names) == 1 else None


def check_folder(
    runs: Sequence[MllogRun],
    folder: ResultFolder,
    system: tuple[str, Mapping[str, Any]] | None,
    mlperf_round: Round | None,
) -> Iterator[CheckOutcome]:
    """The checks of the runs in one result folder; ``system`` is the name and content of its description."""
    yield _runs(runs, folder, mlperf_round)
    yield _seeds(runs, mlperf_round)
    yield _equal_settings(runs)
    yield _folder(runs, folder)
    yield _system(runs, folder, system, mlperf_round)


def _runs(runs: Sequence[MllogRun], folder: ResultFolder, mlperf_round: Round | None) -> CheckOutcome:
    benchmark = benchmark_of(runs, folder)
    required = required_runs(benchmark, mlperf_round)
    if required is None:
        return undecided(
            "runs", _FOLDER, f"the required number of runs of {benchmark or 'several benchmarks'} is unknown"
        )
    # With weak scaling the runs are instances of one job, and there may be more of them.
    if len(runs) == required or (folder.weak and len(runs) > required):
        return passed("runs", _FOLDER, f"{len(runs)} logs of {benchmark}")
    return failed("runs", _FOLDER, f"{required} logs of {benchmark}", f"{len(runs)}")


def _seeds(runs: Sequence[MllogRun], mlperf_round: Round | None) -> CheckOutcome:
    """Two runs share no seed logged at the same line of the source (a rule of MLPerf since v1.0)."""
    first_run: dict[tuple[str, str, str], str] = {}
    problem = ""
    for run in runs:
        for seed in dict.fromkeys(run.seeds):
            other = first_run.setdefault(seed, run.name)
            if other != run.name and not problem:
                problem = f"seed {seed[2]} in {other} and {run.name}"
    without = [run.name for run in runs if not run.seeds]
    if without and not problem:
        problem = f"no seed in {without[0]}, {len(without)} in all"
    if not problem:
        return passed("seeds", _FOLDER, f"{len(first_run)} seeds of {len(runs)} runs")
    if mlperf_round is not None and mlperf_round < FIRST_SEEDED:
        return undecided("seeds", _FOLDER, f"{problem}; no rule before v1.0")
    return failed("seeds", _FOLDER, "a different seed in each log", problem)


def _equal_settings(runs: Sequence[MllogRun]) -> CheckOutcome:
    names = sorted({name for run in runs for name in run.settings})
    for name in names:
        values: dict[str | None, str] = {}
        for run in runs:
            values.setdefault(run.settings.get(name), run.name)
        if len(values) > 1:
            found = ", ".join(f"{value or 'none'} in {log}" for value, log in list(values.items())[:3])
            return failed("equal settings", _FOLDER, f"one value of {name}", found)
    if not names:
        return undecided("equal settings", _FOLDER, "the logs contain no setting")
    return passed("equal settings", _FOLDER, f"{len(names)} settings in {len(runs)} runs")


def _folder(runs: Sequence[MllogRun], folder: ResultFolder) -> CheckOutcome:
    if folder.benchmark is None:
        return undecided("folder", _FOLDER, "not <org>/results/<system>/<benchmark>")
    for run in runs:
        for name in run.submission_values["submission_benchmark"]:
            if benchmark_name(name) != benchmark_name(folder.benchmark):
                return failed("folder", run.name, f"benchmark {folder.benchmark}", name)
        for name in run.submission_values["submission_org"]:
            if folder.org is not None and _plain(name) != _plain(folder.org):
                return failed("folder", run.name, f"organisation {folder.org}", name)
    return passed("folder", _FOLDER, f"{folder.org}, {folder.system}, {folder.benchmark}")


def _system(
    runs: Sequence[MllogRun],
    folder: ResultFolder,
    system: tuple[str, Mapping[str, Any]] | None,
    mlperf_round: Round | None,
) -> CheckOutcome:
    if folder.system is None:
        return undecided("system", _FOLDER, "not <org>/results/<system>/<benchmark>")
    if system is None:
        if mlperf_round == (0, 5):
            return undecided("system", _FOLDER, "no entry.json")
        return failed("system", _FOLDER, f"systems/{folder.system}.json", "none")
    name, value = system
    if name != "entry.json":
        missing = [field for field in SYSTEM_FIELDS if field not in value]
        if missing:
            return failed("system", name, f"the field {missing[0]}", f"{len(missing)} fields are missing")
        empty = [
            field for field in SYSTEM_FIELDS if field not in _MAY_BE_EMPTY and not str(value[field]).strip()
        ]
        if empty:
            return failed("system", name, f"a value of {empty[0]}", f"{len(empty)} fields are empty")
    return _agreement(runs, folder, name, value)


def _agreement(
    runs: Sequence[MllogRun], folder: ResultFolder, name: str, value: Mapping[str, Any]
) -> CheckOutcome:
    """Organisation, division and status must agree; submission_platform is free text, not a system's name."""
    pairs = (
        ("submission_org", "submitter"),
        ("submission_division", "division"),
        ("submission_status", "status"),
    )
    submitter = str(value.get("submitter", folder.org))
    if _plain(submitter) != _plain(folder.org or ""):
        return failed("system", name, f"submitter {folder.org}, as in the folder's name", submitter)
    for run in runs:
        for key, field in pairs:
            for logged in run.submission_values[key]:
                described = str(value.get(field, ""))
                same = (
                    status_of(logged) == status_of(described)
                    if field == "status"
                    else _plain(logged) == _plain(described)
                )
                if field in value and not same:
                    return failed("system", run.name, f"{key} as in {name}: {described}", logged)
    return passed("system", name, f"{len(value)} fields")


def _plain(text: str) -> str:
    """Lower-case letters and digits only: spellings of an organisation differ in spaces and capitals."""
    return "".join(re.findall(r"[^\W_]+", text.casefold()))


def status_of(text: str) -> str:
    """The status of a system in any spelling; the text itself where it names none."""
    plain = _plain(text)
    for part, status in (("cloud", "cloud"), ("prem", "onprem"), ("preview", "preview"), ("rdi", "research")):
        if part in plain:
            return status
    if "research" in plain:
        return "research"
    return "onprem" if plain == "available" else plain
