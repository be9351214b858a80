"""The part of a pair that is the same in every framework: numpy and the standard library only.

The base class of a framework (``suite/frameworks/<framework>/pair.py``, class ``BasePair``) derives from
:class:`BasePair` and adds weights, the fast path, differentiation, exchange, clipping and the update. A
workload's pair derives from the framework's base class and supplies the model and the loss.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.common import weights
from suite.contract import Data, Job
from suite.contract.workloads import specification

Arrays = dict[str, NDArray[Any]]


class BasePair(ABC):
    """See :class:`suite.contract.Pair`.

    A framework's subclass sets ``optimiser`` (None where no weight is updated), ``masters`` (the weights by
    canonical name), ``trained`` (those that are updated) and ``_results`` (the store of outputs), and
    implements the abstract methods. ``__init__`` calls :meth:`build` first and :meth:`observe` last.
    """

    optimiser: Any = None
    frozen: Collection[str] = ()  # names of the weights that are never updated; build may set it
    chooses = False  # inference returns a choice by the scores that ``outputs`` returns
    keeps_norm = False  # a training step keeps [loss, norm of the gradient before clipping], not the loss

    def __init__(self, job: Job, framework: Any, data: Data) -> None:
        self.job, self.framework, self.data = job, framework, data
        self.spec: Any = specification(job.key.workload)
        self.dims: Any = self.spec.dimensions(job.key.scale, job.key.variant)
        self.training = job.key.phase == "train"
        if self.training and not job.key.updates:
            self.keeps_norm = True  # which takes the whole gradient
        self._norms: list[float] = []
        self._drawn: list[tuple[str, NDArray[Any]]] | None = None

    # ---- members that a framework's base class supplies ------------------------------------------------
    masters: dict[str, Any]
    trained: dict[str, Any]
    _results: Any

    @abstractmethod
    def run(self, batch: Any, slot: int | None) -> Any:
        """Enqueue one whole step on ``batch``; its loss (train) or output (infer), on the device."""

    @abstractmethod
    def restore(self) -> None:
        """Restore initial weights, optimiser, loss scaling and random streams, in place."""

    @abstractmethod
    def gradients(self, index: int) -> Arrays:
        """Gradient of batch ``index`` for every parameter, before clipping, without an update."""

    def canonical(self, tensor: Any) -> NDArray[Any]:
        """``tensor``, a weight or its gradient, on the host in canonical layout."""
        array: NDArray[Any] = self.framework.array(tensor)
        return array

    def by_name(self, gradients: Sequence[Any]) -> Arrays:
        """``gradients`` of the trained masters by canonical name, on the host; zeros for the frozen ones."""
        by_name = dict(zip(self.trained, gradients, strict=True))
        return {
            name: self.canonical(by_name[name]) if name in by_name else np.zeros_like(self.canonical(master))
            for name, master in self.masters.items()
        }

    def choose_optimiser(self, adam: Any, momentum: Any, descent: Any) -> Any:
        """An object of the class that the hyperparameters select, over the trained masters."""
        hyper, trained = self.job.hyper, list(self.trained.values())
        if "beta1" in hyper:
            return adam(trained, hyper)
        if "momentum" in hyper:
            decayed = self.decayed()
            return momentum(trained, hyper, [at for at, name in enumerate(self.trained) if name in decayed])
        return descent(trained)

    # ---- members that a workload's pair supplies or overrides ------------------------------------------
    def loss(self, batch: Any) -> Any:
        """The training loss, a scalar divided by the specification's divisor, or (loss, input of ``carry``).

        A pair that replaces ``update`` and ``gradients`` has none.
        """
        raise NotImplementedError(f"{type(self).__module__}: expected a method loss, found none")

    def build(self) -> None:  # noqa: B027 - most models consist of weights only
        """Create constants, dropout and state of the model; called before weights and the fast path exist."""

    def initial_weights(self) -> Iterator[tuple[str, NDArray[Any]]]:
        """Name and value of every parameter before the first step, in canonical order."""
        cache = os.environ.get("XDG_CACHE_HOME")  # of the run: its repeats start from the same weights
        kept = Path(cache, "weights") if cache else None
        return weights.initial(self.spec.NAME, self.spec.parameters(self.dims), kept)

    def starting_weights(self) -> Iterable[tuple[str, NDArray[Any]]]:
        """:meth:`initial_weights`; a throughput training draws them once for the set-up and the first reset.

        In between they stay in host memory: models of 100 million parameters take seconds to draw.
        """
        if self._drawn is not None:
            drawn, self._drawn = self._drawn, None
            return drawn
        if not self.job.key.updates or self.job.mode != "throughput":
            return self.initial_weights()
        self._drawn = list(self.initial_weights())
        return self._drawn

    def decayed(self) -> Collection[str]:
        """Names of the parameters that decay (``weight_decay`` of the hyperparameters)."""
        return ()

    def fixed_parameters(self) -> Arrays:
        """Arrays of the model that are never trained; :meth:`parameters` lists them behind the masters."""
        return {}

    def observe(self) -> None:  # noqa: B027 - most pairs note types in the step itself
        """Note data types that a compiled step cannot note; called once, at the end of ``__init__``."""

    def begin_step(self, index: int) -> None:  # noqa: B027 - most pairs carry no state
        """Called before each step, outside the fast path; a recurrent state restarts here."""

    def carry(self, carried: Any) -> None:  # noqa: B027 - most losses carry nothing
        """Store the second result of ``loss`` (statistics, a state); called after the update only."""

    # ---- members of suite.contract.Pair ----------------------------------------------------------------
    def step(self, index: int) -> None:
        """One update (train) or one batch of outputs (infer); the result is stored on the device."""
        batch = self.framework.feed(self.data, index)
        self.begin_step(index)
        if self.optimiser is not None:
            self.optimiser.set_rate(self.spec.learning_rate(self.job, index, self.data.steps_per_epoch))
        self._results.keep(self.run(batch, self.data.slot(index)))

    def reset(self) -> None:
        """See :class:`suite.contract.Pair`."""
        self._norms.clear()
        self.restore()

    def collect(self) -> list[NDArray[Any]]:
        """Losses (scalars; train) or outputs (infer) since the last call."""
        results: list[NDArray[Any]] = self._results.collect()
        if not (self.training and self.keeps_norm):
            return results
        self._norms += [float(pair[1]) for pair in results]
        return [pair[0] for pair in results]

    def parameters(self) -> Arrays:
        """Masters by canonical name, then the fixed parameters."""
        masters = {name: self.canonical(master) for name, master in self.masters.items()}
        return masters | self.fixed_parameters()

    def gradient_norms(self) -> list[float]:
        """See :class:`suite.contract.Pair`; empty where ``keeps_norm`` is false."""
        return self._norms[: self.job.steps]
