"""The GPU group of a baseline: ``python -m suite.frameworks.pytorch.baseline.gpu [--seconds S] [--burst S]``.

Needs only PyTorch, so that the file also runs alone in a checkout, in any Python with it. ``--device cpu``
runs the same code with small sizes on the processor, to test its logic; its numbers mean nothing.

* GEMM of normal random numbers, 8192³, in each precision: zeros would draw less power and run faster. A
  window is a burst of ``--burst`` seconds on a GPU that did other work before. ``_first`` is its first second
  (half of it, if it is shorter than two), ``_plateau`` its last third, when power and temperature limit it.
* ``copy`` and ``triad`` on the device's memory, counted as on the processor (:mod:`.cpu`): each element read
  and each written.
* ``h2d`` and ``d2h``: from and to page-locked host memory. ``peer``: from one device to another.
* ``launch``: a kernel of one element and the wait for it. ``launch_queued``: many without a wait.
* ``all_reduce``: sums of growing size over all GPUs by NCCL, in one process; the work per call is
  2(n − 1)/n of the bytes, so that rates are nccl-tests' bus bandwidth.
* ``jpeg``: decoding by nvJPEG, where torchvision is installed.

The clock is the host's; every window begins and ends with an idle device.
"""

from __future__ import annotations

import argparse
import importlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from time import monotonic_ns
from typing import Any

import torch
import torch.cuda.nccl

from suite.frameworks.common import variables
from suite.frameworks.pytorch.baseline import windows
from suite.frameworks.pytorch.baseline.windows import Measurement, Missing, Series, repeated

_CHUNK_S = 0.04  # of GEMMs between two looks at the clock; two chunks are queued
_LIBRARY = f"torch {torch.__version__}"
# By precision: type, TF32 allowed, and the largest error of `gemm_error`: rounding of inputs and output.
PRECISIONS = {
    "fp32": (torch.float32, False, 1e-4),
    "tf32": (torch.float32, True, 3e-3),
    "bf16": (torch.bfloat16, False, 1e-2),
    "fp16": (torch.float16, False, 2e-3),
}


@dataclass(frozen=True)
class Sizes:
    """Rows of the matrices, bytes of copied buffers, and bytes of the sums."""

    gemm: int
    buffer: int
    link: int
    sums: tuple[int, ...]


GPU = Sizes(8192, 1 << 30, 256 << 20, (1 << 20, 16 << 20, 256 << 20))
SMALL = Sizes(256, 1 << 20, 1 << 20, (1 << 16,))


def main() -> int:
    """Measure and print; the exit code of :func:`windows.main`."""
    parser = argparse.ArgumentParser(prog="baseline.gpu")
    parser.add_argument("--seconds", type=float, default=0.5, help="of a window, bursts apart")
    parser.add_argument("--burst", type=float, default=6.0, help="seconds of a burst of GEMMs")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    args = parser.parse_args()
    return windows.main(lambda: _measure(args.device, args.seconds, args.burst))


def _measure(kind: str, seconds: float, burst: float) -> None:
    if kind == "cuda" and not torch.cuda.is_available():
        windows.emit("missing", name="gpu", reason=f"{_LIBRARY} finds no GPU that it can use")
        return
    devices = [torch.device(kind, at) for at in range(torch.cuda.device_count() if kind == "cuda" else 1)]
    facts: dict[str, Any] = {"torch": torch.__version__, "cuda": torch.version.cuda, "devices": []}
    if kind == "cuda":
        facts["devices"] = [torch.cuda.get_device_name(device) for device in devices]
    windows.emit("facts", facts=facts)
    sizes = GPU if kind == "cuda" else SMALL
    found: list[tuple[str, Callable[[], Measurement]]] = []
    for device in devices:
        found += _of_device(device, sizes, seconds, burst)
    for source in devices:
        for target in devices:
            if source != target:
                name = f"{_name(source)}.peer_{_name(target)}"
                found.append((name, partial(copy, name, source, target, sizes.link, seconds)))
    for size in sizes.sums:
        name = f"gpus.all_reduce_{size >> 10}k"
        found.append((name, partial(all_reduce, name, devices, size, seconds)))
    windows.measure([(name, partial(_fitting, prepare)) for name, prepare in found])


