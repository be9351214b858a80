"""An LSTM in JAX whose size tensor cores cannot divide: ``python -m tests.equivalence.padded_lstm jax FILE``.

Writes outputs, last cell and gradients in bf16, for which the layer pads its weights, and in fp32 from the
same values, for which it does not.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from suite.common.stream import Stream

TIME, BATCH, WIDTH, HIDDEN = 5, 3, 6, 10


def draw(key: str, *shape: int) -> Any:
    """Seeded values of both signs."""
    return Stream("test", "padded", key).unit(int(np.prod(shape))).reshape(shape) * 2 - 1


def main(framework: str, file: str) -> None:
    """See the module."""
    assert framework == "jax"
    import jax
    import jax.numpy as jnp

    from suite.frameworks.jax.recurrent import lstm

    values = {
        "inputs": draw("inputs", TIME, BATCH, WIDTH),
        "kernel": draw("kernel", 4 * HIDDEN, WIDTH),
        "recurrent": draw("recurrent", 4 * HIDDEN, HIDDEN),
        "bias": draw("bias", 4 * HIDDEN),
    }
    rounded = {name: jnp.asarray(value, jnp.bfloat16) for name, value in values.items()}
    state = tuple(jnp.asarray(draw(name, BATCH, HIDDEN), jnp.bfloat16) for name in ("hidden", "cell"))
    slopes = draw("slopes", TIME, BATCH, HIDDEN)
    found: dict[str, Any] = {}
    for kind in (jnp.bfloat16, jnp.float32):
        given = {name: value.astype(kind) for name, value in rounded.items()}
        first = tuple(value.astype(kind) for value in state)

        def total(given: Any, first: Any = first) -> Any:
            outputs, (_, cell) = lstm(**given, state=first)
            return jnp.sum(outputs.astype(jnp.float32) * slopes), (outputs, cell)

        gradients, (outputs, cell) = jax.grad(total, has_aux=True)(given)
        parts = {"outputs": outputs, "cell": cell} | {f"gradient {name}": g for name, g in gradients.items()}
        found |= {f"{kind.__name__}/{name}": np.asarray(part, np.float32) for name, part in parts.items()}
    np.savez(file, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
