"""The machine baseline's GEMMs and copies beside plain loops of PyTorch, interleaved in one process.

    python -m peers.baseline_plain                 # GPU 0: two minutes
    python -m peers.baseline_plain --device cpu    # the same code with small sizes, to test it

The plain loops use their own tensors and ``time.perf_counter`` between two ``torch.cuda.synchronize``. A GEMM
is timed in the last third of a burst on both sides. Prints one JSON line for each series: the median rate of
both (FLOP/s or bytes/s), their ratio, and the coefficient of variation of the windows of each.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from suite.frameworks.pytorch.baseline import gpu
from suite.frameworks.pytorch.baseline.windows import Measurement

Rate = Callable[[], float]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=0.25, help="of a window of copies")
    parser.add_argument("--burst", type=float, default=2.0, help="seconds of a burst of GEMMs")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    device = torch.device(options.device)
    for name, ours, plain in _series(device, options.seconds, options.burst):
        rates: dict[str, list[float]] = {"suite": [], "plain": []}
        sides = [("suite", ours), ("plain", plain)]
        for at in range(options.rounds):
            for side, rate in sides if at % 2 == 0 else sides[::-1]:
                rates[side].append(rate())
        medians = {side: statistics.median(found) for side, found in rates.items()}
        variation = {
            f"{side}_cv": statistics.stdev(found) / statistics.mean(found) for side, found in rates.items()
        }
        ratio = medians["suite"] / medians["plain"]
        print(json.dumps({"series": name, **medians, "ratio": ratio, **variation}), flush=True)


def _series(device: torch.device, seconds: float, burst: float) -> Iterator[tuple[str, Rate, Rate]]:
    sizes = gpu.SMALL if device.type == "cpu" else gpu.GPU
    for precision in gpu.PRECISIONS:
        ours = gpu.gemm("suite", device, precision, sizes.gemm, burst)
        yield f"gemm_{precision}", _rate_of(ours), _gemm(device, precision, sizes.gemm, burst)
    host = torch.device("cpu")
    for name, source, target, size in (
        ("copy", device, device, sizes.buffer),
        ("h2d", host, device, sizes.link),
        ("d2h", device, host, sizes.link),
    ):
        counted = 2 * size if name == "copy" else size
        ours = gpu.copy("suite", source, target, size, seconds)
        yield name, _rate_of(ours), _copy(source, target, size, counted, seconds)


def _rate_of(measurement: Measurement) -> Rate:
    """The rate of a window of the suite's; of GEMMs the plateau, their last series."""
    series = measurement.series[-1]

    def rate() -> float:
        calls, elapsed = measurement.window()[series.name]
        return series.work * calls / elapsed * 1e9

    return rate


def _gemm(device: torch.device, precision: str, size: int, burst: float) -> Rate:
    dtype, tf32, _ = gpu.PRECISIONS[precision]
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    c = torch.empty_like(a)
    products = partial(torch.mm, a, b, out=c)

    def rate() -> float:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        each = _timed(products, 3) / 3
        count = max(1, round(burst / 3 / each))
        _timed(products, 2 * count)
        return 2 * size**3 * count / _timed(products, count)

    return rate


def _copy(source: torch.device, target: torch.device, size: int, counted: int, seconds: float) -> Rate:
    pinned = torch.cuda.is_available() and source != target
    b: Any = torch.randn(size // 4, device=source)
    a: Any = torch.empty(size // 4, device=target)
    if pinned and source.type == "cpu":
        b = b.pin_memory()
    if pinned and target.type == "cpu":
        a = a.pin_memory()

    def rate() -> float:
        run = partial(a.copy_, b, non_blocking=True)
        count = max(1, round(seconds / (_timed(run, 3) / 3)))
        return counted * count / _timed(run, count)

    return rate


def _timed(run: Callable[[], object], count: int) -> float:
    """Seconds of ``count`` calls, from an idle device to an idle device."""
    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    wait()
    began = time.perf_counter()
    for _ in range(count):
        run()
    wait()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
