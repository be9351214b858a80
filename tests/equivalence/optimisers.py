"""Runs the frameworks' optimisers and clipping on given tensors, in the framework's interpreter.

``python -m tests.equivalence.optimisers FRAMEWORK FILE`` writes a float64 array for each of them to ``FILE``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite import workloads
from suite.common.stream import Stream
from tests.equivalence.case import load

STEPS = 6
HYPER = {"beta1": "0.9", "beta2": "0.999", "epsilon": "1e-8", "momentum": "0.9"}


def rate(step: int) -> float:
    """One drop by ten in the middle."""
    return 0.1 if step < STEPS // 2 else 0.01


def gradient(step: int) -> NDArray[np.float64]:
    """[4, 3], with a zero row, and small enough for Adam's epsilon to count."""
    values = (Stream("test", "gradient", step).unit(12).reshape(4, 3) - 0.5) * 1e-7
    values[1] = 0
    return values


def start() -> NDArray[np.float64]:
    """[4, 3] parameters, small, so that updates keep their digits."""
    return Stream("test", "start").unit(12).reshape(4, 3) * 1e-3


def updated(framework: str, optimiser: Any, weight: Any, steps: Iterable[tuple[float, Any]]) -> Any:
    """``weight`` after an update by ``optimiser`` for each rate and gradient of ``steps``."""
    if framework != "jax":
        for rate, gradient in steps:
            optimiser.set_rate(rate)
            optimiser.update([gradient])
        return weight
    import jax

    update, state = jax.jit(optimiser.updated), optimiser.initial([weight])
    for rate, gradient in steps:
        optimiser.set_rate(rate)
        (weight,), state = update([weight], [gradient], state, np.asarray(optimiser.rate, weight.dtype))
    return weight


def optimisers_of(framework: str) -> Any:
    """The module with the optimisers of ``framework``."""
    name = "optimisers" if framework == "pytorch" else "framework"
    return import_module(f"suite.frameworks.{framework}.{name}")


def run(framework: str) -> dict[str, NDArray[Any]]:
    """``adam``, ``momentum``, ``descent``: parameters after six updates; ``clipped``, ``kept``, ``norms``."""
    job = load("ncf").job(framework, "fp64")
    module: Any = workloads.framework_module(job)
    here, optimisers = module.Framework(job), optimisers_of(framework)

    def tensor(values: NDArray[Any]) -> Any:
        return here.tensor(values)

    def parameter() -> Any:
        if framework != "tensorflow":
            return tensor(start())
        import tensorflow as tf

        return tf.Variable(tensor(start()))

    found: dict[str, NDArray[Any]] = {}
    for name in ("adam", "momentum", "descent"):
        weight, kind = parameter(), getattr(optimisers, name.capitalize())
        optimiser = kind([weight]) if name == "descent" else kind([weight], HYPER)
        steps = ((rate(step), tensor(gradient(step))) for step in range(STEPS))
        found[name] = here.array(updated(framework, optimiser, weight, steps))
    gradients = [[tensor(gradient(0)), tensor(gradient(1)[0])] for _ in range(2)]  # MXNet clips in place
    clipped, norm = optimisers.clip_by_global_norm(gradients[0], 1e-8)
    kept, same = optimisers.clip_by_global_norm(gradients[1], 1.0)
    found["clipped"] = np.concatenate([here.array(part).ravel() for part in clipped])
    found["kept"] = np.concatenate([here.array(part).ravel() for part in kept])
    found["norms"] = np.array([float(here.array(value).ravel()[0]) for value in (norm, same)])
    found["long norm"] = long_norm(framework)
    if framework == "pytorch":
        found |= momentum_by_memory_layout(optimisers) | clipped_in_update(optimisers)
    return found


def long_gradient() -> NDArray[np.float32]:
    """[1024, 1024], too long for float32 to add up at once."""
    return Stream("test", "long").normal(1 << 20, 1.0).reshape(1024, 1024)


def long_norm(framework: str) -> NDArray[Any]:
    """The norm of :func:`long_gradient` in float32."""
    job = load("ncf").job(framework, "fp32")
    module: Any = workloads.framework_module(job)
    here = module.Framework(job)
    _, norm = optimisers_of(framework).clip_by_global_norm([here.tensor(long_gradient())], 1e9)
    return np.array([float(here.array(norm).ravel()[0])])


def momentum_by_memory_layout(module: Any) -> dict[str, NDArray[Any]]:
    """PyTorch: parameters after two updates by gradients with their memory layout and with another one."""
    import torch

    hyper = {"momentum": "0.9", "weight_decay": "0.1"}
    last, plain = torch.channels_last, torch.contiguous_format
    found = {}
    for shape in ((2, 3, 2, 4), (4, 3, 1, 1)):
        values = torch.arange(48.0, dtype=torch.float64)[: int(np.prod(shape))].reshape(shape)
        for name, ours, theirs in (("last", last, plain), ("plain", plain, last), ("same", plain, plain)):
            weight = values.clone(memory_format=ours)
            optimiser = module.Momentum([weight], hyper, [0])
            optimiser.set_rate(0.1)
            for scale in (1, 2):
                optimiser.update([(values * scale).contiguous(memory_format=theirs)])
            found[f"layout {name} {shape}"] = weight.contiguous().numpy()
    return found


def clipped_in_update(module: Any) -> dict[str, NDArray[Any]]:
    """PyTorch: norm and parameters after clipping in the update, before it, and after a skipped update."""
    import torch

    found = {}
    for name, limit, skip in (("clipped", 1e-8, 0.0), ("kept", 1.0, 0.0), ("skipped", 1e-8, 1.0)):
        for way in ("in update", "before"):
            weight, other = torch.from_numpy(start()), torch.ones(3, dtype=torch.float64)
            optimiser = module.Descent([weight, other])
            optimiser.set_rate(0.1)
            gradients = [torch.from_numpy(gradient(0)), torch.from_numpy(gradient(1)[0])]
            if skip:
                optimiser.skip, gradients[1][1] = torch.tensor(skip), torch.nan
            optimiser.clips = way == "in update"
            norm = module.clip_in_update(optimiser, gradients, limit)
            if norm is None:
                gradients, norm = module.clip_by_global_norm(gradients, limit)
            optimiser.update(gradients)
            optimiser.update([torch.ones_like(weight), torch.ones_like(other)])  # the factor is used once
            values = torch.cat((weight.flatten(), other, norm[None]))
            found[f"{name} {way}"] = values.nan_to_num(-1.0).numpy()
    return found


if __name__ == "__main__":
    np.savez(sys.argv[2], **run(sys.argv[1]))  # type: ignore[arg-type, unused-ignore]
