"""Initial weights: the same float32 bytes for every framework, platform and numpy version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from numpy.typing import NDArray

from suite.common.stream import Stream, digest_arrays, many_threads
from suite.contract import Parameter


def initial(workload: str, parameters: Iterable[Parameter]) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Each parameter's name and initial value, in the order given.

    The stream is keyed by workload and parameter name, so a tensor's values do not depend on other
    parameters or on the order of creation. Tests in float64 cast these values. Several threads draw ahead
    of the caller: most tensors are too small to be drawn by several threads each.
    """
    wanted = list(parameters)
    with ThreadPoolExecutor(many_threads()) as pool:  # all threads have ended when the last value is taken
        drawn = pool.map(partial(_draw, workload), wanted)
        yield from zip([parameter.name for parameter in wanted], drawn, strict=True)


def _draw(workload: str, parameter: Parameter) -> NDArray[np.float32]:
    stream, scale = Stream("weights", workload, parameter.name), float(parameter.scale)
    if parameter.init == "uniform":
        values = stream.uniform(parameter.size, scale)
    elif parameter.init == "normal":
        values = stream.normal(parameter.size, scale)
    elif parameter.init == "constant":
        values = np.full(parameter.size, scale, np.float32)
    else:
        raise ValueError(
            f"{workload}: expected uniform, normal or constant for {parameter.name}, found {parameter.init}"
        )
    return values.reshape(parameter.shape)


def digest(workload: str, parameters: Iterable[Parameter]) -> str:
    """SHA-256 of the initial weights, as :func:`suite.common.stream.digest_arrays` defines it."""
    return digest_arrays(dict(initial(workload, parameters)))
