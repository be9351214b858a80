"""On a Hopper GPU: one launch of the stacked LSTM for all waves against launches of one wave, in bf16.

``python -m tests.equivalence.gpu_stacked_lstm`` fails if they differ, or if repetitions of the one launch do:
programs that do not wait for each other read values of an earlier wave or none. The exit code is 5 on a GPU
that cannot run all programs at once.
"""

from __future__ import annotations

import sys
from typing import Any
from unittest import mock

import torch

from suite.frameworks.pytorch import stacked_lstm

STEPS, LAYERS, WIDTH, BATCH = 9, 2, 650, 20
REPETITIONS = 20


class Waves(stacked_lstm.Stack):
    """Launches of one wave whose programs compute as those of the one launch."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.one_launch = False


def compute() -> list[torch.Tensor]:
    """Outputs, last state and gradients of random values, the same in each call."""
    generator = torch.Generator("cuda").manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=generator, device="cuda") - 0.5

    inputs = draw(STEPS, BATCH, WIDTH).requires_grad_()
    square, bias = (4 * WIDTH, WIDTH), (4 * WIDTH,)
    weights = [
        (draw(*shape) * 0.1).requires_grad_() for _ in range(LAYERS) for shape in (square, square, bias)
    ]
    state, masks = draw(LAYERS, 2, 1, BATCH, WIDTH).bfloat16(), draw(LAYERS, STEPS, BATCH, WIDTH) + 1
    outputs, last = stacked_lstm.stacked_lstm(inputs, state, masks, weights)
    return [outputs, last, *torch.autograd.grad(outputs.float().square().sum(), [inputs, *weights])]


def main() -> int:
    """See the module."""
    device = torch.device("cuda")
    inputs = torch.empty(STEPS, BATCH, WIDTH, device=device)
    if not stacked_lstm.Stack(inputs, torch.bfloat16, LAYERS).one_launch:
        print(f"{torch.cuda.get_device_name(device)} has a launch for each wave")
        return 5
    with mock.patch.object(stacked_lstm, "Stack", Waves):
        expected = compute()
    found = [compute() for _ in range(REPETITIONS)]
    unequal = sum(not all(map(torch.equal, found[0], one)) for one in found)
    apart = max(
        float((one - other).float().norm() / other.float().norm())
        for one, other in zip(found[0], expected, strict=True)
    )
    print(f"{unequal} of {REPETITIONS} repetitions differ; {apart:.1e} from launches of one wave")
    return int(unequal > 0 or not apart < 1e-2)


if __name__ == "__main__":
    sys.exit(main())
