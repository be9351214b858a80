"""Training on several devices as a user would write it: ``torch.compile``, DistributedDataParallel, autocast.

    python -m peers.ddp --workload resnet50 --batch 256 --devices 2

One process per device, connected by NCCL (Gloo with ``--device cpu``); ``--devices 1`` is the same without
DistributedDataParallel, the other devices idle. The suite's synthetic batches lie on the device. After ten
steps all ranks meet, run ``--steps`` steps, drain their devices and meet again: that time counts, without the
copy of losses to the host. Prints one JSON line. The optimiser is PyTorch's fused one, convolutions are in
the channels-last layout, and the reducer has ``gradient_as_bucket_view`` and ``static_graph``.

What is compiled follows the usual scripts: the whole of an image classifier, the attention of ``gnmt``
(``nn.LSTM`` is cuDNN's), the backbone of ``faster_rcnn`` (torchvision's, whose number of regions varies).
``word2vec`` is not here: its plain script has sparse gradients, which NCCL does not sum.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from peers.gnmt_plain import Model as Translator
from peers.plain_loop import job_of
from peers.pytorch_common import Batch, staged, start
from peers.pytorch_images import network
from peers.pytorch_torchvision import models
from suite import workloads
from suite.contract import STEPS, WARMUP_STEPS, Job
from suite.workloads.faster_rcnn.spec import BLOCK_SCALE
from suite.workloads.gnmt import spec as gnmt

IMAGES = ("alexnet", "googlenet", "inception_v3", "resnet50", "resnet152", "vgg16")
WORKLOADS = (*IMAGES, "faster_rcnn", "gnmt")


class ImageLoss(nn.Module):
    """torchvision's classifier with its loss, of images uint8 [N, H, W, 3]."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        spec: Any = workloads.specification(job.key.workload)
        self.network = network(job.key.workload).to(memory_format=torch.channels_last)
        for name, values in (("mean", spec.MEAN), ("scale", spec.SCALE)):
            tensor = torch.tensor([float(value) for value in values]).view(3, 1, 1)
            self.register_buffer(name, tensor, persistent=False)
        self.lossy = nn.CrossEntropyLoss(label_smoothing=job.number("smoothing"))

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """The mean loss."""
        pixels = images.permute(0, 3, 1, 2).float().div(255).sub(self.mean).div(self.scale)
        loss: Tensor = self.lossy(self.network(pixels), labels)
        return loss


class TranslationLoss(nn.Module):
    """The plain GNMT with its loss, per sentence."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        dims = gnmt.dimensions(job.key.scale, job.key.variant)
        self.model = Translator(dims.vocabulary, dims.hidden, job.number("dropout"))
        self.lossy = nn.CrossEntropyLoss(ignore_index=0, label_smoothing=0.1, reduction="sum")

    def forward(self, source: Tensor, lengths: Tensor, target_in: Tensor, target_out: Tensor) -> Tensor:
        """The loss; ``lengths`` on the host, as packing needs them."""
        memory = self.model.encode(source, lengths)
        logits = self.model.decode(target_in, memory, source == 0, [None] * 4)
        loss: Tensor = self.lossy(logits.flatten(0, 1), target_out.flatten()) / len(source)
        return loss


class DetectionLoss(nn.Module):
    """torchvision's Faster R-CNN; its frozen normalisations have the suite's scales."""

    def __init__(self) -> None:
        super().__init__()
        models()  # torchvision
        from torchvision.models.detection import FasterRCNN
        from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
        from torchvision.ops import FrozenBatchNorm2d

        backbone = resnet_fpn_backbone(
            backbone_name="resnet50", weights=None, norm_layer=FrozenBatchNorm2d, trainable_layers=3
        )
        for name, layer in backbone.named_modules():
            if name.endswith("bn3"):
                layer.weight.fill_(BLOCK_SCALE)
        self.model = FasterRCNN(backbone, num_classes=91).to(memory_format=torch.channels_last)

    def forward(self, images: list[Tensor], targets: list[dict[str, Tensor]]) -> Tensor:
        """The sum of the four losses."""
        losses: dict[str, Tensor] = self.model(images, targets)
        return torch.stack(list(losses.values())).sum()


def inputs(workload: str, batch: Batch) -> tuple[Any, ...]:
    """The arguments of the workload's module for a batch of the suite, on the device."""
    if workload == "gnmt":
        names = ("source", "target_in", "target_out")
        source, target_in, target_out = (batch[name].long() for name in names)
        return source, batch["source_lengths"].cpu(), target_in, target_out
    if workload != "faster_rcnn":
        return batch["images"], batch["labels"].long()
    images, targets = [], []
    rows = zip(batch["images"], batch["sizes"].int().tolist(), batch["boxes"], batch["labels"], strict=True)
    for image, (height, width), boxes, labels in rows:
        images.append(image[:height, :width].permute(2, 0, 1).float().div(255))
        there = labels > 0
        targets.append({"boxes": boxes[there], "labels": labels[there].long()})
    return images, targets