def _fitting(prepare: Callable[[], Measurement]) -> Measurement:
    """What ``prepare`` returns; Missing if the memory of the device is too small."""
    try:
        return prepare()
    except torch.cuda.OutOfMemoryError:
        torch.cuda.empty_cache()
        raise Missing("the memory of the device is too small for the buffers") from None


def _of_device(
    device: torch.device, sizes: Sizes, seconds: float, burst: float
) -> Iterator[tuple[str, Callable[[], Measurement]]]:
    name = _name(device)
    for precision in PRECISIONS:
        yield f"{name}.gemm_{precision}", partial(gemm, name, device, precision, sizes.gemm, burst)
    yield f"{name}.copy", partial(copy, f"{name}.copy", device, device, sizes.buffer, seconds)
    yield f"{name}.triad", partial(triad, f"{name}.triad", device, sizes.buffer, seconds)
    host = torch.device("cpu")
    yield f"{name}.h2d", partial(copy, f"{name}.h2d", host, device, sizes.link, seconds)
    yield f"{name}.d2h", partial(copy, f"{name}.d2h", device, host, sizes.link, seconds)
    for queued in (False, True):
        title = f"{name}.launch_queued" if queued else f"{name}.launch"
        yield title, partial(launch, title, device, queued, seconds)
    yield f"{name}.jpeg", partial(jpeg, f"{name}.jpeg", device, seconds)


def _name(device: torch.device) -> str:
    return f"gpu{device.index or 0}"


def drain(*devices: torch.device) -> None:
    """Wait until the devices are idle."""
    for device in devices:
        if device.type == "cuda":
            torch.cuda.synchronize(device)


def _random(device: torch.device, count: int, kind: torch.dtype, seed: int) -> Any:
    generator = torch.Generator(device).manual_seed(seed)
    return torch.randn(count, generator=generator, device=device, dtype=torch.float32).to(kind)


def gemm(name: str, device: torch.device, precision: str, size: int, seconds: float) -> Measurement:
    """``c = a·b`` of square matrices, in bursts."""
    kind, tf32, limit = PRECISIONS[precision]
    needs_ampere = precision in ("tf32", "bf16") and device.type == "cuda"
    if needs_ampere and torch.cuda.get_device_capability(device) < (8, 0):
        raise Missing(f"{precision} needs compute capability 8.0 or later")
    a = _random(device, size * size, kind, 1).view(size, size)
    b = _random(device, size * size, kind, 2).view(size, size)
    c = torch.empty_like(a)

    def launch_gemms(calls: int) -> None:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        for _ in range(calls):
            torch.mm(a, b, out=c)

    def run(calls: int) -> None:
        launch_gemms(calls)
        drain(device)

    first, plateau = f"{name}.gemm_{precision}_first", f"{name}.gemm_{precision}_plateau"
    calls = windows.calls_for(run, min(_CHUNK_S, seconds / 10))

    def window() -> dict[str, tuple[int, int]]:
        ends = _burst(partial(launch_gemms, calls), device, seconds)
        early = next(at for at, end in enumerate(ends, 1) if end >= min(1.0, seconds / 2) * 1e9)
        late = next(at for at, end in enumerate(ends) if end >= 2 / 3 * ends[-1])
        late = min(late, len(ends) - 2)  # one chunk at least
        return {
            first: (early * calls, ends[early - 1]),
            plateau: ((len(ends) - 1 - late) * calls, ends[-1] - ends[late]),
        }

    def error() -> tuple[float, float]:
        c.zero_()
        run(1)
        return gemm_error(a, b, c), limit

    method = f"{_LIBRARY}, {precision}, {size}x{size} times {size}x{size}, bursts of {seconds:g} s"
    series = tuple(Series(one, "FLOP", 2 * size**3, method) for one in (first, plateau))
    return Measurement(series, window, error)


