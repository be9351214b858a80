"""Timestamps that MXNet's engine takes itself on a CPU, at the end of each step: the host does not wait."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

from mxnet.base import _LIB, check_call

from suite.frameworks.common import HostTimestamps

_Function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)  # EngineSyncFunc of MXNet's C API
_CPU = (ctypes.c_int32 * 2)(1, 0)  # mxnet::Context: the type of a CPU, device 0


def handles_of(tensors: Iterable[Any]) -> Any:
    """The handles of ``tensors`` as a ctypes array, with one free place at the end."""
    handles = [tensor.handle for tensor in tensors]
    return (ctypes.c_void_p * (len(handles) + 1))(*handles)


class EngineTimestamps(HostTimestamps):
    """A timestamp is an operation of the engine that reads what a step writes: it runs when the step is done.

    A host that waits for every step leaves the engine idle between any two, as no user's loop does. The
    engine skips operations behind one that failed; the drain at the end of a span raises the error.
    """

    def __init__(self) -> None:
        super().__init__()
        self._function = _Function(lambda _, index: HostTimestamps.record_timestamp(self, index))
        self._written: Any = None

    def prepare(self, count: int) -> None:
        """As there; no step is under way."""
        super().prepare(count)
        self._written = None

    def ends_with(self, written: Any) -> None:
        """Let the step under way end when the arrays of ``written`` (:func:`handles_of`) are written."""
        self._written = written

    def record_timestamp(self, index: int) -> None:
        """Record timestamp ``index`` when the step under way ends; now, where none is."""
        written = self._written
        if written is None:
            super().record_timestamp(index)
            return
        arguments = (self._function, ctypes.c_void_p(index), None, _CPU, written, len(written))
        check_call(_LIB.MXEnginePushSyncND(*arguments, None, 0, None, 0, None))