def module_of(job: Job) -> tuple[nn.Module, Callable[[list[nn.Parameter]], torch.optim.Optimizer]]:
    """The module that returns the loss, and its optimiser as a function of the parameters."""
    if job.key.workload == "gnmt":
        return TranslationLoss(job), lambda parameters: torch.optim.Adam(parameters, lr=1e-3, fused=True)
    rate = 2e-5 if job.key.workload == "faster_rcnn" else 1e-3
    module = DetectionLoss() if job.key.workload == "faster_rcnn" else ImageLoss(job)
    momentum, decay = job.number("momentum"), job.number("weight_decay")
    return module, lambda parameters: torch.optim.SGD(
        parameters, lr=rate, momentum=momentum, weight_decay=decay, fused=True
    )


def step_of(job: Job, *, compiled: bool) -> Callable[[int], Tensor]:
    """A function that trains step ``index`` and returns the loss, on the device."""
    device, mixed = start(job)
    _, batch_of = staged(job, device)
    module, make_optimiser = module_of(job)
    module.to(device).train()
    optimiser = make_optimiser([one for one in module.parameters() if one.requires_grad])
    whole = isinstance(module, ImageLoss)
    if compiled and not whole:
        (module.model.backbone if isinstance(module, DetectionLoss) else module.model.attention).compile()
    if job.world_size > 1:
        # Without device_ids, with which it would move the lengths of gnmt: packing needs them on the host.
        module = DistributedDataParallel(
            module, gradient_as_bucket_view=True, static_graph=True, broadcast_buffers=False
        )
    function: Any = torch.compile(module) if compiled and whole else module

    def step(index: int) -> Tensor:
        arguments = inputs(job.key.workload, batch_of(index))
        optimiser.zero_grad(set_to_none=True)
        with mixed:
            loss: Tensor = function(*arguments)
        loss.backward()
        if job.key.workload == "gnmt":
            nn.utils.clip_grad_norm_(module.parameters(), 5.0, foreach=True)
        optimiser.step()
        return loss.detach()

    return step


def run(rank: int, job: Job, steps: int, folder: str) -> None:
    """One rank: warm up, time, and print on rank 0."""
    cuda, several = job.device == "cuda", job.world_size > 1
    device = torch.device("cuda", rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    if several:
        store = dist.FileStore(str(Path(folder) / "ranks"), job.world_size)
        dist.init_process_group(
            "nccl" if cuda else "gloo",
            store=store, rank=rank, world_size=job.world_size, device_id=device if cuda else None,
        )  # fmt: skip

    def meet() -> float:
        if cuda:
            torch.cuda.synchronize()
        if several:
            dist.barrier()
        if cuda:
            torch.cuda.synchronize()
        return time.perf_counter()

    step = step_of(replace(job, device=str(device), rank=rank, local_rank=rank), compiled=cuda)
    for index in range(WARMUP_STEPS):
        step(index)
    began = meet()
    for index in range(WARMUP_STEPS, WARMUP_STEPS + steps):
        loss = step(index)
    seconds = meet() - began
    last = float(loss)
    units = workloads.specification(job.key.workload).units(job.key, job.seed)
    if rank == 0:
        facts = {"workload": job.key.workload, "devices": job.world_size, "batch": job.key.batch}
        facts |= {"precision": job.key.precision, "torch": torch.__version__, "compiled": cuda}
        rate = sum(units[WARMUP_STEPS : WARMUP_STEPS + steps]) / seconds
        print(json.dumps({**facts, "units_per_s": rate, "window_s": seconds, "steps": steps, "last": last}))
    if several:
        dist.destroy_process_group()


def options_of(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workload", required=True, choices=WORKLOADS)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--batch", type=int, help="per device (default: the first of the specification's)")
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16"), default="bf16")
    parser.add_argument("--scale", choices=("reference", "mini"), default="reference", help="mini: gnmt only")
    parser.add_argument("--variant")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--steps", type=int, default=STEPS - WARMUP_STEPS, help="measured steps, at most 100")
    options = parser.parse_args(arguments)
    options.phase = "train"
    if not 1 <= options.steps <= STEPS - WARMUP_STEPS:
        parser.error(f"--steps: expected 1 to {STEPS - WARMUP_STEPS}, found {options.steps}")
    if options.scale == "mini" and options.workload != "gnmt":
        parser.error(
            f"--scale: expected reference, found mini: {options.workload} has its published size only"
        )
    found = torch.cuda.device_count()
    if options.device == "cuda" and found < options.devices:
        parser.error(
            f"--devices: expected at most the GPUs of this machine, {found}, found {options.devices}"
        )
    return options


def main() -> None:
    """Start the ranks; the first that fails ends all."""
    options = options_of()
    alone = job_of(options.workload, options)
    strategy = "allreduce" if options.devices > 1 else alone.key.strategy
    key = replace(alone.key, devices=options.devices, strategy=strategy)
    threads = max(1, (os.cpu_count() or 1) // options.devices)
    job = replace(alone, key=key, world_size=options.devices, device=options.device, threads=threads)
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        if options.devices == 1:
            run(0, job, options.steps, folder)
        else:
            torch.multiprocessing.spawn(run, (job, options.steps, folder), nprocs=options.devices)


if __name__ == "__main__":
    main()
