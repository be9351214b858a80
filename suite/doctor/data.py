"""Which datasets are prepared."""

from __future__ import annotations

from collections.abc import Iterator

from suite import workloads
from suite.datasets import catalogue as registry
from suite.datasets.errors import DatasetCorrupt, DatasetError
from suite.datasets.prepare import STAMP, available, missing_dataset
from suite.doctor.model import FAIL, OK, SKIP, WARN, Check, Subject


def datasets(subject: Subject) -> Iterator[Check]:
    """The datasets of the workload asked for, or of all."""
    for workload in [subject.workload] if subject.workload else workloads.names():
        for scale, dataset in workloads.specification(workload).DATASETS.items():
            yield _of(subject, f"data {workload} {scale}", dataset)


def _of(subject: Subject, name: str, dataset: str) -> Check:
    entry = registry.entry(dataset)
    folder = subject.data_root.absolute() / dataset
    if not folder.exists():
        if entry.kind == "mini":
            return Check(name, OK, f"{dataset} is generated when first needed")
        if entry.unavailable or subject.workload is None:
            return Check(name, SKIP, str(missing_dataset(entry, folder)))
        fix = f"make data WORKLOAD={entry.workload}, or DATA=synthetic"
        return Check(name, WARN, f"{dataset} is not in {folder}", fix)
    if not (folder / STAMP).is_file():  # hashing it all takes longer than a doctor may
        return Check(name, OK, f"{dataset} is here, and is verified by the first run")
    try:
        available(dataset, subject.data_root)
    except DatasetCorrupt as problem:
        return Check(name, FAIL, str(problem), f"remove {folder}, then make data WORKLOAD={entry.workload}")
    except DatasetError as problem:
        return Check(name, FAIL, str(problem), f"fix the access to {folder}")
    return Check(name, OK, f"{dataset} is here and verified")
