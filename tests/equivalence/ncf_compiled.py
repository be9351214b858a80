"""Compile NCF's kernels for a GPU of compute capability 9.0, without one: ``… ncf_compiled PACKAGES``.

Triton's interpreter accepts what its compiler refuses. Triton is imported from the folder PACKAGES. Prints a
line for each kernel and precision, of the published dimensions and of odd ones.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from suite.workloads.ncf import spec


def main(packages: str) -> None:
    """See the module."""
    sys.path.append(packages)
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from suite.workloads.ncf import pytorch_kernels as kernels

    ids = {"users": "*i32", "items": "*i32", "count": "i32"}
    tables = {"mf_user", "mf_item", "mlp_user", "mlp_item", "scores", "given"}
    published, odd = spec.dimensions("reference", "f64"), spec.Dimensions(5, 30, 3, (22, 17, 5, 2))
    exact, half = (torch.float64, "*fp64", "*fp64"), (torch.bfloat16, "*fp32", "*bf16")
    for dims, (dtype, wide, narrow) in ((published, exact), (published, half), (odd, half)):
        kept = [torch.empty(1, width, dtype=dtype) for width in dims.layers]
        chosen = [(kernels._forward, kernels._settings(kernels.FORWARD, dims.factors, kept)[1])]
        backward = kernels._settings(kernels.BACKWARD, dims.factors, kept)[1] | kernels._whole(kept)
        chosen.append((kernels._backward, backward))
        if dtype == torch.bfloat16:
            weights = [torch.empty(one.shape) for one in spec.parameters(dims)]
            chosen.append((kernels._infer, kernels._inference_settings(weights)))
        for kernel, constants in chosen:
            in_wide = {"scores"} if kernel is kernels._infer else tables
            options = {name: constants.pop(name) for name in ("num_warps", "num_stages")}
            types: dict[str, Any] = {
                name: ids.get(name, wide if name in in_wide or name.startswith("by_") else narrow)
                for name in kernel.arg_names
                if name not in constants
            }
            signature = {name: types.get(name, "constexpr") for name in kernel.arg_names}
            source = ASTSource(kernel, signature, constants)
            compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
            print(f"compiled {kernel.__name__} {dtype}, {compiled.metadata.shared} bytes", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