def _burst(launch_chunk: Callable[[], None], device: torch.device, seconds: float) -> list[int]:
    """Run chunks for ``seconds``; the ns from the start to the end of each, at least two.

    One chunk is always queued behind the one that computes, so that the device never waits for the host.
    """
    waiting: list[Any] = []
    ends: list[int] = []
    drain(device)
    began = monotonic_ns()
    while not ends or ends[-1] < seconds * 1e9 or waiting:
        if not ends or ends[-1] < seconds * 1e9:
            launch_chunk()
            waiting.append(_event(device))
        if len(waiting) > 1 or (ends and ends[-1] >= seconds * 1e9):
            event = waiting.pop(0)
            if event is not None:
                event.synchronize()
            ends.append(monotonic_ns() - began)
    return ends


def _event(device: torch.device) -> Any:
    if device.type != "cuda":
        return None
    with torch.cuda.device(device):
        event = torch.cuda.Event()
        event.record()
    return event


def gemm_error(a: Any, b: Any, c: Any) -> float:
    """The error of ``c = a·b`` in terms of an element's deviation, √n, by Freivalds' method.

    ``c·v`` is compared with ``a·(b·v)`` in float64 for a vector of ±1: one wrong element anywhere in ``c``
    shows as about 1/√n, rounding as far less. Freivalds, Probabilistic machines can use less running time
    (1977).
    """
    size = a.shape[0]
    signs = torch.randint(0, 2, (size, 1), generator=torch.Generator().manual_seed(3)) * 2 - 1
    v = signs.to(device=a.device, dtype=torch.float64)
    expected = a.double() @ (b.double() @ v)
    return float((c.double() @ v - expected).abs().max()) / size


