"""Naive implementations in a framework beside the suite's: ``... naive_ways FRAMEWORK FILE``.

Writes ``naive/<trap>`` and ``ours/<trap>`` for each trap of the framework. Optimisers run in float32, where
the frameworks' fused kernels are taken; the rest in float64.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from suite import workloads
from suite.common import layers
from suite.common.stream import Stream
from tests.equivalence import optimisers
from tests.equivalence.case import load
from tests.equivalence.layer_traps import computed, conv

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]
    Both = tuple[Array, Array]  # naive, the suite's

STEPS = 6
DECAY = 0.1
NETWORKS: dict[str, layers.Network] = {
    "same padding": (conv("c", 4, (3, 3), 2, (1, 1)),),
    "average at the edge": (layers.AveragePool(3, 1, 1),),
}
NORM = layers.BatchNorm("n", 3, "1e-5", "0.9")
TIME, BATCH, WIDTH, HIDDEN, RATE = 4, 2, 3, 5, 0.5


def draw(name: str, *shape: int) -> Array:
    """float64 values in [-0.5, 0.5)."""
    return Stream("test", "naive", name).unit(int(np.prod(shape))).reshape(shape) - 0.5


def image() -> Array:
    """[2, 3, 6, 6], no mean of zero."""
    return draw("image", 2, 3, 6, 6) + 0.3


def kernel() -> Array:
    """[4, 3, 3, 3]."""
    return draw("kernel", 4, 3, 3, 3)


def gradient(kind: str, step: int) -> Array:
    """[4, 3]: small enough for Adam's epsilon to count, or large enough for updates to keep their digits."""
    return optimisers.gradient(step) * (1.0 if kind == "adam" else 1e6)


def batch() -> Array:
    """[2, 3, 2, 2]: so few numbers that it matters whether their variance is biased."""
    return image()[:, :, :2, :2]


def far_batch() -> NDArray[np.float32]:
    """:func:`batch` with a mean far from zero."""
    return (batch() + 100).astype(np.float32)


def recurrent() -> tuple[Array, Array, Array, Array]:
    """Inputs [T, B, W], what outputs are multiplied by in the loss, and the two matrices of an LSTM."""
    inputs, slopes = draw("inputs", TIME, BATCH, WIDTH), draw("slopes", TIME, BATCH, HIDDEN)
    return inputs, slopes, draw("input", 4 * HIDDEN, WIDTH), draw("hidden", 4 * HIDDEN, HIDDEN)


def padded(name: str) -> Callable[[], Both]:
    """TensorFlow with ``SAME`` instead of explicit padding."""

    def both() -> Both:
        import tensorflow as tf

        x = tf.constant(image().transpose(0, 2, 3, 1))
        if name == "same padding":
            naive = tf.nn.conv2d(x, kernel().transpose(2, 3, 1, 0), strides=2, padding="SAME")
        else:
            naive = tf.nn.avg_pool2d(x, 3, 1, "SAME")
        weights = {"c.weight": kernel(), "c.bias": np.zeros(4)}
        ours = computed("tensorflow", NETWORKS[name], image(), weights)
        return naive.numpy().transpose(0, 3, 1, 2), ours

    return both


def optimiser(framework: str, kind: str, decay: float = 0.0) -> Array:
    """The parameters after six updates by the suite's optimiser; the rate drops unless weights decay."""
    module: Any = workloads.framework_module(load("ncf").job(framework, "fp32"))
    here = module.Framework(load("ncf").job(framework, "fp32"))
    weight = here.tensor(optimisers.start())
    if framework == "tensorflow":
        import tensorflow as tf

        weight = tf.Variable(weight)
    hyper = optimisers.HYPER | {"weight_decay": str(decay)}
    chosen = module.Adam([weight], hyper) if kind == "adam" else module.Momentum([weight], hyper, [0])
    steps = ((rate(step, decay), here.tensor(gradient(kind, step))) for step in range(STEPS))
    found: Array = here.array(optimisers.updated(framework, chosen, weight, steps))
    return found


def rate(step: int, decay: float) -> float:
    """One drop of the rate, or a constant rate with weight decay: each trap separately."""
    return 0.1 if decay else optimisers.rate(step)


