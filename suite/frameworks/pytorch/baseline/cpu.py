"""The CPU group of a baseline: ``python -m suite.frameworks.pytorch.baseline.cpu [--seconds S]``.

``_core`` series use one thread, the others all cores that this process may use. Rates count what the
operation needs: a GEMM 2·n³ FLOP; a copy one read and one write per element; the triad ``a = b + 3·c`` two
reads and one write (STREAM's rule, McCalpin 1995: the read that a cache makes before a write, write-allocate,
is not counted). Arrays are four times as large as the last-level caches, as STREAM demands, unless
``--array-mib`` (a quick baseline) or the memory limits them; the method of each series states their size.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from suite.common import baseline_jpeg
from suite.frameworks.pytorch.baseline import windows
from suite.frameworks.pytorch.baseline.gpu import gemm_error
from suite.frameworks.pytorch.baseline.windows import Measurement, Series, calls_for, repeated, timed

GEMM_CORE, GEMM_ALL = 1024, 2048  # rows and columns
FILE_BYTES, READ_BYTES = 256 << 20, 4 << 20
_SMALLEST_ARRAY = 128 << 20
_BLOCK = 1 << 16  # elements
_LIBRARY = f"torch {torch.__version__}"


def main() -> int:
    """Measure and print; the exit code of :func:`windows.main`."""
    parser = argparse.ArgumentParser(prog="baseline.cpu")
    parser.add_argument("--seconds", type=float, default=1.0, help="of a window")
    parser.add_argument("--array-mib", type=int, default=1 << 20, help="the largest array, in MiB")
    args = parser.parse_args()
    return windows.main(lambda: _measure(args.seconds, args.array_mib << 20))


def _measure(seconds: float, largest: int) -> None:
    cores, threads = len(os.sched_getaffinity(0)), torch.get_num_threads()
    windows.emit("facts", facts={"torch": torch.__version__, "cores": cores, "threads": threads})
    arrays = [_array(seed, largest) for seed in range(3)]
    decoders = baseline_jpeg.Decoders()
    try:
        with tempfile.TemporaryFile() as file:
            windows.measure(
                [
                    ("cpu.gemm_fp32_core", lambda: gemm("cpu.gemm_fp32_core", GEMM_CORE, 1, seconds)),
                    ("cpu.gemm_fp32", lambda: gemm("cpu.gemm_fp32", GEMM_ALL, threads, seconds)),
                    ("cpu.copy", lambda: copy("cpu.copy", arrays, threads, seconds)),
                    ("cpu.triad_core", lambda: triad("cpu.triad_core", arrays, 1, seconds)),
                    ("cpu.triad", lambda: triad("cpu.triad", arrays, threads, seconds)),
                    ("cpu.page_cache_read", lambda: page_cache(file.fileno(), seconds)),
                    ("cpu.jpeg_core", lambda: jpeg("cpu.jpeg_core", decoders, 1, seconds)),
                    ("cpu.jpeg", lambda: jpeg("cpu.jpeg", decoders, cores, seconds)),
                ]
            )
    finally:
        decoders.close()


def _array(seed: int, largest: int) -> Any:
    """An array of float64, four times as large as the last-level caches.

    It has at most ``largest`` bytes and a 24th of the memory.
    """
    caches: dict[str, int] = {}
    for folder in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cache/index3"):
        try:
            kib = int((folder / "size").read_text().strip().removesuffix("K"))
            caches[(folder / "shared_cpu_list").read_text()] = kib << 10
        except (OSError, ValueError):
            continue
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    size = min(max(_SMALLEST_ARRAY, 4 * sum(caches.values())), memory // 24, largest)
    block = _random((_BLOCK,), seed).double()
    # All threads write their parts, so that each NUMA node gets its pages.
    return torch.empty(size // 8 // _BLOCK, _BLOCK, dtype=torch.float64).copy_(block).view(-1)


def _random(shape: tuple[int, ...], seed: int) -> Any:
    """Normal numbers in fp32."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def with_threads(threads: int, run: Callable[[int], None]) -> Callable[[int], None]:
    """``run`` with so many threads of torch."""

    def run_with(calls: int) -> None:
        torch.set_num_threads(threads)
        run(calls)

    return run_with


