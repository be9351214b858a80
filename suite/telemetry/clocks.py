"""The clock event: three clocks, read one after the other, so that a stretched or frozen one is detected.

The triple reveals mistakes and simple forgeries; a forger who controls the machine can change all three.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
import time
from pathlib import Path
from typing import Any

from suite.telemetry.reading import Collector, Unavailable, read_text

_STA_UNSYNC = 0x40  # adjtimex(2): the clock is not synchronised
_TIMEX_BYTES = 256  # struct timex is 208 bytes on 64-bit Linux
_TIMEX_STATUS = 40  # offset of `status` there: modes (4 + 4 padding), four longs
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def clock_triple() -> dict[str, Any]:
    """The data of a ``clock`` event without ``at``: times as [seconds, nanoseconds], boot id hashed."""
    monotonic = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    raw = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    realtime = time.clock_gettime_ns(time.CLOCK_REALTIME)
    collector = Collector()
    return {
        "monotonic": _pair(monotonic),
        "monotonic_raw": _pair(raw),
        "realtime": _pair(realtime),
        "boot": collector.take("boot", _boot),
        "synchronised": collector.take("synchronised", _synchronised),
        "reasons": collector.reasons,
    }


def _pair(nanoseconds: int) -> list[int]:
    # A pair: UTC nanoseconds and long uptimes exceed the log's largest integer, 2^53 - 1.
    return list(divmod(nanoseconds, 1_000_000_000))


def _boot() -> str:
    return hashlib.sha256(read_text(_BOOT_ID).encode()).hexdigest()


def _synchronised() -> bool:
    """Whether the kernel reports its clock as synchronised (NTP or PTP), by a read-only adjtimex(2)."""
    if not sys.platform.startswith("linux") or ctypes.sizeof(ctypes.c_void_p) != 8:
        raise Unavailable("only readable on 64-bit Linux")
    library = ctypes.CDLL(None, use_errno=True)
    timex = ctypes.create_string_buffer(_TIMEX_BYTES)  # modes = 0: nothing is set
    if library.adjtimex(timex) < 0:
        raise OSError(ctypes.get_errno(), "adjtimex failed")
    status = int.from_bytes(timex.raw[_TIMEX_STATUS : _TIMEX_STATUS + 4], sys.byteorder)
    return not status & _STA_UNSYNC
