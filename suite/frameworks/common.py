"""Base class and helpers of the framework modules: timestamps, batches, outputs."""

from __future__ import annotations

import os
import struct
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from suite.contract import MEASURED_STEPS, Arrivals, Data, Job

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from suite.common.image_reader import DeviceImages

KEPT_IMAGES = 4  # batches of a reader on the device whose copies may be pending
KEEP = MEASURED_STEPS  # outputs a pair may keep on the device before one copy to the host


def as_float32(rate: float) -> float:
    """The learning rate rounded to float32, for the optimisers of every framework and precision.

    The fused kernels of GPUs take a float32. A float64 update with the exact decimal would differ from theirs
    by 3e-8, and machines could not compare their results to the last digits.
    """
    return float(struct.unpack("f", struct.pack("f", rate))[0])


def variables(*prefixes: str) -> dict[str, str]:
    """The environment variables whose names start with one of ``prefixes``, in the order of their names."""
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith(prefixes)}


class HostTimestamps:
    """Timestamps on the host's monotonic clock, for devices without events of their own."""

    def __init__(self) -> None:
        self._times: list[int] = []

    def prepare(self, count: int) -> None:
        """Make room for ``count`` timestamps."""
        self._times = [0] * count

    def record_timestamp(self, index: int) -> None:
        """Record timestamp ``index`` now."""
        self._times[index] = time.monotonic_ns()

    def read(self, count: int) -> list[int]:
        """Nanoseconds from timestamp 0 to timestamps 1..count-1."""
        first = self._times[0]
        return [moment - first for moment in self._times[1:count]]


class Observed:
    """The data types observed in a step, by kind of tensor: ``weights``, ``activations``, ``gradients``."""

    def __init__(self) -> None:
        self.types: dict[str, str] = {}

    def note(self, **tensors: Any) -> None:
        """Store the data type of each tensor under its keyword, without the framework's prefix."""
        for name, tensor in tensors.items():
            self.types[name] = type_name(tensor.dtype)


class Optimiser(Protocol):
    """Updates the parameters."""

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next update; call it outside the fast step."""

    def reset(self) -> None:
        """Restore the state before the first update."""

    def update(self, gradients: Sequence[Any]) -> None:
        """One update of every parameter, in place."""


class NoExchange:
    """See :class:`suite.contract.Exchange`: of a framework whose ranks exchange nothing."""

    active = False
    operation = ""

    def time_sums(self, count: int, iterations: int) -> tuple[list[int], bool] | None:
        """Never called: nothing is exchanged."""
        raise RuntimeError(f"expected an exchange for {iterations} sums of {count} values, found none")


class NoScaling:
    """Loss scaling by 1, for every precision but fp16."""

    state: Sequence[Any] = ()  # tensors on the device that a step changes

    def scaled(self, loss: Any) -> Any:
        """The loss to differentiate."""
        return loss

    def unscaled(self, gradients: Sequence[Any]) -> list[Any]:
        """The gradients of the unscaled loss."""
        return list(gradients)

    def update(self, optimiser: Any, gradients: Sequence[Any]) -> None:
        """One update of ``optimiser``."""
        optimiser.update(gradients)

    def reset(self) -> None:
        """Restore the initial scale."""

    def report(self) -> dict[str, float] | None:
        """None: the loss is not scaled."""
        return None


class BaseFramework(ABC):
    """The members of :class:`suite.contract.Framework` that are the same in every framework.

    ``_timestamps`` is a :class:`HostTimestamps` or an object with the same methods.
    """

    _timestamps: Any
    arrivals: Arrivals | None = None

    def __init__(self) -> None:
        self.observed = Observed()
        self._staged: dict[int, dict[str, Any]] = {}
        self._kept = deque[tuple[Callable[[], object], Any]]()

    @staticmethod
    def import_rest(job: Job) -> None:
        """Nothing: most frameworks are imported whole. See :class:`suite.contract.Framework`."""
        del job

    def prepare_timestamps(self, count: int) -> None:
        """Allocate ``count`` timestamps."""
        self._timestamps.prepare(count)

    def record_timestamp(self, index: int) -> None:
        """Record timestamp ``index`` behind all work enqueued so far, without waiting on an accelerator."""
        self._timestamps.record_timestamp(index)

    def read_timestamps(self, count: int) -> list[int]:
        """Nanoseconds from timestamp 0 to timestamps 1..count-1."""
        return list(self._timestamps.read(count))

    def dtypes(self) -> dict[str, str]:
        """The data types that the pair noted in ``observed``."""
        return dict(self.observed.types)

    @abstractmethod
    def tensor(self, array: NDArray[Any] | DeviceImages) -> Any:
        """A copy of ``array`` on the device; floating-point values in the type of the parameters."""

    def feed(self, data: Data, index: int) -> dict[str, Any]:
        """The batch of step ``index`` on the device; batches of a synthetic cycle are staged once."""
        slot = data.slot(index)
        if slot is not None and slot in self._staged:
            return self._staged[slot]
        batch = {name: self.tensor(array) for name, array in data.batch(index).items()}
        if slot is not None:
            self._staged[slot] = batch
        return batch

    def keep_until(self, wait: Callable[[], object], images: Any) -> None:
        """Refer to ``images`` at least until ``wait`` returns, which waits for their copy.

        Once nothing refers to them, their reader uses the memory again. At most ``KEPT_IMAGES`` copies are
        pending: a reader that is faster than the model would otherwise need memory for a whole window.
        """
        self._kept.append((wait, images))
        if len(self._kept) > KEPT_IMAGES:
            wait, _ = self._kept.popleft()
            wait()


class Results:
    """Outputs of steps, stored on the device until one copy to the host."""

    def __init__(self, framework: Any) -> None:
        self._framework = framework
        self._tensors: list[Any] = []

    def keep(self, tensor: Any) -> None:
        """Store ``tensor``, which no later step may overwrite."""
        self._tensors.append(tensor)

    def collect(self) -> list[NDArray[Any]]:
        """Every stored output in order, on the host; the store is empty afterwards."""
        tensors, self._tensors = self._tensors, []
        return [self._framework.array(tensor) for tensor in tensors]


def type_name(dtype: Any) -> str:
    """``float32`` for torch.float32, tf.float32, numpy.float32 and ``float32``."""
    text = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    return str(text).rsplit(".", 1)[-1]
