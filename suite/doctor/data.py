"""Which datasets are prepared."""

from __future__ import annotations

from collections.abc import Iterator

from suite import workloads
from suite.datasets import catalogue
from suite.datasets.errors import DatasetCorrupt, DatasetError
from suite.datasets.prepare import STAMP, available
from suite.doctor.model import FAIL, OK, SKIP, WARN, DoctorCheck, Subject


def datasets(subject: Subject) -> Iterator[DoctorCheck]:
    """The datasets of the chosen workload, or of all; those at mini scale that are sound share one check."""
    used: dict[str, list[str]] = {}
    for workload in [subject.workload] if subject.workload else workloads.names():
        for dataset in workloads.specification(workload).DATASETS.values():
            used.setdefault(dataset, []).append(workload)
    mini: dict[str, list[str]] = {}
    for dataset, users in used.items():
        check = _of(subject, dataset)
        if check.state == OK and catalogue.entry(dataset).kind == "mini":
            mini.setdefault(check.found, []).append(dataset)
        else:
            yield DoctorCheck(check.name, check.state, f"for {', '.join(users)}: {check.found}", check.fix)
    if mini:
        found = "; ".join(f"{', '.join(names)}: {state}" for state, names in mini.items())
        yield DoctorCheck("data mini", OK, found)


def _of(subject: Subject, dataset: str) -> DoctorCheck:
    name, entry = f"data {dataset}", catalogue.entry(dataset)
    folder = subject.data_root.absolute() / dataset
    if not folder.exists():
        if entry.kind == "mini":
            return DoctorCheck(name, OK, "generated when first needed")
        found = f"not in {folder}"
        if entry.unavailable:
            return DoctorCheck(name, SKIP, f"{found}: {entry.unavailable}", "DATA=synthetic")
        fix = f"make data WORKLOAD={entry.workload}"
        fix += " (FROM=path: your copy)" if entry.fetchable else " FROM=path (registered users get it)"
        return DoctorCheck(name, WARN if subject.workload else SKIP, found, f"{fix}, or DATA=synthetic")
    if not (folder / STAMP).is_file():  # hashing all files takes longer than a check may
        return DoctorCheck(name, OK, "present; the first run verifies it")
    try:
        available(dataset, subject.data_root)
    except DatasetCorrupt as problem:
        return DoctorCheck(
            name, FAIL, str(problem), f"remove {folder}, then make data WORKLOAD={entry.workload}"
        )
    except DatasetError as problem:
        return DoctorCheck(name, FAIL, str(problem), f"fix the access to {folder}")
    return DoctorCheck(name, OK, "present and verified")
