"""Every pair in its pinned container: built, run, attested, accepted; and as fast as natively."""

from __future__ import annotations

import math
import statistics
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
# One workload that reads tables, one that reads text; one that decodes pictures.
PAIRS = [(w, f) for w in ("ncf", "gnmt") for f in workloads.frameworks(w)] + [("resnet50", "pytorch")]
AT_MOST, ENOUGH, ROUNDS = 1.05, 8, 30


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
    """Windows in turn, one thread each; goes on while the noise of the machine leaves the answer open."""
    published("gnmt", "pytorch")
    plans = {name: prepared(name, tmp_path) for name in ("native", "docker")}
    for name, plan in plans.items():
        window_ns(plan, 0, tmp_path / name)  # the first of each warms caches and is not counted
    ratios: list[float] = []
    for turn in range(1, ROUNDS):
        order = ("native", "docker") if turn % 2 else ("docker", "native")
        took = {name: window_ns(plans[name], turn, tmp_path / name) for name in order}
        ratios.append(math.log(took["docker"] / took["native"]))
        if len(ratios) >= ENOUGH and upper_bound(ratios) < AT_MOST:
            break
    ratio = math.exp(statistics.median(ratios))
    with capsys.disabled():
        print(f"\nstep time in docker / natively: {ratio:.3f} (median of {len(ratios)} pairs of windows)")
    assert ratio <= AT_MOST


def upper_bound(logs: list[float]) -> float:
    """The upper end of the 95 % interval of the mean ratio."""
    return math.exp(statistics.mean(logs) + 2.3 * statistics.stdev(logs) / math.sqrt(len(logs)))


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
