"""Shared code of the plain PyTorch scripts: device, batches and precision."""

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
    """Set threads and TF32; returns the device and the mixed-precision context for every step."""
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
    cached: dict[int, Batch] = {}

    def batch(step: int) -> Batch:
        slot = data.slot(step)
        if slot is None or slot not in cached:
            batch_on_device = {
                name: torch.from_numpy(array).to(device) for name, array in data.batch(step).items()
            }
            if slot is None:
                return batch_on_device
            cached[slot] = batch_on_device
        return cached[slot]

    for step in range(STEPS):
        if data.slot(step) is not None:
            batch(step)
    return data, batch


def plain(model: nn.Module, step: Callable[[int], Tensor]) -> Plain:
    """The script for the timing loop."""
    return Plain(
        step=step,
        fetch=lambda tensor: tensor.detach().float().cpu().numpy(),
        synchronize=torch.cuda.synchronize if torch.cuda.is_available() else lambda: None,
        parameters=sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad),
    )
