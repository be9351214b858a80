"""Runs a PyTorch pair's step without a GPU as on one, and compiles the Triton kernels that it would launch.

``python -m tests.equivalence.gpu_trace CASE SCALE PRECISION CAPABILITY PACKAGES`` makes a step of training
and one of inference as on a GPU of that compute capability (``9.0``: an H100 or H200), with tensors that have
a type and a shape but no values. Each launch of a kernel compiles it: a kernel whose operands do not fit ends
with Triton's error, as it would on a GPU. Prints the kernels of each phase with the bytes of shared memory
that a program needs, as JSON. Triton is imported from the folder PACKAGES.

PyTorch's builds for a CPU have no tensors of a GPU. The tensors are of the CPU, and say that they are not.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib import import_module
from typing import Any
from unittest import mock

Capability = tuple[int, int]
FRAMEWORK = "suite.frameworks.pytorch"
OPERATORS = (  # modules with operators
    f"{FRAMEWORK}.first_convolution",
    f"{FRAMEWORK}.normalisation",
    f"{FRAMEWORK}.pooling",
    "suite.workloads.faster_rcnn.pytorch_regions",
)


class Driver:
    """What Triton asks of a driver before it compiles for ``capability``."""

    def __init__(self, capability: Capability) -> None:
        self._capability = capability

    def get_current_target(self) -> Any:
        """A GPU with warps of 32 threads."""
        from triton.backends.compiler import GPUTarget

        major, minor = self._capability
        return GPUTarget("cuda", 10 * major + minor, 32)

    def get_current_device(self) -> int:
        """The first."""
        return 0

    def get_current_stream(self, device: int) -> int:
        """The default one."""
        del device
        return 0


@contextmanager
def kernels_compiled() -> Iterator[dict[str, int]]:
    """A launch of a kernel only compiles it; yields bytes of shared memory by module and name."""
    import torch
    from triton.runtime.jit import JITFunction, MockTensor

    found: dict[str, int] = {}
    run = JITFunction.run

    def launched(kernel: Any, *values: Any, grid: Any, warmup: bool, **named: Any) -> None:
        del warmup

        def described(value: Any) -> Any:
            return MockTensor(value.dtype) if isinstance(value, torch.Tensor) else value

        named = {name: described(value) for name, value in named.items()}
        made = run(kernel, *map(described, values), grid=grid, warmup=True, **named)
        name = f"{kernel.fn.__module__.rpartition('.')[2]}.{kernel.fn.__name__}"
        found[name] = max(found.get(name, 0), made.metadata.shared)

    with mock.patch.object(JITFunction, "run", launched):
        yield found


def as_on_a_gpu(stack: ExitStack, capability: Capability) -> None:
    """Let PyTorch's build for a CPU do what the suite does on a GPU, without its compiler and graphs."""
    import torch
    import triton

    triton.runtime.driver.set_active(Driver(capability))
    processors = mock.Mock(multi_processor_count=132)

    def plain(function: Any = None, **options: Any) -> Any:
        del options
        return function if function is not None else lambda given: given

    changes: dict[str, Any] = {
        "torch.version.cuda": "13.0",
        "torch.compile": plain,
        "suite.frameworks.pytorch.kept.Kept.can_keep": lambda _: False,
        "torch.cuda.is_available": lambda: True,
        "torch.cuda.get_device_capability": lambda *_: capability,
        "torch.cuda.get_device_properties": lambda *_: processors,
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
        name: import_module(f"{FRAMEWORK}.{name}")
        for name in ("framework", "layers", "pair", "checked", "optimisers", "normalisation")
    }
    for of, name, value in (
        (parts["framework"].Framework, "make_fast", lambda _, step, __: lambda batch, slot: step(batch)),
        (parts["layers"], "NORMALISED_BY_KERNELS", 0),  # mini scale is small
        (parts["checked"].Checked, "_compare", lambda *_: None),  # there are no values
        (parts["optimisers"], "descend", lambda *_: None),  # it chooses by the device
        # The suite's function tries a view first. Without values its failure is another type of error.
        (parts["normalisation"], "_rows", lambda x: x.permute(0, 2, 3, 1).reshape(-1, x.shape[1])),
    ):
        stack.enter_context(mock.patch.object(of, name, value))
    for name in OPERATORS:
        for operator in vars(import_module(name)).values():
            if type(operator).__name__ == "CustomOpDef":
                # The operator itself, instead of the function that only makes its results' shapes.
                stack.enter_context(mock.patch.object(operator, "_abstract_fn", operator._init_fn))


def traced(name: str, scale: str, precision: str, phase: str) -> dict[str, int]:
    """The kernels of a step of the case ``name``; at reference scale, of the default variant and batch."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from suite import workloads
    from tests.equivalence.case import load

    case = load(name)
    if scale != case.scale:
        spec = workloads.specification(case.workload)
        case = replace(case, scale=scale, variant=spec.VARIANTS[scale][0], batch=spec.BATCHES[scale][0])
    job = replace(case.job("pytorch", precision, phase), device="cuda:0")
    framework = workloads.framework_module(job).Framework(job)
    framework.device = torch.device("cpu")
    made = workloads.pair_module(job).Pair
    # To note types, making a pair would compute a step with values.
    with kernels_compiled() as found, mock.patch.object(made, "observe"):
        pair = made(job, framework, case.data(job))
        with FakeTensorMode(allow_non_fake_inputs=True):
            pair.step(0)
    return found


def main(name: str, scale: str, precision: str, capability: str, packages: str) -> None:
    """See the module."""
    sys.path.append(packages)
    major, minor = map(int, capability.split("."))
    with tempfile.TemporaryDirectory() as cache, ExitStack() as stack:
        os.environ["TRITON_CACHE_DIR"] = cache
        as_on_a_gpu(stack, (major, minor))
        found = {phase: traced(name, scale, precision, phase) for phase in ("train", "infer")}
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
