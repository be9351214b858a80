"""Quality runs of the detector start from a published backbone, and all frameworks from the same arrays."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from suite.common import weights
from suite.common.stream import digest_arrays
from suite.contract import BadData
from suite.datasets import catalogue as registry
from suite.datasets import coco_weights, prepare, torch_checkpoint
from suite.datasets.catalogue import Weights
from suite.datasets.errors import DatasetCorrupt, DatasetError
from suite.environments import environments
from suite.workloads.faster_rcnn import backbone, spec
from tests.equivalence.case import FRAMEWORKS
from tests.equivalence.compare import in_norm
from tests.equivalence.faster_rcnn_start import DIMS, job
from tests.equivalence.interpreters import run

MODULE = "tests.equivalence.faster_rcnn_start"


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    done = run("pytorch", MODULE, "publish", str(folder))
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


@pytest.fixture(scope="module")
def tensors(checkpoints: Path) -> Mapping[str, Any]:
    """What is read from new.pth, once: each reading starts PyTorch."""
    return MappingProxyType(torch_checkpoint.read(checkpoints / "new.pth"))


@pytest.fixture(scope="module")
def published(checkpoints: Path, tensors: Mapping[str, Any]) -> Path:
    """The folder of the checkpoints, with the converted arrays."""
    arrays = backbone.converted(dict(tensors), DIMS, "new.pth")
    np.savez(checkpoints / backbone.FILE, **arrays)  # type: ignore[arg-type]
    return checkpoints


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backbone, "TRAINED", ("mini",))


def test_both_file_formats_of_checkpoint_are_read(published: Path, tensors: Mapping[str, Any]) -> None:
    new, old = tensors, torch_checkpoint.read(published / "old.pth")
    assert set(new) == set(old)
    assert new["layer4.0.downsample.1.num_batches_tracked"].dtype == np.int64
    assert all((new[name] == old[name]).all() for name in new)
    parameters = torch_checkpoint.read(published / "parameters.pth")
    assert {name for name in new if "running" not in name and "batches" not in name} == set(parameters)
    with np.load(published / "views.npz") as views:
        found = torch_checkpoint.read(published / "views.pth")
        assert {name: found[name].tolist() for name in found} == {
            name: views[name].tolist() for name in views
        }
        assert found["half"].dtype == np.float16


class Call:
    def __reduce__(self) -> Any:
        return print, ("called",)


@pytest.mark.parametrize("case", ["other", "call", "cut off", "empty", "text"])
def test_checkpoint_without_tensors_is_refused(
    published: Path, tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    content = {
        "other": (published / "other.pth").read_bytes(),
        "call": pickle.dumps({"conv1.weight": Call()}, 2),
        "cut off": (published / "old.pth").read_bytes()[:-1000],
        "empty": b"",
        "text": b"<html>not found</html>",
    }[case]
    path = tmp_path / "a.pth"
    path.write_bytes(content)
    with pytest.raises(DatasetCorrupt, match=r"a\.pth: expected tensors by name, saved by PyTorch, found"):
        torch_checkpoint.read(path)
    assert "called" not in capsys.readouterr().out


def test_missing_pytorch_environment_error_names_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "ROOT", tmp_path)  # a project without locks
    with pytest.raises(DatasetError, match="make environments FRAMEWORK=pytorch"):
        torch_checkpoint.read(tmp_path / "a.pth")


def test_missing_tensor_is_named(tensors: Mapping[str, Any]) -> None:
    found = dict(tensors)
    del found["layer3.1.bn2.running_var"]
    with pytest.raises(BadData, match=r"x: expected a tensor 'layer3\.1\.bn2\.running_var', found none"):
        backbone.converted(found, DIMS, "x")
    found = dict(tensors)
    found["conv1.weight"] = found["conv1.weight"][:, :2]
    with pytest.raises(
        BadData, match=r"stem\.conv\.weight: expected finite float32 \[16, 3, 7, 7\], found .*16, 2"
    ):
        backbone.converted(found, DIMS, "x")


def test_only_published_checkpoint_is_accepted(published: Path, tmp_path: Path) -> None:
    path = published / "new.pth"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(DatasetCorrupt, match=r"new\.pth: expected sha256 00000000…, found"):
        coco_weights.convert(Weights("http://x/new.pth", None, "0" * 8), path, tmp_path)
    with pytest.raises(DatasetError, match=r"new\.pth: expected a tensor 'layer1\.1\.conv1\.weight'"):
        coco_weights.convert(Weights("http://x/new.pth", None, digest[:8]), path, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_published_checkpoint_is_converted_beside_dataset(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spec, "dimensions", lambda *_: DIMS)  # the checkpoint is of the small network
    digest = hashlib.sha256((published / "old.pth").read_bytes()).hexdigest()
    found = coco_weights.convert(
        Weights("http://x/old.pth", None, digest[:8]), published / "old.pth", tmp_path
    )
    assert found == digest
    assert [path.name for path in tmp_path.iterdir()] == [backbone.FILE]
    one, two = (backbone.read(folder, DIMS) for folder in (tmp_path, published))
    assert digest_arrays(one) == digest_arrays(two)
    entry = replace(registry.entry("coco-2017"), weights=Weights("http://x/old.pth", None, digest[:8]))
    assert prepare.missing_weights(entry, tmp_path) is None
    assert coco_weights.start_digest(tmp_path) == backbone.Start(DIMS, two).digest()


def test_all_frameworks_start_from_same_arrays(published: Path, tmp_path: Path, trained: None) -> None:
    found: dict[str, dict[str, Any]] = {}
    for framework in FRAMEWORKS:
        file = tmp_path / f"{framework}.npz"
        done = run(framework, MODULE, "start", framework, str(published), str(file))
        assert done.returncode == 0, done.stderr[-4000:]
        with np.load(file) as arrays:
            found[framework] = dict(arrays)
    expected = backbone.Start.of(job("pytorch", "fp32", published)).digest()
    fixed = spec.frozen(DIMS)
    for framework, arrays in found.items():

        def part(kind: str, arrays: dict[str, Any] = arrays) -> dict[str, Any]:
            return {n.removeprefix(f"{kind}/"): v for n, v in arrays.items() if n.startswith(f"{kind}/")}

        assert digest_arrays(part("initial")) == digest_arrays(part("reset")) == expected, framework
        stepped = part("stepped")
        still = {n for n, v in part("initial").items() if (v == stepped[n]).all()}
        norms = {n for n in stepped if n.endswith((".scale", ".shift"))}
        assert still == {*fixed, *norms}, framework
        assert in_norm(found["pytorch"]["outputs"], arrays["outputs"]) <= 1e-8, framework
    with np.load(published / "features.npz") as features:
        for number in range(5):
            apart = in_norm(features[f"arr_{number}"], found["pytorch"][f"feature/{number}"])
            assert apart <= 1e-6, f"stage {number}: {apart}"


def test_throughput_runs_start_from_frozen_stream(published: Path, trained: None) -> None:
    quality = job("pytorch", "fp32", published)
    throughput = replace(quality, mode="throughput")
    frozen = weights.digest(spec.NAME, spec.parameters(DIMS))
    assert backbone.Start.of(throughput).digest() == frozen != backbone.Start.of(quality).digest()
    assert backbone.is_trained(replace(quality, key=replace(quality.key, scale="mini")))
    with pytest.raises(
        BadData, match=r"backbone\.npz: expected the weights of a trained backbone, found no file"
    ):
        backbone.Start.of(replace(quality, data_dir="/nowhere"))


def test_reference_quality_needs_the_file_and_mini_does_not(tmp_path: Path) -> None:
    quality = job("pytorch", "fp32", tmp_path)
    assert not backbone.is_trained(quality)
    reference = replace(quality, key=replace(quality.key, scale="reference"))
    with pytest.raises(BadData, match="`make data WORKLOAD=faster_rcnn` fetches the published weights"):
        backbone.Start.of(reference)
    (tmp_path / backbone.FILE).write_bytes(b"PK")
    with pytest.raises(BadData, match=r"backbone\.npz: expected arrays, found .*; remove it"):
        backbone.Start.of(reference)


def test_published_network_file_has_expected_arrays() -> None:
    shapes = backbone.shapes(spec.dimensions("reference", "r50-fpn"))
    assert len(shapes) == 53 * 3
    # 106,240 numbers in four vectors of each normalisation come to half as many in two.
    norms = sum(shape[0] for name, shape in shapes.items() if name.endswith((".scale", ".shift")))
    assert norms == 106_240 // 2
    kernels = sum(int(np.prod(shape)) for name, shape in shapes.items() if name.endswith(".weight"))
    assert kernels == 25_557_032 - 2_049_000 - norms
