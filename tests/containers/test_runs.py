"""Pairs in their pinned container images: built, run, attested, accepted, and not slowed down."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from suite import workloads
from suite.checker import check_result
from suite.contract.traits import traits_of
from suite.harness.worker_process import WorkerProcess
from suite.plan import prepare
from suite.plan.machine import detect_machine
from suite.plan.prepared import PreparedRun
from suite.plan.resolve import resolve
from tests.containers import daemon, engine
from tests.containers.pairs import DATA, containers, events, published, result, run
from tests.end_to_end.test_training_on_ranks import assert_ranks_exchanged
from tests.unit.test_plan import settings

pytestmark = pytest.mark.docker
# `ncf` runs in every framework. A workload that reads text and one that decodes images run in some: the
# layers of their container images are made in the same way for all.
PAIRS = [("ncf", framework) for framework in workloads.frameworks("ncf")] + [
    ("gnmt", "pytorch"),
    ("gnmt", "mxnet"),
    ("resnet50", "pytorch"),
]
FINGERPRINTS = (("gnmt", "pytorch"), ("resnet50", "pytorch"))
# Two processes of one program differ by up to 8 %: more than a container costs. The bound finds what a wrong
# setting costs, such as a limit on processor time.
MAX_RATIO, MIN_ROUNDS, MAX_ROUNDS = 1.25, 3, 8


@pytest.mark.parametrize(("workload", "framework"), PAIRS)
def test_run_in_container_is_attested_and_accepted(workload: str, framework: str, tmp_path: Path) -> None:
    """Two ranks of ``ncf`` exchange gradients in a container without a network; the others are one rank.

    Each run has one repeat; test_bundle.py has the five of the rules, each in a container of its own. Another
    container takes the fingerprint of some; tests/end_to_end has one of ``ncf`` in each framework.
    """
    image = published(workload, framework)
    ranks = 2 if workload == "ncf" and traits_of(framework).strategies else 1
    options = (f"devices={ranks}", "repeats=1", f"fingerprint={(workload, framework) in FINGERPRINTS}")
    done = run(tmp_path, *options, workload=workload, framework=framework)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "accepted" in done.stdout
    found = result(tmp_path)
    if ranks == 2:
        assert "ranks: " in done.stdout
        assert_ranks_exchanged(found / "run.jsonl", framework)
    (header,) = events(found, "header")
    assert header["runtime"] == "docker"
    assert header["image"]["config_digest"] == image.config_digest
    facts = events(found, "env")
    assert len([event for event in facts if event["side"] == "inside"]) == ranks
    (container,) = [event["facts"]["container"] for event in facts if event["side"] == "outside"]
    assert container["worth"] == "engine"
    assert tuple(container["image"]["diff_ids"]) == image.diff_ids
    assert container["confinement"]["network"] == "none"
    assert container["confinement"]["read_only"] is True
    assert container["confinement"]["root"] is False
    for event in facts:
        if event["side"] == "inside":
            assert event["facts"]["image_label"]["workload"] == workload
    assert check_result(found).accepted
    assert containers(found) == []


def test_container_that_is_started_early_is_attested_in_its_own_repeat(tmp_path: Path) -> None:
    published("ncf", "pytorch")
    done = run(tmp_path, "repeats=3", framework="pytorch", early=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = result(tmp_path)
    facts = [event["facts"]["container"] for event in events(found, "env") if event["side"] == "outside"]
    assert [one["worth"] for one in facts] == ["engine"] * 3
    first, *later = (event["import_ns"] for event in events(found, "rank_end"))
    assert max(later) < first / 2
    assert check_result(found).accepted
    assert containers(found) == []


@pytest.mark.quiet
def test_container_does_not_slow_the_window_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Compares the shortest windows of interleaved repeats with one thread each.

    Other processes and cold caches only lengthen a window, so that the shortest window approaches the
    undisturbed time. On a busy machine, the test makes further rounds until both sides had such a window.
    """
    lost = daemon.ended_by_itself("dockerd", engine.STATE)
    begun = monotonic()
    published("ncf", "mxnet")  # the image that is made fastest
    image_s = monotonic() - begun
    plans = {name: prepared(name, tmp_path) for name in ("native", "docker")}
    shortest: dict[str, int] = {}
    for number in range(1, MAX_ROUNDS + 1):
        order = ("native", "docker") if number % 2 else ("docker", "native")
        with ExitStack() as stack:  # both start up at once and wait; their windows follow one another
            workers = {
                name: stack.enter_context(started(plans[name], number, tmp_path / name)) for name in order
            }
            for worker in workers.values():
                worker.expect("hello", 60)
                worker.expect("window_open", 300)
            for name, worker in workers.items():
                duration = window_ns(worker)
                shortest[name] = min(duration, shortest.get(name, duration))
        ratio = shortest["docker"] / shortest["native"]
        if number >= MIN_ROUNDS and ratio <= MAX_RATIO:
            break
    with capsys.disabled():
        text = f"shortest windows of {number} rounds; the image was there after {image_s:.0f} s"
        print(f"\nstep time in docker / natively: {ratio:.3f} ({text})")
        if lost:
            print(f"the engine of the tests before had ended: {lost}")
    assert ratio <= MAX_RATIO


def prepared(runtime: str, folder: Path) -> PreparedRun:
    options = (
        f"runtime={runtime}",
        f"data_root={DATA}",
        "framework.threads=1",
        "batch=16384",  # a window of a second is ten of the periods in which the kernel limits processor time
        f"cache_dir={folder / 'cache'}",
    )
    plan = resolve(settings(*options, workload="ncf", framework="mxnet"), detect_machine())
    return prepare.prepare_run(plan, prepare.prepare_resources(plan), attempt=1)


def started(run: PreparedRun, repeat: int, scratch: Path) -> WorkerProcess:
    """A fresh worker with its job."""
    folder = scratch / f"repeat-{repeat}"
    folder.mkdir(parents=True)
    workers = run.resources.workers
    worker = WorkerProcess(
        run.command(repeat, folder), scratch / "debug.log", remove=lambda: workers.remove(repeat)
    )
    worker.configure(run.job(repeat, folder))
    return worker


def window_ns(worker: WorkerProcess) -> int:
    """The duration of the window of a worker that waits for its start, in ns. The worker is ended."""
    worker.command("go")
    close: dict[str, Any]
    close, _ = worker.expect("window_close", 300)
    worker.end()
    return int(close["close_ns"]) - int(close["open_ns"])
