"""What the framework modules share (standard library): host timestamps, types, scaling, loader processes."""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import tempfile
import time
from collections.abc import Sequence
from multiprocessing import util
from pathlib import Path
from typing import Any

from suite.contract import MEASURED_STEPS

KEEP = MEASURED_STEPS  # outputs a pair may keep on the device before one copy to the host


def as_float32(rate: float) -> float:
    """The learning rate as an optimizer takes it: rounded to a float32, everywhere and in every precision.

    The fused kernels of GPUs take it so. An update in float64 by the exact decimal would be 3e-8 off theirs,
    and no two machines could check each other to the last digits.
    """
    return float(struct.unpack("f", struct.pack("f", rate))[0])


class HostTimestamps:
    """Timestamps on the host's monotonic clock, for devices without events of their own."""

    def __init__(self) -> None:
        self._times: list[int] = []

    def prepare(self, count: int) -> None:
        """Make room for ``count`` timestamps."""
        self._times = [0] * count

    def record_timestamp(self, index: int) -> None:
        """Record timestamp ``index`` now."""
        self._times[index] = time.monotonic_ns()

    def read(self, count: int) -> list[int]:
        """Nanoseconds from timestamp 0 to timestamps 1..count-1."""
        first = self._times[0]
        return [moment - first for moment in self._times[1:count]]


class Observed:
    """The types seen in a step, by what they are: ``weights``, ``activations``, ``gradients``."""

    def __init__(self) -> None:
        self.types: dict[str, str] = {}

    def note(self, **tensors: Any) -> None:
        """Keep the type of each tensor under its keyword, without the framework's prefix."""
        for name, tensor in tensors.items():
            self.types[name] = type_name(tensor.dtype)


class NoScaling:
    """The scaling of the loss in every precision but fp16: each method is what it says without a scale."""

    state: Sequence[Any] = ()  # what changes on the device

    def scaled(self, loss: Any) -> Any:
        """The loss to differentiate."""
        return loss

    def unscaled(self, gradients: Sequence[Any]) -> list[Any]:
        """The gradients of the loss itself."""
        return list(gradients)

    def update(self, optimiser: Any, gradients: Sequence[Any]) -> None:
        """One update of ``optimiser``."""
        optimiser.update(gradients)

    def reset(self) -> None:
        """Start again."""

    def report(self) -> dict[str, float] | None:
        """Nothing is scaled."""
        return None


def type_name(dtype: Any) -> str:
    """``float32`` for torch.float32, tf.float32, numpy.float32 and ``float32``."""
    text = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    return str(text).rsplit(".", 1)[-1]


_PR_SET_PDEATHSIG = 1  # prctl(2)
_LONGEST = 70  # a folder's name and what multiprocessing adds must fit a socket's 107 bytes (unix(7))
_HERE = "/proc/self/cwd"


def shorten_sockets() -> None:
    """Let loaders' processes hand over their batches where the temporary folder has a long name.

    They do so through sockets there, whose names must be short. A worker's temporary folder is also its
    working folder, and that has a short name too.
    """
    place = tempfile.gettempdir()
    if len(place) > _LONGEST and Path(place).samefile(_HERE):
        try:
            tempfile.tempdir = _HERE
            util.get_temp_dir()  # chosen now, for this process and those that it starts
        finally:
            tempfile.tempdir = place


def die_with(parent: int) -> None:
    """Have this process killed when ``parent``, which started it, ends in whatever manner.

    A loader's processes hold the pipes of the worker: one left behind would keep the harness waiting.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended in between
        os._exit(1)
