"""What processes keep of PyTorch's traces. Run in its interpreter: ``… kept_traces FOLDER WORKLOAD…``.

Without workloads it tries small functions; otherwise it runs steps of each workload, training and inference.
Prints, as JSON, the results and how often the compiler was called. The compiler returns the traced graph as
it is: that takes no C++ compiler, and its results equal those without it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch._dynamo.aot_compile_types import GraphModuleSerializableCallable

from suite import workloads
from suite.frameworks.pytorch import kept
from suite.frameworks.pytorch.framework import Framework
from suite.frameworks.pytorch.kept import Kept
from tests.equivalence.case import load

calls: list[int] = []  # of the compiler: nodes of the graph
FACTOR = 2.0


def compiler(graph: Any, inputs: Any) -> Any:
    """See the module."""
    del inputs
    calls.append(len(graph.graph.nodes))
    return GraphModuleSerializableCallable(graph)


def made(function: Callable[..., Any], folder: str) -> Kept:
    """As ``Framework.compile`` makes it on a GPU."""
    return Kept(function, Path(folder), compiler)


class Model:
    """A weight, and a number that becomes a part of the graph."""

    def __init__(self, scale: float = 3.0, rows: int = 2) -> None:
        self.weight = nn.Parameter(torch.ones(rows))
        self.factor = nn.Parameter(torch.ones(rows))
        self.scale = scale

    def loss(self, batch: dict[str, Tensor]) -> tuple[Tensor, list[Tensor]]:
        """A loss that reads the arguments, an attribute and a constant of the module."""
        product = self.weight * self.factor * batch["x"] * self.scale * FACTOR
        return product.sum(), [product.detach()]

    def broken(self, batch: dict[str, Tensor]) -> Tensor:
        """A function that takes two graphs."""
        total = batch["x"].sum()
        torch._dynamo.graph_break()
        return total * self.scale


def small(folder: str) -> dict[str, Any]:
    """[loss, calls of the compiler] of small functions by what was changed since the first."""
    found: dict[str, Any] = {}

    def note(name: str, model: Model, rows: int = 2, method: str = "loss") -> None:
        before = len(calls)
        result = made(getattr(model, method), folder)({"x": torch.ones(rows)})
        result = result[0] if isinstance(result, tuple) else result
        if result.requires_grad:
            result.backward()
            assert model.weight.grad is not None
        found[name] = [float(result.detach()), len(calls) - before]

    note("first", Model())
    note("again", Model())
    other = Model()
    with torch.no_grad():
        other.weight.fill_(5.0)
    note("another value of the weight", other)
    other = Model()
    other.factor = other.weight
    note("one weight for two", other)
    note("attribute", Model(scale=4.0))
    note("shape", Model(rows=3), rows=3)
    with mock.patch(f"{__name__}.FACTOR", 7.0):
        note("constant", Model())
    with torch.no_grad():
        note("without gradients", Model())
    with mock.patch.object(kept, "sources", return_value="changed"):
        note("source", Model())
    with mock.patch("torch.__version__", "2.0"):
        note("version", Model())
    for file in Path(folder).iterdir():
        file.write_bytes(file.read_bytes()[:-100])
    note("damaged", Model())
    note("two graphs", Model(), method="broken")
    model = Model()
    function = made(model.loss, folder)
    values = []
    for model.scale in (3.0, 4.0, 3.0):  # the same object: PyTorch's guards would find this
        values.append(float(function({"x": torch.ones(2)})[0].detach()))
    found["attribute of the same object"] = values
    return found


def step(name: str, phase: str) -> dict[str, Any]:
    """Sums of the results of two steps, and the calls of the compiler."""
    case = load(name)
    job = replace(case.job("pytorch", "fp32", phase), mode="throughput")
    before = len(calls)
    framework = workloads.framework_module(job).Framework(job)
    pair = workloads.pair_module(job).Pair(job, framework, workloads.open_data(job))
    for index in range(2):
        pair.step(index)
    return {"results": [float(one.sum()) for one in pair.collect()], "calls": len(calls) - before}


def main(folder: str, *names: str) -> None:
    """See the module."""

    def compiled(_: Framework, function: Callable[..., Any]) -> Callable[..., Any]:
        return made(function, folder) if Kept.can_keep(function) else function

    found = {} if names else small(folder)
    for name in names:
        for phase in ("train", "infer"):
            plain = step(name, phase)["results"]
            with mock.patch.object(Framework, "compile", compiled):
                found[f"{name} {phase}"] = step(name, phase) | {"plain": plain}
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