def keras(kind: str, decay: float = 0.0) -> Callable[[], Both]:
    """TensorFlow: the optimiser of Keras."""

    def both() -> Both:
        import tensorflow as tf

        betas = {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-8}
        options: Any = betas if kind == "adam" else {"momentum": 0.9, "weight_decay": decay or None}
        made = getattr(tf.keras.optimizers, {"adam": "Adam", "momentum": "SGD"}[kind])(**options)
        weight = tf.Variable(optimisers.start().astype(np.float32))
        for step in range(STEPS):
            made.learning_rate = rate(step, decay)
            made.apply_gradients([(tf.constant(gradient(kind, step).astype(np.float32)), weight)])
        return weight.numpy(), optimiser("tensorflow", kind, decay)

    return both


def gluon(kind: str) -> Callable[[], Both]:
    """MXNet: the optimiser of a Gluon ``Trainer``."""

    def both() -> Both:
        import mxnet as mx

        made = mx.optimizer.create({"adam": "adam", "momentum": "sgd"}[kind], **_GLUON[kind])
        weight = mx.nd.array(optimisers.start())
        state = made.create_state(0, weight)
        for step in range(STEPS):
            made.lr = rate(step, 0)
            made.update(0, weight, mx.nd.array(gradient(kind, step)), state)
        return weight.asnumpy(), optimiser("mxnet", kind)

    return both


_GLUON: dict[str, dict[str, float]] = {"adam": {"epsilon": 1e-8}, "momentum": {"momentum": 0.9}}


def biases_torch() -> Both:
    """PyTorch: the two trained biases of ``nn.LSTM``, which move their sum twice as far."""
    import torch

    from suite.frameworks.pytorch.recurrent import lstm

    inputs, slopes, into, across = (torch.from_numpy(array) for array in recurrent())
    layer = torch.nn.LSTM(WIDTH, HIDDEN).double()
    with torch.no_grad():
        layer.weight_ih_l0.copy_(into)
        layer.weight_hh_l0.copy_(across)
        for bias in (layer.bias_ih_l0, layer.bias_hh_l0):
            bias.zero_()
    (layer(inputs)[0] * slopes).sum().backward()
    naive = sum(-RATE * bias.grad for bias in (layer.bias_ih_l0, layer.bias_hh_l0))
    bias = torch.zeros(4 * HIDDEN, dtype=torch.float64, requires_grad=True)
    (lstm(inputs, into, across, bias)[0] * slopes).sum().backward()
    return naive.numpy(), (-RATE * bias.grad).numpy()


def biases_mxnet() -> Both:
    """MXNet: the two trained biases of ``gluon.rnn.LSTM``."""
    import mxnet as mx

    from suite.frameworks.mxnet.recurrent import lstm

    inputs, slopes, into, across = (mx.nd.array(array, dtype="float64") for array in recurrent())
    layer = mx.gluon.rnn.LSTM(HIDDEN, input_size=WIDTH, dtype="float64")
    layer.initialize(mx.init.Zero())
    layer.l0_i2h_weight.set_data(into)
    layer.l0_h2h_weight.set_data(across)
    bias = mx.nd.zeros(4 * HIDDEN, dtype="float64")
    bias.attach_grad()
    zero = mx.nd.zeros((1, BATCH, HIDDEN), dtype="float64")
    with mx.autograd.record():
        loss = (layer(inputs) * slopes).sum()
        ours = (lstm(mx.nd, inputs, into, across, bias, HIDDEN, (zero, zero))[0] * slopes).sum()
    mx.autograd.backward([loss, ours])
    naive = sum(-RATE * part.grad().asnumpy() for part in (layer.l0_i2h_bias, layer.l0_h2h_bias))
    return naive, -RATE * bias.grad.asnumpy()


