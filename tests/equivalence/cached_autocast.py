"""Whether PyTorch's compilation cache takes a graph with autocast. Run in PyTorch's interpreter.

Prints the reason of the refusal, or null, ``before`` and ``after`` :func:`cache_autocast`.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from torch._functorch._aot_autograd.autograd_cache import BypassAOTAutogradCache, check_cacheable

from suite.frameworks.pytorch.caches import cache_autocast


def refusal() -> str | None:
    """Why the graph is not cached; None if it is."""
    found: list[str | None] = []

    def backend(graph: Any, inputs: Any) -> Any:
        del inputs
        try:
            check_cacheable(graph)
            found.append(None)
        except BypassAOTAutogradCache as error:
            found.append(str(error).splitlines()[0])
        return graph.forward

    def product(a: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
            return a @ a

    torch._dynamo.reset()
    torch.compile(product, backend=backend)(torch.ones(2, 2))
    (reason,) = found
    return reason


def main() -> None:
    """See the module."""
    before = refusal()
    cache_autocast()
    print(json.dumps({"before": before, "after": refusal()}))


if __name__ == "__main__":
    main()
