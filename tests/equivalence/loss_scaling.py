"""Dynamic loss scaling of one framework with given gradients, and of a pair in fp16. Run in its interpreter.

``python -m tests.equivalence.loss_scaling FRAMEWORK FILE`` writes, for each optimiser, the parameters and the
scale after every step, and the results of an NCF pair that starts with a scale far too large. The suite
refuses fp16 on a CPU, because it is computed in fp32 there; its arithmetic is right, which suffices here. In
PyTorch ``reference/...`` are the results of ``torch.amp.GradScaler`` and the stock optimisers.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from suite import workloads
from suite.contract import Job, Key

INITIAL, EVERY, STEPS = 1024.0, 3, 9
BAD = {1: np.inf, 2: np.nan, 6: -np.inf}  # the steps whose gradient of the second tensor is not finite
HYPER = {"beta1": "0.9", "beta2": "0.999", "epsilon": "1e-8", "momentum": "0.9", "weight_decay": "1e-2"}
RATE = 0.125
OPTIMISERS = ("adam", "momentum", "descent")
HUGE = 2.0**40
PAIR_STEPS = 60


def initial() -> list[np.ndarray]:
    """The parameters before the first step."""
    return [np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3), np.ones(4, np.float32)]


def gradients(step: int) -> list[np.ndarray]:
    """The unscaled gradients of ``step``."""
    found = [array * np.float32(0.5 + step) for array in initial()]
    if step in BAD:
        found[1][2] = BAD[step]
    return found


def made(module: Any, name: str, parameters: list[Any]) -> Any:
    """The optimiser ``name`` of the suite."""
    if name == "adam":
        return module.Adam(parameters, HYPER)
    return module.Descent(parameters) if name == "descent" else module.Momentum(parameters, HYPER, [0])


def pytorch(name: str) -> dict[str, np.ndarray]:
    """Parameters and scales by step, the suite's and the reference's."""
    import torch

    from suite.frameworks.pytorch import optimisers as module
    from suite.frameworks.pytorch.scaling import LossScaling

    parameters = [torch.tensor(value, requires_grad=True) for value in initial()]
    optimiser, scaling = made(module, name, parameters), LossScaling(INITIAL, EVERY, torch.device("cpu"))
    optimiser.set_rate(RATE)
    stock = [torch.tensor(value, requires_grad=True) for value in initial()]
    groups = [{"params": [stock[0]], "weight_decay": 1e-2}, {"params": [stock[1]]}]
    other: Any = torch.optim.SGD(groups, lr=RATE, momentum=0.9)
    if name != "momentum":
        other = torch.optim.Adam(stock, lr=RATE) if name == "adam" else torch.optim.SGD(stock, lr=RATE)
    scaler = torch.amp.GradScaler("cpu", init_scale=INITIAL, growth_interval=EVERY)
    found: dict[str, list[Any]] = {"scale": [], "0": [], "1": [], "reference/scale": []}
    found |= {"reference/0": [], "reference/1": []}
    for step in range(STEPS):
        scale = float(scaling.report()["scale"])
        scaled = [torch.tensor(value) * scale for value in gradients(step)]
        scaling.update(optimiser, scaling.unscaled(scaled))
        for parameter, value in zip(stock, gradients(step), strict=True):
            parameter.grad = torch.tensor(value) * scaler.get_scale()
        scaler.scale(torch.zeros(1))  # which makes its tensors
        scaler.step(other)
        scaler.update()
        for prefix, tensors, now in (
            ("", parameters, scaling.report()["scale"]),
            ("reference/", stock, scaler.get_scale()),
        ):
            found[f"{prefix}scale"].append(now)
            for at, tensor in enumerate(tensors):
                found[f"{prefix}{at}"].append(tensor.detach().numpy().copy())
    found["skipped"] = [scaling.report()["skipped"]]
    scaling.reset()
    found["reset"] = [scaling.report()["scale"], scaling.report()["skipped"]]
    return {key: np.array(value) for key, value in found.items()}


def tensorflow(name: str) -> dict[str, np.ndarray]:
    """Parameters and scales by step."""
    import tensorflow as tf

    from suite.frameworks.tensorflow import framework as module
    from suite.frameworks.tensorflow.scaling import LossScaling

    parameters = [tf.Variable(value) for value in initial()]
    optimiser, scaling = made(module, name, parameters), LossScaling(INITIAL, EVERY)
    optimiser.set_rate(RATE)

    @tf.function(autograph=False)
    def update(first: Any, second: Any) -> None:
        scaling.update(optimiser, scaling.unscaled([first, second]))

    found: dict[str, list[Any]] = {"scale": [], "0": [], "1": []}
    for step in range(STEPS):
        scale = np.float32(scaling.report()["scale"])
        update(*(tf.constant(value * scale) for value in gradients(step)))
        found["scale"].append(scaling.report()["scale"])
        for at, variable in enumerate(parameters):
            found[str(at)].append(variable.numpy().copy())
    found["skipped"] = [scaling.report()["skipped"]]
    scaling.reset()
    found["reset"] = [scaling.report()["scale"], scaling.report()["skipped"]]
    return {key: np.array(value) for key, value in found.items()}


def jax(name: str) -> dict[str, np.ndarray]:
    """Parameters and scales by step."""
    import jax

    from suite.frameworks.jax import framework as module
    from suite.frameworks.jax.scaling import LossScaling

    parameters = [jax.numpy.asarray(value) for value in initial()]
    optimiser, scaling = made(module, name, parameters), LossScaling(INITIAL, EVERY)
    optimiser.set_rate(RATE)

    @jax.jit
    def update(parameters: Any, state: Any, scaled: Any, values: Any, rate: Any) -> Any:
        unscaled = scaling.divided(scaled, values)
        new = optimiser.updated(parameters, unscaled, state, rate)
        return scaling.selected(unscaled, new, (parameters, state), values)

    state = optimiser.initial(parameters)
    found: dict[str, list[Any]] = {"scale": [], "0": [], "1": []}
    for step in range(STEPS):
        scaled = [value * np.float32(scaling.report()["scale"]) for value in gradients(step)]
        (parameters, state), scaling.values = update(
            parameters, state, scaled, scaling.values, np.float32(optimiser.rate)
        )
        found["scale"].append(scaling.report()["scale"])
        for at, parameter in enumerate(parameters):
            found[str(at)].append(np.array(parameter))
    found["skipped"] = [scaling.report()["skipped"]]
    scaling.reset()
    found["reset"] = [scaling.report()["scale"], scaling.report()["skipped"]]
    return {key: np.array(value) for key, value in found.items()}


def of_a_pair(framework: str) -> dict[str, np.ndarray]:
    """Losses, scale and skipped steps of NCF in fp16 with the initial scale ``HUGE``."""
    module: Any = import_module(f"suite.frameworks.{framework}.framework")
    module.unsupported = lambda *_: None
    spec = workloads.specification("ncf")
    key = Key("ncf", framework, "train", "offline", "fp16", 64, 1, "mini", "synthetic", "warm", "f8")
    hyper = {**spec.hyperparameters("mini", "f8"), "loss_scale": str(HUGE)}
    job = Job(key, "throughput", 7, 0, hyper, "cpu", 1, True, 0, 0, "", "")
    made_framework = module.Framework(job)
    pair = workloads.pair_module(job).Pair(job, made_framework, workloads.open_data(job))
    before = pair.parameters()
    for step in range(PAIR_STEPS):
        pair.step(step)
    found = {"losses": np.array([float(loss) for loss in pair.collect()])}
    report = made_framework.scaling.report()
    pair.reset()
    again = made_framework.scaling.report()
    types = made_framework.dtypes()
    assert types == {"weights": "float32", "activations": "float16", "gradients": "float32"}, types
    assert all((value == before[name]).all() for name, value in pair.parameters().items())
    scaling = import_module(f"suite.frameworks.{framework}.scaling")
    device = (made_framework.device,) if framework == "pytorch" else ()
    unscaled = replace(job, hyper={name: value for name, value in hyper.items() if "loss" not in name})
    for other in (unscaled, replace(job, key=replace(key, precision="bf16"))):
        assert not isinstance(scaling.scaling_of(other, *device), scaling.LossScaling)
    return found | {"after": np.array(list(report.values())), "reset": np.array(list(again.values()))}


def main(arguments: list[str]) -> None:
    """See the module."""
    framework, file = arguments
    run = {"pytorch": pytorch, "tensorflow": tensorflow, "jax": jax}[framework]
    # The pair first: it sets threads, which TensorFlow allows before anything else only.
    found = {f"pair/{key}": value for key, value in of_a_pair(framework).items()}
    found |= {f"{name}/{key}": value for name in OPTIMISERS for key, value in run(name).items()}
    np.savez(file, **found)  # type: ignore[arg-type] # its stub takes the names for other arguments


if __name__ == "__main__":
    main(sys.argv[1:])
