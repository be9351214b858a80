"""Words to settings to a plan, without starting anything."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from suite import workloads
from suite.plan import prepare
from suite.plan.errors import (
    BadConfiguration,
    DatasetProblem,
    EnvironmentProblem,
    Refusal,
    RuleProblem,
    Unsupported,
)
from suite.plan.machine import Gpu, Machine
from suite.plan.plan import Plan
from suite.plan.resolve import resolve
from suite.plan.settings import PLACES, WORDS, Settings, validate
from suite.runtime.engines import Found
from suite.runtime.native import PROJECT, NativeInputs, native_command
from suite.runtime.workers import NativeWorkers
from suite.workloads import specification

LAPTOP = Machine(cores=2, gpus=(), visible=None)
SERVER = Machine(cores=16, gpus=(Gpu("GPU-1", "NVIDIA H200", 141 << 30),) * 2, visible=None)


def settings(*words: str, workload: str = "ncf", framework: str = "pytorch") -> Settings:
    with initialize_config_dir(version_base="1.3", config_dir=str(PROJECT / "conf")):
        overrides = [f"workload={workload}", f"framework={framework}", *words]
        tree = OmegaConf.to_container(compose("run", overrides), resolve=True)
    assert isinstance(tree, dict)
    return validate({str(name): value for name, value in tree.items()}, tuple(overrides))


def no_engine(wanted: str, need_gpu: bool) -> Found:
    return Found(None, (f"{wanted}: not in this test",))


def planned(chosen: Settings, machine: Machine = LAPTOP) -> Plan:
    return resolve(chosen, machine, no_engine)


def refusal_of(chosen: Settings) -> str | None:
    try:
        planned(chosen)
    except Refusal as error:
        return str(error)
    return None


def test_a_laptop_gets_mini_practice_real_data_and_says_why() -> None:
    plan = planned(settings(), LAPTOP)
    assert (plan.key.scale, plan.key.data) == ("mini", "real")
    assert (plan.division, plan.runtime) == ("practice", "native")
    assert (plan.device, plan.threads, plan.repeats, plan.soak_ns) == ("cpu", 1, 5, 0)
    assert any("mini" in line for line in plan.why)


@pytest.mark.parametrize(
    ("words", "threads"),
    [
        (("scale=mini",), 1),
        (("scale=mini", "framework.threads=2"), 2),
        (("scale=reference", "data=synthetic"), 2),
        (("workload=resnet50", "scale=mini", "phase=preprocess"), 2),
    ],
)
def test_threads_share_what_is_large_enough(words: tuple[str, ...], threads: int) -> None:
    plan = planned(settings(*words), LAPTOP)
    assert plan.threads == threads
    assert any(line.startswith("threads 1") for line in plan.why) == (threads == 1)


def test_a_gpu_server_gets_reference_open_synthetic(tmp_path: Path) -> None:
    plan = planned(settings(f"data_root={tmp_path}"), SERVER)
    assert (plan.key.scale, plan.key.data, plan.division) == ("reference", "synthetic", "open")
    assert (plan.device, plan.device_ids, plan.visible_devices) == ("cuda:0", ("GPU-1",), "GPU-1")
    assert plan.soak_ns == 5_000_000_000


def test_work_that_nobody_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batches of WMT16 have no pinned list yet: synthetic ones stand in where no data were chosen."""
    monkeypatch.setattr("suite.plan.resolve.available", lambda *_: True)
    place = f"data_root={tmp_path}"
    plan = planned(settings(place, workload="gnmt"), SERVER)
    assert (plan.key.scale, plan.key.data) == ("reference", "synthetic")
    assert any("no pinned list of batches of 128 for wmt16" in line for line in plan.why)
    assert planned(settings(place, "mode=quality", workload="gnmt"), SERVER).key.data == "real"
    with pytest.raises(BadConfiguration, match="no pinned list of batches of 128"):
        planned(settings(place, "data=real", workload="gnmt"), SERVER)
    with pytest.raises(BadConfiguration, match="no pinned list of batches of 33"):
        planned(settings(place, "batch=33", workload="gnmt"), LAPTOP)


