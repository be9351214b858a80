"""Counters, the sampling process and the look at the machine's load, all on real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from suite.log.nulls import unexplained
from suite.telemetry import load
from suite.telemetry.counters import CounterReader
from suite.telemetry.process import ProcessUsage, cpu_time_ns, descends
from suite.telemetry.reading import Unavailable
from suite.telemetry.sampler import Sampler

BUSY = "while True: pass"
ASLEEP = "import time; time.sleep(60)"


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", ASLEEP])
    yield process
    process.kill()
    process.wait()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_for_end(pid: int, seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not alive(pid)


def test_counters_of_this_process() -> None:
    probe = CounterReader(os.getpid())
    before, reasons = probe.read()
    junk = bytearray(8 << 20)
    sum(number * number for number in range(300_000))
    after, _ = probe.read()
    assert unexplained({**before, "reasons": reasons}) == (set(), set())
    assert before["devices"] == []
    assert after["processes"]["cpu_time_ns"] > before["processes"]["cpu_time_ns"]
    assert after["processes"]["rss_bytes"] >= len(junk)
    assert after["processes"]["threads"] >= 1


def test_counters_are_cheap() -> None:
    CounterReader(os.getpid()).read()
    costs = []
    for _ in range(20):
        began = time.process_time_ns()
        CounterReader(os.getpid()).read()
        costs.append(time.process_time_ns() - began)
    assert sorted(costs)[len(costs) // 2] < 30_000_000


def test_cpu_time_counts_all_threads() -> None:
    assert abs(cpu_time_ns(os.getpid()) - time.process_time_ns()) < 50_000_000


def test_ended_worker_has_null_counters_with_a_reason(child: subprocess.Popen[bytes]) -> None:
    process = ProcessUsage(child.pid)
    data, reasons = process.usage()
    assert data is not None
    child.kill()
    assert wait_for_end(child.pid)
    assert process.usage() == (None, {"": "the worker has ended"}), "a zombie has no memory to report"
    child.wait()
    assert process.usage() == (None, {"": "the worker has ended"})
    counters, reasons = CounterReader(child.pid).read()
    assert counters["host"] is None
    assert counters["processes"] is None
    assert unexplained({**counters, "reasons": reasons}) == (set(), set())


def test_descends_follows_parent_processes(child: subprocess.Popen[bytes]) -> None:
    assert descends(child.pid, os.getpid())
    assert not descends(os.getpid(), child.pid)
    with pytest.raises(Unavailable):
        descends(2**22 + 1, os.getpid())


def written(sampler: Sampler) -> int:
    """How many samples there are."""
    return os.pread(sampler._file, 1 << 24, 0).count(b"\n")


def await_samples(sampler: Sampler, count: int) -> None:
    """Wait for them: the sampler yields to other processes."""
    until = time.monotonic() + 60
    while written(sampler) < count:
        assert time.monotonic() < until, f"{written(sampler)} samples, not {count}"
        time.sleep(0.02)


def test_samples_have_stamps_and_reasons() -> None:
    began = time.monotonic_ns()
    with Sampler(os.getpid(), interval=0.1) as sampler:
        await_samples(sampler, 3)
        samples = sampler.stop()
    ended = time.monotonic_ns()
    assert sampler.failure is None
    assert len(samples) >= 3
    stamps = [stamp for stamp, _, _ in samples]
    assert stamps == sorted(set(stamps))
    assert began < stamps[0]
    assert stamps[-1] < ended
    for _, data, reasons in samples:
        assert set(data) == {"host", "processes", "devices"}
        assert unexplained({**data, "reasons": reasons}) == (set(), set())
    assert sampler.cost_ns is not None
    assert 0 < sampler.cost_ns < 2_000_000_000


def test_sample_takes_little_time() -> None:
    with Sampler(os.getpid(), interval=0.1) as sampler:
        await_samples(sampler, 10)
        samples = sampler.stop()
    assert sampler.cost_ns is not None
    each = sampler.cost_ns / (len(samples) - 1)
    assert 10_000 < each < 50_000_000, "at 1 Hz 50 ms are 5 % of one core, on a busy machine"


def test_sampling_continues_after_the_worker_ended(child: subprocess.Popen[bytes]) -> None:
    with Sampler(child.pid, interval=0.1) as sampler:
        await_samples(sampler, 1)
        child.kill()
        child.wait()
        await_samples(sampler, written(sampler) + 2)  # one may have begun before
        samples = sampler.stop()
    assert samples[0][1]["processes"] is not None
    assert samples[-1][1]["processes"] is None
    assert samples[-1][2]["processes"] == "the worker has ended"


def test_disabled_sampler_does_nothing() -> None:
    with Sampler(os.getpid(), enabled=False) as sampler:
        assert not sampler.wait()
        assert sampler.stop() == []
    assert sampler.cost_ns is None


def test_sampler_can_be_stopped_twice_and_after_a_kill() -> None:
    with Sampler(os.getpid(), interval=0.1) as sampler:
        assert sampler.wait()
        process = sampler._process
        assert process is not None
        process.kill()
        assert wait_for_end(process.pid)
        assert sampler.stop()
        assert sampler.stop() == []
    assert sampler.failure == "the sampling process ended with status -9"
    assert sampler.cost_ns is None


def test_leaving_the_context_ends_the_process() -> None:
    with Sampler(os.getpid()) as sampler:
        process = sampler._process
        assert process is not None
        assert alive(process.pid)
    assert not alive(process.pid)


def test_sampler_process_ends_with_a_killed_harness() -> None:
    code = (
        "import os, signal\n"
        "from suite.telemetry.sampler import Sampler\n"
        "sampler = Sampler(os.getpid()).__enter__()\n"
        "assert sampler.wait()\n"
        "print(sampler._process.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    home = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=home, check=False
    )
    assert done.returncode == -9
    assert wait_for_end(int(done.stdout))


def test_too_short_interval_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected at least 0\.1 s, found 0\.01"):
        Sampler(os.getpid(), interval=0.01)


def test_load_excludes_this_process_and_its_children(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child and the parent of this process have been busy: the second one alone is another process."""
    ended_meanwhile = 2**22 + 1
    busy = (os.getpid(), child.pid, os.getppid(), ended_meanwhile)
    times = iter([dict.fromkeys(busy, 0), dict.fromkeys(busy, 10**12)])
    monkeypatch.setattr(load, "_cpu_times", lambda: next(times))
    assert load.machine_load()["other_processes"] == 2


def test_cpu_times_are_those_of_all_processes(child: subprocess.Popen[bytes]) -> None:
    assert {os.getpid(), child.pid} <= set(load._cpu_times())
