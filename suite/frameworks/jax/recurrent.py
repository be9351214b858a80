"""Parts of language models in JAX: an LSTM layer with its gradient, dropout on its input, losses of tokens.

Sequences are time-major, [T, B, width].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from suite.frameworks.jax import layers

Tensor = Any
State = tuple[Tensor, Tensor]  # hidden and cell, each [B, H]

UNROLL = 7  # on a GPU, which waits between iterations; with 35 the kernels of lstm_ptb train took 15 % longer


@dataclass(frozen=True)
class Dropout(layers.Dropout):
    """Inverted dropout; tests may set masks (1 keeps) by name, [B, T, width]."""

    def __call__(self, name: str, inputs: Tensor) -> Tensor:
        """``inputs`` [T, B, width] after the dropout ``name``."""
        if name in self.masks:
            mask = jnp.asarray(self.masks[name], inputs.dtype).transpose((1, 0, 2))
            return inputs * mask / (1.0 - self.rate)
        return super().__call__(name, inputs)


NO_DROPOUT = Dropout()


def unroll() -> int:
    """Steps of a recurrence in one iteration of its loop; on a CPU more only take longer to compile."""
    return 1 if jax.default_backend() == "cpu" else UNROLL


def wide(dtype: Any) -> Any:
    """The type for sums: float32 for half precision, otherwise ``dtype`` itself."""
    return jnp.promote_types(dtype, jnp.float32)


def project(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """[..., in] times the transposed ``weight`` [out, in], plus ``bias`` [out]."""
    products = lax.dot_general(inputs, weight, (((inputs.ndim - 1,), (1,)), ((), ())))
    return products if bias is None else _add(products, bias)


@jax.custom_vjp
def _add(products: Tensor, bias: Tensor) -> Tensor:
    """``products`` [..., out] plus ``bias`` [out], whose gradient is a wide sum.

    JAX would add up thousands of rows in half precision.
    """
    return products + bias


def _add_slopes(_: None, slope: Tensor) -> tuple[Tensor, Tensor]:
    rows = tuple(range(slope.ndim - 1))
    return slope, jnp.sum(slope, axis=rows, dtype=wide(slope.dtype)).astype(slope.dtype)


_add.defvjp(lambda products, bias: (products + bias, None), _add_slopes)


def lstm(
    inputs: Tensor, kernel: Tensor, recurrent: Tensor, bias: Tensor, state: State | None = None
) -> tuple[Tensor, State]:
    """Outputs [T, B, H] and the last state of one LSTM; without ``state`` it starts from zero.

    Weights are [4H, in], [4H, H] and [4H], gates i, f, g, o. No gradient flows through states.
    """
    rows, size = inputs.shape[1], recurrent.shape[1]
    if state is None:
        state = (jnp.zeros((rows, size), inputs.dtype),) * 2
    if inputs.dtype.itemsize == 2:  # XLA would pad the operands of the product anew in every step
        more = -size % layers.ALIGNMENT
        kernel, recurrent, bias = (_pad_gates(weight, more) for weight in (kernel, recurrent, bias))
        recurrent = _pad_last(recurrent, more)
        state = tuple(jnp.pad(one, ((0, -rows % layers.ALIGNMENT), (0, more))) for one in state)
    sums = project(inputs, kernel, bias)
    sums = jnp.pad(sums, ((0, 0), (0, len(state[0]) - rows), (0, 0)))
    outputs, cell = _recurrence(sums, recurrent, *state)
    outputs, cell = outputs[:, :rows, :size], cell[:rows, :size]
    return outputs, (lax.stop_gradient(outputs[-1]), cell)


def lstms(inputs: Sequence[Tensor], weights: Sequence[tuple[Tensor, Tensor, Tensor]]) -> list[Tensor]:
    """Outputs [T, B, H] of LSTMs of one size, each from a zero state: kernel, recurrent and bias of each.

    One loop computes them side by side: a step of one is too small to fill a GPU.
    """
    pairs = zip(inputs, weights, strict=True)
    sums = jnp.stack([project(one, kernel, bias) for one, (kernel, _, bias) in pairs], axis=1)
    across = jnp.stack([recurrent for _, recurrent, _ in weights])
    zero = jnp.zeros((len(weights), inputs[0].shape[1], across.shape[2]), sums.dtype)
    outputs, _ = jax.vmap(_recurrence, in_axes=(1, 0, 0, 0), out_axes=(1, 0))(sums, across, zero, zero)
    return [outputs[:, at] for at in range(len(weights))]


def _pad_last(tensor: Tensor, more: int) -> Tensor:
    return jnp.pad(tensor, [(0, 0)] * (tensor.ndim - 1) + [(0, more)])


def _pad_gates(weight: Tensor, more: int) -> Tensor:
    """``weight`` [4H, ...] for ``more`` units whose weights and biases are zero: their outputs stay zero."""
    gates = weight.reshape(4, -1, *weight.shape[1:])
    padded = jnp.pad(gates, [(0, 0), (0, more)] + [(0, 0)] * (weight.ndim - 1))
    return padded.reshape(-1, *weight.shape[1:])


@jax.custom_vjp
def _recurrence(sums: Tensor, recurrent: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs [T, B, H] and the last cell [B, H] for ``sums`` [T, B, 4H] of input products and biases.

    The gradient is written by hand, so that the gradient of the weight is one product over all steps, and
    each step computes only values that depend on the step before.
    """
    return _forward(sums, recurrent, hidden, cell)[0]


