"""The five studies as sweeps: every workload, batch, axis and strategy of each, from tables written here."""

from __future__ import annotations

import re
from functools import cache
from itertools import product
from pathlib import Path

import pytest

from suite import workloads
from suite.cli.overrides import check_overrides
from suite.contract.traits import framework_names
from suite.plan.errors import BadConfiguration
from suite.plan.options import by_name
from suite.sweep import studies
from suite.sweep.grid import with_axes
from suite.sweep.studies import SWEEPS

NAMES = ("gpu_cloud", "mxnet_hardware", "p100_scaling", "tensorflow_2017", "titan_rtx_2019")
Row = tuple[str | int, ...]
read_sweep = cache(studies.read_sweep)


def rows(study: str, *names: str, skip: bool = False, **only: str) -> set[Row]:
    """The values of the options ``names`` of the cells that are not skipped, where ``only`` holds."""
    found = set()
    for cell in read_sweep(study).cells:
        if bool(cell.skip) == skip and all(cell.value(name) == value for name, value in only.items()):
            values = [cell.value(name) or "" for name in names]
            found.add(tuple(int(value) if value.isdecimal() else value for value in values))
    return found


@pytest.mark.parametrize(
    ("text", "where"),
    [("cells: [ncf]", "cells"), ("cells: {workload: ncf}", "cells"), ("cells: 5", "cells"),
     ("cells: []\nsettings: [1]", "settings")],
)  # fmt: skip
def test_malformed_sweep_is_refused(text: str, where: str, tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(text)
    with pytest.raises(BadConfiguration, match=rf"^my.yaml, {where}: expected"):
        studies.read_sweep(str(path))


def test_there_is_one_sweep_for_each_study() -> None:
    assert tuple(sorted(path.stem for path in SWEEPS.glob("*.yaml"))) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_cells_have_valid_options_of_the_published_models(name: str) -> None:
    study = read_sweep(name)
    assert study.note
    assert len(set(study.cells)) == len(study.cells)
    for cell in study.cells:
        if cell.skip:
            continue
        assert cell.value("scale") == "reference"
        assert cell.value("precision") in by_name()["precision"].choices()
    given = {one for cell in study.cells if not cell.skip for one in cell.options}
    for option in sorted(given):  # each once: a check of Hydra's grammar takes milliseconds
        if not option.startswith(("workload=", "framework=", "disk=")):
            check_overrides(["workload=ncf", "framework=pytorch", option])
    assert {cell.value("workload") for cell in study.cells} <= set(workloads.names())
    assert {cell.value("framework") for cell in study.cells} <= set(framework_names())


# Study A: platform -> network -> (batches, update of variables); then devices.
PS_CPU, NCCL, NO_NCCL, PS_GPU = "ps cpu", "nccl", "no nccl", "ps gpu"
UPDATE = {
    PS_CPU: ("parameter_server", "cpu"),
    NCCL: ("allreduce", "nccl"),
    NO_NCCL: ("allreduce", "ring"),
    PS_GPU: ("parameter_server", "device"),
}
INCEPTION, R50, R152, ALEXNET, VGG = "inception_v3", "resnet50", "resnet152", "alexnet", "vgg16"
ONE_MACHINE = {
    "P100": {
        INCEPTION: ((64, 32), PS_CPU),
        R50: ((64, 32), PS_CPU),
        R152: ((64, 32), PS_CPU),
        ALEXNET: ((512,), NCCL),
        VGG: ((64, 32), NCCL),
    },
    "GCE": {
        INCEPTION: ((64, 32), PS_CPU),
        R50: ((64, 32), PS_CPU),
        R152: ((32,), PS_CPU),
        ALEXNET: ((512,), PS_CPU),
        VGG: ((32,), PS_CPU),
    },
    "EC2": {
        INCEPTION: ((64, 32), PS_CPU),
        R50: ((64, 32), NO_NCCL),
        R152: ((32,), NO_NCCL),
        ALEXNET: ((512,), PS_GPU),
        VGG: ((32,), PS_GPU),
    },
}


def study_a() -> set[Row]:
    found: set[Row] = set()
    for platform, networks in ONE_MACHINE.items():
        for network, (batches, update) in networks.items():
            for batch, devices, data in product(batches, (1, 2, 4, 8), ("synthetic", "real")):
                if (network, devices, data) == (ALEXNET, 8, "real") and platform != "GCE":
                    continue  # it saturated the input pipeline or the network disk
                how = UPDATE[update] if devices > 1 else ("", "")
                found.add((network, batch, devices, "", data, *how))
    for network, batches in {INCEPTION: (64, 32), R50: (64, 32), R152: (32,)}.items():
        for batch, devices in product(batches, (16, 32, 64)):  # 1 and 8 are one machine
            found.add((network, batch, devices, devices // 8, "synthetic", "parameter_server", ""))
    return found


def test_tensorflow_2017_has_every_batch_device_and_update_of_variables() -> None:
    names = ("workload", "batch", "devices", "nodes", "data", "strategy", "collective")
    for framework in framework_names():
        assert rows("tensorflow_2017", *names, framework=framework) == study_a()
    assert rows("tensorflow_2017", "phase", "precision") == {("train", "fp32")}


# Published images/s of study A: synthetic, real (None: left out).
PUBLISHED = {
    ("P100, DGX-1", INCEPTION, 64, 1): (142, 142),
    ("P100, DGX-1", INCEPTION, 64, 8): (1131, 1079),
    ("P100, DGX-1", R50, 64, 2): (422, 425),
    ("P100, DGX-1", R50, 32, 8): (1485, 1410),
    ("P100, DGX-1", R152, 64, 1): (91.8, 91.4),
    ("P100, DGX-1", R152, 32, 4): (317, 317),
    ("P100, DGX-1", ALEXNET, 512, 4): (10509, 7105),
    ("P100, DGX-1", ALEXNET, 512, 8): (17822, None),
    ("P100, DGX-1", VGG, 64, 8): (1081, 898),
    ("P100, DGX-1", VGG, 32, 1): (144, 144),
    ("K80, Google Compute Engine", INCEPTION, 64, 1): (30.5, 30.6),
    ("K80, Google Compute Engine", ALEXNET, 512, 8): (4640, 4056),
    ("K80, Google Compute Engine", R152, 32, 8): (148, 148),
    ("K80, EC2", VGG, 32, 8): (260, 242),
    ("K80, EC2", ALEXNET, 512, 8): (4853, None),
    ("K80, EC2", R50, 64, 8): (384, 373),
    ("K80, EC2 over machines", R50, 64, 1): (52.4, None),
    ("K80, EC2 over machines", R152, 32, 8): (146, None),
    ("K80, EC2 over machines", INCEPTION, 64, 64): (1783, None),
    ("K80, EC2 over machines", R50, 64, 32): (1388, None),
}


@pytest.mark.parametrize(("cell", "figures"), PUBLISHED.items(), ids=str)
def test_published_figure_is_beside_the_cell_that_it_was_measured_for(
    cell: tuple[str, str, int, int], figures: tuple[float, float | None]
) -> None:
    platform, network, batch, devices = cell
    study = read_sweep("tensorflow_2017")
    for data, figure in zip(("synthetic", "real"), figures, strict=True):
        wanted = {"workload": network, "batch": str(batch), "devices": str(devices), "data": data}
        shown = {
            one.value
            for candidate in study.cells
            if all(candidate.value(name) == value for name, value in wanted.items())
            for one in study.published
            if one.platform == platform and one.describes(candidate.values)
        }
        assert shown == ({figure} if figure is not None else set())


def test_every_published_figure_belongs_to_a_cell() -> None:
    study = read_sweep("tensorflow_2017")
    assert len(study.published) == 125
    assert all(any(one.describes(cell.values) for cell in study.cells) for one in study.published)


def test_no_published_figure_is_beside_a_small_model() -> None:
    study = read_sweep("tensorflow_2017")
    small = with_axes(study.cells, {"scale": ("mini",)})
    assert not any(one.describes(cell.values) for cell in small for one in study.published)


def test_titan_rtx_2019_has_the_batches_of_training_and_inference() -> None:
    names = ("workload", "phase", "batch", "precision")
    for framework in ("tensorflow", "pytorch", "mxnet"):
        smaller = {("resnet50", "train", 208, "fp32")} if framework == "mxnet" else set()
        assert rows("titan_rtx_2019", *names, framework=framework) == {
            ("resnet50_cifar10", "train", 128, "fp32"),
            ("resnet50_cifar10", "infer", 64, "fp32"),
            ("vgg16", "train", 128, "fp32"),
            ("vgg16", "infer", 64, "fp32"),
            ("faster_rcnn", "train", 1, "fp32"),
            ("faster_rcnn", "infer", 1, "fp32"),
            ("gnmt", "train", 128, "fp32"),
            ("gnmt", "train", 128, "fp16"),
            ("gnmt", "infer", 128, "fp32"),
            ("ncf", "train", 256, "fp32"),
            ("ncf", "train", 256, "fp16"),
            ("ncf", "infer", 100, "fp32"),
            ("word2vec", "train", 256, "fp32"),
            ("resnet50", "train", 256, "fp32"),
            ("resnet50", "train", 256, "fp16"),
            ("resnet50", "infer", 256, "fp32"),
            ("resnet50", "infer", 256, "fp16"),
            *smaller,
        }
    assert rows("titan_rtx_2019", "data", "devices") == {("real", 1)}
    assert {framework for (framework,) in rows("titan_rtx_2019", "framework")} == {
        *("tensorflow", "pytorch", "mxnet"),
    }


def test_gpu_cloud_has_processors_memory_disks_and_names_what_cannot_run() -> None:
    images = {"alexnet", "googlenet", "resnet50", "vgg16", "inception_v3"}
    over = rows("gpu_cloud", "workload", "phase", "runtime.cpus", "runtime.memory", disk="")
    assert over == set()  # a cell without a disk has no such option
    limits = {
        row for row in rows("gpu_cloud", "workload", "phase", "runtime.cpus", "runtime.memory") if row[2]
    }
    both = ("train", "infer")
    assert limits == {
        *product(images, both, (1, 2, 4, 8), ("8g", "15g", "30g", "60g")),
        *product(("lstm_ptb",), both, (1, 2, 4), ("1g", "2g", "4g")),
    }
    disks = {row for row in rows("gpu_cloud", "workload", "phase", "disk") if row[2]}
    assert disks == {*product(("googlenet",), both, ("nvme", "cloud_ssd", "slow_cloud"))}
    assert rows("gpu_cloud", "data", "devices") == {("real", 1)}
    skipped = rows("gpu_cloud", "workload", "phase", "storage", "disk", skip=True)
    assert skipped == {
        *product(images - {"inception_v3"}, ("train",), ("",), ("",)),
        *product(("googlenet",), ("preprocess",), ("lmdb", "recordio"), ("nvme", "cloud_ssd", "slow_cloud")),
    }


def test_p100_scaling_has_the_pivot_and_the_curves() -> None:
    names = ("workload", "phase", "data", "batch", "devices")
    assert rows("p100_scaling", *names) == {
        *product(
            ("alexnet", "googlenet", "resnet50"),
            ("train",),
            ("real",),
            (32, 64, 128, 256, 512, 1024),
            (1, 2, 4, 8),
        ),
        *product(("inception_v3",), ("train",), ("synthetic",), ("",), range(1, 9)),
        *product(("resnet50_cifar10",), ("train",), ("real",), ("",), range(1, 9)),
        *product(("alexnet",), ("train", "infer"), ("synthetic",), ("",), (1,)),
    }


def test_mxnet_hardware_has_equal_loads_and_the_batch_that_two_hold() -> None:
    assert rows("mxnet_hardware", "workload", "batch", "devices") == {
        *product(("inception_bn_small",), (128,), (1, 2, 3, 4)),
        *product(("vgg16",), (32, 64, 128), (1, 2)),
        ("vgg16", 16, 2),
    }
    assert rows("mxnet_hardware", "phase", "data") == {("train", "real")}


def test_dry_run_lists_every_cell_and_the_reason_of_those_that_cannot_run(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from suite.cli import main

    given = ("--sweep", "gpu_cloud", "--framework", "mxnet", "--results-dir", str(tmp_path), "--dry")
    assert main(["sweep", *given, "runtime=native"]) == 0
    printed = capfd.readouterr().out.splitlines()
    lines = [line for line in printed if re.match(r"(skipped|to run) ", line)]
    assert len(lines) == 16 * 5 * 2 + 9 * 2 + 2 * 3 + 4 + 6
    shared = dict(line.split(" ", 1) for line in printed[len(lines) :])  # number: reason
    assert all(re.fullmatch(r"\[\d+\]", number) for number in shared)
    reasons = [shared.get(line.split("  ")[-1], line) for line in lines if line.startswith("skipped")]
    for reason in (
        "runtime native cannot enforce a limit",
        "a run measures 100 steps",
        "make preprocess",
        "DISKS",
    ):
        assert any(reason in one for one in reasons)
    assert not list(tmp_path.iterdir())
