"""The first fingerprint steps of a submission, computed again on this machine's processor in any framework.

A fingerprint's steps are small, untimed and the same maths everywhere, which the equivalence of the
frameworks makes comparable: what a GPU computed in a container can be held against a laptop.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from suite import rules as rulebook
from suite import workloads
from suite.audit.curves import passes
from suite.audit.items import ComparedItem, incomparable, sequences
from suite.common.support import loaders
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
from suite.replay.again import ReplayOptions

_SILENCE_S = 1800.0


def recompute(
    record: Record, here: ReplayOptions, framework: str, steps: int, threads: int | None
) -> list[ComparedItem]:
    """Losses, gradient norms and digests of the first ``steps`` steps, against those of ``record``.

    Raises a Refusal where the log has no fingerprint, the workload is not in ``framework``, or the worker
    fails.
    """
    event = record.fingerprint
    if event is None:
        raise Unsupported("fingerprint: the log holds none, so it has no steps that others can compute again")
    if steps < 1:
        raise BadConfiguration(f"steps: expected at least 1, found {steps}")
    one_of("framework", framework, workloads.frameworks(record.key.workload))
    python = here.python or _python(framework, here.fetch)
    count = threads or len(os.sched_getaffinity(0))
    started = time.monotonic()
    with _workers(here, python, count) as start:
        items = list(_passes(record, start, framework, steps))
        items.append(_batches(record, start, here, framework, steps))
    seconds = time.monotonic() - started
    print(f"computed in {framework} on {count} threads in {seconds:.0f} s", file=sys.stderr, flush=True)
    return items


def _python(framework: str, fetch: bool) -> Path:
    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    try:
        return environments.ensure(framework, "cpu", allow_large=fetch, progress=say)
    except (EnvironmentMissing, LargeDownload) as error:
        raise EnvironmentProblem(str(error)) from error


@contextmanager
def _workers(here: ReplayOptions, python: Path, threads: int) -> Iterator[Any]:
    """A function from a job and the event it ends with to that event."""
    here.cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=here.cache, prefix="first-steps-") as folder:
        scratch = Path(folder, "scratch")
        scratch.mkdir()
        workers = NativeWorkers(python, threads, "passive", "")

        def start(job: Mapping[str, Any], wanted: str) -> dict[str, Any]:
            told = {"device": "cpu", "threads": threads, "scratch_dir": str(scratch)}
            command = workers.command(0, scratch, None)
            try:
                with WorkerProcess(command, Path(folder, "debug.log")) as worker:
                    worker.configure({**job, **told})
                    if wanted == "fingerprint":
                        worker.expect("hello", _SILENCE_S)
                    found, _ = worker.expect(wanted, _SILENCE_S)
                    worker.expect("done", _SILENCE_S)
            except WorkerFailure as failure:
                raise EnvironmentProblem(
                    f"{wanted}: the worker failed ({failure.code} in phase {failure.phase}): "
                    f"{failure.message}"
                ) from failure
            return found

        yield start


def _passes(record: Record, start: Any, framework: str, steps: int) -> Iterator[ComparedItem]:
    rules = rulebook.load(record.header["rules"]["version"])
    limits = rules.limits["fingerprint"]
    wanted = fingerprint_passes(limits, record.key.phase, record.header["nonce"], record.run_id)
    short = [_shortened(one, steps) for one in wanted]
    found = start(fingerprint_job(rules, replace(record.key, framework=framework), short), "fingerprint")
    assert record.fingerprint is not None
    yield from passes(record, record.fingerprint["passes"], found["passes"], rules)


def _shortened(one: Mapping[str, Any], steps: int) -> dict[str, Any]:
    fewer = {name: min(int(one[name]), steps) for name in ("steps", "gradients") if name in one}
    return {**one, **fewer}


def _batches(record: Record, start: Any, here: ReplayOptions, framework: str, steps: int) -> ComparedItem:
    """The first batches of repeat 0, as its seed makes them from the data."""
    key, settings = record.key, record.header["settings"]
    if not record.repeats:
        return incomparable("batches", "the log has no repeat")
    if len(loaders(key)) > 1 and framework != key.framework:
        why = f"images are decoded as {key.framework} does it: FRAMEWORK={key.framework}"
        return incomparable("batches", why, 0)
    if record.header["loader"] == "dali":
        return incomparable("batches", "DALI decodes on a GPU", 0)
    folder = ""
    if key.data == "real":
        name = workloads.specification(key.workload).DATASETS[key.scale]
        storage = settings.get("storage", "files")
        try:
            if storage == "files":
                folder = str(prepare_dataset(name, here.data_root).path)
            else:
                folder = str(prepare_stored(name, storage, here.data_root).path)
        except DatasetError as error:
            return incomparable("batches", f"{name} is not here: {error}", 0)
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
    }
    found = start(job, "batches")["digests"]
    return sequences("batches", record.repeats[0].column("batch_digest")[:steps], found, 0)
