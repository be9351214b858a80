"""What the plain PyTorch scripts share: device, batches and precision."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from peers.plain import Plain
from suite import workloads
from suite.contract import STEPS, Data, Job

Batch = dict[str, Tensor]


def start(job: Job) -> tuple[torch.device, contextlib.AbstractContextManager[Any]]:
    """Threads and TF32 as asked; gives the device, and a context of mixed precision for every step."""
    torch.set_num_threads(job.threads)
    torch.backends.cuda.matmul.allow_tf32 = job.key.precision == "tf32"
    torch.backends.cudnn.allow_tf32 = job.key.precision == "tf32"
    torch.backends.cudnn.benchmark = True
    device = torch.device(job.device)
    half = job.key.precision == "bf16"
    return device, torch.autocast(device.type, dtype=torch.bfloat16, enabled=half)


def staged(job: Job, device: torch.device) -> tuple[Data, Callable[[int], Batch]]:
    """The suite's batches, and those of a step on the device: synthetic ones are copied there once."""
    data = workloads.open_data(job)
    kept: dict[int, Batch] = {}

    def batch(step: int) -> Batch:
        slot = data.slot(step)
        if slot is None or slot not in kept:
            found = {name: torch.from_numpy(array).to(device) for name, array in data.batch(step).items()}
            if slot is None:
                return found
            kept[slot] = found
        return kept[slot]

    for step in range(STEPS):
        if data.slot(step) is not None:
            batch(step)
    return data, batch


def plain(model: nn.Module, step: Callable[[int], Tensor]) -> Plain:
    """As the timing loop takes it."""
    return Plain(
        step=step,
        fetch=lambda tensor: tensor.detach().float().cpu().numpy(),
        synchronize=torch.cuda.synchronize if torch.cuda.is_available() else lambda: None,
        parameters=sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad),
    )
