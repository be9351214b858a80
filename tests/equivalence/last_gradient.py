"""When PyTorch's hook behind the last gradient runs: run in PyTorch's interpreter, prints what it found.

``complete``: for each ``backward()``, whether every gradient existed when the hook ran; of a network whose
layers are registered in another order than they compute, and one of which is used twice.
"""

from __future__ import annotations

import json

import torch
from torch import nn

from suite.frameworks.pytorch.arrivals import LastGradient


def main() -> None:
    """See the module."""
    layers = [nn.Linear(4, 4) for _ in range(4)]
    parameters = [parameter for at in (2, 0, 3, 1) for parameter in layers[at].parameters()]
    complete: list[bool] = []

    def record() -> None:
        complete.append(all(parameter.grad is not None for parameter in parameters))

    LastGradient(parameters, record)
    for rows in (2, 2, 5):
        values = torch.ones(rows, 4)
        for at in (0, 1, 2, 1, 3):
            values = torch.tanh(layers[at](values))
        values.sum().backward()
        for parameter in parameters:
            parameter.grad = None
    print(json.dumps({"complete": complete}))


if __name__ == "__main__":
    main()
