"""What a workload, a framework and a pair are: the three contracts that fit on a screen.

Standard library only (numpy appears in annotations alone), so that harness, worker and checker share it.

* A **specification** (``suite/workloads/<workload>/spec.py``) is a module: see :class:`Specification`.
* A **framework** (``suite/frameworks/<framework>.py``) has a class ``Framework``: see :class:`Framework`.
* A **pair** (``suite/workloads/<workload>/<framework>.py``) has a class ``Pair``: see :class:`Pair`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Arrays = dict[str, NDArray[Any]]

WARMUP_STEPS = 10
MEASURED_STEPS = 100
STEPS = WARMUP_STEPS + MEASURED_STEPS


class BadData(ValueError):
    """What was read is not what the dataset's format promises.

    The message names the file, within the dataset, and the record: nothing is measured on it.
    """


@dataclass(frozen=True, slots=True)
class Key:
    """What is measured: only equal keys, framework and devices apart, stand in one comparison."""

    workload: str
    framework: str
    phase: str  # train | infer | preprocess
    scenario: str  # offline | single_stream (infer); offline for train
    precision: str  # fp32 | tf32 | bf16 | fp16; fp64 in equivalence tests only
    batch: int  # per device and step; preprocess: pictures of a shard
    devices: int
    scale: str  # reference | mini
    data: str  # real | synthetic
    cache: str  # warm | cold
    variant: str  # the published size of the model, such as f8 and f64 of ncf


@dataclass(frozen=True, slots=True)
class Job:
    """One repeat as a worker sees it: everything that may change what it computes."""

    key: Key
    mode: str  # throughput | quality | convert (all shards, not measured) | fingerprint
    seed: int
    repeat: int
    hyper: Mapping[str, str]  # decimal strings and words, from the specification unless overridden
    device: str  # cpu | cuda:0
    threads: int
    fast: bool  # compile, capture or hybridize the step; False is for debugging
    soak_ns: int
    tail_ns: int
    data_dir: str
    scratch_dir: str
    quality: Mapping[str, int] = field(default_factory=dict)  # max_epochs
    pair_file: str = ""  # an own pair as the worker sees it; empty: the pair of the suite
    probe_steps: int = 0  # above 0: no repeat, only so many steps, to see whether the batch fits
    loader: str = "native"  # native | dali | pillow: what reads pictures
    deterministic: bool = False  # the same bits from the same machine, at any cost in speed
    salt: Sequence[str] = ()  # more words in the key of synthetic batches: others than everybody's
    passes: Sequence[Mapping[str, Any]] = ()  # of mode fingerprint

    def number(self, name: str) -> float:
        """The hyperparameter ``name`` as a float."""
        return float(self.hyper[name])


@dataclass(frozen=True, slots=True)
class Parameter:
    """One trainable tensor under its canonical name and layout; every pair converts from and to it."""

    name: str
    shape: tuple[int, ...]
    init: str  # uniform | normal | constant
    scale: str  # decimal: half-width, standard deviation, or the constant

    @property
    def size(self) -> int:
        """How many numbers the tensor holds."""
        total = 1
        for extent in self.shape:
            total *= extent
        return total


class Specification(Protocol):
    """A module of functions; standard library only, imported by harness, worker and checker alike."""

    NAME: str
    UNIT: str  # the unit of work, in the singular
    METRIC: str  # the quality metric
    VARIANTS: Mapping[str, Sequence[str]]  # scale -> allowed, the first is the default
    BATCHES: Mapping[str, Sequence[int]]  # scale -> allowed in closed, the first is the default
    PRECISIONS: Sequence[str]
    DATASETS: Mapping[str, str]  # scale -> name of the dataset read when data=real

    def dimensions(self, scale: str, variant: str) -> Any:
        """The model's sizes as a frozen dataclass."""

    def hyperparameters(self, scale: str, variant: str) -> dict[str, str]:
        """Optimiser, schedule, dropout …: decimal strings."""

    def parameters(self, dims: Any) -> tuple[Parameter, ...]:
        """Canonical names and shapes in a fixed order."""

    def learning_rate(self, hyper: Mapping[str, str], step: int) -> float:
        """The rate of the update of step ``step`` (from 0)."""

    def units(self, key: Key, seed: int) -> tuple[int, ...]:
        """The exact units of work of each of the 110 steps of a repeat."""

    def window_flop(self, key: Key) -> int:
        """Analytic floating-point operations (1 MAC = 2) of the 100 measured steps, all devices."""

    def window_bytes(self, key: Key) -> int:
        """Fewest bytes of device memory that the 100 measured steps must move (a lower bound)."""


class Data(Protocol):
    """The batches of one repeat (``suite/workloads/<w>/data.py``), equal bytes for every framework.

    Of images that are read from files the same parts of the same files in the same order; their grey levels
    are those of the loader's decoder.
    """

    steps_per_epoch: int

    def slot(self, step: int) -> int | None:
        """Which staged batch of the synthetic cycle step ``step`` uses; None where data are read."""

    def batch(self, step: int) -> Arrays:
        """The arrays of step ``step``, a pure function of dataset, seed and step."""

    def evaluation(self) -> Iterator[Arrays]:
        """The batches of the quality evaluation, always in the same order."""


class Framework(Protocol):
    """What a framework knows that no workload should: devices, clocks, memory, precision."""

    name: str
    mark_kind: str  # device | host_completion | host_dispatch

    def __init__(self, job: Job) -> None:
        """Choose the device, seed, and set the precision both ways (TF32 on or off, never implied)."""

    def describe(self) -> dict[str, Any]:
        """Versions, device, thread counts, flags, as JSON values; null where unknown."""

    def synchronize(self) -> None:
        """Return when the whole device has nothing left to do."""

    def prepare_marks(self, count: int) -> None:
        """Make everything that recording ``count`` marks needs; called outside the window."""

    def mark(self, index: int) -> None:
        """Record mark ``index`` behind all work enqueued so far, without waiting on an accelerator."""

    def read_marks(self, count: int) -> list[int]:
        """Nanoseconds from mark 0 to marks 1..count-1, after a drain: ``count - 1`` increasing integers."""

    def memory(self) -> dict[str, int | None]:
        """``peak_device_bytes`` (None on a CPU)."""

    def dtypes(self) -> dict[str, str]:
        """Observed types, such as weights, activations, gradients."""


class Pair(Protocol):
    """One workload in one framework. It supplies steps, never the clock.

    A pair may carry a state from step to step, as recurrent language models do. Then the first step of an
    epoch and ``reset`` start it again, ``gradients`` and ``outputs`` read it as the last step left it and
    leave it so, and ``predict`` has one of its own, which starts again with each call.
    """

    def __init__(self, job: Job, framework: Any, data: Data) -> None:
        """Build the model with the frozen initial weights. ``job.fast`` asks for the fast path."""

    def step(self, index: int) -> None:
        """Enqueue step ``index`` whole: one optimiser update (train) or one batch of outputs (infer)."""

    def reset(self) -> None:
        """Initial weights, optimiser and carried state again, in place: what ran before leaves no trace."""

    def collect(self) -> list[NDArray[Any]]:
        """Copy to the host, in order, one array a step since the last call: losses or outputs."""

    def parameters(self) -> Arrays:
        """Every parameter by canonical name and layout, on the host."""

    def gradients(self, index: int) -> Arrays:
        """Gradient of batch ``index`` for every parameter, before clipping, without an update."""

    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """The model's output for batch ``index`` (logits, dropout off), as the equivalence test compares."""

    def predict(self, arrays: Arrays) -> Arrays:
        """Raw predictions of one evaluation batch; the host scores them."""