def gemm(name: str, size: int, threads: int, seconds: float) -> Measurement:
    """``c = a·b`` of square fp32 matrices."""
    a, b = _random((size, size), 1), _random((size, size), 2)
    c = torch.empty_like(a)

    def run(calls: int) -> None:
        for _ in range(calls):
            torch.mm(a, b, out=c)

    series = Series(name, "FLOP", 2 * size**3, f"{_LIBRARY}, fp32, {size}x{size} times {size}x{size}")
    return repeated(series, with_threads(threads, run), lambda: (gemm_error(a, b, c), 1e-4), seconds)


def copy(name: str, arrays: Sequence[Any], threads: int, seconds: float) -> Measurement:
    """``a = b`` for arrays of float64."""
    a, b, _ = arrays

    def run(calls: int) -> None:
        for _ in range(calls):
            a.copy_(b)

    def error() -> tuple[float, float]:
        a.zero_()
        run(1)
        return (0.0 if torch.equal(a, b) else math.inf), 0.0

    series = Series(name, "byte", 2 * a.nbytes, _method(a))
    return repeated(series, with_threads(threads, run), error, seconds)


def triad(name: str, arrays: Sequence[Any], threads: int, seconds: float) -> Measurement:
    """``a = b + 3·c`` for arrays of float64."""
    a, b, c = arrays

    def run(calls: int) -> None:
        for _ in range(calls):
            torch.add(b, c, alpha=3.0, out=a)

    def error() -> tuple[float, float]:
        run(1)
        return triad_error(a, b, c), 1e-12

    series = Series(name, "byte", 3 * a.nbytes, _method(a))
    return repeated(series, with_threads(threads, run), error, seconds)


def _method(array: Any) -> str:
    return f"{_LIBRARY}, float64, arrays of {array.nbytes >> 20} MiB"


def triad_error(a: Any, b: Any, c: Any) -> float:
    """The largest error of ``a = b + 3·c``, computed piece by piece."""
    pieces = range(0, a.numel(), 1 << 22)
    parts = ((a[at : at + (1 << 22)], b[at : at + (1 << 22)], c[at : at + (1 << 22)]) for at in pieces)
    return max(float((x - (y + z * 3.0)).abs().max()) for x, y, z in parts)


def page_cache(file: int, seconds: float) -> Measurement:
    """One pass over a file that the page cache holds, by one thread."""
    content = os.urandom(READ_BYTES)
    for _ in range(FILE_BYTES // READ_BYTES):
        os.write(file, content)
    buffer = bytearray(READ_BYTES)

    def run(calls: int) -> None:
        for _ in range(calls):
            for offset in range(0, FILE_BYTES, READ_BYTES):
                os.preadv(file, [buffer], offset)

    series = Series(
        "cpu.page_cache_read", "byte", FILE_BYTES,
        f"one thread, a file of {FILE_BYTES >> 20} MiB, {READ_BYTES >> 20} MiB a read",
    )  # fmt: skip
    return repeated(series, run, lambda: (0.0 if buffer == content else math.inf, 0.0), seconds)


def jpeg(name: str, decoders: baseline_jpeg.Decoders, cores: int, seconds: float) -> Measurement:
    """Decoding by ``cores`` processes, new ones for each window; a call is one image in each."""
    expected = baseline_jpeg.decode_many(1)
    decoders.start(cores)
    calls = calls_for(decoders.run, seconds)

    def window() -> dict[str, tuple[int, int]]:
        decoders.start(cores)
        return {name: (calls, timed(decoders.run, calls))}

    def error() -> tuple[float, float]:
        return (baseline_jpeg.mean_error() if decoders.digests == {expected} else math.inf), 16.0

    return Measurement((Series(name, "image", cores, baseline_jpeg.METHOD),), window, error)


if __name__ == "__main__":
    raise SystemExit(main())
