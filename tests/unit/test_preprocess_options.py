"""The options of ``suite preprocess``: their translation to options of ``run``, and refused combinations."""

from __future__ import annotations

from pathlib import Path

import pytest

from suite.cli import main
from suite.cli.preprocess import translate
from suite.plan.errors import BadConfiguration

REFUSED = [
    (("to=recordoi",), 10, "did you mean recordio?"),
    (("framework=mxnet",), 10, "framework: expected to="),
    (("phase=train",), 10, "phase: expected to="),
    (("measure=perhaps",), 10, "measure: expected one of true, false"),
    (("workload=gnmt",), 10, "gnmt reads wmt16-mini"),
    (("workload=resnet50_cifar10",), 10, "resnet50_cifar10 reads cifar-10-mini"),
    (("workload=faster_rcnn",), 10, "faster_rcnn reads coco-mini"),
    (("precision=bf16",), 10, "expected fp32, found bf16"),
    (("loader=dali",), 10, "expected native, found dali"),
    (("data=synthetic",), 10, "expected real, found synthetic"),
    (("mode=quality",), 10, "expected throughput, found quality"),
    (("scenario=single_stream",), 10, "expected offline, found single_stream"),
    (("storage=files",), 10, "storage: expected to="),
    (("batch=max",), 10, "no largest batch"),
    (("variant=v1.5",), 10, "variant: a conversion has no model"),
    (("devices=2",), 11, "devices: expected 1, found 2"),
    (("workload.hyper.rate=1",), 10, "workload.hyper: a conversion has no model"),
    (("resize=256",), 10, "encode: expected resize=<pixels> and encode=<raw or jpeg> together"),
    (("encode=raw",), 10, "resize: expected resize=<pixels>"),
    (("resize=0", "encode=raw"), 10, "resize: expected a number of pixels from 1 to 4096, found 0"),
    (("resize=256", "encode=png"), 10, "encode: expected one of raw, jpeg"),
    (("scale=reference",), 12, "make data WORKLOAD=resnet50 FROM=path"),
]


@pytest.mark.parametrize(("options", "code", "message"), REFUSED, ids=[" ".join(case[0]) for case in REFUSED])
def test_invalid_conversion_is_refused(
    options: tuple[str, ...], code: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"workload": "resnet50", "to": "recordio", "scale": "mini"}
    settings |= dict(option.split("=", 1) for option in options)
    settings |= {"results_dir": str(tmp_path / "results"), "data_root": str(tmp_path / "data")}
    assert main(["preprocess", *(f"{name}={value}" for name, value in settings.items())]) == code
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("storage", "framework"),
    [("recordio", "mxnet"), ("tfrecord", "tensorflow"), ("lmdb", "pytorch"), ("arrayrecord", "jax")],
)
def test_storage_format_selects_the_framework(storage: str, framework: str) -> None:
    options, measure, encoding = translate(
        ["workload=vgg16", f"to={storage}", "cache=cold", "framework.threads=2"]
    )
    wanted = ["workload=vgg16", "cache=cold", "framework.threads=2", f"storage={storage}"]
    assert (options, measure, encoding) == ([*wanted, f"framework={framework}"], True, "file")
    assert translate([f"to={storage}", "measure=false"])[1] is False


def test_resize_and_encode_are_one_encoding() -> None:
    assert translate(["to=lmdb", "resize=256", "encode=raw"])[2] == "raw-256"
    assert translate(["to=lmdb", "resize=64", "encode=jpeg"])[2] == "jpeg-64"


def test_conversion_needs_a_storage_format() -> None:
    with pytest.raises(BadConfiguration, match="to=<one of arrayrecord, lmdb, recordio, tfrecord>"):
        translate(["workload=resnet50"])
