"""What a workload, a framework and a pair are: the contracts that fit on a screen.

Standard library only (numpy appears in annotations alone), so that harness, worker and checker share it.

* A **specification** (``suite/workloads/<workload>/spec.py``) is that module, or its object ``SPEC`` where a
  family of workloads fills in the functions: see :class:`Specification`.
* A **framework** (``suite/frameworks/<framework>/framework.py``) has a class ``Framework``: see
  :class:`Framework`.
* A **pair** (``suite/workloads/<workload>/<framework>.py``) has a class ``Pair``: see :class:`Pair`.

Every member always exists; one that does not apply has the value that its docstring names. Batches and
tensors are of the framework's types (a batch: a dict of tensors by name).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from suite.contract.key import Job, Key, Parameter

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Arrays = dict[str, NDArray[Any]]


class Specification(Protocol):
    """Facts and functions; standard library only, imported by harness, worker and checker alike."""

    NAME: str
    FAMILY: str  # the folder with data and pairs that several workloads share; empty: the workload's folder
    UNIT: str  # the unit of work, in the singular
    METRIC: str  # the quality metric
    VARIANTS: Mapping[str, Sequence[str]]  # scale -> allowed, the first is the default
    BATCHES: Mapping[str, Sequence[int]]  # scale -> allowed in closed, the first is the default
    PRECISIONS: Sequence[str]
    DATASETS: Mapping[str, str]  # scale -> name of the dataset read when data=real
    # The loaders that can read the data. Only image files have others than "native"; the module ``data`` of
    # their workloads has a function ``decoder(job)``: name and version of the decoding library, or None.
    LOADERS: Sequence[str]
    SCENARIOS: Sequence[str]  # without forward_backward where a step has no gradient apart from the update
    # The batch of quality runs at reference scale; None where the rate follows the batch or the first of
    # BATCHES is the recipe's.
    RECIPE_BATCH: int | None

    def dimensions(self, scale: str, variant: str) -> Any:
        """The model's sizes as a frozen dataclass."""

    def hyperparameters(self, scale: str, variant: str) -> dict[str, str]:
        """Optimiser, schedule, dropout …: decimal strings."""

    def parameters(self, dims: Any) -> tuple[Parameter, ...]:
        """Canonical names and shapes in a fixed order."""

    def learning_rate(self, job: Job, step: int, steps_per_epoch: int) -> float:
        """The rate of the update of step ``step`` (from 0) of ``job``.

        Throughput runs use the recipe's rate at every global batch; quality runs scale it by the recipe's
        rule. ``steps_per_epoch`` is that of the data, for recipes that count epochs.
        """

    def units(self, key: Key, seed: int) -> tuple[int, ...]:
        """The exact units of work of each of the 110 steps of a repeat (:func:`units_of_window`: of more)."""

    def window_flop(self, key: Key) -> int:
        """Analytic floating-point operations (1 MAC = 2) of the 100 measured steps, all devices."""

    def window_bytes(self, key: Key) -> int:
        """Fewest bytes of device memory that the 100 measured steps must move (a lower bound)."""


class Data(Protocol):
    """The batches of one repeat (``suite/workloads/<w>/data.py``), equal bytes for every framework.

    The data of a job open with its ``rank`` and ``world_size``: of the global batch that one device would
    take at ``batch * world_size``, rank r reads rows [r * batch, (r + 1) * batch) and nothing else. Seeds are
    equal on all ranks, random draws depend on the row and not on the rank. ``steps_per_epoch`` is that of
    the global batch; an incomplete one is dropped on all ranks. All ranks have the same shapes in every step.

    Batches of image files contain the same parts of the same files in the same order in every framework; the
    grey levels depend on the loader's decoder.
    """

    steps_per_epoch: int

    def slot(self, step: int) -> int | None:
        """The index of the staged synthetic batch that step ``step`` uses; None where data are read."""

    def batch(self, step: int) -> dict[str, Any]:
        """The rank's rows of step ``step``, a pure function of dataset, seed, step, rank and world size.

        Images that a reader decoded on a GPU are :class:`suite.common.image_reader.DeviceImages`.
        """

    def evaluation(self) -> Iterator[Arrays]:
        """The batches of the quality evaluation, always in the same order."""


@runtime_checkable
class ShapedData(Data, Protocol):
    """Data that are read in batches of several shapes, each of which a framework may have to compile."""

    def first_of_each_shape(self) -> list[int]:
        """A step with each shape of the job's steps: those that run before its warm-up."""


class ImageData(Data, Protocol):
    """The data of a workload that reads image files: those whose ``LOADERS`` are more than native."""

    def stored_bytes(self, step: int) -> int:
        """The bytes of the encoded images of the rank's batch of ``step``, without decoding them."""


class Scaling(Protocol):
    """Loss scaling (fp16), or its absence."""

    def report(self) -> dict[str, float] | None:
        """``scale``, and the steps ``skipped`` since the last reset; None where nothing is scaled.

        Waits for the device.
        """


class Observed(Protocol):
    """The data types observed in a step."""

    types: dict[str, str]  # weights | activations | gradients -> data type

    def note(self, **tensors: Any) -> None:
        """Keep the type of each tensor under its keyword."""


class Results(Protocol):
    """Outputs of steps on the device, until they are collected."""

    def keep(self, tensor: Any) -> None:
        """Store ``tensor`` as it is now, without waiting."""

    def collect(self) -> list[NDArray[Any]]:
        """Every stored output in order, on the host; the store is empty afterwards."""


