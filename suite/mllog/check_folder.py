"""The checks of one result folder: its runs compared, its names, its system description."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from suite.log.units import count
from suite.mllog.layout import PARAMETERS, ResultFolder
from suite.mllog.outcomes import ERROR, CheckOutcome, error, information, passed, warning
from suite.mllog.rounds import (
    FIRST_SEEDED,
    NCF_RUNS,
    RUNS,
    UNTIL_TARGET,
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
_AGREEING = (
    ("submission_org", "submitter"),
    ("submission_division", "division"),
    ("submission_status", "status"),
)
_FOLDER = "the folder"
_WHOLE = re.compile(r'"?[+-]?[0-9]+"?|[+-]?[0-9]+\.[0-9]*')


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
    parameters: Sequence[str] = (),
) -> Iterator[CheckOutcome]:
    """The checks of the runs in one result folder.

    ``system`` is the name and content of its description, ``parameters`` what package_checker_params holds.
    """
    yield _runs(runs, folder, mlperf_round)
    yield _seeds(runs, mlperf_round, parameters)
    yield _equal_settings(runs, mlperf_round)
    yield _folder(runs, folder)
    yield _system(runs, folder, system, mlperf_round)


def _runs(runs: Sequence[MllogRun], folder: ResultFolder, mlperf_round: Round | None) -> CheckOutcome:
    benchmark = benchmark_of(runs, folder)
    required = required_runs(benchmark, mlperf_round)
    if required is None:
        return information(
            "runs", _FOLDER, f"the required number of runs of {benchmark or 'several benchmarks'} is unknown"
        )
    # With weak scaling the runs are instances of one job, and there may be more of them.
    if len(runs) == required or (folder.weak and len(runs) > required):
        return passed("runs", _FOLDER, f"{len(runs)} logs of {benchmark}")
    return error("runs", _FOLDER, f"{required} logs of {benchmark}", f"{len(runs)}")


def _judged_as_closed(runs: Sequence[MllogRun], mlperf_round: Round | None) -> bool:
    """Whether MLCommons' package checker compares seeds and batch sizes: closed, since v1.0."""
    return (mlperf_round is None or mlperf_round >= FIRST_SEEDED) and any(
        run.division != "open" for run in runs
    )


def _seeds(runs: Sequence[MllogRun], mlperf_round: Round | None, parameters: Sequence[str]) -> CheckOutcome:
    """No two runs share a seed that one line of the source logged, and not all runs have the same seeds."""
    first_run: dict[tuple[str, str, str], str] = {}
    problem = ""
    for run in runs:
        for seed in dict.fromkeys(run.seeds):
            other = first_run.setdefault(seed, run.name)
            if other != run.name and not problem:
                problem = f"seed {seed[2]} in {other} and {run.name}"
    without = [run.name for run in runs if not run.seeds]
    same = {frozenset(seed for _, _, seed in run.seeds) for run in runs}
    if len(runs) > 1 and len(same) == 1 and not without:
        problem = f"{', '.join(sorted(same.pop())[:5])} in all {len(runs)} runs"
    elif without and not problem:
        problem = f"no seed in {without[0]}, {len(without)} in all"
    # MLCommons' seed check reads every log to its end, and requires whole numbers.
    unread = [run.name for run in runs if run.log.unreadable]
    odd = [(run.name, seed) for run in runs for _, _, seed in run.seeds if not _WHOLE.fullmatch(seed)]
    if odd and not problem:
        problem = f"seed {odd[0][1]} in {odd[0][0]}"
    elif unread and not problem:
        problem = f"malformed lines in {unread[0]}, so that the seed check rejects the log"
    if not problem:
        return passed("seeds", _FOLDER, f"{len(first_run)} seeds of {len(runs)} runs")
    if not _judged_as_closed(runs, mlperf_round):
        if without:
            return information("seeds", _FOLDER, f"{problem}; no rule before v1.0 and in open")
        return warning("seeds", _FOLDER, "a different seed in each log", problem)
    if "seed-checker-bypass" in parameters:
        bypass = f"{problem}; {PARAMETERS} switches MLCommons' seed check off"
        return warning("seeds", _FOLDER, "a different seed in each log", bypass)
    return error("seeds", _FOLDER, "a different seed in each log", problem)


