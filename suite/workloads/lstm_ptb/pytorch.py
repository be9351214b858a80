"""The LSTM language model in PyTorch. Sequences are time-major inside, [T, B, H]."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from suite.frameworks.pytorch import Batch, Descent, Framework, clip_by_global_norm
from suite.frameworks.pytorch_recurrent import NO_DROPOUT, Dropout, lstm
from suite.workloads import weights as initial_weights
from suite.workloads.clipped import ClippedSteps
from suite.workloads.contract import Data, Job
from suite.workloads.lstm_ptb import spec
from suite.workloads.lstm_ptb.data import windows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = dict[str, NDArray[Any]]

Weights = dict[str, Tensor]


def run_layers(weights: Weights, tokens: Tensor, state: Tensor, dropout: Dropout) -> tuple[Tensor, Tensor]:
    """Inputs [T, B, H] of the softmax for ``tokens`` [B, T], and the state moved on.

    ``state`` is [layers, 2, 1, B, H], hidden and cell. Dropout sits between layers, never between steps.
    """
    values = functional.embedding(tokens.t(), weights["embedding"])
    moved: list[Tensor] = []
    for layer in range(state.shape[0]):
        name = f"lstm.{layer}"
        kernel, recurrent, bias = (weights[f"{name}.{part}"] for part in ("input", "hidden", "bias"))
        start = state[layer, 0], state[layer, 1]
        values, last = lstm(dropout(name, values), kernel, recurrent, bias, start)
        moved += last
    return dropout("softmax", values), torch.stack(moved).detach().view_as(state)


def classify(weights: Weights, hidden: Tensor) -> Tensor:
    """Logits [T, B, V]."""
    return functional.linear(hidden, weights["softmax.weight"], weights["softmax.bias"])


def token_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """Negative log likelihoods [T, B] of ``targets`` [B, T], in fp32 where logits are half-precision."""
    wide = logits.double() if logits.dtype == torch.float64 else logits.float()
    losses = functional.cross_entropy(wide.flatten(0, 1), targets.t().flatten(), reduction="none")
    return losses.view(logits.shape[:2])


class Pair(ClippedSteps):
    """See :class:`suite.workloads.contract.Pair`. Masters are fp32; a step casts them for its arithmetic."""

    def __init__(self, job: Job, framework: Framework, data: Data) -> None:
        self.job, self.framework, self.data = job, framework, data
        self.dims = spec.dimensions(job.key.scale, job.key.variant)
        self.train = job.key.phase == "train"
        self.dropout = Dropout(job.number("dropout"))
        self._masters = {name: framework.tensor(array) for name, array in self._initial()}
        for master in self._masters.values():
            master.requires_grad_(self.train)
        self._state = self._zero_state(job.key.batch)
        self._losses = framework.compile(token_losses)
        self._results = framework.results()
        self._norms = []
        if self.train:
            self._descent = Descent(list(self._masters.values()))
            self._run = framework.make_fast(self._update, [*self._masters.values(), self._state])
        else:
            self._frozen = self._cast()
            framework.observed.note(weights=self._frozen["embedding"])
            self._run = framework.make_fast(self._infer, [self._state])

    def _initial(self) -> Any:
        return initial_weights.initial(spec.NAME, spec.parameters(self.dims))

    def _zero_state(self, batch: int) -> Tensor:
        shape = (self.dims.layers, 2, 1, batch, self.dims.hidden)
        return torch.zeros(shape, dtype=self.framework.compute_dtype, device=self.framework.device)

    def _cast(self) -> Weights:
        """The weights in the type of the arithmetic."""
        dtype = self.framework.compute_dtype
        return {name: master.to(dtype) for name, master in self._masters.items()}

    def _score(
        self, weights: Weights, batch: Batch, state: Tensor, dropout: Dropout
    ) -> tuple[Tensor, Tensor]:
        """Losses [T, B] of a batch and the state behind it."""
        hidden, moved = run_layers(weights, batch["inputs"].long(), state, dropout)
        self.framework.observed.note(activations=hidden)
        return self._losses(classify(weights, hidden), batch["targets"].long()), moved

    def _gradients(self, batch: Batch) -> tuple[Tensor, list[Tensor], Tensor]:
        """Loss (a sum over steps, a mean over rows), its gradients, and the state moved on."""
        losses, moved = self._score(self._cast(), batch, self._state, self.dropout)
        loss, scaling = losses.sum() / losses.shape[1], self.framework.scaling
        found = torch.autograd.grad(scaling.scaled(loss), list(self._masters.values()))
        gradients = scaling.unscaled(found)
        self.framework.observed.note(weights=self._masters["embedding"], gradients=gradients[0])
        return loss.detach(), gradients, moved

    def _update(self, batch: Batch) -> Tensor:
        loss, gradients, moved = self._gradients(batch)
        clipped, norm = clip_by_global_norm(gradients, self.job.number("clip"))
        self.framework.scaling.update(self._descent, clipped)
        self._state.copy_(moved)
        return torch.stack((loss, norm))

    @torch.no_grad()
    def _infer(self, batch: Batch) -> Tensor:
        """Negative log likelihoods [B, T]."""
        losses, moved = self._score(self._frozen, batch, self._state, NO_DROPOUT)
        self._state.copy_(moved)
        return losses.t().contiguous()

    def step(self, index: int) -> None:
        """See the contract; the first step of an epoch starts from a zero state."""
        batch = self.framework.feed(self.data, index)
        if index % self.data.steps_per_epoch == 0:
            self._state.zero_()
        if self.train:
            self._descent.set_rate(spec.rate_of(self.job.hyper, index, self.data.steps_per_epoch))
        self._results.keep(self._run(batch, self.data.slot(index)))

    def reset(self) -> None:
        """See the contract; the carried state and the dropout stream start again too."""
        torch.manual_seed(self.job.seed)
        self._norms.clear()
        self._state.zero_()
        if not self.train:
            return
        with torch.no_grad():
            for name, array in self._initial():
                self._masters[name].copy_(self.framework.tensor(array))
        self.framework.scaling.reset()

    def parameters(self) -> Arrays:
        """See the contract."""
        return {name: self.framework.array(master) for name, master in self._masters.items()}

    def gradients(self, index: int) -> Arrays:
        """See the contract; from the carried state, which stays as it is."""
        gradients = self._gradients(self.framework.feed(self.data, index))[1]
        return {name: self.framework.array(g) for name, g in zip(self._masters, gradients, strict=True)}

    @torch.no_grad()
    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """Logits [T, B, V], dropout off, from the carried state, which stays as it is."""
        batch, weights = self.framework.feed(self.data, index), self._cast()
        hidden, _ = run_layers(weights, batch["inputs"].long(), self._state, NO_DROPOUT)
        return self.framework.array(classify(weights, hidden))

    @torch.no_grad()
    def predict(self, arrays: Arrays) -> Arrays:
        """``nll`` [n - 1], the negative log likelihood of every token but the first, from a zero state."""
        weights, state, found = self._cast(), self._zero_state(1), []
        for arrays_of_window in windows(arrays["tokens"], self.dims.steps):
            batch = {name: self.framework.tensor(array) for name, array in arrays_of_window.items()}
            losses, state = self._score(weights, batch, state, NO_DROPOUT)
            found.append(losses[:, 0])
        return {"nll": self.framework.array(torch.cat(found))[: len(arrays["tokens"]) - 1]}
