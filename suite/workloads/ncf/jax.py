"""NeuMF in JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from suite.frameworks.base import Arrays
from suite.frameworks.jax.framework import Framework, Tensor
from suite.frameworks.jax.pair import BasePair, Inputs, Weights


def logits(weight: Weights, users: Tensor, items: Tensor, framework: Framework) -> Tensor:
    """Scores before the sigmoid, [n], for users [n] and items [n], in the type of the parameters."""
    cast = framework.compute
    product = weight["mf.user"][users] * weight["mf.item"][items]
    hidden = cast(jnp.concatenate((weight["mlp.user"][users], weight["mlp.item"][items]), axis=1))
    for layer in range(1, sum(name.endswith(".weight") for name in weight)):
        sums = hidden @ cast(weight[f"mlp.{layer}.weight"]).T + cast(weight[f"mlp.{layer}.bias"])
        hidden = jax.nn.relu(sums)
    joined = jnp.concatenate((cast(product), hidden), axis=1)
    score = joined @ cast(weight["output.weight"]).T + cast(weight["output.bias"])
    framework.observed.note(activations=hidden)
    return score[:, 0].astype(framework.dtype)


class Pair(BasePair):
    """NeuMF. Evaluations of quality runs use the master weights in every precision."""

    def build(self) -> None:
        """Make the function for outputs and evaluation."""
        self._scores = self.framework.make_fast(
            lambda weights, users, items: logits(weights, users, items, self.framework)
        )

    def loss(self, inputs: Inputs) -> Tensor:
        """Binary cross entropy, the mean over the samples of the batch."""
        batch = inputs.batch
        scores = logits(inputs.weights, batch["users"], batch["items"], self.framework)
        return jnp.mean(jax.nn.softplus(scores) - batch["labels"] * scores)

    def infer(self, inputs: Inputs) -> Tensor:
        """Scores (sigmoid) [batch]."""
        batch = inputs.batch
        return jax.nn.sigmoid(logits(inputs.weights, batch["users"], batch["items"], self.framework))

    def outputs(self, index: int) -> NDArray[np.floating[Any]]:
        """Logits [batch] of batch ``index``."""
        batch = self.framework.feed(self.data, index)
        return self.framework.array(self._scores(self.local_masters(), batch["users"], batch["items"]))

    def predict(self, arrays: Arrays) -> Arrays:
        """Logits as ``scores`` [n, 100]: they rank as their sigmoids do, without ties by saturation."""
        items, tensor = arrays["items"], self.framework.tensor
        users = np.repeat(arrays["users"], items.shape[1])
        found = self._scores(self.local_masters(), tensor(users), tensor(items.reshape(-1)))
        return {"scores": self.framework.array(found).reshape(items.shape).astype(np.float32)}
