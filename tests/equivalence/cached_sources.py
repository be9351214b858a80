"""Whether PyTorch's compilation cache separates the sources of an operator's gradient.

Run in PyTorch's interpreter. Prints the keys of one graph by the factor in the gradient of its operator:
``before`` and ``after`` :func:`cache_by_source`, which here takes the factor for the source code; and as
``compiling process`` what a process that compiles kernels adds to its keys.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from inspect import signature
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._functorch._aot_autograd.autograd_cache import autograd_cache_key
from torch._functorch._aot_autograd.schemas import AOTConfig

from suite.frameworks.pytorch import caches


@torch.library.triton_op("suite_test::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    """The double of ``x``."""
    return x * 2


def keys(change: Callable[[int], None]) -> list[str]:
    """The keys of a graph of the operator with the factors 2, 3 and 2, each given to ``change`` first."""
    found: list[str] = []

    def backend(graph: Any, inputs: Any) -> Any:
        settings: Any = AOTConfig(None, None, None, {}, 0, 0, False)  # type: ignore[arg-type]
        none: Any = {} if "fx_config" in signature(autograd_cache_key).parameters else None  # PyTorch 2.11
        for factor in (2, 3, 2):
            twice.register_autograd(lambda _, slope, factor=factor: slope * factor)
            change(factor)
            found.append(autograd_cache_key(graph, inputs, settings, none)[0])
        return graph.forward

    torch._dynamo.reset()
    torch.compile(twice, backend=backend)(torch.ones(2, requires_grad=True))
    return found


def announce(factor: int) -> None:
    """Take ``factor`` for the source code."""
    with mock.patch.object(caches, "sources", return_value=str(factor)):
        caches.cache_by_source()


def tag_of_compiling_process() -> str:
    """What a process that compiles kernels takes for the source code."""
    torch._inductor.config.compile_threads = 2  # more than one, whatever the machine has
    pool = importlib.import_module("torch._inductor.async_compile").AsyncCompile.process_pool()
    tag: str = pool.submit(eval, "__import__('torch').compiler.config.cache_key_tag").result(120)
    return tag


def main() -> None:
    """See the module."""
    found: dict[str, Any] = {"before": keys(lambda _: None), "after": keys(announce)}
    print(json.dumps(found | {"compiling process": tag_of_compiling_process()}))


if __name__ == "__main__":
    main()
