"""Base class of every pair in JAX: weights, steps and updates; a workload adds model and loss.

Models are pure functions of :class:`Inputs`. One compiled function computes a whole step and reuses the
memory of the parameters and states that it replaces.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from suite.common import channels_last
from suite.contract import Data, Job, LostRank
from suite.frameworks import base
from suite.frameworks.base import Arrays
from suite.frameworks.jax.exchange import SHARED, SPLIT, lost_rank
from suite.frameworks.jax.framework import (
    Adam,
    Batch,
    Descent,
    Framework,
    Momentum,
    Optimiser,
    State,
    Tensor,
    Tensors,
    clip_by_global_norm,
    global_norm,
)

Weights = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Inputs:
    """All that a model computes from, within a compiled step.

    ``weights`` are the masters by canonical name, in inference those of :meth:`BasePair.inference_weights`;
    ``state`` is what the step before has left; ``key`` is the random key of the step.
    """

    weights: Weights
    state: State
    batch: Batch
    key: Tensor = None


class BasePair(base.BasePair):
    """See :class:`suite.contract.Pair`. Masters have the type of the parameters (float32, in tests float64).

    ``masters`` holds all weights by canonical name, ``trained`` those that are updated, ``state`` a list of
    the other tensors that steps change (running statistics, a recurrent state), each with an axis at least. A
    step replaces all three. In inference ``stored`` holds the weights in the compute type.
    """

    framework: Framework
    masters: Weights
    trained: Weights
    optimiser: Optimiser | None
    stored: Weights
    state: Sequence[Tensor] = ()
    _carried: State = None
    channels_last = False  # weights have the layout of ``channels_last.stored`` on the device

    def __init__(self, job: Job, framework: Framework, data: Data) -> None:
        super().__init__(job, framework, data)
        self.build()
        self._initial_state = jax.tree.map(np.asarray, self.state)
        self._results = framework.results()
        self._updates = 0
        self._load_masters()
        self.restart_state()
        fast, parallel = framework.make_fast, framework.exchange.parallel
        if self.training:
            self._clip = float(job.hyper.get("clip", "0")) if job.key.updates else 0.0
            self.optimiser = self.make_optimiser() if job.key.updates else None
            self._start_optimiser()
            read = (SHARED, SHARED, SPLIT, SPLIT, SPLIT)  # trained, frozen, state, batch, key
            self._step = fast(
                parallel(self.update, (SHARED, *read, SHARED), (SHARED, SHARED, SPLIT, SPLIT)),
                donate=(0, 1, 3),
            )
            self._differentiate = fast(parallel(self.differentiate, (SHARED, *read), SPLIT))
            self._apply = fast(
                parallel(self.apply, (SHARED, SHARED, SPLIT, SPLIT, SPLIT, SHARED), (SHARED, SHARED, SPLIT)),
                donate=(0, 1),
            )
            self._exchange = fast(parallel(self.exchange, (SHARED, SPLIT), SHARED))
        else:
            self.stored = self.inference_weights()
            framework.observed.note(weights=next(iter(self.stored.values())))
            self._infer = fast(self.infer_with_state, donate=(1,))
        self.observe()

    # ---- members that a workload's pair supplies or overrides ------------------------------------------
    @abstractmethod
    def infer(self, inputs: Inputs) -> Any:
        """The output of one inference batch, or (output, new state): a pure function."""

    def loss(self, inputs: Inputs) -> Any:
        """The training loss, a scalar, or (loss, new state): a pure function.

        A pair that replaces ``differentiate`` and ``apply`` has none.
        """
        raise NotImplementedError(f"{type(self).__module__}: expected a method loss, found none")

    def inference_weights(self) -> Weights:
        """The weights of inference, in the compute type."""
        return self.cast(self.masters)

    def make_optimiser(self) -> Optimiser:
        """The optimiser that the hyperparameters describe, over the trained masters."""
        optimiser: Optimiser = self.choose_optimiser(Adam, Momentum, Descent)
        return optimiser

    def cast(self, weights: Weights) -> Weights:
        """``weights`` in the compute type."""
        return {name: self.framework.compute(weight) for name, weight in weights.items()}

    def local_masters(self) -> Weights:
        """The masters for functions of one rank, such as those for outputs and evaluation."""
        masters: Weights = self.framework.exchange.local(self.masters)
        return masters

    def restart_state(self) -> None:
        """Restore the state before the first step."""
        self.state = self.framework.exchange.split(self.framework.put(self._initial_state))

    # ---- a step: pure functions ------------------------------------------------------------------------
    # ``carried`` is the state of optimiser and loss scaling; tensors of a rank have a first axis of length 1.
    def differentiate(
        self, carried: State, trained: Tensors, frozen: Weights, state: State, batch: Batch, key: Tensor
    ) -> tuple[Tensor, Any, State]:
        """Loss [1] of ``batch``, the rank's gradients [1, ...] of the scaled loss, and the new state."""

        def scaled(trained: Tensors) -> tuple[Tensor, tuple[Tensor, State]]:
            weights = frozen | dict(zip(self.trained, trained, strict=True))
            found = self.loss(Inputs(weights, state, batch, random_key(key)))
            loss, after = found if isinstance(found, tuple) else (found, state)
            return self.framework.scaling.multiplied(loss, carried[1]), (loss, after)

        gradients, (loss, after) = jax.grad(scaled, has_aux=True)(list(trained))
        self.framework.observed.note(weights=trained[-1], gradients=gradients[0])
        return loss[None], [gradient[None] for gradient in gradients], after

    def exchange(self, carried: State, gradients: Any) -> list[Tensor]:
        """``gradients`` of the scaled loss, averaged over the ranks, as gradients of the loss.

        All ranks have equally many rows: the average of their means is the mean over the global batch.
        """
        averaged = self.framework.exchange.averaged([gradient[0] for gradient in gradients])
        return self.framework.scaling.divided(averaged, carried[1])

    def apply(
        self, carried: State, trained: Tensors, loss: Tensor, gradients: Any, batch: Batch, rate: Tensor
    ) -> tuple[State, Tensors, Tensor]:
        """Exchange and clip ``gradients``, and update: ``carried`` and ``trained`` after it, and the result.

        The result is the loss [1], or loss and norm [2] where ``keeps_norm``. Without an optimiser nothing is
        updated (scenario ``forward_backward``). With several ranks the gradient is that of the global batch,
        and the loss is the rank's share of it.
        """
        del batch
        exchanged = self.exchange(carried, gradients)
        result = loss / self.job.world_size
        chosen = exchanged
        if self._clip:
            chosen, norm = clip_by_global_norm(exchanged, self._clip)
        elif self.keeps_norm:
            norm = global_norm(exchanged)
        if self.optimiser is not None:
            moved = self.optimiser.updated(trained, chosen, carried[0], rate)
            (trained, state), scaling = self.framework.scaling.selected(
                exchanged, moved, (list(trained), carried[0]), carried[1]
            )
            carried = (state, scaling)
        return carried, trained, jnp.append(result, norm) if self.keeps_norm else result

    def update(
        self,
        carried: State,
        trained: Tensors,
        frozen: Weights,
        state: State,
        batch: Batch,
        key: Tensor,
        rate: Tensor,
    ) -> tuple[State, Tensors, State, Tensor]:
        """A whole step: ``carried``, ``trained`` and ``state`` after it, and its result."""
        loss, gradients, after = self.differentiate(carried, trained, frozen, state, batch, key)
        carried, moved, result = self.apply(carried, trained, loss, gradients, batch, rate)
        return carried, moved, after, result

    def infer_with_state(self, weights: Weights, state: State, batch: Batch) -> tuple[Tensor, State]:
        """The output of a batch and the new state."""
        found = self.infer(Inputs(weights, state, batch))
        return found if isinstance(found, tuple) else (found, state)

    # ---- members of suite.contract.Pair ----------------------------------------------------------------
    def step(self, index: int) -> None:
        """One update (train) or one batch of outputs (infer); LostRank if an exchange fails."""
        try:
            super().step(index)
        except (jax.errors.JaxRuntimeError, ValueError) as error:  # the latter where a call has computed
            if self.framework.exchange.active and lost_rank(error):
                raise LostRank(str(error)) from error
            raise

    def run(self, batch: Batch, slot: int | None) -> Tensor:
        """One step by the compiled function of the batch's shapes; replaces weights and states."""
        del slot
        if not self.training:
            output, self.state = self.framework.completed(self._infer(self.stored, self.state, batch))
            return output
        exchange = self.framework.exchange
        rate = np.asarray(self.optimiser.rate if self.optimiser else 0.0, self.framework.dtype)
        read = self._read(batch)
        self._updates += 1
        trained, _, _, batch, _ = read
        if self.framework.fast and exchange.arrivals is None:
            self._carried, trained, self.state, result = self._step(self._carried, *read, rate)
        else:  # two functions, of which `gradients` calls the first: a fingerprint compiles the network once
            loss, gradients, self.state = self._differentiate(self._carried, *read)
            if exchange.arrivals is not None:
                self.framework.completed(gradients)
                exchange.arrivals.record()
            self._carried, trained, result = self._apply(self._carried, trained, loss, gradients, batch, rate)
        self.framework.completed((result, trained))
        self.framework.scaling.values = exchange.local(self._carried[1])
        self.trained = dict(zip(self.trained, trained, strict=True))
        self.masters = self.masters | self.trained
        return exchange.local(result)

    def _read(self, batch: Batch) -> tuple[list[Tensor], Weights, State, Batch, Tensor]:
        """Trained weights, frozen weights, state, batch and key of the next step."""
        split, seed = self.framework.exchange.split, self.framework.seed
        key = np.array((seed >> 32, seed % 2**32, self._updates), np.uint32)
        frozen = {name: self.masters[name] for name in self.frozen}
        return list(self.trained.values()), frozen, self.state, split(batch), split(key)

    def collect(self) -> list[NDArray[Any]]:
        """Losses (scalars; train) or outputs (infer) since the last call."""
        results = super().collect()
        return [result.reshape(()) for result in results] if self.training else results

    def restore(self) -> None:
        """Restore initial weights, state, optimiser, loss scaling and random keys."""
        self._updates = 0
        self.restart_state()
        if self.optimiser is not None:  # otherwise no weight has changed
            self._load_masters()
            self._start_optimiser()

    def _load_masters(self) -> None:
        shared = self.framework.exchange.shared
        self.masters = {name: shared(self.stored_layout(array)) for name, array in self.starting_weights()}
        self.trained = {name: master for name, master in self.masters.items() if name not in self.frozen}

    def _start_optimiser(self) -> None:
        exchange, scaling = self.framework.exchange, self.framework.scaling
        scaling.reset()
        state = self.optimiser.initial(exchange.local(list(self.trained.values()))) if self.optimiser else ()
        self._carried = exchange.shared(self.framework.put((state, scaling.values)))

    def gradients(self, index: int) -> Arrays:
        """Gradient of the loss of batch ``index`` by canonical name, without weight decay; 0 where frozen."""
        read = self._read(self.framework.feed(self.data, index))
        _, gradients, _ = self._differentiate(self._carried, *read)
        return self.by_name(self._exchange(self._carried, gradients))

    def stored_layout(self, array: NDArray[Any]) -> Tensor:
        """``array``, a weight in canonical layout, on the device in the layout of the masters."""
        return self.framework.tensor(channels_last.stored(array) if self.channels_last else array)

    def canonical(self, tensor: Tensor) -> NDArray[Any]:
        """See :class:`suite.frameworks.base.BasePair`."""
        array = self.framework.array(tensor)
        return channels_last.canonical(array) if self.channels_last else array


def random_key(numbers: Tensor) -> Tensor:
    """The random key of a step from two halves of the seed and the number of the step, uint32 [3]."""
    return jax.random.fold_in(jax.random.wrap_key_data(numbers[:2]), numbers[2])
