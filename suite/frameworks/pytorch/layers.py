"""Networks of ``suite/common/layers.py`` in PyTorch: images NCHW in the channels-last layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch.nn import functional as F

from suite.common import folding, layers
from suite.frameworks.pytorch.pooling import max_pool

if torch.version.cuda:
    from suite.frameworks.pytorch.first_convolution import convolve_images
    from suite.frameworks.pytorch.fused_convolution import convolve_add_relu, convolve_relu
    from suite.frameworks.pytorch.normalisation import normalise, normalise_and_add, normalise_both_and_add

ALIGNMENT = 8  # channels of half-precision convolutions on tensor cores are multiples of this
# Elements of a normalisation's input from which its kernels take its sums: their launches cost more on fewer.
NORMALISED_BY_KERNELS = 6 << 20


@dataclass
class Dropout:
    """Inverted dropout; tests may set masks (1 keeps) by layer name, in the shape of the layer's input."""

    rate: float = 0.0
    masks: dict[str, Tensor] = field(default_factory=dict)

    def __call__(self, name: str, inputs: Tensor) -> Tensor:
        """``inputs`` after the dropout ``name``."""
        if name in self.masks:
            return inputs * self.masks[name].to(inputs.dtype) / (1.0 - self.rate)
        return F.dropout(inputs, self.rate) if self.rate > 0.0 else inputs


@dataclass
class Pass:
    """Inputs and observed statistics of one forward pass.

    ``running`` holds the statistics for normalisation; where it is None the layers use those of the batch and
    store them in ``seen`` (biased variance). Products are computed in the type of the images.
    """

    weights: Mapping[str, Tensor]
    running: Mapping[str, Tensor] | None = None
    dropout: Dropout | None = None
    seen: dict[str, Tensor] = field(default_factory=dict)


def stored(tensor: Tensor) -> Tensor:
    """A weight in the layout of the computation."""
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor


def pixels(images: Tensor, mean: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """uint8 [N, H, W, 3] as ``(x / 255 - mean) / scale``, [N, 3, H, W], in the type ``dtype``."""
    normalised = (images.to(mean.dtype) / 255 - mean) / scale
    return normalised.permute(0, 3, 1, 2).to(dtype)


def compute(network: Sequence[layers.Layer], x: Tensor, run: Pass) -> Tensor:
    """The output of ``network`` for the images ``x``."""
    ordered = list(_pooled_first(network))
    x_copy = x  # for the second of two uses of x: see normalise_and_add
    done = 0  # an index, as torch.compile cannot trace the truth of a list that becomes empty (PyTorch 2.11)
    while done < len(ordered):
        layer = ordered[done]
        done += 1
        relu = done < len(ordered) and isinstance(ordered[done], layers.Relu)
        if isinstance(layer, layers.BatchNorm) and _by_kernels(x, run):
            x = _norm_by_kernels(layer, x, run, relu)
            done += relu
        elif relu and _fuses(layer, x, run):
            x = convolve_relu(x, *_kernel(layer, x, run), layer.stride, layer.padding)
            done += 1
        elif isinstance(layer, layers.Residual):
            twice = done < len(ordered) and isinstance(ordered[done], layers.Residual)
            x, x_copy = _residual(layer, x, x_copy, run, twice)
            continue
        else:
            x = _LAYERS[type(layer)](layer, x, run)
        x_copy = x
    return x


def _pooled_first(network: Sequence[layers.Layer]) -> Iterator[layers.Layer]:
    """``network`` with a maximum of windows before the ReLU that it follows: less work for the ReLU.

    The values are equal, as a ReLU keeps the order, and NaN passes both. So is the gradient: where the
    maximum of a window is positive, the same pixel is the first to have it; where it is NaN, the same pixel
    is chosen and the ReLU passes the slope; elsewhere the ReLU stops it, whichever pixel is chosen of those
    that are zero behind a ReLU.
    """
    waiting: layers.Layer | None = None
    for layer in network:
        if waiting is not None and not isinstance(layer, layers.MaxPool):
            yield waiting
            waiting = None
        if isinstance(layer, layers.Relu):
            waiting = layer
        else:
            yield layer
    if waiting is not None:
        yield waiting


def _conv(layer: Any, x: Tensor, run: Pass) -> Tensor:
    return convolve(x, *_kernel(layer, x, run), layer.stride, layer.padding)


def _kernel(layer: Any, x: Tensor, run: Pass) -> tuple[Tensor, Tensor | None]:
    """The weight and the bias of a convolution of ``x``."""
    bias = run.weights[f"{layer.name}.bias"].to(x.dtype) if layer.bias else None
    return run.weights[f"{layer.name}.weight"].to(x.dtype), bias


def _fuses(layer: layers.Layer, x: Tensor, run: Pass) -> TypeGuard[layers.Conv]:
    """Whether cuDNN computes a ReLU, or a sum and a ReLU, with this layer: a convolution of inference.

    In half precision on a GPU, with a bias, of as many channels as tensor cores want.
    """
    if not (isinstance(layer, layers.Conv) and layer.bias and x.is_cuda and torch.version.cuda):
        return False
    trains = x.requires_grad or run.weights[f"{layer.name}.weight"].requires_grad
    return x.element_size() == 2 and x.shape[1] % ALIGNMENT == 0 and not trains


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None, stride: int, padding: Sequence[int]) -> Tensor:
    """``x`` [N, C, H, W] convolved with ``weight`` [out, C, height, width], with ``padding`` zeros around."""
    size = x.element_size()
    # In float64 blocks are not faster, but then checks in float64 include their kernels.
    worth = size == 2 or (size == 8 and _has_kernels(x))
    if x.is_cuda and worth and x.shape[1] % ALIGNMENT:
        return convolve_blocks(x, weight, bias, stride, padding)
    return F.conv2d(x, weight, bias, stride, tuple(padding))


