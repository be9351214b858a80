"""What a pair of PyTorch does on a GPU, followed without one: types, shapes and the suite's Triton kernels.

``python -m tests.equivalence.gpu_trace CASE PRECISION PACKAGES`` makes two steps of training and two of
inference as on a GPU, with tensors that have a type and a shape but no values. Each launch of a kernel
compiles it, from Triton's language to its first representation: a kernel whose operands do not fit ends with
Triton's error, as it would on a GPU. Prints the kernels by phase, as JSON. Triton is imported from the folder
PACKAGES.

PyTorch's builds for a CPU have no tensors of a GPU. The tensors are of the CPU, and say that they are not.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib import import_module
from typing import Any
from unittest import mock

HOPPER = 90  # compute capability 9.0
KERNELS = ("first_convolution", "normalisation", "pooling")  # modules with operators


class Driver:
    """What Triton asks of a driver before it compiles."""

    def get_current_target(self) -> Any:
        """An H100 or H200."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", HOPPER, 32)

    def get_current_device(self) -> int:
        """The first."""
        return 0

    def get_current_stream(self, device: int) -> int:
        """The default one."""
        del device
        return 0


@contextmanager
def kernels_compiled() -> Iterator[list[str]]:
    """Launches of kernels compile them and launch nothing; yields a list that gets their names."""
    import torch
    import triton
    from triton._C.libtriton import ir
    from triton.compiler.compiler import make_backend
    from triton.runtime.jit import JITFunction, MockTensor

    names: list[str] = []
    run = JITFunction.run

    def compiled(source: Any, target: Any, options: Any) -> Any:
        backend = make_backend(target)
        options = backend.parse_options({**options, **source.parse_options()})
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        made = backend.get_codegen_implementation(options), backend.get_module_map()
        return source.make_ir(target, options, *made, context)

    def launched(kernel: Any, *values: Any, grid: Any, warmup: bool, **named: Any) -> None:
        del warmup
        names.append(kernel.fn.__name__)

        def described(value: Any) -> Any:
            return MockTensor(value.dtype) if isinstance(value, torch.Tensor) else value

        named = {name: described(value) for name, value in named.items()}
        run(kernel, *map(described, values), grid=grid, warmup=True, **named)

    triton.runtime.driver.set_active(Driver())
    with mock.patch("triton.compiler.compile", compiled), mock.patch.object(JITFunction, "run", launched):
        yield names


def as_on_a_gpu(stack: ExitStack) -> None:
    """Let PyTorch's build for a CPU do what the suite does on a GPU, without its compiler and graphs."""
    import torch

    def plain(function: Any = None, **options: Any) -> Any:
        del options
        return function if function is not None else lambda given: given

    changes: dict[str, Any] = {
        "torch.version.cuda": "13.0",
        "torch.compile": plain,
        "torch.cuda.is_available": lambda: True,
        "torch.cuda.get_device_capability": lambda *_: divmod(HOPPER, 10),
        "torch.cuda.set_device": lambda *_: None,
        "torch.cuda.Stream": mock.MagicMock(),
        "torch.cuda.Event": mock.MagicMock(),
        "torch.cuda.synchronize": lambda *_: None,
        # cuDNN's results have the layout of the weights, which the suite stores with the channels last.
        "torch._C._conv_determine_backend_memory_format": lambda *_: torch.channels_last,
    }
    for name, value in changes.items():
        stack.enter_context(mock.patch(name, value))
    stack.enter_context(mock.patch.object(torch.Tensor, "is_cuda", property(lambda _: True), create=True))
    stack.enter_context(mock.patch.object(torch.Tensor, "pin_memory", lambda tensor: tensor))
    parts: dict[str, Any] = {
        name: import_module(f"suite.frameworks.pytorch.{name}")
        for name in ("framework", "layers", "pair", "checked", "optimisers", *KERNELS)
    }
    for of, name, value in (
        (parts["framework"].Framework, "make_fast", lambda _, step, __: lambda batch, slot: step(batch)),
        (parts["layers"], "NORMALISED_BY_KERNELS", 0),  # mini scale is small
        (parts["pair"].BasePair, "run_each_shape", lambda _: None),
        (parts["checked"].Checked, "_compare", lambda *_: None),  # there are no values
        (parts["optimisers"], "descend", lambda *_: None),  # which asks for the device
        # The suite's own first tries a view, whose error is another one for tensors without values.
        (parts["normalisation"], "_rows", lambda x: x.permute(0, 2, 3, 1).reshape(-1, x.shape[1])),
    ):
        stack.enter_context(mock.patch.object(of, name, value))
    for name in KERNELS:
        for operator in vars(parts[name]).values():
            if type(operator).__name__ == "CustomOpDef":
                # The operator itself, instead of the function that only makes its results' shapes.
                stack.enter_context(mock.patch.object(operator, "_abstract_fn", operator._init_fn))


def traced(name: str, precision: str, phase: str, step: Callable[[Any], object]) -> None:
    """Make a pair of the case ``name``, and give it to ``step`` where tensors have no values."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from suite import workloads
    from tests.equivalence.case import load

    case = load(name)
    job = replace(case.job("pytorch", precision, phase), device="cuda:0")
    framework = workloads.framework_module(job).Framework(job)
    framework.device = torch.device("cpu")
    pair = workloads.pair_module(job).Pair(job, framework, case.data(job))
    with FakeTensorMode(allow_non_fake_inputs=True):
        step(pair)


def main(name: str, precision: str, packages: str) -> None:
    """See the module."""
    sys.path.append(packages)
    found: dict[str, list[str]] = {}

    def two_steps(pair: Any) -> None:
        pair.step(0)
        pair.step(1)

    with ExitStack() as stack:
        as_on_a_gpu(stack)
        for phase in ("train", "infer"):
            with kernels_compiled() as kernels:
                traced(name, precision, phase, two_steps)
            found[phase] = sorted(set(kernels))
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
