"""Timestamps recorded by MXNet's engine on a CPU at the end of each step, without a wait of the host."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

from mxnet.base import _LIB, check_call

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
        arguments = (self._function, ctypes.c_void_p(index), None, _CPU, written, len(written))
        check_call(_LIB.MXEnginePushSyncND(*arguments, None, 0, None, 0, None))
