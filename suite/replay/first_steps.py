"""Recompute the first fingerprint steps of a submission on this machine's CPU, in any framework.

The steps of a fingerprint are small and untimed, and all frameworks compute equivalent values: the result of
a GPU in a container can be compared with that of a laptop.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from suite import rules as rulebook
from suite import workloads
from suite.audit.curves import passes
from suite.audit.items import ComparedItem, incomparable, sequences
from suite.common.support import decodes_on_gpu, reads_images
from suite.containers.engines.workers import NativeWorkers
from suite.contract import BENCHMARK
from suite.contract.seeds import fingerprint_passes, seed_of
from suite.datasets.errors import DatasetError
from suite.datasets.prepare import prepare as prepare_dataset
from suite.datasets.record_folder import prepare_stored
from suite.environments import environments
from suite.environments.errors import EnvironmentMissing, LargeDownload
from suite.harness.fingerprint import fingerprint_job
from suite.harness.worker_process import WorkerFailure, WorkerProcess
from suite.log.model import Record
from suite.plan.errors import BadConfiguration, EnvironmentProblem, Unsupported, one_of
from suite.replay.repeats import ReplayOptions

_SILENCE_S = 1800.0
RunJob = Callable[[Mapping[str, Any], str], list[dict[str, Any]]]


def recompute(
    record: Record, options: ReplayOptions, framework: str, steps: int, threads: int | None
) -> list[ComparedItem]:
    """Compare losses, gradient norms and digests of the first ``steps`` steps with those of ``record``.

    Raises a Refusal if the log has no fingerprint, ``framework`` has no pair of the workload, or the worker
    fails.
    """
    event = record.fingerprint
    if event is None:
        raise Unsupported(
            "fingerprint: expected one in the log, found none: no other machine can recompute its steps"
        )
    if steps < 1:
        raise BadConfiguration(f"steps: expected at least 1, found {steps}")
    one_of("framework", framework, workloads.frameworks(record.key.workload))
    python = options.python or _interpreter(framework, options.fetch)
    count = threads or len(os.sched_getaffinity(0))
    started = time.monotonic()
    with _workers(options.cache, python, count) as run_job:
        items = list(_compare_passes(record, run_job, framework, steps))
        items.append(_compare_batches(record, run_job, options.data_root, framework, steps))
    seconds = time.monotonic() - started
    print(f"computed in {framework} on {count} threads in {seconds:.0f} s", file=sys.stderr, flush=True)
    return items


def _interpreter(framework: str, fetch: bool) -> Path:
    print_progress = partial(print, file=sys.stderr, flush=True)
    try:
        return environments.ensure(framework, "cpu", allow_large=fetch, progress=print_progress)
    except (EnvironmentMissing, LargeDownload) as error:
        raise EnvironmentProblem(str(error)) from error


@contextmanager
def _workers(cache: Path, python: Path, threads: int) -> Iterator[RunJob]:
    """Give a function that runs a job in a worker until every rank sends an event, and returns the events."""
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="first-steps-") as folder:
        scratch = Path(folder, "scratch")
        scratch.mkdir()
        workers = NativeWorkers(python, threads, "passive", "")

        def run_job(job: Mapping[str, Any], event: str) -> list[dict[str, Any]]:
            local_fields = {"device": "cpu", "threads": threads, "scratch_dir": str(scratch)}
            command = workers.command(0, scratch, None)
            try:
                with WorkerProcess(command, Path(folder, "debug.log")) as worker:
                    worker.configure({**job, **local_fields})
                    if event == "fingerprint":
                        worker.expect("hello", _SILENCE_S)
                    events, _ = worker.expect_all(event, _SILENCE_S)
                    worker.expect_all("done", _SILENCE_S)
            except WorkerFailure as failure:
                raise EnvironmentProblem(
                    f"{event}: the worker failed ({failure.code} in phase {failure.phase}): {failure.message}"
                ) from failure
            return events

        yield run_job


def _compare_passes(record: Record, run_job: RunJob, framework: str, steps: int) -> Iterator[ComparedItem]:
    rules = rulebook.load(record.header["rules"]["version"])
    limits = rules.limits["fingerprint"]
    wanted = fingerprint_passes(limits, record.key.phase, record.header["nonce"], record.run_id)
    short = [_shortened(one, steps) for one in wanted]
    (found,) = run_job(fingerprint_job(rules, replace(record.key, framework=framework), short), "fingerprint")
    assert record.fingerprint is not None
    yield from passes(record, record.fingerprint["passes"], found["passes"], rules)


def _shortened(one: Mapping[str, Any], steps: int) -> dict[str, Any]:
    fewer = {name: min(int(one[name]), steps) for name in ("steps", "gradients") if name in one}
    return {**one, **fewer}


def _compare_batches(
    record: Record, run_job: RunJob, data_root: Path, framework: str, steps: int
) -> ComparedItem:
    """Compare the digests of the first batches of repeat 0, recomputed from its seed and the data."""
    key, settings = record.key, record.header["settings"]
    if not record.repeats:
        return incomparable("batches", "the log has no repeat")
    if reads_images(key) and framework != key.framework:
        why = f"the decoder of images is that of {key.framework}; set FRAMEWORK={key.framework}"
        return incomparable("batches", why, 0)
    loader = record.header["loader"]
    if loader == "dali" or decodes_on_gpu(key, settings["device"], loader):
        return incomparable("batches", "DALI or a GPU decoded the images", 0)
    folder = ""
    if key.data == "real":
        name = workloads.specification(key.workload).DATASETS[key.scale]
        storage = settings.get("storage", "files")
        try:
            if storage == "files":
                folder = str(prepare_dataset(name, data_root).path)
            else:
                folder = str(prepare_stored(name, storage, data_root).path)
        except DatasetError as error:
            return incomparable("batches", f"the dataset {name} is missing: {error}", 0)
    job = {
        "kind": BENCHMARK,
        "key": asdict(replace(key, framework=framework)),
        "mode": "batches",
        "seed": seed_of(record.header["nonce"], record.run_id, 0),
        "repeat": 0,
        "hyper": dict(record.header["hyper"]),
        "fast": False,
        "soak_ns": 0,
        "tail_ns": 0,
        "data_dir": folder,
        "loader": record.header["loader"],
        "probe_steps": steps,
        "world_size": key.devices,
    }
    wanted: list[str] = []
    found: list[str] = []
    for rank, event in enumerate(run_job(job, "batches")):
        wanted += record.repeats[0].column("batch_digest", rank)[:steps]
        found += event["digests"]
    return sequences("batches", wanted, found, 0)