class Arrivals(Protocol):
    """When the rank has computed the last gradient of each step and begins to wait for the other ranks."""

    def prepare(self) -> None:
        """Forget earlier arrivals; called outside the window."""

    def read(self, count: int) -> list[int] | None:
        """The ``count`` arrivals since then, CLOCK_MONOTONIC in ns; called after a drain.

        None if there are more or fewer, or if their clock was set meanwhile.
        """

    def clock(self) -> dict[str, Any]:
        """``name`` and ``resolution_ns`` of the clock, and ``bound_ns``, its error on CLOCK_MONOTONIC."""


class Exchange(Protocol):
    """How the ranks of a training job exchange; pairs use further members of their framework's class."""

    active: bool  # False with one rank and in inference: nothing is exchanged
    operation: str  # all_reduce, or push_pull through a parameter server

    def time_sums(self, count: int, iterations: int) -> tuple[list[int], bool] | None:
        """Sum ``count`` float32 values over all ranks, once untimed and then ``iterations`` times.

        Returns the nanoseconds of each timed iteration, from the call to the result on the device, and
        whether every sum was exact; None on all ranks if the device of one lacks the memory. All ranks call
        this with the same arguments.
        """


class Framework(Protocol):
    """Devices, clocks, memory and precision of a framework, the same for all workloads.

    The first part is for the worker, the second for pairs. A framework's class may have more members for its
    base pair (a subclass of :class:`suite.frameworks.base.BasePair`), which names that class as its type.
    """

    name: str
    timestamp_kind: str  # device | host_completion | host_dispatch
    scaling: Scaling
    arrivals: Arrivals | None  # None where ranks exchange nothing, or where no clock shows their arrival
    exchange: Exchange

    @staticmethod
    def import_rest(job: Job) -> None:
        """Import the modules that making the pair of ``job`` would import, without using the device.

        A worker that is started early does this while the worker before it sets up, and then waits.
        """

    def __init__(self, job: Job) -> None:
        """Choose the device, seed, and set the precision both ways (TF32 on or off, never implied)."""

    def describe(self) -> dict[str, Any]:
        """Versions, device, thread counts, flags, as JSON values; null where unknown."""

    def synchronize(self) -> None:
        """Wait until the device has finished all work."""

    def prepare_timestamps(self, count: int) -> None:
        """Allocate everything that recording ``count`` timestamps needs; called outside the window."""

    def record_timestamp(self, index: int) -> None:
        """Record timestamp ``index`` behind all work enqueued so far, without waiting on an accelerator."""

    def read_timestamps(self, count: int) -> list[int]:
        """Nanoseconds from timestamp 0 to 1..count-1, after a drain: ``count - 1`` increasing integers."""

    def memory(self) -> dict[str, int | None]:
        """``peak_device_bytes`` (None on a CPU)."""

    def dtypes(self) -> dict[str, str]:
        """Observed types, such as weights, activations, gradients."""

    cuda: bool  # the device is a GPU
    fast: bool  # the job asks for the fast path
    dtype: Any  # of parameters: float32, in equivalence tests float64
    compute_dtype: Any  # of products: that of the precision
    observed: Observed

    def tensor(self, array: NDArray[Any]) -> Any:
        """A copy of ``array`` on the device; floating-point values in ``dtype``."""

    def array(self, tensor: Any) -> NDArray[Any]:
        """A copy of ``tensor`` on the host, C-contiguous; half precision as float32."""

    def feed(self, data: Data, index: int) -> Any:
        """The batch of step ``index`` on the device; batches of a synthetic cycle are staged once."""

    def make_fast(self, step: Any) -> Any:
        """The fast path of ``step`` (a function or a block): compiled, captured or hybridized; or itself."""

    def results(self) -> Results:
        """A new store for the outputs of steps."""


class Pair(Protocol):
    """One workload in one framework. It supplies steps; the worker measures time.

    A pair may carry a state from step to step, as recurrent language models do. The first step of an epoch
    and ``reset`` restart the state, ``gradients`` and ``outputs`` read it without a change, and ``predict``
    uses a separate state, which restarts with each call.
    """

    chooses: bool  # inference returns a choice (words, detections) by the scores that ``outputs`` returns

    def __init__(self, job: Job, framework: Any, data: Data) -> None:
        """Build the model with the frozen initial weights. ``job.fast`` asks for the fast path."""

    def step(self, index: int) -> None:
        """Enqueue the whole step ``index``: one optimiser update (train) or one batch of outputs (infer)."""

    def reset(self) -> None:
        """Restore initial weights, optimiser and carried state in place; earlier steps leave no effect."""

    def collect(self) -> list[NDArray[Any]]:
        """The loss or output of each step since the last call, in order, copied to the host."""

    def gradient_norms(self) -> list[float]:
        """Norm of the gradient before clipping of each collected training step, since the last reset.

        Of the steps of a repeat at most; empty where the pair keeps none.
        """

    def parameters(self) -> Arrays:
        """Every parameter by canonical name and layout, on the host."""

    def gradients(self, index: int) -> Arrays:
        """Gradient of batch ``index`` for every parameter, before clipping, without an update."""

    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """The model's output for batch ``index`` (logits, dropout off); the equivalence test compares it."""

    def predict(self, arrays: Arrays) -> Arrays:
        """Raw predictions of one evaluation batch; the host scores them."""
