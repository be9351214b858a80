"""Run workers of the suite without its harness, on a machine that has only a framework's interpreter.

    python tools/cells.py [OPTIONS] FRAMEWORK PYTHON SECONDS CELL...

PYTHON is the framework's interpreter, SECONDS the limit of one cell from the start of its process. A cell is
``workload:phase[:NAME=VALUE[,NAME=VALUE]...]``: batch, variant, precision, scenario, scale, fast.

Each cell is a fresh ``python -m suite.worker``: set-up, compilation, ten warm-up steps, the window of 100
steps, the report. The tool prints one line a cell, and writes one JSON line a cell to ``cells.jsonl`` and the
worker's text to ``<cell>.log``. On a time-out it prints the last phase, the busiest threads, child processes,
the GPU's load and the end of the log, which has the Python stack of every thread. It exits with 1 if a cell
is not done. It needs Python 3.10 and the standard library, and runs from the repository's root. No rule
holds: its rates are for development.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import os
import queue
import re
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(os.environ.get("SUITE_ROOT") or Path(__file__).resolve().parents[1])
TOKEN = "cells"
OF_CELL = ("batch", "variant", "precision", "scenario", "scale", "fast")
TIMES = ("import", "setup", "compile", "warmup")
_LOGGED = (
    "gpu_compiler nvptx_compiler conv_algorithm_picker gemm_fusion_autotuner gemm_algorithm_picker "
    "autotuner autotuner_pass autotuner_util autotuner_compile_util xla_compilation_cache device_compiler "
    "xla_launch_util"
)
XLA_LOG = ",".join(f"{name}=1" for name in _LOGGED.split())


def child() -> None:
    """Become the worker, which dumps the Python stacks on SIGUSR1.

    Not at intervals: a dump within torch.compile can end the process (segmentation fault, Python 3.12).
    """
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    sys.argv = ["suite.worker"]
    runpy.run_module("suite.worker", run_name="__main__", alter_sys=True)


def parse_cell(text: str, options: argparse.Namespace) -> dict[str, Any]:
    workload, phase, *rest = text.split(":", 2)
    given: dict[str, Any] = (
        dict(pair.split("=", 1) for pair in rest[0].split(",")) if rest and rest[0] else {}
    )
    if not set(given) <= set(OF_CELL) or phase not in ("train", "infer"):
        raise SystemExit(f"{text}: expected workload:train|infer[:{'=,'.join(OF_CELL)}=]")
    usual = {"precision": options.precision, "scale": options.scale}
    return {"workload": workload, "phase": phase, **usual, **given}


def job_of(
    cell: dict[str, Any], options: argparse.Namespace, scratch: Path
) -> tuple[Any, Any, dict[str, Any]]:
    """The key and the configuration of the cell's worker, by the suite's own specification."""
    from suite.contract import Key
    from suite.contract.workloads import specification

    spec, scale = specification(cell["workload"]), cell["scale"]
    batch = int(cell.get("batch", spec.BATCHES[scale][0]))
    variant = cell.get("variant", spec.VARIANTS[scale][0])
    scenario = cell.get("scenario", "offline")
    key = Key(
        cell["workload"], options.framework, cell["phase"], scenario, cell["precision"], batch, 1, scale,
        "synthetic", "warm", variant,
    )  # fmt: skip
    job = {
        "kind": "benchmark",
        "key": asdict(key),
        "mode": "throughput",
        "seed": options.seed,
        "repeat": 0,
        "hyper": dict(spec.hyperparameters(scale, variant)),
        "device": options.device,
        "threads": options.threads,
        "fast": cell.get("fast", "true") == "true",
        "soak_ns": int(options.soak * 1e9),
        "tail_ns": 0,
        "data_dir": "",
        "scratch_dir": str(scratch),
    }
    return spec, key, job


def environment(options: argparse.Namespace, scratch: Path, cache: Path) -> dict[str, str]:
    from suite.containers.engines.native import worker_environment

    found = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        **worker_environment(str(scratch), str(cache), str(ROOT), options.threads, "passive"),
        "TF_CPP_MIN_LOG_LEVEL": "0",
        "SUITE_ROOT": str(ROOT),
    }
    for name in ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH"):
        if name in os.environ:
            found[name] = os.environ[name]
    if options.device == "cpu":
        found["CUDA_VISIBLE_DEVICES"] = ""
    if options.verbose:
        found["TF_CPP_VMODULE"] = XLA_LOG
        found["TF_CPP_MAX_VLOG_LEVEL"] = "0"
    if options.jobs > 1 and options.framework == "jax":
        found["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    for pair in options.env:
        name, _, value = pair.partition("=")
        found[name] = value
    return found


def gpu_state() -> str:
    query = "utilization.gpu,memory.used,clocks.sm,power.draw"
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        return "; ".join(done.stdout.split("\n")).strip("; ")
    return "no nvidia-smi"


def thread_times(pid: int) -> dict[str, int]:
    found = {}
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            text = path.read_text()
            name = text[text.index("(") + 1 : text.rindex(")")]
            fields = text[text.rindex(")") + 2 :].split()
            found[f"{path.parent.name}/{name}"] = int(fields[11]) + int(fields[12])
    return found


def busiest(pid: int) -> list[str]:
    """The native threads that use a processor in two seconds, and the child processes."""
    before = thread_times(pid)
    time.sleep(2)
    after, ticks = thread_times(pid), os.sysconf("SC_CLK_TCK")
    used = {name: (ticks_now - before.get(name, 0)) / ticks / 2 for name, ticks_now in after.items()}
    top = sorted(used.items(), key=lambda pair: -pair[1])[:8]
    lines = [f"{name} {100 * share:.0f} %" for name, share in top if share > 0.02] or ["no thread is busy"]
    children = Path(f"/proc/{pid}/task/{pid}/children")
    with contextlib.suppress(OSError):
        started = [Path(f"/proc/{each}/cmdline").read_bytes() for each in children.read_text().split()]
        lines += ["child " + line.replace(b"\0", b" ").decode()[:100] for line in started]
    return lines


class Worker:
    """One worker and its events."""

    def __init__(self, argv: list[str], env: dict[str, str], folder: Path, log: Path) -> None:
        self.started = time.monotonic()
        self.phases: list[tuple[str, float]] = []
        self.log = log
        self.process = subprocess.Popen(
            argv, env=env, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log.open("wb"),
            start_new_session=True,
        )  # fmt: skip
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._input, self._output = self.process.stdin, self.process.stdout
        self.events: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._output:
            token, _, text = line.partition(b" ")
            if token == TOKEN.encode():
                self.events.put(json.loads(text))
        self.events.put(None)

    def write(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._input.write(json.dumps(message).encode() + b"\n")
            self._input.flush()

    def elapsed(self) -> float:
        return time.monotonic() - self.started

    def next(self, limit: float) -> dict[str, Any] | None:
        """The next event; None at its end; queue.Empty at the limit (seconds from the start)."""
        event = self.events.get(timeout=self._left(limit))
        if event and event["event"] == "phase":
            self.phases.append((event["name"], round(self.elapsed(), 1)))
        return event

    def wait(self, limit: float) -> int:
        """Its exit status, once it has ended; subprocess.TimeoutExpired at the limit."""
        return self.process.wait(self._left(limit))

    def _left(self, limit: float) -> float:
        return max(0.001, limit - self.elapsed())

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def run_cell(text: str, options: argparse.Namespace) -> dict[str, Any]:
    cell = parse_cell(text, options)
    name = re.sub(r"[^a-z0-9_=.-]+", "-", f"{options.framework}-{text}")
    row: dict[str, Any] = {
        "cell": text,
        "framework": options.framework,
        "device": options.device,
        "env": options.env,
        **cell,
    }
    with tempfile.TemporaryDirectory(prefix="cell-") as folder:
        scratch, cache = Path(folder, "repeat-0"), Path(options.cache or Path(folder, "cache"))
        scratch.mkdir()
        cache.mkdir(parents=True, exist_ok=True)
        spec, key, job = job_of(cell, options, scratch)
        row |= {"batch": key.batch, "variant": key.variant}
        argv = [
            str(Path(options.python).absolute()),
            "-s",
            "-u",
            str(Path(__file__).resolve()),
            "--child",
        ]
        worker = Worker(argv, environment(options, scratch, cache), scratch, options.out / f"{name}.log")
        try:
            worker.write({"token": TOKEN, "job": job})
            row |= drive(worker, options.seconds, spec, key, options.seed)
        finally:
            row["phases"] = worker.phases
            row["total_s"] = round(worker.elapsed(), 1)
            worker.end()
    return row


def drive(worker: Worker, limit: float, spec: Any, key: Any, seed: int) -> dict[str, Any]:
    """Answer the worker's events until it ends; the fields of the cell's row."""
    row: dict[str, Any] = {"status": "ended"}
    while True:
        try:
            event = worker.next(limit)
            status = worker.wait(limit) if event is None else None
        except (queue.Empty, subprocess.TimeoutExpired):
            return row | timed_out(worker)
        if event is None:
            if row["status"] in ("done", "fault"):
                return row
            return row | {"status": f"exit {status}", "tail": tail(worker.log, 15)}
        kind = event["event"]
        if kind == "hello":
            row |= {"facts": event["facts"], "hello_s": round(worker.elapsed(), 1)}
        elif kind == "window_open":
            worker.write({"command": "go"})
        elif kind == "window_close":
            worker.write({"command": "tail"})
            row |= rate_of(event, spec, key, seed)
        elif kind in ("steps", "repeat_end"):
            row |= reported(event)
        elif kind == "fault":
            row |= {name: event[name] for name in ("code", "phase", "message")}
            row |= {"status": "fault", "tail": tail(worker.log, 15)}
        elif kind == "done":
            row["status"] = "done"


def rate_of(event: dict[str, Any], spec: Any, key: Any, seed: int) -> dict[str, Any]:
    """Window in seconds, its units, units and TFLOP a second."""
    seconds = (event["close_ns"] - event["open_ns"]) / 1e9
    units = sum(spec.units(key, seed)[10:])
    found = {"window_s": round(seconds, 4), "units": units, "unit": spec.UNIT, "rate": units / seconds}
    return found | {"tflops": round(spec.window_flop(key) / seconds / 1e12, 2)}


def reported(event: dict[str, Any]) -> dict[str, Any]:
    """What the worker reports of its steps and of the whole repeat."""
    if event["event"] == "steps":
        losses, ends = event["losses"], event["timestamps"][10:]
        return {
            "losses": [round(float.fromhex(losses[at]), 5) for at in (0, 9, 109)] if losses else None,
            "timestamps": {"first": ends[0], "last": ends[-1], "increasing": ends == sorted(ends)},
            "dispatched_last_s": round(event["dispatched"][-1] / 1e9, 4),
        }
    times = {f"{name}_s": round(event[f"{name}_ns"] / 1e9, 2) for name in TIMES}
    kept = {name: event[name] for name in ("memory", "dtypes", "timestamp_kind", "final")}
    return times | kept | {"collect_s": round(event["window"]["collect_ns"] / 1e9, 4)}


def timed_out(worker: Worker) -> dict[str, Any]:
    busy = busiest(worker.process.pid)
    gpu = gpu_state()
    with contextlib.suppress(ProcessLookupError):
        worker.process.send_signal(signal.SIGUSR1)
    time.sleep(1)
    return {"status": "timed_out", "busy": busy, "gpu": gpu, "tail": tail(worker.log, 40)}


def tail(path: Path, count: int) -> list[str]:
    text = path.read_bytes()[-200_000:].decode(errors="replace")
    return [line[:300] for line in text.splitlines() if line.strip()][-count:]


def summary(row: dict[str, Any]) -> str:
    named = " ".join(
        row[name] for name in ("framework", "workload", "phase", "scale", "variant", "precision")
    )
    head = f"{named} b{row['batch']}"
    if row["status"] == "done":
        peak = row["memory"].get("peak_device_bytes")
        memory = f"{peak / 1e9:.2f} GB" if peak else f"rss {row['memory']['peak_rss_bytes'] / 1e9:.2f} GB"
        times = ", ".join(f"{name} {row[f'{name}_s']} s" for name in TIMES)
        step = f"{10 * row['window_s']:.3f} ms a step, {row['tflops']} TFLOP/s"
        collect = f"collect {1e3 * row['collect_s']:.0f} ms of the window"
        rate = f"{row['rate']:,.0f} {row['unit']}s/s ({step})"
        return f"OK   {head}: {rate}, {times}, {collect}, {memory}, losses {row['losses']}"
    if row["status"] == "timed_out":
        name, since = row["phases"][-1] if row["phases"] else ("start", 0)
        state = f"GPU {row['gpu']}; busy: {'; '.join(row['busy'])}"
        return f"TIME {head}: {row['total_s']} s, in phase {name} since {since} s; {state}"
    why = f"{row['code']} in {row['phase']}: {row['message']}" if row["status"] == "fault" else row["status"]
    return f"FAIL {head}: {why} after {row['total_s']} s"


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        child()
        return 0
    sys.path.insert(0, str(ROOT))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--scale", default="reference")
    parser.add_argument("--jobs", type=int, default=1, help="cells at once, for checks, not for rates")
    parser.add_argument("--threads", type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--soak", type=float, default=0.0, help="seconds of untimed steps before the repeat")
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="a variable of the workers"
    )
    parser.add_argument("--verbose", action="store_true", help="XLA's log of compilation and autotuning")
    parser.add_argument("--cache", help="a folder of compilation caches that all cells share")
    parser.add_argument(
        "--deadline",
        type=float,
        default=0,
        help="start no cell that could end later than this many seconds from now",
    )
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "results/cells")))
    parser.add_argument("framework")
    parser.add_argument("python")
    parser.add_argument("seconds", type=float)
    parser.add_argument("cells", nargs="+")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    lock, started = threading.Lock(), time.monotonic()

    def one(text: str) -> bool:
        if options.deadline and time.monotonic() - started + options.seconds > options.deadline:
            print(f"SKIP {text}: {options.deadline - time.monotonic() + started:.0f} s left", flush=True)
            return False
        row = run_cell(text, options)
        with lock:
            print(summary(row), flush=True)
            if row["status"] != "done":
                print("\n".join(f"     | {line}" for line in row["tail"]), flush=True)
            with (options.out / "cells.jsonl").open("a") as file:
                file.write(json.dumps(row, default=str) + "\n")
        return bool(row["status"] == "done")

    with ThreadPoolExecutor(options.jobs) as pool:
        done = [future.result() for future in [pool.submit(one, text) for text in options.cells]]
    return 0 if all(done) else 1


if __name__ == "__main__":
    raise SystemExit(main())
