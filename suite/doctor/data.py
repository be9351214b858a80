"""Which datasets are prepared."""

from __future__ import annotations

from collections.abc import Iterator

from suite import workloads
from suite.datasets import catalogue
from suite.datasets.errors import DatasetCorrupt, DatasetError
from suite.datasets.prepare import STAMP, available, missing_dataset
from suite.doctor.model import FAIL, OK, SKIP, WARN, DoctorCheck, Subject


def datasets(subject: Subject) -> Iterator[DoctorCheck]:
    """The datasets of the chosen workload, or of all."""
    for workload in [subject.workload] if subject.workload else workloads.names():
        for scale, dataset in workloads.specification(workload).DATASETS.items():
            yield _of(subject, f"data {workload} {scale}", dataset)


def _of(subject: Subject, name: str, dataset: str) -> DoctorCheck:
    entry = catalogue.entry(dataset)
    folder = subject.data_root.absolute() / dataset
    if not folder.exists():
        if entry.kind == "mini":
            return DoctorCheck(name, OK, f"{dataset} is generated when first needed")
        if entry.unavailable or subject.workload is None:
            return DoctorCheck(name, SKIP, str(missing_dataset(entry, folder)))
        fix = f"make data WORKLOAD={entry.workload}, or DATA=synthetic"
        return DoctorCheck(name, WARN, f"{dataset} is not in {folder}", fix)
    if not (folder / STAMP).is_file():  # hashing all files takes longer than a check may
        return DoctorCheck(name, OK, f"{dataset} is present; the first run verifies it")
    try:
        available(dataset, subject.data_root)
    except DatasetCorrupt as problem:
        return DoctorCheck(
            name, FAIL, str(problem), f"remove {folder}, then make data WORKLOAD={entry.workload}"
        )
    except DatasetError as problem:
        return DoctorCheck(name, FAIL, str(problem), f"fix the access to {folder}")
    return DoctorCheck(name, OK, f"{dataset} is present and verified")
