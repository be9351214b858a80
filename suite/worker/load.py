"""A load in the worker: the input pipeline alone, whose step is a batch on the device, without a model."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic_ns
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from suite import workloads
from suite.contract import ImageData, Job
from suite.worker import record
from suite.worker.channel import PROTOCOL, Channel
from suite.worker.group import Group
from suite.worker.main import WITHOUT_MODEL, Bench, measure, prepare

_NO_RESULT = np.zeros(0, np.uint8)


class CountedData(record.RecordingData):
    """Batches as a model receives them; ``sizes`` has the bytes of each step's batch."""

    def __init__(self, data: ImageData) -> None:
        super().__init__(data)
        self.images, self.sizes = data, dict[int, int]()

    def batch(self, step: int) -> dict[str, Any]:
        """See :class:`suite.contract.Data`."""
        arrays = super().batch(step)
        self.sizes[step] = sum(array.nbytes for array in arrays.values())
        return arrays


class Delivery:
    """Stands for a pair in the timing loop: a step takes the next batch and copies it to the device."""

    def __init__(self, framework: Any, data: record.RecordingData) -> None:
        self._framework, self._data = framework, data
        self._last: dict[str, Any] = {}  # on the device until the next one is there
        self._steps = 0

    def step(self, index: int) -> None:
        """Copy the batch of step ``index`` to the device."""
        self._last = self._framework.feed(self._data, index)
        self._steps += 1

    def collect(self) -> list[NDArray[Any]]:
        """An empty array for each step: nothing is computed."""
        steps, self._steps = self._steps, 0
        return [_NO_RESULT] * steps

    def reset(self) -> None:
        """Do nothing: batches depend on their step alone."""

    def parameters(self) -> dict[str, NDArray[Any]]:
        """None: there is no model."""
        return {}


class LoadBench(Bench):
    """One repeat of a load; ``pair`` is a :class:`Delivery`."""

    data: CountedData

    def steps_to_compile(self) -> list[int]:
        """One step: a load computes no model."""
        return [0]

    def columns(self, results: list[Any]) -> dict[str, Any]:
        """The digest of each batch, the bytes of its encoded images and those that the device received."""
        del results
        steps = range(self.job.steps)
        return {
            **dict.fromkeys(("losses", "gradient_norms", "outputs")),
            "batches": self.data.digests(steps),
            "bytes_in": [self.data.images.stored_bytes(step) for step in steps],
            "bytes_out": [self.data.sizes[step] for step in steps],
        }

    def closing_fields(self) -> dict[str, Any]:
        """The fields of a repeat that need a model: null."""
        return dict.fromkeys(WITHOUT_MODEL)


def run_load(job: Job, channel: Channel, started: int) -> None:
    """Run one repeat of a load. ``started`` is the start of the worker (CLOCK_MONOTONIC, ns)."""
    job = replace(job, key=job.key.of_batches)
    channel.phase("import")
    framework = workloads.framework_module(job).Framework(job)
    import_ns = monotonic_ns() - started
    facts, reasons = record.facts(framework.describe(), workloads.decoder_of(job))
    channel.send("hello", protocol=PROTOCOL, facts=facts, reasons=reasons)
    group = Group.of(job.rank, channel.configuration.get("peers", ()), job.world_size, job.network)
    channel.phase("setup")
    setup_from = monotonic_ns()
    data = CountedData(cast("ImageData", workloads.open_data(job)))
    bench = LoadBench(job, channel, framework, Delivery(framework, data), data, group)
    measure(bench, prepare(bench, import_ns, setup_from))
