"""Timestamps recorded by MXNet's engine on a CPU at the end of each step, without a wait of the host."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any

from mxnet.base import _LIB, check_call

from suite.frameworks.arrivals import HostArrivals
from suite.frameworks.common import HostTimestamps

_Function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)  # EngineSyncFunc of MXNet's C API
_CPU = (ctypes.c_int32 * 2)(1, 0)  # mxnet::Context: the type of a CPU, device 0


def handles_of(tensors: Iterable[Any]) -> Any:
    """The handles of ``tensors`` as a ctypes array, with one free element at the end."""
    handles = [tensor.handle for tensor in tensors]
    return (ctypes.c_void_p * (len(handles) + 1))(*handles)


class EngineTimestamps(HostTimestamps):
    """A timestamp is an operation of the engine that depends on the arrays written by a step.

    If the host waited for every step, the engine would be idle between steps, unlike in a user's training
    loop. The engine skips operations that depend on a failed one; the drain at the end of a span raises the
    error.
    """

    def __init__(self) -> None:
        super().__init__()
        self._function = _Function(lambda _, index: HostTimestamps.record_timestamp(self, index))
        self._written: Any = None

    def prepare(self, count: int) -> None:
        """Allocate ``count`` timestamps; no step is running."""
        super().prepare(count)
        self._written = None

    def ends_with(self, written: Any) -> None:
        """The running step ends when the arrays of ``written`` (:func:`handles_of`) are written."""
        self._written = written

    def record_timestamp(self, index: int) -> None:
        """Record timestamp ``index`` when the running step ends; at once if no step is running."""
        written = self._written
        if written is None:
            super().record_timestamp(index)
            return
        call_after(written, self._function, index)


class EngineArrivals(HostArrivals):
    """An arrival is an operation of the engine that reads the gradients, before the exchange writes them."""

    def __init__(self) -> None:
        super().__init__()
        self._function = _Function(lambda *_: HostArrivals.record(self))
        self._gradients: Sequence[Any] = ()
        self._handles: Any = None

    def record_after(self, gradients: Sequence[Any]) -> None:
        """Record an arrival as soon as all of ``gradients`` are computed."""
        if gradients is not self._gradients:  # mostly the same arrays in every step
            self._gradients = gradients
            self._handles = (ctypes.c_void_p * len(gradients))(*(one.handle for one in gradients))
        call_after(self._handles, self._function, 0)


def call_after(written: Any, function: Any, argument: int) -> None:
    """Let the engine call ``function(None, argument)`` when all arrays of ``written`` are written."""
    arguments = (function, ctypes.c_void_p(argument), None, _CPU, written, len(written))
    check_call(_LIB.MXEnginePushSyncND(*arguments, None, 0, None, 0, None))