def _forward(sums: Tensor, recurrent: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Any, Any]:
    """The results of :func:`_recurrence`, and what its gradient reads. Within a step sums are wide."""
    dtype, full = sums.dtype, wide(sums.dtype)
    transposed = recurrent.T  # once: on a CPU products of few rows that transpose themselves take longer

    def step(state: State, total: Tensor) -> tuple[State, tuple[Tensor, ...]]:
        hidden, before = state
        total = total + jnp.matmul(hidden, transposed, preferred_element_type=full)
        enter, forget, candidate, leave = jnp.split(total, 4, axis=1)
        enter, forget, leave = (jax.nn.sigmoid(gate) for gate in (enter, forget, leave))
        candidate = jnp.tanh(candidate)
        cell = forget * before + enter * candidate
        hidden = (leave * jnp.tanh(cell)).astype(dtype)
        gates = jnp.concatenate((enter, forget, candidate, leave), axis=1)
        return (hidden, cell), (hidden, before.astype(dtype), gates.astype(dtype))

    (_, last), (outputs, cells, gates) = lax.scan(step, (hidden, cell.astype(full)), sums, unroll=unroll())
    last = last.astype(dtype)
    return (outputs, last), (recurrent, hidden, outputs, cells, last, gates)


def _backward(kept: Any, slopes: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, None, None]:
    """The gradients of the sums and of the recurrent weight; ``cells`` are those before each step."""
    recurrent, first, outputs, cells, last, gates = kept
    dtype, full = outputs.dtype, wide(outputs.dtype)

    def step(state: tuple[Tensor, ...], given: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], Tensor]:
        to_hidden, to_cell, cell = state
        slope, gate, before = given
        enter, forget, candidate, leave = jnp.split(gate.astype(full), 4, axis=1)
        to_hidden = to_hidden + slope
        top = jnp.tanh(cell.astype(full))
        to_cell = to_cell + to_hidden * leave * (1 - top * top)
        parts = (
            to_cell * candidate * enter * (1 - enter),
            to_cell * before * forget * (1 - forget),
            to_cell * enter * (1 - candidate * candidate),
            to_hidden * top * leave * (1 - leave),
        )
        to_sums = jnp.concatenate(parts, axis=1).astype(dtype)
        to_hidden = jnp.matmul(to_sums, recurrent, preferred_element_type=full)
        return (to_hidden, to_cell * forget, before), to_sums

    zero = jnp.zeros(last.shape, full)
    start, given = (zero, zero, last), (slopes[0], gates, cells)
    _, to_sums = lax.scan(step, start, given, reverse=True, unroll=unroll())
    before = jnp.concatenate((first[None], outputs[:-1]))
    return to_sums, jnp.einsum("tbg,tbh->gh", to_sums, before), None, None


_recurrence.defvjp(_forward, _backward)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def token_losses(logits: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    """(1 - smoothing) nll + smoothing * mean of -log p [...] for logits [..., V]; wide.

    The gradient keeps the logits and one number per token. Where none is computed, losses come from
    ``log_softmax``: XLA does not store the logits with their bias then, which saves a tenth of the time of
    lstm_ptb infer on a CPU.
    """
    log_p = jax.nn.log_softmax(logits.astype(wide(logits.dtype)))
    rows = (smoothing - 1.0) * jnp.take_along_axis(log_p, targets[..., None], axis=-1)[..., 0]
    return rows - smoothing * jnp.mean(log_p, axis=-1) if smoothing else rows


def _losses(logits: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Any]:
    values = logits.astype(wide(logits.dtype))
    normaliser = jax.nn.logsumexp(values, axis=-1)
    chosen = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0].astype(values.dtype)
    rows = normaliser - (1.0 - smoothing) * chosen
    if smoothing:
        rows = rows - smoothing * jnp.mean(values, axis=-1)
    return rows, (logits, targets, normaliser)


def _to_logits(smoothing: float, kept: Any, slopes: Tensor) -> tuple[Tensor, None]:
    logits, targets, normaliser = kept
    words = lax.broadcasted_iota(targets.dtype, logits.shape, logits.ndim - 1)
    chosen = jnp.where(words == targets[..., None], 1.0 - smoothing, 0.0)
    wanted = chosen.astype(normaliser.dtype) + smoothing / logits.shape[-1]
    slope = jnp.exp(logits.astype(normaliser.dtype) - normaliser[..., None]) - wanted
    return (slope * slopes[..., None]).astype(logits.dtype), None


token_losses.defvjp(_losses, _to_logits)