@pytest.mark.parametrize("word", sorted(WORDS))
def test_every_word_takes_each_of_its_values_or_refuses_in_one_sentence(word: str) -> None:
    for value in WORDS[word]:
        chosen = settings(f"{word}={value}")
        assert getattr(chosen, word) == value
        said = refusal_of(chosen)
        assert said is None or (": " in said and "\n" not in said)


@pytest.mark.parametrize("word", sorted(WORDS))
def test_every_word_refuses_an_unknown_value(word: str) -> None:
    with pytest.raises(BadConfiguration, match="expected one of"):
        settings(f"{word}=nonsense")


def test_places_are_not_in_the_resolved_tree() -> None:
    plan = planned(settings("data_root=/a", "results_dir=/b", "cache_dir=/c"), LAPTOP)
    assert not set(PLACES) & set(plan.resolved())
    assert "/a" not in str(plan.resolved())


@pytest.mark.parametrize("name", workloads.names())
def test_the_configuration_lists_the_hyperparameters_of_the_specification(name: str) -> None:
    spec = specification(name)
    tree: dict[str, Any] = OmegaConf.to_object(  # type: ignore[assignment]
        OmegaConf.load(PROJECT / "conf" / "workload" / f"{name}.yaml")
    )
    for scale, variants in spec.VARIANTS.items():
        for variant in variants:
            assert set(tree["hyper"]) == set(spec.hyperparameters(scale, variant))
    assert set(tree["hyper"].values()) == {None}


def test_a_hyperparameter_is_a_decimal_string_in_the_job(tmp_path: Path) -> None:
    plan = planned(settings("workload.hyper.rate=2e-3"), LAPTOP)
    plan = plan.with_(workers=NativeWorkers(Path("/env/bin/python"), 1, "passive", ""))
    assert plan.job(0, tmp_path)["hyper"]["rate"] == "0.002"


def test_seeds_differ_by_repeat_and_follow_the_nonce() -> None:
    plan = planned(settings(), LAPTOP)
    noted = planned(settings(f"nonce='{'ab' * 32}'"), LAPTOP).with_(run_id=plan.run_id)
    seeds = [plan.seed(repeat) for repeat in range(5)]
    assert len({*seeds, *(noted.seed(repeat) for repeat in range(5))}) == 10
    assert seeds == [plan.seed(repeat) for repeat in range(5)]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("mode=quality", "phase=infer"), BadConfiguration),
        (("mode=quality", "data=synthetic"), BadConfiguration),
        (("devices=2",), Unsupported),
        (("launcher.partition=debug",), BadConfiguration),
        (("runtime.cpus=1",), Unsupported),
        (("runtime.cpus=0",), BadConfiguration),
        (("runtime.cpus=two",), BadConfiguration),
        (("runtime.memory=8x",), BadConfiguration),
        (("runtime.cpuset=a",), BadConfiguration),
        (("runtime=docker",), Unsupported),
        (("division=closed", "scale=reference"), Unsupported),
        (("image=repository:tag",), BadConfiguration),
        (("runtime=native", f"image=repository@sha256:{'a' * 64}"), BadConfiguration),
        (("loader=dali",), Unsupported),
        (("loader=pillow",), Unsupported),
        (("precision=fp16",), Unsupported),
    ],
)
def test_impossible_wishes_are_refused(words: tuple[str, ...], error: type[Refusal]) -> None:
    with pytest.raises(error):
        planned(settings(*words), LAPTOP)


def test_open_declares_each_departure_from_closed_and_nothing_else(tmp_path: Path) -> None:
    plan = prepare.prepare_data(planned(settings(f"data_root={tmp_path}", "precision=bf16"), SERVER))
    declared = prepare.declare_differences(plan).differences
    assert {rule.split("-")[0] for rule, _ in declared} <= {"DIV", "IMG"}
    assert all(reason for _, reason in declared)
    left = prepare.findings_before(plan.with_(differences=declared))
    assert {finding.rule for finding in left} == {"ID-016"}  # there is no release yet


