"""The language model on Triton's LSTM kernels against PyTorch's LSTM, in Triton's interpreter on the CPU.

``python -m tests.equivalence.stacked_lstm FILE PACKAGES`` writes outputs, states and gradients of both, in
fp64 and fp16 (the interpreter computes no products in bf16). Triton is imported from the folder PACKAGES.

The interpreter runs one program after another. Programs that wait for each other need a GPU: here the launch
of all waves has one program, and the way in which its programs compute is tested in launches of one wave.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

STEPS, BATCH, VOCABULARY = 3, 3, 11


def compute(layers: int, width: int, dtype: str, masked: bool, batch: int = BATCH) -> dict[str, NDArray[Any]]:
    """Differences in norm between the two, by tensor; the plain one computes in fp64."""
    import torch

    from suite.frameworks.pytorch.recurrent import Dropout
    from suite.workloads.lstm_ptb import pytorch

    def draw(*shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=generator, dtype=torch.float64) - 0.5

    generator = torch.Generator().manual_seed(layers)
    weights = {"embedding": draw(VOCABULARY, width).requires_grad_()}
    for layer in range(layers):
        for part, shape in (
            ("input", (4 * width, width)),
            ("hidden", (4 * width, width)),
            ("bias", (4 * width,)),
        ):
            weights[f"lstm.{layer}.{part}"] = draw(*shape).requires_grad_()
    weights["softmax.weight"] = draw(VOCABULARY, width).requires_grad_()
    weights["softmax.bias"] = draw(VOCABULARY).requires_grad_()
    tokens = torch.randint(VOCABULARY, (batch, STEPS), generator=generator)
    state, slopes = draw(layers, 2, 1, batch, width), draw(STEPS, batch, VOCABULARY)
    dropout = Dropout()
    if masked:
        dropout.rate = 0.3
        for name in (*(f"lstm.{layer}" for layer in range(layers)), "softmax"):
            dropout.masks[name] = (draw(batch, STEPS, width) > -0.2).double()

    def run(run_layers: Any, kind: torch.dtype) -> dict[str, NDArray[Any]]:
        hidden, moved = run_layers(weights, tokens, state.to(kind), dropout)
        logits = pytorch.classify(weights, hidden)
        found = {"logits": logits.detach(), "state": moved}
        gradients = torch.autograd.grad(logits, list(weights.values()), slopes.to(kind))
        found |= {f"gradient/{name}": value for name, value in zip(weights, gradients, strict=True)}
        with torch.no_grad():  # without gradients the kernels store less
            found["inference"] = run_layers(weights, tokens, state.to(kind), dropout)[0][..., :width]
        return {name: value.double().numpy() for name, value in found.items()}

    plain, stacked = run(pytorch.run_layers, torch.float64), run(pytorch.run_stacked, getattr(torch, dtype))
    return {name: np.stack((plain[name], stacked[name])) for name in plain}


def main(file: str, packages: str) -> None:
    """See the module."""
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
    sys.path.append(packages)
    from suite.frameworks.pytorch import stacked_lstm

    stacked_lstm.EXACT_DEPTH = 32  # fewer turns of a loop that the interpreter runs slowly
    found: dict[str, Any] = {}

    def collect(case: str, *arguments: Any) -> None:
        found.update({f"{case}/{name}": array for name, array in compute(*arguments).items()})

    collect("one layer", 1, 21, "float64", True)
    collect("two layers", 2, 70, "float64", True)
    collect("three layers", 3, 21, "float64", False)
    collect("two tiles of rows", 2, 5, "float64", True, 18)
    collect("half", 2, 21, "float16", True)

    class Held(stacked_lstm.Stack):
        """Launches of one wave whose programs hold their weights."""

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.hold = True

    with mock.patch.object(stacked_lstm, "Stack", Held):
        collect("held", 2, 21, "float64", True)
        collect("half held", 3, 70, "float16", True)
    with mock.patch.object(stacked_lstm, "at_once", lambda device, programs: programs == 1):
        collect("half at once", 1, 14, "float16", True)
    np.savez(file, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
