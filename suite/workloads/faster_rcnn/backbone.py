"""Initial weights of the detector: the frozen stream, or a trained backbone (quality, reference scale).

The published recipe starts from a ResNet-50 trained on ImageNet. The host converts the published checkpoint
to ``backbone.npz`` beside the dataset: the backbone's kernels by canonical name, and scale and shift of each
frozen normalisation. Throughput runs use the frozen stream, which needs no file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.common import layers, weights
from suite.common.stream import digest_arrays
from suite.contract import BadData, Job
from suite.workloads.faster_rcnn import spec

Arrays = dict[str, NDArray[Any]]
Norms = dict[str, tuple[NDArray[np.float32], NDArray[np.float32]]]

FILE = "backbone.npz"
TRAINED = ("reference",)  # scales whose quality runs start from a trained backbone
EPSILON = 1e-5  # torchvision's frozen normalisation
_BLOCK = re.compile(r"stage(\d+)\.(\d+)\.(\d+|shortcut)")


def is_trained(job: Job) -> bool:
    """Whether ``job`` starts from a trained backbone."""
    return job.mode == "quality" and job.key.scale in TRAINED


class Start:
    """Initial values for networks of size ``dims``: ``stored`` (see :func:`read`) over the frozen stream."""

    def __init__(self, dims: spec.Dimensions, stored: Arrays) -> None:
        self._dims, self._stored = dims, stored

    @classmethod
    def of(cls, job: Job) -> Start:
        """The initial values of ``job``, equal in every framework. BadData for a bad file."""
        dims = spec.dimensions(job.key.scale, job.key.variant)
        return cls(dims, read(Path(job.data_dir), dims) if is_trained(job) else {})

    def weights(self) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """Every parameter's name and initial value, in the specification's order."""
        for name, value in weights.initial(spec.NAME, spec.parameters(self._dims)):
            yield name, self._stored.get(name, value)

    def norms(self) -> Norms:
        """Scale and shift [channels] of each frozen normalisation."""
        if not self._stored:
            scales, channels = spec.norm_scales(self._dims), norm_channels(self._dims)
            return {
                name: (np.full(channels[name], scale, np.float32), np.zeros(channels[name], np.float32))
                for name, scale in scales.items()
            }
        names = norm_channels(self._dims)
        return {name: (self._stored[f"{name}.scale"], self._stored[f"{name}.shift"]) for name in names}

    def fixed(self) -> Arrays:
        """The trained normalisations by name, so that the digest of the parameters covers them.

        Empty without a trained backbone: the specification then defines the normalisations.
        """
        names = {f"{name}.{part}" for name in norm_channels(self._dims) for part in ("scale", "shift")}
        return {name: value for name, value in self._stored.items() if name in names}

    def digest(self) -> str:
        """SHA-256 of all initial values, as the log records it."""
        return digest_arrays({**dict(self.weights()), **self.fixed()})


def norm_channels(dims: spec.Dimensions) -> dict[str, int]:
    """The channels of each frozen normalisation by name."""
    return {norm.name: norm.channels for part in spec.backbone(dims) for norm in layers.statistics(part)}


def shapes(dims: spec.Dimensions) -> dict[str, tuple[int, ...]]:
    """The shape of every array of the file by name."""
    kernels = [p for part in spec.backbone(dims) for p in layers.parameters(spec.convolutions(part))]
    arrays = {p.name: p.shape for p in kernels}
    for name, channels in norm_channels(dims).items():
        arrays |= {f"{name}.scale": (channels,), f"{name}.shift": (channels,)}
    return arrays


def read(folder: Path, dims: spec.Dimensions) -> Arrays:
    """The arrays of the file in ``folder``; BadData where it is missing, unreadable or of other shapes."""
    fix = "`make data WORKLOAD=faster_rcnn` fetches the published weights"
    try:
        with np.load(folder / FILE) as stored:
            found = {name: stored[name] for name in stored.files}
    except FileNotFoundError:
        raise BadData(f"{FILE}: expected the weights of a trained backbone, found no file; {fix}") from None
    except (OSError, ValueError, EOFError, KeyError) as error:
        raise BadData(f"{FILE}: expected arrays, found {error!r}; remove it: {fix}") from error
    require(found, dims, FILE)
    return found


def require(found: Mapping[str, NDArray[Any]], dims: spec.Dimensions, where: str) -> None:
    """BadData unless ``found`` has exactly the arrays of :func:`shapes`, float32 and finite."""
    expected = shapes(dims)
    if odd := sorted(set(expected) ^ set(found)):
        problem = "is missing" if odd[0] in expected else "is not expected"
        raise BadData(f"{where}: expected {len(expected)} arrays, found {len(found)}: {odd[0]} {problem}")
    for name, shape in expected.items():
        value = found[name]
        if value.shape != shape or value.dtype != np.float32 or not np.isfinite(value).all():
            kind = f"{value.dtype} {list(value.shape)}"
            raise BadData(f"{where}: {name}: expected finite float32 {list(shape)}, found {kind}")


# From the published checkpoint


def converted(published: Mapping[str, NDArray[Any]], dims: spec.Dimensions, where: str) -> Arrays:
    """The arrays of the file, from a ``state_dict`` of torchvision's ResNet; BadData where one is missing.

    The classifier is left out. Normalisations are folded as in torchvision's detector: the scale is
    gamma / sqrt(variance + epsilon), the shift beta - mean * scale.
    """
    arrays: Arrays = {}
    try:
        for part in spec.backbone(dims):
            for conv in spec.convolutions(part):
                arrays[f"{conv.name}.weight"] = published[f"{_torchvision_name(conv.name)}.weight"].astype(
                    np.float32
                )
        for name in norm_channels(dims):
            prefix = _torchvision_name(name)
            parts = ("weight", "bias", "running_mean", "running_var")
            gamma, beta, mean, variance = (published[f"{prefix}.{part}"].astype(np.float64) for part in parts)
            scale = gamma / np.sqrt(variance + EPSILON)
            arrays[f"{name}.scale"] = scale.astype(np.float32)
            arrays[f"{name}.shift"] = (beta - mean * scale).astype(np.float32)
    except KeyError as error:
        raise BadData(f"{where}: expected a tensor {error}, found none") from error
    require(arrays, dims, where)
    return arrays


def _torchvision_name(name: str) -> str:
    """The name in torchvision of the convolution ("….conv") or normalisation ("….norm") ``name``."""
    unit, _, kind = name.rpartition(".")
    if unit == "stem":
        return "conv1" if kind == "conv" else "bn1"
    match = _BLOCK.fullmatch(unit)
    if match is None:
        raise ValueError(f"{spec.NAME}: {name} is not in the backbone")
    stage, block, at = match.groups()
    if at == "shortcut":
        return f"layer{stage}.{block}.downsample.{0 if kind == 'conv' else 1}"
    return f"layer{stage}.{block}.{'conv' if kind == 'conv' else 'bn'}{int(at) + 1}"
