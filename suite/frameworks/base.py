"""The part of a pair that is the same in every framework: numpy and the standard library only.

A framework's own base class (``suite/frameworks/<framework>/pair.py``, class ``BasePair``) derives from
:class:`BasePair` and adds what needs the framework: weights, the fast path, differentiation, exchange,
clipping and the update. A workload's pair derives from that and supplies the model and the loss.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from numpy.typing import NDArray

from suite.common import weights
from suite.contract import STEPS, Data, Job
from suite.contract.workloads import specification

Arrays = dict[str, NDArray[Any]]


class BasePair(ABC):
    """See :class:`suite.contract.Pair`: what every pair does with the parts that a workload supplies.

    A subclass for a framework sets ``optimiser`` (None where nothing is trained), ``masters`` (the weights by
    canonical name) and ``_results``, the store of outputs, and implements the abstract methods. Its
    ``__init__`` calls :meth:`build` first and :meth:`run_each_shape` last.
    """

    optimiser: Any = None
    frozen: Collection[str] = ()  # names of the weights that are never updated; build may set it
    keeps_norm = False  # a training step keeps [loss, norm of the gradient before clipping], not the loss

    def __init__(self, job: Job, framework: Any, data: Data) -> None:
        self.job, self.framework, self.data = job, framework, data
        self.spec: Any = specification(job.key.workload)
        self.dims: Any = self.spec.dimensions(job.key.scale, job.key.variant)
        self.training = job.key.phase == "train"
        self._norms: list[float] = []

    # ---- what a framework's base class supplies --------------------------------------------------------
    masters: dict[str, Any]
    _results: Any

    @abstractmethod
    def run(self, batch: Any, slot: int | None) -> Any:
        """Enqueue one whole step on ``batch``; its loss (train) or output (infer), on the device."""

    @abstractmethod
    def restore(self) -> None:
        """Initial weights, optimiser, loss scaling and random streams again, in place."""

    @abstractmethod
    def parameters(self) -> Arrays:
        """Every parameter by canonical name and layout, on the host."""

    @abstractmethod
    def gradients(self, index: int) -> Arrays:
        """Gradient of batch ``index`` for every parameter, before clipping, without an update."""

    # ---- what a workload's pair may override -------------------------------------------------------------
    def build(self) -> None:  # noqa: B027 - most pairs need nothing more
        """Make what the model needs beside its weights; called before weights and the fast path are made."""

    def initial_weights(self) -> Iterator[tuple[str, NDArray[Any]]]:
        """Name and value of every parameter before the first step, in canonical order."""
        return weights.initial(self.spec.NAME, self.spec.parameters(self.dims))

    def decayed(self) -> Collection[str]:
        """Names of the parameters that decay (``weight_decay`` of the hyperparameters)."""
        return ()

    def fixed_parameters(self) -> Arrays:
        """Arrays that belong to the model and are never trained, to be shown behind the masters."""
        return {}

    def observe(self) -> None:  # noqa: B027 - most pairs note types in the step itself
        """Note types that a compiled step cannot; called once, when the pair is made."""

    def begin_step(self, index: int) -> None:  # noqa: B027 - most pairs carry no state
        """Called before each step, outside the fast path: a recurrent state starts again here."""

    def carry(self, carried: Any) -> None:  # noqa: B027 - most losses carry nothing
        """Move on what ``loss`` gave beside the loss (statistics, a state); called after the update only."""

    def shapes(self) -> Iterable[int]:
        """Steps to run before a throughput run: one of each shape of batches that are read, not staged."""
        return ()

    # ---- the contract --------------------------------------------------------------------------------------
    def step(self, index: int) -> None:
        """One update (train) or one batch of outputs (infer), kept on the device."""
        batch = self.framework.feed(self.data, index)
        self.begin_step(index)
        if self.optimiser is not None:
            self.optimiser.set_rate(self.spec.learning_rate(self.job, index, self.data.steps_per_epoch))
        self._results.keep(self.run(batch, self.data.slot(index)))

    def run_each_shape(self) -> None:
        """Have every shape compiled before the worker runs a step; it does so itself for staged batches."""
        steps = list(self.shapes()) if self.job.mode == "throughput" else []
        for index in steps:
            self.step(index)
        if steps:
            self.collect()
            self.reset()

    def reset(self) -> None:
        """What ran before leaves no trace."""
        self._norms.clear()
        self.restore()

    def collect(self) -> list[NDArray[Any]]:
        """Losses (scalars; train) or outputs (infer) since the last call."""
        results: list[NDArray[Any]] = self._results.collect()
        if not (self.training and self.keeps_norm):
            return results
        self._norms += [float(pair[1]) for pair in results]
        return [pair[0] for pair in results]

    def gradient_norms(self) -> list[float]:
        """Norms before clipping of the first 110 steps since the last reset; empty where none are kept."""
        return self._norms[:STEPS]
