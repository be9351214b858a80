"""Triton kernels of one thread that read a GPU's clock of nanoseconds, ``%globaltimer`` (PTX ISA)."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import globaltimer

TICKS = 64  # changes of the clock that show its resolution


@triton.jit
def record(times, count, ring: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write the clock to ``times[count % ring]``, and add one to ``count``; both int64."""
    number = tl.load(count)
    tl.store(times + number % ring, globaltimer())
    tl.store(count, number + 1)


@triton.jit
def observe(ticks, size: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write the next ``size`` different values of the clock to ``ticks``, int64."""
    last = globaltimer()
    for at in range(size):
        now = globaltimer()
        while now == last:
            now = globaltimer()
        tl.store(ticks + at, now)
        last = now