def biases_keras() -> Both:
    """TensorFlow: the bias of Keras' LSTM, whose forget gate starts at one."""
    import tensorflow as tf

    from suite.frameworks.tensorflow.recurrent import lstm

    inputs, slopes, into, across = (tf.constant(array) for array in recurrent())
    layer = tf.keras.layers.LSTM(HIDDEN, return_sequences=True, dtype="float64")
    layer.build((BATCH, TIME, WIDTH))
    layer.cell.kernel.assign(tf.transpose(into))
    layer.cell.recurrent_kernel.assign(tf.transpose(across))
    variable, bias = layer.cell.bias, tf.Variable(tf.zeros(4 * HIDDEN, tf.float64))
    value = getattr(variable, "value", variable)  # Keras 3 wraps TensorFlow's variable
    value = value() if callable(value) else value
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(value)
        found = tf.transpose(layer(tf.transpose(inputs, (1, 0, 2))), (1, 0, 2))
        loss = tf.reduce_sum(found * slopes)
        ours = tf.reduce_sum(lstm(inputs, into, across, bias)[0] * slopes)
    start = tf.convert_to_tensor(variable)
    moved = start - RATE * tape.gradient(loss, layer.trainable_variables[-1])
    return moved.numpy(), (-RATE * tape.gradient(ours, bias)).numpy()


def variance_torch() -> Both:
    """PyTorch: ``F.batch_norm`` stores the unbiased variance."""
    import torch

    from suite.frameworks.pytorch import layers as pytorch_layers

    x, mean, variance = torch.from_numpy(batch()), torch.zeros(3).double(), torch.ones(3).double()
    torch.nn.functional.batch_norm(x, mean, variance, training=True, momentum=0.1)
    weights = {"n.gamma": torch.ones(3).double(), "n.beta": torch.zeros(3).double()}
    run = pytorch_layers.Pass(weights)
    pytorch_layers.compute((NORM,), x, run)
    ours = pytorch_layers.Statistics((NORM,), lambda value: torch.from_numpy(value).double())
    ours.update(list(run.seen.values()))
    return np.stack((mean.numpy(), variance.numpy())), np.stack([v.numpy() for v in ours.named.values()])


def variance_tensorflow() -> Both:
    """TensorFlow: the fused op gives the unbiased variance; in float32, as float64 has no fused op."""
    import tensorflow as tf

    from suite.frameworks.tensorflow import layers as tensorflow_layers

    x = tf.constant(batch().transpose(0, 2, 3, 1), tf.float32)
    _, mean, variance = tf.compat.v1.nn.fused_batch_norm(x, tf.ones(3), tf.zeros(3), epsilon=1e-5)
    run = tensorflow_layers.Pass({"n.gamma": tf.ones(3), "n.beta": tf.zeros(3)})
    tensorflow_layers.compute((NORM,), x, run)
    ours = tensorflow_layers.Statistics((NORM,), lambda value: tf.constant(value, tf.float32))
    ours.update(list(run.seen.values()))
    naive = np.stack((0.1 * mean.numpy(), 0.9 + 0.1 * variance.numpy()))
    return naive, np.stack([v.numpy() for v in ours.named().values()])


def backward_mxnet() -> Both:
    """MXNet: the backward pass updates running statistics, a forward pass in training mode does not."""
    import mxnet as mx

    from suite.common import folding
    from suite.frameworks.mxnet import layers as mxnet_layers
    from suite.frameworks.mxnet import parameters as mxnet_parameters
    from suite.frameworks.mxnet.framework import Framework

    network, framework = (NORM, layers.GlobalAverage()), Framework(load("ncf").job("mxnet", "fp64"))
    shared = mxnet_parameters.new_parameters(framework, layers.parameters(network))
    shared.setattr("grad_req", "write")
    mxnet_parameters.add_constants(shared, framework, folding.initial_statistics(network))
    block = mxnet_layers.Loss(shared, network, framework.dtype, None, smoothing=0.0)
    block.n_gamma.set_data(mx.nd.ones(3))
    pixels = mx.nd.array(batch().transpose(0, 2, 3, 1), dtype="float64") * 255  # the block divides
    plain = mx.nd.zeros(3, dtype="float64"), mx.nd.ones(3, dtype="float64")

    def statistics() -> Array:
        return np.stack([block.n_mean.data().asnumpy(), block.n_variance.data().asnumpy()])

    with mx.autograd.record():
        loss = block(pixels, *plain, mx.nd.array([0, 1]))
    mx.nd.waitall()
    naive = statistics()
    loss.backward()
    mx.nd.waitall()  # the engine does not track the update of the statistics
    return naive, statistics()


