"""Arrivals of a rank at the exchange in TensorFlow: an operation between the gradients and the collective."""

from __future__ import annotations

from typing import Any

from suite.frameworks.arrivals import RING, OtherClock, wall_clock


class WallArrivals:
    """Arrivals by ``tf.timestamp``, which reads the host's wall clock in microseconds.

    The step returns its arrival as a tensor, which is read after the span: a Python function inside the step
    would take longer. On a GPU the operation would show when gradients are enqueued, not when they exist.
    """

    def __init__(self) -> None:
        self._tensors: list[Any] = [None] * RING
        self._count = 0
        self._clock: OtherClock = wall_clock()

    def prepare(self) -> None:
        """Forget earlier arrivals, and compare the clocks; no step is running."""
        self._count = 0
        self._clock.start()

    def keep(self, tensor: Any) -> None:
        """Keep an arrival: seconds of the wall clock, a scalar of float64."""
        self._tensors[self._count % RING] = tensor
        self._count += 1

    def read(self, count: int) -> list[int] | None:
        """See :class:`suite.contract.Arrivals`."""
        if self._count != count:
            return None
        seconds = [float(tensor.numpy()) for tensor in self._tensors[:count]]
        return self._clock.translate([round(moment * 1e6) * 1_000 for moment in seconds])

    def clock(self) -> dict[str, Any]:
        """See :class:`suite.contract.Arrivals`."""
        return {"name": "realtime", "resolution_ns": 1_000, "bound_ns": self._clock.bound_ns + 1_000}