def _has_kernels(x: Tensor) -> bool:
    """Whether the suite's kernels convolve ``x``: on a GPU, where it needs no gradient, as images do."""
    return bool(torch.version.cuda) and x.is_cuda and not x.requires_grad


def convolve_blocks(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: int, padding: Sequence[int]
) -> Tensor:
    """The same as :func:`convolve`, of few channels, with blocks of stride x stride pixels as pixels.

    Tensor cores compute with eight channels at least: of the three of an image they would waste most of
    their work. Zeros fill the channels of a block up to a multiple of eight, and the kernel up to blocks.
    """
    weight = weight.to(x.dtype)  # as autocast would for PyTorch's own operators
    bias = None if bias is None else bias.to(x.dtype)
    (count, channels), outputs = x.shape[:2], weight.shape[0]
    sides = zip(x.shape[2:], weight.shape[2:], padding, strict=True)
    found = [layers.blocks(side, kernel, stride, edge) for side, kernel, edge in sides]
    reach, blocks, behind, missing = zip(*found, strict=True)
    more = -(stride * stride * channels) % ALIGNMENT
    x = F.pad(x.permute(0, 2, 3, 1), [0, 0, padding[1], behind[1], padding[0], behind[0]])
    x = x.reshape(count, blocks[0], stride, blocks[1], stride, channels).transpose(2, 3)
    x = F.pad(x.reshape(count, *blocks, -1), [0, more]).permute(0, 3, 1, 2)
    weight = F.pad(weight, [0, missing[1], 0, missing[0]]).reshape(
        outputs, channels, reach[0], stride, reach[1], stride
    )
    weight = weight.permute(0, 3, 5, 1, 2, 4).reshape(outputs, -1, *reach)
    weight = stored(F.pad(weight, [0, 0, 0, 0, 0, more]))
    if _has_kernels(x):
        return convolve_images(x, weight, bias)
    return F.conv2d(x, weight, bias)


def _dense(layer: Any, x: Tensor, run: Pass) -> Tensor:
    weight, bias = run.weights[f"{layer.name}.weight"], run.weights[f"{layer.name}.bias"]
    return F.linear(x, weight.to(x.dtype), bias.to(x.dtype))


def _norm(layer: Any, x: Tensor, run: Pass) -> Tensor:
    name, epsilon = layer.name, float(layer.epsilon)
    gamma, beta = run.weights[f"{name}.gamma"], run.weights[f"{name}.beta"]
    if run.running is not None:
        mean, variance = run.running[f"{name}.mean"], run.running[f"{name}.variance"]
        return F.batch_norm(x, mean, variance, gamma, beta, training=False, eps=epsilon)
    # F.batch_norm updates with the unbiased variance; this returns mean and 1 / sqrt(variance + epsilon).
    output, mean, inverse = torch.native_batch_norm(x, gamma, beta, None, None, True, 0.0, epsilon)
    _observe(layer, run, mean, (inverse.detach().pow(-2) - epsilon).clamp(min=0))
    return output


def _observe(layer: layers.BatchNorm, run: Pass, mean: Tensor, variance: Tensor) -> None:
    run.seen[f"{layer.name}.mean"] = mean.detach()
    run.seen[f"{layer.name}.variance"] = variance.detach()