def _equal_settings(runs: Sequence[MllogRun], mlperf_round: Round | None) -> CheckOutcome:
    names = sorted({name for run in runs for name in run.settings})
    if any(run.benchmark in UNTIL_TARGET for run in runs):
        names = [name for name in names if name != "train_samples"]
    names.sort(key=lambda name: name != "global_batch_size")  # the one that MLCommons compares
    for name in names:
        values: dict[str | None, str] = {}
        for run in runs:
            values.setdefault(run.settings.get(name), run.name)
        if len(values) > 1:
            found = ", ".join(f"{value or 'none'} in {log}" for value, log in list(values.items())[:3])
            compared = name == "global_batch_size" and _judged_as_closed(runs, mlperf_round)
            return (error if compared else warning)("equal settings", _FOLDER, f"one value of {name}", found)
    if not names:
        return information("equal settings", _FOLDER, "the logs contain no setting")
    return passed("equal settings", _FOLDER, f"{len(names)} settings in {len(runs)} runs")


def _folder(runs: Sequence[MllogRun], folder: ResultFolder) -> CheckOutcome:
    if folder.benchmark is None:
        return information("folder", _FOLDER, "not <org>/results/<system>/<benchmark>")
    other_org: CheckOutcome | None = None
    for run in runs:
        for name in run.submission_values["submission_benchmark"]:
            if benchmark_name(name) != benchmark_name(folder.benchmark):
                return error("folder", run.name, f"benchmark {folder.benchmark}", name)
        for name in run.submission_values["submission_org"]:
            if folder.org is not None and _plain(name) != _plain(folder.org):
                other_org = other_org or warning("folder", run.name, f"organisation {folder.org}", name)
    return other_org or passed("folder", _FOLDER, f"{folder.org}, {folder.system}, {folder.benchmark}")


def _system(
    runs: Sequence[MllogRun],
    folder: ResultFolder,
    system: tuple[str, Mapping[str, Any]] | None,
    mlperf_round: Round | None,
) -> CheckOutcome:
    if folder.system is None:
        return information("system", _FOLDER, "not <org>/results/<system>/<benchmark>")
    if system is None:
        if mlperf_round == (0, 5):
            return information("system", _FOLDER, "no entry.json")
        return error("system", _FOLDER, f"systems/{folder.system}.json", "none")
    name, value = system
    disagreement = _disagreement(runs, folder, name, value)
    if disagreement is not None and disagreement.outcome == ERROR:
        return disagreement
    if name != "entry.json":
        missing = [field for field in SYSTEM_FIELDS if field not in value]
        if missing:
            severity = warning if mlperf_round is not None and mlperf_round < FIRST_SEEDED else error
            return severity(
                "system", name, f"the field {missing[0]}", f"{count(len(missing), 'missing field')}"
            )
        empty = [
            field for field in SYSTEM_FIELDS if field not in _MAY_BE_EMPTY and not str(value[field]).strip()
        ]
        if empty and disagreement is None:
            return warning("system", name, f"a value of {empty[0]}", f"{count(len(empty), 'empty field')}")
    return disagreement or passed("system", name, f"{len(value)} fields")


def _disagreement(
    runs: Sequence[MllogRun], folder: ResultFolder, name: str, value: Mapping[str, Any]
) -> CheckOutcome | None:
    """Organisation, division and status must agree; submission_platform is free text, not a system's name.

    A log of an open run in a closed submission is an error: open logs are judged by fewer rules.
    """
    found: list[CheckOutcome] = []
    submitter = str(value.get("submitter", folder.org))
    if _plain(submitter) != _plain(folder.org or ""):
        found.append(warning("system", name, f"submitter {folder.org}, as in the folder's name", submitter))
    for run in runs:
        for key, field in _AGREEING:
            normal = status_of if field == "status" else _plain
            described = str(value.get(field, ""))
            for logged in run.submission_values[key]:
                if field not in value or normal(logged) == normal(described):
                    continue
                hides = field == "division" and _plain(described) == "closed"
                severity = error if hides else warning
                found.append(severity("system", run.name, f"{key} as in {name}: {described}", logged))
    return min(found, key=lambda one: one.outcome != ERROR, default=None)


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
