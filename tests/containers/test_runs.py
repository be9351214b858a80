"""Every pair in its pinned container: built, run, attested, accepted; and as fast as natively."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from suite import workloads
from suite.checker import check_result
from suite.harness.worker_process import WorkerProcess
from suite.plan import prepare
from suite.plan.machine import detect_machine
from suite.plan.prepared import PreparedRun
from suite.plan.resolve import resolve
from tests.containers.pairs import DATA, containers, events, published, result, run
from tests.unit.test_plan import settings

pytestmark = pytest.mark.docker
# One workload that reads tables, one that reads text; one that decodes images.
PAIRS = [(w, f) for w in ("ncf", "gnmt") for f in workloads.frameworks(w)] + [("resnet50", "pytorch")]
AT_MOST, LEAST_ROUNDS, MOST_ROUNDS = 1.05, 4, 12


@pytest.mark.parametrize(("workload", "framework"), PAIRS)
def test_a_pair_runs_in_its_image_and_is_accepted(workload: str, framework: str, tmp_path: Path) -> None:
    image = published(workload, framework)
    done = run(tmp_path, workload=workload, framework=framework)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "accepted" in done.stdout
    found = result(tmp_path)
    (header,) = events(found, "header")
    assert header["runtime"] == "docker"
    assert header["image"]["config_digest"] == image.config_digest
    facts = events(found, "env")
    outside = [event["facts"]["container"] for event in facts if event["side"] == "outside"]
    assert len(outside) == 5
    for seen in outside:
        assert seen["worth"] == "engine"
        assert tuple(seen["image"]["diff_ids"]) == image.diff_ids
        assert seen["confinement"]["network"] == "none"
        assert seen["confinement"]["read_only"] is True
        assert seen["confinement"]["root"] is False
    for event in facts:
        if event["side"] == "inside":
            assert event["facts"]["image_label"]["workload"] == workload
    assert check_result(found).accepted
    assert containers(found) == []


def test_steps_take_as_long_as_natively(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The shortest window of each side, interleaved, one thread each.

    Other processes only lengthen a window, so the shortest ones approach what each side needs. More rounds are
    made while a busy machine has not left both sides one undisturbed window.
    """
    published("gnmt", "pytorch")
    plans = {name: prepared(name, tmp_path) for name in ("native", "docker")}
    for name, plan in plans.items():
        window_ns(plan, 0, tmp_path / name)  # the first of each warms caches and is not counted
    shortest: dict[str, int] = {}
    for number in range(1, MOST_ROUNDS + 1):
        for name in ("native", "docker") if number % 2 else ("docker", "native"):
            took = window_ns(plans[name], number, tmp_path / name)
            shortest[name] = min(took, shortest.get(name, took))
        ratio = shortest["docker"] / shortest["native"]
        if number >= LEAST_ROUNDS and ratio <= AT_MOST:
            break
    with capsys.disabled():
        print(f"\nstep time in docker / natively: {ratio:.3f} (shortest windows of {number} rounds)")
    assert ratio <= AT_MOST


def prepared(runtime: str, place: Path) -> PreparedRun:
    words = (f"runtime={runtime}", f"data_root={DATA}", "framework.threads=1", f"cache_dir={place / 'cache'}")
    plan = resolve(settings(*words, workload="gnmt"), detect_machine())
    return prepare.prepare_run(plan, prepare.prepare_resources(plan), attempt=1)


def window_ns(run: PreparedRun, repeat: int, scratch: Path) -> int:
    """The window of one fresh worker, in ns."""
    folder = scratch / f"repeat-{repeat}"
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        workers = run.resources.workers
        worker = stack.enter_context(
            WorkerProcess(
                run.command(repeat, folder),
                scratch / "debug.log",
                remove=lambda: workers.remove(repeat),
            )
        )
        worker.configure(run.job(repeat, folder))
        worker.expect("hello", 60)
        worker.expect("window_open", 300)
        worker.command("go")
        close: dict[str, Any]
        close, _ = worker.expect("window_close", 300)
    return int(close["close_ns"]) - int(close["open_ns"])