def looked_mxnet() -> Array:
    """[3, batch, classes]: evaluated at first, after reading the gradients, after a backward pass."""
    from tests.equivalence.runner import build

    case = load("inception_bn_small")
    pair = build(case, case.job("mxnet", "fp64"))
    found = [pair.evaluated(0)]
    pair.gradients(0)
    found.append(pair.evaluated(0))
    pair.update(pair.framework.feed(pair.data, 0))  # at a rate of zero: only the statistics change
    pair.framework.synchronize()
    found.append(pair.evaluated(0))
    return np.stack(found)


def norms_torch() -> Array:
    """[3]: the norm of four million float32 in one sum, by the suite's clipping, and in float64."""
    import torch

    from suite.frameworks.pytorch.optimisers import clip_by_global_norm

    gradient = torch.from_numpy(draw("large", 2000, 2000)).float()
    naive, exact = torch.linalg.vector_norm(gradient), torch.linalg.vector_norm(gradient.double())
    return np.array([float(naive), float(clip_by_global_norm([gradient], 1.0)[1]), float(exact)])


def norms_mxnet() -> Array:
    """The same as :func:`norms_torch`."""
    import mxnet as mx

    from suite.frameworks.mxnet.framework import clip_by_global_norm

    gradient = mx.nd.array(draw("large", 2000, 2000))
    flat, exact = gradient.reshape(-1), np.linalg.norm(gradient.asnumpy().astype(np.float64))
    naive, ours = mx.nd.sqrt(mx.nd.dot(flat, flat)), clip_by_global_norm([gradient], 1.0)[1]
    return np.array([naive.asscalar(), ours.asscalar(), exact])


def padded_jax() -> Both:
    """JAX with ``SAME`` instead of explicit padding."""
    import jax

    layout = ("NHWC", "HWIO", "NHWC")
    with jax.enable_x64(True):
        x, weight = image().transpose(0, 2, 3, 1), kernel().transpose(2, 3, 1, 0)
        naive = jax.lax.conv_general_dilated(x, weight, (2, 2), "SAME", dimension_numbers=layout)
    ours = computed("jax", NETWORKS["same padding"], image(), {"c.weight": kernel(), "c.bias": np.zeros(4)})
    return np.asarray(naive).transpose(0, 3, 1, 2), ours


def variance_jax() -> Both:
    """JAX: the mean of the squares less the square of the mean, in float32."""
    import jax.numpy as jnp

    from suite.frameworks.jax import layers as jax_layers

    x = jnp.asarray(far_batch().transpose(0, 2, 3, 1))
    naive = jnp.mean(x * x, axis=(0, 1, 2)) - jnp.square(jnp.mean(x, axis=(0, 1, 2)))
    run = jax_layers.Pass({"n.gamma": jnp.ones(3), "n.beta": jnp.zeros(3)})
    jax_layers.compute((NORM,), x, run)
    return np.asarray(naive), np.asarray(run.seen["n.variance"])


TRAPS: dict[str, dict[str, Callable[[], Both]]] = {
    "pytorch": {"biases of an LSTM": biases_torch, "running statistics": variance_torch},
    "tensorflow": {
        **{name: padded(name) for name in NETWORKS},
        "epsilon of Adam": keras("adam"),
        "momentum after a rate drop": keras("momentum"),
        "decoupled weight decay": keras("momentum", DECAY),
        "biases of an LSTM": biases_keras,
        "running statistics": variance_tensorflow,
    },
    "mxnet": {
        "epsilon of Adam": gluon("adam"),
        "momentum after a rate drop": gluon("momentum"),
        "biases of an LSTM": biases_mxnet,
        "running statistics": backward_mxnet,
    },
    "jax": {"same padding": padded_jax, "variance far from zero": variance_jax},
}


def main(framework: str, file: str) -> None:
    """See the module."""
    job = load("ncf").job(framework, "fp32")
    workloads.framework_module(job).Framework(job)  # sets threads, which TensorFlow allows only at the start
    found: dict[str, Array] = {}
    for name, both in TRAPS[framework].items():
        found[f"naive/{name}"], found[f"ours/{name}"] = both()
    if framework == "pytorch":
        found["norms"] = norms_torch()
    if framework == "mxnet":
        found["norms"] = norms_mxnet()
        found["looked"] = looked_mxnet()
    np.savez(file, **found)  # type: ignore[arg-type, unused-ignore]


if __name__ == "__main__":
    main(*sys.argv[1:])