def test_closed_is_refused_without_an_image(tmp_path: Path) -> None:
    plan = prepare.prepare_data(
        planned(settings(f"data_root={tmp_path}", "division=closed", "runtime=native"), SERVER)
    )
    with pytest.raises(RuleProblem, match="the checker would reject this run"):
        prepare.declare_differences(plan)


def test_the_native_command_inherits_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LD_PRELOAD", "/tmp/shim.so")
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    inputs = NativeInputs(Path("/env/bin/python"), tmp_path, tmp_path / "cache", 2, "passive", "GPU-1")
    command = native_command(inputs)
    assert command.argv == ("/env/bin/python", "-s", "-m", "suite.worker")
    assert command == native_command(inputs)
    assert "LD_PRELOAD" not in command.environment
    assert command.environment["OMP_NUM_THREADS"] == "2"
    assert command.environment["OMP_WAIT_POLICY"] == "PASSIVE"
    assert command.environment["CUDA_VISIBLE_DEVICES"] == "GPU-1"


@pytest.mark.parametrize(
    ("workload", "words", "says"),
    [
        ("resnet50", ("loader=dali",), None),
        ("faster_rcnn", ("loader=pillow",), None),
        ("resnet50", ("loader=dali", "data=synthetic"), "synthetic data are not read by dali"),
        ("resnet50_cifar10", ("loader=dali",), "resnet50_cifar10 reads no images by dali"),
        ("gnmt", ("loader=pillow",), "gnmt reads no images by pillow"),
    ],
)
def test_only_image_files_are_read_by_other_loaders(
    workload: str, words: tuple[str, ...], says: str | None
) -> None:
    chosen = settings(*words, workload=workload)
    if says is None:
        assert planned(chosen).settings.loader == chosen.loader
    else:
        with pytest.raises(Unsupported, match=says):
            planned(chosen)


@pytest.mark.parametrize(
    ("workload", "words", "error", "says"),
    [
        ("resnet50", ("form=recordio", "data=synthetic"), BadConfiguration, "synthetic data are not read"),
        ("resnet50_cifar10", ("form=recordio",), BadConfiguration, "reads cifar-10-mini"),
        ("gnmt", ("form=tfrecord",), BadConfiguration, "pictures in folders have record forms"),
        ("resnet50", ("form=lmdb", "framework=mxnet"), Unsupported, "mxnet has no lmdb"),
        ("resnet50", ("form=recordio", "phase=preprocess"), BadConfiguration, "to= says"),
    ],
)
def test_a_form_that_cannot_be_read_is_refused(
    workload: str, words: tuple[str, ...], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        planned(settings(*words, workload=workload))


def test_a_form_is_a_setting_that_the_log_has(tmp_path: Path) -> None:
    plan = planned(settings("form=tfrecord", f"data_root={tmp_path}", workload="alexnet"))
    assert plan.resolved()["form"] == "tfrecord"
    assert "form" not in planned(settings(workload="alexnet")).resolved()
    with pytest.raises(DatasetProblem, match=r"make preprocess WORKLOAD=.* TO=tfrecord"):
        prepare.prepare_data(plan)


def test_the_loader_reaches_the_worker(tmp_path: Path) -> None:
    plan = planned(settings("loader=pillow", workload="alexnet"))
    plan = plan.with_(workers=NativeWorkers(Path("/env/bin/python"), 1, "passive", ""))
    assert plan.job(0, tmp_path)["loader"] == "pillow"


def test_dali_is_looked_for_before_a_run() -> None:
    plan = planned(settings("loader=dali", f"framework.python={sys.executable}", workload="alexnet"))
    with pytest.raises(EnvironmentProblem, match=r"expected nvidia\.dali in the interpreter of pytorch"):
        prepare.prepare_workers(plan)
    native = planned(settings(f"framework.python={sys.executable}", workload="alexnet"))
    assert prepare.prepare_workers(native).workers is not None
