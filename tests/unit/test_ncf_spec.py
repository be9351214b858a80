"""NCF's specification against the numbers of its publications, and its initial weights."""

from __future__ import annotations

import numpy as np
import pytest

from suite.common import weights
from suite.common.support import unsupported
from suite.contract import Key, Parameter
from suite.workloads import specification
from suite.workloads.ncf import spec


def key(**changes: object) -> Key:
    values: dict[str, object] = {
        "workload": "ncf",
        "framework": "pytorch",
        "phase": "train",
        "scenario": "offline",
        "precision": "fp32",
        "batch": 65_536,
        "devices": 1,
        "scale": "reference",
        "data": "synthetic",
        "cache": "warm",
        "variant": "f64",
    }
    return Key(**(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("variant", "parameters", "macs"), [("f8", 392_601, 2_712), ("f64", 1_978_305, 106_688)]
)
def test_published_sizes(variant: str, parameters: int, macs: int) -> None:
    dims = spec.dimensions("reference", variant)
    assert sum(parameter.size for parameter in spec.parameters(dims)) == parameters
    assert spec.forward_macs(dims) == macs


def test_mini_model_has_same_tensors_with_smaller_tables() -> None:
    for variant in ("f8", "f64"):
        mini = {p.name: p.shape for p in spec.parameters(spec.dimensions("mini", variant))}
        full = {p.name: p.shape for p in spec.parameters(spec.dimensions("reference", variant))}
        assert list(mini) == list(full)
        differ = {name for name in mini if mini[name] != full[name]}
        assert differ == {"mf.user", "mf.item", "mlp.user", "mlp.item"}


def test_unknown_variant_is_named() -> None:
    with pytest.raises(ValueError, match="found scale 'mini', variant 'f9'"):
        spec.dimensions("mini", "f9")


def test_window_flop_and_bytes() -> None:
    train, infer = key(), key(phase="infer")
    assert spec.units(train, 1) == (65_536,) * 110
    assert spec.units(key(devices=4), 1) == (262_144,) * 110
    assert spec.window_flop(infer) == 2 * 106_688 * 65_536 * 100
    assert spec.window_flop(train) == 3 * spec.window_flop(infer)
    assert spec.window_bytes(train) == 100 * (12 * 65_536 + 24 * 1_978_305)
    assert spec.window_bytes(infer) == 100 * (12 * 65_536 + 4 * 107_073)  # without embeddings
    assert spec.window_bytes(key(phase="infer", precision="bf16")) < spec.window_bytes(infer)


def test_rate_drops_at_given_steps() -> None:
    hyper = spec.hyperparameters("mini", "f8")
    assert spec.recipe_rate(hyper, 10_000) == 1e-3
    dropped = hyper | {"rate_drops": "2:0.5 5:0.1"}
    rates = [spec.recipe_rate(dropped, step) for step in (0, 1, 2, 4, 5)]
    assert rates == [1e-3, 1e-3, 5e-4, 5e-4, pytest.approx(5e-5)]


def test_specification_is_registered() -> None:
    assert specification("ncf").NAME == "ncf"


def test_initial_weights_follow_the_specification() -> None:
    dims = spec.dimensions("mini", "f8")
    found = dict(weights.initial("ncf", spec.parameters(dims)))
    assert [array.shape for array in found.values()] == [p.shape for p in spec.parameters(dims)]
    assert all(array.dtype == np.float32 for array in found.values())
    assert abs(float(found["mlp.user"].std()) - 0.01) < 2e-4
    assert abs(float(found["mlp.user"].mean())) < 2e-4
    limit = (6 / 96) ** 0.5
    assert limit * 0.99 < float(np.abs(found["mlp.1.weight"]).max()) <= limit
    assert not found["mlp.1.bias"].any()
    assert (found["mf.user"] != found["mf.item"][: dims.users]).any()


def test_initial_weights_are_frozen() -> None:
    """The initial weights of every result: if this digest changes, results are no longer comparable."""
    dims = spec.dimensions("mini", "f8")
    assert weights.digest("ncf", spec.parameters(dims)) == DIGEST


DIGEST = "e24b3e46682eeef084a1594c92853e35dfd3d443918cdb3bee02a214343cdd21"


def test_unknown_init_is_named() -> None:
    with pytest.raises(ValueError, match="found orthogonal"):
        weights.digest("ncf", [Parameter("w", (2,), "orthogonal", "1")])


def test_precisions_are_refused_where_they_cannot_run() -> None:
    assert unsupported(key(precision="bf16"), "cpu") is None
    assert unsupported(key(precision="tf32"), "cuda:0") is None
    assert "tf32" in str(unsupported(key(precision="tf32"), "cpu"))
    assert "fp16" in str(unsupported(key(precision="fp16"), "cpu"))
    assert "fp32" in str(unsupported(key(framework="mxnet", precision="bf16"), "cpu"))
    assert "found caffe" in str(unsupported(key(framework="caffe"), "cpu"))
    assert "found tpu" in str(unsupported(key(), "tpu"))