def _by_kernels(x: Tensor, run: Pass) -> bool:
    """Whether the kernels normalise ``x``: in training, on a GPU, if it is large enough."""
    trains = run.running is None and x.requires_grad
    return bool(torch.version.cuda) and x.is_cuda and trains and x.numel() >= NORMALISED_BY_KERNELS


def _scales(layer: layers.BatchNorm, run: Pass) -> tuple[Tensor, Tensor, float]:
    return run.weights[f"{layer.name}.gamma"], run.weights[f"{layer.name}.beta"], float(layer.epsilon)


def _norm_by_kernels(layer: layers.BatchNorm, x: Tensor, run: Pass, relu: bool) -> Tensor:
    output, mean, variance, _ = normalise(x, *_scales(layer, run), relu)
    _observe(layer, run, mean, variance)
    return output


def _max_pool(layer: Any, x: Tensor, _: Pass) -> Tensor:
    return max_pool(x, layer.kernel, layer.stride, layer.padding, layer.ceil)


def _average_pool(layer: Any, x: Tensor, _: Pass) -> Tensor:
    if x.shape[2:] == (1, 1) and layer.kernel == 2 * layer.padding + 1:
        # One pixel and zeros. Behind a concatenation torch.compile of PyTorch 2.11 makes wrong code of such a
        # pool for a GPU.
        return x / layer.kernel**2
    return F.avg_pool2d(x, layer.kernel, layer.stride, layer.padding, count_include_pad=True)


def _concat(layer: Any, x: Tensor, run: Pass) -> Tensor:
    return torch.cat([compute(branch, x, run) for branch in layer.branches], dim=1)


def _residual(
    layer: layers.Residual, x: Tensor, x_copy: Tensor, run: Pass, twice: bool
) -> tuple[Tensor, Tensor]:
    """The output of a block for ``x``, and an equal tensor for its second use; ``x_copy`` is that of ``x``.

    ``twice``: the output has two uses. If it has one, the mean at the end of a network, the compiler need not
    store it; the gradient of the operators reads it.
    """
    *inner, last = layer.body
    body = compute(inner, x, run)
    if _fuses(last, body, run):
        shortcut = compute(layer.shortcut, x_copy, run)
        y = convolve_add_relu(body, shortcut, *_kernel(last, body, run), last.stride, last.padding)
        return y, y
    if not (twice and isinstance(last, layers.BatchNorm) and _by_kernels(body, run)):
        y = F.relu(compute((last,), body, run) + compute(layer.shortcut, x_copy, run))
        return y, y
    aside = replace(run, seen={})  # the statistics of the body come before those of the shortcut
    *before, end = layer.shortcut or (None,)
    if isinstance(end, layers.BatchNorm):
        x2 = compute(before, x_copy, aside)
        found = normalise_both_and_add(body, *_scales(last, run), x2, *_scales(end, run))
        y, y_copy, mean, variance, _, mean2, variance2, _ = found
        _observe(end, aside, mean2, variance2)
    else:
        shortcut = compute(layer.shortcut, x_copy, aside)
        y, y_copy, mean, variance, _ = normalise_and_add(body, shortcut, *_scales(last, run))
    _observe(last, run, mean, variance)
    run.seen.update(aside.seen)
    return y, y_copy


_LAYERS: dict[type, Callable[[Any, Tensor, Pass], Tensor]] = {
    layers.Conv: _conv,
    layers.Dense: _dense,
    layers.BatchNorm: _norm,
    layers.Relu: lambda layer, x, run: F.relu(x),
    layers.MaxPool: _max_pool,
    layers.AveragePool: _average_pool,
    layers.GlobalAverage: lambda layer, x, run: x.mean(dim=(2, 3)),
    layers.Flatten: lambda layer, x, run: x.flatten(1),
    layers.Dropout: lambda layer, x, run: run.dropout(layer.name, x) if run.dropout else x,
    layers.Concat: _concat,
}


class Statistics:
    """The running statistics of a network, on the device."""

    def __init__(self, network: Sequence[layers.Layer], make: Callable[[Any], Tensor]) -> None:
        self.named = {name: make(value) for name, value in folding.initial_statistics(network).items()}
        self._weights = [1 - decay for decay in folding.decays(network)]

    @torch.no_grad()
    def update(self, seen: Sequence[Tensor]) -> None:
        """Update with the statistics of a batch, in the order of ``named``."""
        if self._weights:
            torch._foreach_lerp_(list(self.named.values()), list(seen), self._weights)
