"""Networks of ``suite/common/layers.py`` in MXNet: hybrid blocks, images NCHW."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from suite.common import layers
from suite.frameworks.mxnet.parameters import Block

Tensor = Any


@dataclass
class Dropout:
    """Inverted dropout; tests may set masks (1 keeps) by layer name, in the shape of the layer's input.

    Only blocks that are not hybridized (``fast`` off) read masks.
    """

    rate: float = 0.0
    masks: dict[str, Tensor] = field(default_factory=dict)

    def __call__(self, F: Any, name: str, inputs: Tensor) -> Tensor:
        """``inputs`` after the dropout ``name``."""
        if name in self.masks:
            return inputs * self.masks[name] / (1.0 - self.rate)
        return F.Dropout(inputs, p=self.rate) if self.rate > 0.0 else inputs


@dataclass(frozen=True)
class Pass:
    """Inputs of one forward pass; autograd's mode selects batch or running statistics."""

    F: Any
    weights: Mapping[str, Tensor]
    dropout: Dropout | None


class Logits(Block):
    """Logits of uint8 images [N, H, W, 3]; parameters and running statistics under canonical names.

    In training mode the layers use the batch's statistics, and the *backward* pass updates the running ones.
    """

    def __init__(
        self,
        parameters: Any,
        network: Sequence[layers.Layer],
        dtype: str,
        dropout: Dropout | None = None,
    ) -> None:
        super().__init__(parameters)
        self._network, self._dtype, self._dropout = network, dtype, dropout

    def logits(self, F: Any, images: Tensor, mean: Tensor, scale: Tensor, weight: Any) -> Tensor:
        """See the class; ``mean`` and ``scale`` are [3]."""
        scaled = F.cast(images, dtype=self._dtype) / 255
        pixels = F.broadcast_div(F.broadcast_sub(scaled, mean), scale)
        run = Pass(F, self.named(weight), self._dropout)
        return compute(self._network, F.transpose(pixels, axes=(0, 3, 1, 2)), run)

    def hybrid_forward(self, F: Any, images: Tensor, mean: Tensor, scale: Tensor, **weight: Tensor) -> Tensor:
        """See the class."""
        return self.logits(F, images, mean, scale, weight)


class Loss(Logits):
    """Mean smoothed cross entropy of images and labels [N]."""

    def __init__(self, *args: Any, smoothing: float, **options: Any) -> None:
        super().__init__(*args, **options)
        self._smoothing = smoothing

    def hybrid_forward(  # type: ignore[override, unused-ignore]
        self, F: Any, images: Tensor, mean: Tensor, scale: Tensor, labels: Tensor, **weight: Tensor
    ) -> Tensor:
        """See the class."""
        log_p = F.log_softmax(self.logits(F, images, mean, scale, weight), axis=1)
        chosen = F.pick(log_p, labels, axis=1)
        if self._smoothing:
            chosen = (1.0 - self._smoothing) * chosen + self._smoothing * F.mean(log_p, axis=1)
        return -F.mean(chosen)


def compute(network: Sequence[layers.Layer], x: Tensor, run: Pass) -> Tensor:
    """The output of ``network`` for the images ``x``."""
    for layer in network:
        x = _LAYERS[type(layer)](layer, x, run)
    return x


def _conv(layer: Any, x: Tensor, run: Pass) -> Tensor:
    weights = [run.weights[f"{layer.name}.weight"]]
    if layer.bias:
        weights.append(run.weights[f"{layer.name}.bias"])
    return run.F.Convolution(
        x,
        *weights,
        kernel=layer.kernel,
        stride=(layer.stride, layer.stride),
        pad=layer.padding,
        num_filter=layer.outputs,
        no_bias=not layer.bias,
    )


def _dense(layer: Any, x: Tensor, run: Pass) -> Tensor:
    weight, bias = run.weights[f"{layer.name}.weight"], run.weights[f"{layer.name}.bias"]
    return run.F.FullyConnected(x, weight, bias, num_hidden=layer.outputs)


def _norm(layer: Any, x: Tensor, run: Pass) -> Tensor:
    names = (f"{layer.name}.{part}" for part in ("gamma", "beta", "mean", "variance"))
    tensors = [run.weights[name] for name in names]
    options = {"eps": float(layer.epsilon), "momentum": float(layer.decay), "fix_gamma": False}
    return run.F.BatchNorm(x, *tensors, **options)


def _pool(layer: Any, x: Tensor, run: Pass, **options: Any) -> Tensor:
    sides = {"kernel": layer.kernel, "stride": layer.stride, "pad": layer.padding}
    return run.F.Pooling(x, **{name: (side, side) for name, side in sides.items()}, **options)


def _max_pool(layer: Any, x: Tensor, run: Pass) -> Tensor:
    return _pool(layer, x, run, pool_type="max", pooling_convention="full" if layer.ceil else "valid")


def _average_pool(layer: Any, x: Tensor, run: Pass) -> Tensor:
    return _pool(layer, x, run, pool_type="avg", count_include_pad=True)


def _global_average(_: Any, x: Tensor, run: Pass) -> Tensor:
    return run.F.Flatten(run.F.Pooling(x, global_pool=True, pool_type="avg", kernel=(1, 1)))


def _concat(layer: Any, x: Tensor, run: Pass) -> Tensor:
    parts = [compute(branch, x, run) for branch in layer.branches]
    # oneDNN splits a gradient only at multiples of 16 channels ("could not construct a sub-memory"). Arrays
    # of five dimensions use MXNet's operator instead, also where the channels of a branch are unknown.
    if not any(layers.channels(branch, 1) % 16 for branch in layer.branches[:-1]):
        return run.F.concat(*parts, dim=1)
    wide = run.F.concat(*(run.F.expand_dims(part, axis=0) for part in parts), dim=2)
    return run.F.squeeze(wide, axis=0)


def rectified(F: Any, x: Tensor) -> Tensor:
    """max(x, 0) by oneDNN's operator, which accepts its layouts; ``F.relu`` reorders them."""
    return F.Activation(x, act_type="relu")


def _residual(layer: Any, x: Tensor, run: Pass) -> Tensor:
    return rectified(run.F, compute(layer.body, x, run) + compute(layer.shortcut, x, run))


_LAYERS: dict[type, Callable[[Any, Tensor, Pass], Tensor]] = {
    layers.Conv: _conv,
    layers.Dense: _dense,
    layers.BatchNorm: _norm,
    layers.Relu: lambda layer, x, run: rectified(run.F, x),
    layers.MaxPool: _max_pool,
    layers.AveragePool: _average_pool,
    layers.GlobalAverage: _global_average,
    layers.Flatten: lambda layer, x, run: run.F.Flatten(x),
    layers.Dropout: lambda layer, x, run: run.dropout(run.F, layer.name, x) if run.dropout else x,
    layers.Concat: _concat,
    layers.Residual: _residual,
}
