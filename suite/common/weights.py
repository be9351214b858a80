"""Initial weights: the same float32 bytes for every framework, platform and numpy version."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from suite.common.stream import Stream, digest_arrays, many_threads
from suite.contract import Parameter

_PART = 1 << 19  # numbers that a thread draws at a time


def initial(workload: str, parameters: Iterable[Parameter]) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Each parameter's name and initial value, in the order given.

    The stream is keyed by workload and parameter name, so a tensor's values do not depend on other
    parameters or on the order of creation. Tests in float64 cast these values. Several threads draw ahead
    of the caller, parts of large tensors each.
    """
    with ThreadPoolExecutor(many_threads()) as pool:  # all threads have ended when the last value is taken
        pending = deque((parameter, *_draw(pool, workload, parameter)) for parameter in parameters)
        while pending:
            parameter, values, parts = pending.popleft()
            for part in parts:
                part.result()
            yield parameter.name, values.reshape(parameter.shape)


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
