"""Initial weights: the same float32 bytes for every framework, platform and numpy version."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.common.stream import Stream, digest_arrays, many_threads
from suite.contract import Parameter

_PART = 1 << 19  # numbers that a thread draws at a time
_KEPT = 1 << 16  # normal numbers of a tensor from which on reading them is much faster than drawing them


def initial(
    workload: str, parameters: Iterable[Parameter], kept: Path | None = None
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Each parameter's name and initial value, in the order given.

    The stream is keyed by workload and parameter name, so a tensor's values do not depend on other
    parameters or on the order of creation. Tests in float64 cast these values. Several threads draw ahead
    of the caller, parts of large tensors each. Large tensors are read from the folder ``kept``, if an earlier
    call has drawn and written them there; every run logs the digest of the weights that it starts from.
    """
    with ThreadPoolExecutor(many_threads()) as pool:  # all threads have ended when the last value is taken
        pending = deque((parameter, *_values(pool, workload, parameter, kept)) for parameter in parameters)
        while pending:
            parameter, values, parts, file = pending.popleft()
            for part in parts:
                part.result()
            if file is not None:  # before the caller may change the values
                _write(file, values)
            yield parameter.name, values.reshape(parameter.shape)


def _values(
    pool: ThreadPoolExecutor, workload: str, parameter: Parameter, kept: Path | None
) -> tuple[NDArray[np.float32], list[Future[None]], Path | None]:
    """The values of ``parameter``, complete when the futures are, and the file to write them to, if any."""
    if kept is None or parameter.init != "normal" or parameter.size < _KEPT:
        return *_draw(pool, workload, parameter), None
    key = Stream("weights", workload, parameter.name).key
    file = kept / f"{key:016x}-{float(parameter.scale).hex()}-{parameter.size}.f32"
    with contextlib.suppress(OSError):
        if file.stat().st_size == 4 * parameter.size:
            values = np.empty(parameter.size, "<f4")
            return values, [pool.submit(_read, file, values)], None
    return *_draw(pool, workload, parameter), file


def _read(file: Path, values: NDArray[Any]) -> None:
    with file.open("rb") as stream:
        stream.readinto(values.data.cast("B"))


def _write(file: Path, values: NDArray[np.float32]) -> None:
    """Keep ``values``; several ranks may do so at once. Without room the next process draws them again."""
    partial = file.with_name(f"{file.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        file.parent.mkdir(exist_ok=True)
        try:
            values.astype("<f4", copy=False).tofile(partial)
            partial.rename(file)
        finally:
            partial.unlink(missing_ok=True)


def _draw(
    pool: ThreadPoolExecutor, workload: str, parameter: Parameter
) -> tuple[NDArray[np.float32], list[Future[None]]]:
    """The values of ``parameter``, which are complete when the futures are."""
    stream, scale = Stream("weights", workload, parameter.name), float(parameter.scale)
    values = np.full(parameter.size, scale, np.float32)
    if parameter.init == "constant":
        return values, []
    draws = {"uniform": stream.uniform, "normal": stream.normal}
    if parameter.init not in draws:
        raise ValueError(
            f"{workload}: expected uniform, normal or constant for {parameter.name}, found {parameter.init}"
        )

    def fill(start: int) -> None:
        part = values[start : start + _PART]
        part[:] = draws[parameter.init](len(part), scale, start)

    return values, [pool.submit(fill, start) for start in range(0, parameter.size, _PART)]


def digest(workload: str, parameters: Iterable[Parameter]) -> str:
    """SHA-256 of the initial weights, as :func:`suite.common.stream.digest_arrays` defines it."""
    return digest_arrays(dict(initial(workload, parameters)))