def copy(name: str, source: torch.device, target: torch.device, size: int, seconds: float) -> Measurement:
    """Copies of ``size`` bytes; on one device each byte counts as read and as written, on a link once."""
    if source.type == target.type == "cuda" and source != target:
        how = "direct" if torch.cuda.can_device_access_peer(target, source) else "through the host"
    else:
        how = "page-locked host memory" if source != target else "device memory"
    pinned = torch.cuda.is_available() and source != target
    b = _random(source, size // 4, torch.float32, 4)
    a = torch.empty(size // 4, dtype=torch.float32, device=target)
    a = a.pin_memory() if pinned and target.type == "cpu" else a
    b = b.pin_memory() if pinned and source.type == "cpu" else b

    def run(calls: int) -> None:
        for _ in range(calls):
            a.copy_(b, non_blocking=True)
        drain(source, target)

    def error() -> tuple[float, float]:
        a.zero_()
        drain(source, target)
        run(1)
        same = torch.equal(a, b) if source == target else torch.equal(a.cpu(), b.cpu())
        return (0.0 if same else math.inf), 0.0

    work = 2 * size if source == target else size
    return repeated(Series(name, "byte", work, f"{_LIBRARY}, {size >> 20} MiB, {how}"), run, error, seconds)


def triad(name: str, device: torch.device, size: int, seconds: float) -> Measurement:
    """``a = b + 3·c`` in fp32, buffers of ``size`` bytes."""
    b, c = (_random(device, size // 4, torch.float32, seed) for seed in (5, 6))
    a = torch.empty_like(b)

    def run(calls: int) -> None:
        for _ in range(calls):
            torch.add(b, c, alpha=3.0, out=a)
        drain(device)

    def error() -> tuple[float, float]:
        a.zero_()
        run(1)
        pieces = zip(a.split(1 << 24), b.split(1 << 24), c.split(1 << 24), strict=True)
        return max(float((x - (y.double() + 3 * z.double())).abs().max()) for x, y, z in pieces), 1e-5

    method = f"{_LIBRARY}, fp32, arrays of {size >> 20} MiB"
    return repeated(Series(name, "byte", 3 * size, method), run, error, seconds)


def launch(name: str, device: torch.device, queued: bool, seconds: float) -> Measurement:
    """Kernels that add 1 to one number: each awaited, or all queued and then awaited."""
    count = torch.zeros(1, dtype=torch.int64, device=device)

    def run(calls: int) -> None:
        for _ in range(calls):
            count.add_(1)
            if not queued:
                drain(device)
        drain(device)

    def error() -> tuple[float, float]:
        count.zero_()
        run(1000)
        return abs(int(count) - 1000), 0.0

    method = f"{_LIBRARY}, one element, " + ("queued" if queued else "launched and awaited")
    return repeated(Series(name, "launch", 1, method), run, error, seconds)


def all_reduce(name: str, devices: list[torch.device], size: int, seconds: float) -> Measurement:
    """Sums of ``size`` bytes of fp32 over all devices, which all hold the sum afterwards."""
    if len(devices) < 2:
        raise Missing("a sum over devices needs two GPUs at least")
    nccl: Any = torch.cuda.nccl
    inputs = [torch.full((size // 4,), 1.0 + at, device=device) for at, device in enumerate(devices)]
    outputs = [torch.empty_like(one) for one in inputs]
    if not nccl.is_available(inputs):
        raise Missing(f"{_LIBRARY} has no NCCL for these devices")
    total = sum(1.0 + at for at in range(len(devices)))

    def run(calls: int) -> None:
        for _ in range(calls):
            nccl.all_reduce(inputs, outputs)
        drain(*devices)

    def error() -> tuple[float, float]:
        for one in outputs:
            one.zero_()
        drain(*devices)
        run(1)
        return max(float((one - total).abs().max()) for one in outputs), 0.0

    version = ".".join(map(str, nccl.version()))
    method = f"{_LIBRARY}, NCCL {version}, {size >> 10} KiB of fp32, {len(devices)} devices"
    method += "".join(f", {name}={value}" for name, value in variables("NCCL_").items())
    work = round(2 * (len(devices) - 1) / len(devices) * size)
    return repeated(Series(name, "byte", work, method), run, error, seconds)


def jpeg(name: str, device: torch.device, seconds: float) -> Measurement:
    """Decoding of batches of 64 JPEGs of 500x375 pixels on the device."""
    if device.type != "cuda":
        raise Missing("nvJPEG needs a GPU")
    try:
        io: Any = importlib.import_module("torchvision.io")
    except ImportError:
        raise Missing("torchvision is not in this environment") from None
    pixels = torch.randint(0, 256, (3, 24, 32), generator=torch.Generator().manual_seed(7)).float()
    smooth = torch.nn.functional.interpolate(pixels[None], (375, 500), mode="bilinear")[0].to(torch.uint8)
    content = io.encode_jpeg(smooth, quality=90)
    batch = [content] * 64
    expected = io.decode_jpeg(content).float()
    decoded: list[Any] = []

    def run(calls: int) -> None:
        for _ in range(calls):
            decoded[:] = io.decode_jpeg(batch, device=device)
        drain(device)

    def error() -> tuple[float, float]:
        run(1)
        return max(float((one.cpu().float() - expected).abs().mean()) for one in decoded), 3.0

    version = importlib.import_module("torchvision").__version__
    method = f"{_LIBRARY}, torchvision {version}, batches of 64 JPEGs of 500x375 pixels, quality 90"
    try:
        return repeated(Series(name, "image", 64, method), run, error, seconds)
    except RuntimeError as problem:
        raise Missing(f"nvJPEG: {str(problem).splitlines()[0][:200]}") from None


if __name__ == "__main__":
    raise SystemExit(main())
