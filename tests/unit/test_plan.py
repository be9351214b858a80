"""Options to settings to a plan, without starting anything."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from suite import workloads
from suite.checker import Finding, check_header
from suite.cli.run import with_counted_attempt
from suite.containers.engines.choice import FoundEngine
from suite.containers.engines.native import PROJECT, NativeInputs, native_command
from suite.containers.engines.workers import NativeWorkers
from suite.contract import BENCHMARK, CONVERSION, ConversionKey, Key
from suite.contract.traits import traits_of
from suite.harness import run as harness
from suite.harness.log import LogExistsError
from suite.plan import prepare
from suite.plan.custom import NO_CUSTOM_CODE
from suite.plan.errors import (
    BadConfiguration,
    DatasetProblem,
    EnvironmentProblem,
    Refusal,
    RuleProblem,
    Unsupported,
)
from suite.plan.header import checked_header, settings_of
from suite.plan.machine import Gpu, Machine, detect_machine
from suite.plan.options import RUN_OPTIONS, RUN_PATHS, by_name
from suite.plan.plan import Plan
from suite.plan.prepared import Dataset, PreparedRun, Resources
from suite.plan.resolve import resolve
from suite.plan.settings import Settings, validate
from suite.workloads import specification

LAPTOP = Machine(cores=2, gpus=(), visible=None)
SERVER = Machine(cores=16, gpus=(Gpu("GPU-1", "NVIDIA H200", 141 << 30),) * 2, visible=None)


def settings(
    *arguments: str, workload: str = "ncf", framework: str = "pytorch", kind: str = BENCHMARK
) -> Settings:
    with initialize_config_dir(version_base="1.3", config_dir=str(PROJECT / "conf")):
        overrides = [f"workload={workload}", f"framework={framework}", *arguments]
        tree = OmegaConf.to_container(compose("run", overrides), resolve=True)
    assert isinstance(tree, dict)
    return validate({str(name): value for name, value in tree.items()}, tuple(overrides), kind)


def no_engine(wanted: str, need_gpu: bool) -> FoundEngine:
    return FoundEngine(None, (f"{wanted}: not in this test",))


def planned(chosen: Settings, machine: Machine = LAPTOP) -> Plan:
    return resolve(chosen, machine, no_engine)


def benchmark(plan: Plan) -> Key:
    """The key of a plan that is no conversion."""
    assert isinstance(plan.key, Key)
    return plan.key


def prepared(plan: Plan, python: str = sys.executable) -> PreparedRun:
    """The run of ``plan`` on its dataset, in an interpreter that nothing is started in."""
    workers = NativeWorkers(Path(python), plan.threads, "passive", plan.visible_devices)
    resources = Resources(prepare.prepare_data(plan), workers, None, NO_CUSTOM_CODE)
    return prepare.prepare_run(plan, resources, attempt=1)


def test_driver_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import pynvml

    def refuse() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)

    monkeypatch.setattr(pynvml, "nvmlInit", refuse)
    plan = planned(settings(), detect_machine())
    assert "no GPU: NVML: RM has detected an NVML/RM version mismatch." in plan.why


@pytest.mark.parametrize(("visible", "found"), [("0,1", 2), ("0,0", 0), ("0,GPU-1", 0), ("GPU-2,0,7,0", 2)])
def test_no_gpu_is_used_twice(visible: str, found: int, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = Gpu("GPU-1", "NVIDIA H200", 141 << 30), Gpu("GPU-2", "NVIDIA H200", 141 << 30)
    monkeypatch.setattr("suite.plan.machine._gpus", lambda: (gpus, "580", None))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    machine = detect_machine()
    assert len(machine.gpus) == found
    if not found:
        why = f"no GPU: CUDA_VISIBLE_DEVICES: expected each GPU once, found '{visible}'"
        assert why in planned(settings(), machine).why


def refusal_of(chosen: Settings) -> str | None:
    try:
        planned(chosen)
    except Refusal as error:
        return str(error)
    return None


def test_laptop_gets_mini_practice_real_data_with_reasons() -> None:
    plan = planned(settings(), LAPTOP)
    assert (plan.key.scale, benchmark(plan).data) == ("mini", "real")
    assert (plan.division, plan.runtime) == ("practice", "native")
    assert (plan.device, plan.threads, plan.repeats, plan.soak_ns) == ("cpu", 1, 5, 0)
    assert any("mini" in line for line in plan.why)


@pytest.mark.parametrize(
    ("arguments", "threads"),
    [
        (("scale=mini",), 1),
        (("scale=mini", "framework.threads=2"), 2),
        (("scale=reference", "data=synthetic"), 2),
    ],
)
def test_threads_depend_on_step_size(arguments: tuple[str, ...], threads: int) -> None:
    plan = planned(settings(*arguments), LAPTOP)
    assert plan.threads == threads
    assert any(line.startswith("threads 1") for line in plan.why) == (threads == 1)


def test_conversion_uses_all_processors_and_no_gpu(tmp_path: Path) -> None:
    arguments = ("storage=recordio", f"data_root={tmp_path}")
    plan = planned(settings(*arguments, workload="resnet50", framework="mxnet", kind=CONVERSION), SERVER)
    assert plan.key == ConversionKey("resnet50", "mxnet", "recordio", 20, "mini", "warm")
    assert (plan.kind, plan.device, plan.device_ids, plan.threads) == (CONVERSION, "cpu", (), 16)
    assert (plan.fingerprint, plan.tail_ns, plan.hyper) == (False, 0, {})
    assert "-resnet50-mxnet-conversion-recordio-mini-" in plan.run_id
    assert plan.scratch_root == tmp_path / ".converting"


def test_gpu_server_gets_reference_open_synthetic(tmp_path: Path) -> None:
    plan = planned(settings(f"data_root={tmp_path}"), SERVER)
    assert (plan.key.scale, benchmark(plan).data, plan.division) == ("reference", "synthetic", "open")
    assert (plan.device, plan.device_ids, plan.visible_devices) == ("cuda:0", ("GPU-1",), "GPU-1")
    assert plan.soak_ns == 5_000_000_000


def test_uncounted_work_selects_synthetic_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batches of WMT16 have no pinned list yet: synthetic ones stand in where no data were chosen."""
    monkeypatch.setattr("suite.plan.resolve.available", lambda *_: True)
    results = f"data_root={tmp_path}"
    plan = planned(settings(results, workload="gnmt"), SERVER)
    assert (plan.key.scale, benchmark(plan).data) == ("reference", "synthetic")
    why = "real data of gnmt cannot be run at reference scale in this version, with any batch; use"
    assert any(why in line for line in plan.why)
    assert benchmark(planned(settings(results, "mode=quality", workload="gnmt"), SERVER)).data == "real"
    with pytest.raises(BadConfiguration, match=why):
        planned(settings(results, "data=real", workload="gnmt"), SERVER)
    with pytest.raises(BadConfiguration, match=r"batches of 33 .*known: 1, 2, .*choose a known batch"):
        planned(settings(results, "batch=33", workload="gnmt"), LAPTOP)


CLOSED = sorted(
    option.name
    for option in RUN_OPTIONS
    if option.values and option.name not in ("workload", "framework", "runtime", "launcher")
)


@pytest.mark.parametrize("name", CLOSED)
def test_every_value_of_every_option_is_planned_or_refused_in_one_sentence(name: str) -> None:
    for value in by_name()[name].choices():
        chosen = settings(f"{name}={value}")
        assert getattr(chosen, name) == value
        message = refusal_of(chosen)
        assert message is None or (": " in message and "\n" not in message)


@pytest.mark.parametrize("name", CLOSED)
def test_every_option_refuses_an_unknown_value(name: str) -> None:
    with pytest.raises(BadConfiguration, match="expected one of"):
        settings(f"{name}=nonsense")


def test_path_options_are_not_in_the_resolved_tree() -> None:
    plan = planned(settings("data_root=/a", "results_dir=/b", "cache_dir=/c"), LAPTOP)
    resolved = settings_of(plan, NO_CUSTOM_CODE)
    assert not {option.name for option in RUN_PATHS} & set(resolved)
    assert "/a" not in str(resolved)


@pytest.mark.parametrize("name", workloads.names())
def test_configuration_lists_the_hyperparameters_of_the_specification(name: str) -> None:
    spec = specification(name)
    tree: dict[str, Any] = OmegaConf.to_object(  # type: ignore[assignment]
        OmegaConf.load(PROJECT / "conf" / "workload" / f"{name}.yaml")
    )
    for scale, variants in spec.VARIANTS.items():
        for variant in variants:
            assert set(tree["hyper"]) == set(spec.hyperparameters(scale, variant))
    assert set(tree["hyper"].values()) == {None}


def test_job_has_hyperparameters_as_decimal_strings(tmp_path: Path) -> None:
    run = prepared(planned(settings("workload.hyper.rate=2e-3", "data=synthetic"), LAPTOP))
    assert run.job(0, tmp_path)["hyper"]["rate"] == "0.002"


def test_seeds_differ_by_repeat_and_follow_the_nonce() -> None:
    plan = planned(settings("data=synthetic"), LAPTOP)
    noted = planned(settings("data=synthetic", f"nonce='{'ab' * 32}'"), LAPTOP)
    first, second = prepared(plan), prepared(replace(noted, run_id=plan.run_id))
    seeds = [first.seed(repeat) for repeat in range(5)]
    assert len({*seeds, *(second.seed(repeat) for repeat in range(5))}) == 10
    assert seeds == [first.seed(repeat) for repeat in range(5)]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("mode=quality", "phase=infer"), BadConfiguration),
        (("mode=quality", "data=synthetic"), BadConfiguration),
        (("mode=quality", "repeats=1", "min_seconds=5"), BadConfiguration),
        (("cache=cold", "data=synthetic"), BadConfiguration),
        (("devices=2", "nodes=2", "min_seconds=5"), BadConfiguration),
        (("devices=2", "mode=quality", "strategy=independent"), BadConfiguration),
        (("devices=3", "nodes=2"), BadConfiguration),
        (("devices=2", "nodes=2", "batch=max"), BadConfiguration),
        (("devices=2", "workload=gnmt", "batch=3", "phase=infer"), BadConfiguration),
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
def test_impossible_settings_are_refused(arguments: tuple[str, ...], error: type[Refusal]) -> None:
    with pytest.raises(error):
        planned(settings(*arguments), LAPTOP)


def test_open_declares_exactly_its_departures_from_closed(tmp_path: Path) -> None:
    plan = planned(settings(f"data_root={tmp_path}", "precision=bf16"), SERVER)
    found = checked_header(plan, prepare.prepare_data(plan), None, NO_CUSTOM_CODE, 1)
    declared = found.data["differences"]
    assert declared
    assert {row["rule"].split("-")[0] for row in declared} <= {"DIV", "IMG"}
    assert all(row["reason"] for row in declared)
    assert {finding.rule for finding in found.findings} == {"ID-016"}  # there is no release yet


def test_written_header_equals_the_pre_checked_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[Any] = []

    def judge(data: Any, rules: Any) -> list[Finding]:
        judged.append(data)
        return check_header(data, rules)

    monkeypatch.setattr("suite.plan.header.check_header", judge)
    arguments = (f"results_dir={tmp_path}/results", f"cache_dir={tmp_path}/cache")
    run = prepared(planned(settings("data=synthetic", "purpose=submission", *arguments)))
    assert judged[-1] is run.header
    counted_run = with_counted_attempt(run)
    assert counted_run is run
    written: list[Any] = []

    class Writer:
        def __init__(self, folder: Path, data: Any, *_: Any) -> None:
            written.append(data)
            raise LogExistsError(17, "enough is known")

    monkeypatch.setattr(harness, "LogWriter", Writer)
    with pytest.raises(LogExistsError):
        harness.execute(counted_run, quiet=True)
    assert written[0] is judged[-1]


def test_attempt_number_used_by_another_run_changes_the_header(tmp_path: Path) -> None:
    arguments = ("data=synthetic", "purpose=submission", f"results_dir={tmp_path}")
    run, other = (prepared(planned(settings(*arguments))) for _ in range(2))
    assert with_counted_attempt(other).header["attempt"] == 1
    found = with_counted_attempt(run)
    assert (found.attempt, found.header["attempt"], run.header["attempt"]) == (2, 2, 1)


def test_closed_plan_without_a_container_image_is_refused(tmp_path: Path) -> None:
    plan = planned(settings(f"data_root={tmp_path}", "division=closed", "runtime=native"), SERVER)
    with pytest.raises(RuleProblem, match="the checker would reject this run"):
        prepared(plan)


def test_native_command_inherits_no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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


def environment_of(tmp_path: Path, *options: str) -> dict[str, str]:
    plan = planned(settings(f"framework.python={sys.executable}", "data=synthetic", *options))
    workers = prepare.prepare_workers(plan, prepare.prepare_data(plan)).workers
    return dict(workers.command(0, tmp_path / "repeat", None).environment)


def test_worker_of_pytorch_on_a_processor_keeps_the_memory_of_freed_tensors(tmp_path: Path) -> None:
    code = """if True:
        import resource
        def faults():
            return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        bytearray(64 << 20)
        before = faults()
        for _ in range(4):
            bytearray(64 << 20)
        print(faults() - before)
    """
    argv, env = [sys.executable, "-c", code], environment_of(tmp_path)
    found = subprocess.run(argv, env=env, check=True, capture_output=True, text=True, timeout=60)
    assert int(found.stdout) < 4 * 1024  # each of the 4 has 16,384 pages, if they are new


def test_variables_of_a_framework_reach_no_other(tmp_path: Path) -> None:
    assert environment_of(tmp_path)["MALLOC_MMAP_MAX_"] == "0"
    assert "MALLOC_MMAP_MAX_" not in environment_of(tmp_path, "framework=mxnet")


def test_variables_of_the_exchange_reach_every_worker_and_the_log(tmp_path: Path) -> None:
    given = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}
    listed = ",".join(f"{name}:{value}" for name, value in given.items())
    options = f"framework.variables=[{listed}]", f"framework.python={sys.executable}", "data=synthetic"
    plan = planned(settings(*options))
    assert environment_of(tmp_path, *options).items() >= given.items()
    assert settings_of(plan, NO_CUSTOM_CODE)["variables"] == given
    assert "variables" not in settings_of(planned(settings()), NO_CUSTOM_CODE)


@pytest.mark.parametrize(
    ("workload", "arguments", "expected"),
    [
        ("resnet50", ("loader=dali",), None),
        ("faster_rcnn", ("loader=pillow",), None),
        (
            "resnet50",
            ("loader=dali", "data=synthetic"),
            "synthetic data are not read: expected native, found dali",
        ),
        (
            "resnet50_cifar10",
            ("loader=dali",),
            "resnet50_cifar10 reads no images: expected native, found dali",
        ),
        ("gnmt", ("loader=pillow",), "gnmt reads no images: expected native, found pillow"),
    ],
)
def test_only_image_files_are_read_by_other_loaders(
    workload: str, arguments: tuple[str, ...], expected: str | None
) -> None:
    chosen = settings(*arguments, workload=workload)
    if expected is None:
        assert planned(chosen).settings.loader == chosen.loader
    else:
        with pytest.raises(Unsupported, match=expected):
            planned(chosen)


@pytest.mark.parametrize(
    ("workload", "arguments", "error", "expected"),
    [
        (
            "resnet50",
            ("storage=recordio", "data=synthetic"),
            BadConfiguration,
            "expected files with synthetic data, found recordio",
        ),
        ("resnet50_cifar10", ("storage=recordio",), BadConfiguration, "reads cifar-10-mini"),
        (
            "gnmt",
            ("storage=tfrecord",),
            BadConfiguration,
            "only datasets of images in folders have storage formats",
        ),
        ("resnet50", ("storage=lmdb", "framework=mxnet"), Unsupported, "mxnet cannot read lmdb"),
    ],
)
def test_unreadable_storage_format_is_refused(
    workload: str, arguments: tuple[str, ...], error: type[Exception], expected: str
) -> None:
    with pytest.raises(error, match=expected):
        planned(settings(*arguments, workload=workload))


def test_resolved_settings_have_the_storage_format(tmp_path: Path) -> None:
    plan = planned(settings("storage=tfrecord", f"data_root={tmp_path}", workload="alexnet"))
    assert settings_of(plan, NO_CUSTOM_CODE)["storage"] == "tfrecord"
    assert "storage" not in settings_of(planned(settings(workload="alexnet")), NO_CUSTOM_CODE)
    with pytest.raises(DatasetProblem, match=r"make preprocess WORKLOAD=.* TO=tfrecord"):
        prepare.prepare_data(plan)


def test_worker_gets_the_loader(tmp_path: Path) -> None:
    plan = planned(settings("loader=pillow", workload="alexnet"))
    workers = NativeWorkers(Path("/env/bin/python"), 1, "passive", "")
    resources = Resources(Dataset("d", "mini", "", 0, 0, None), workers, None, NO_CUSTOM_CODE)
    assert resources.job(plan, 0, 0, tmp_path)["loader"] == "pillow"


@pytest.mark.parametrize(
    ("loader", "machine", "missing"),
    [
        ("dali", LAPTOP, r"nvidia\.dali in .* install nvidia-dali-cuda130 there, or use loader=native"),
        ("native", SERVER, "torchvision in .* install torchvision there, or use loader=pillow"),
        ("native", LAPTOP, None),
        ("pillow", SERVER, None),
    ],
)
def test_missing_library_of_a_loader_is_reported_before_a_run(
    loader: str, machine: Machine, missing: str | None
) -> None:
    dataset = Dataset("d", "mini", "", 0, 0, None)
    options = (f"loader={loader}", f"framework.python={sys.executable}", "data=real", "scale=mini")
    plan = planned(settings(*options, "runtime=native", workload="alexnet"), machine)
    if missing is None:
        assert prepare.prepare_workers(plan, dataset).custom.python_digest is not None
        return
    with pytest.raises(EnvironmentProblem, match=f"loader: expected {missing}"):
        prepare.prepare_workers(plan, dataset)


def test_training_on_ranks_needs_an_exchange_and_inference_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    without = replace(traits_of("pytorch"), strategies=())
    monkeypatch.setattr("suite.plan.resolve.traits_of", lambda framework: without)
    with pytest.raises(Unsupported, match="the pairs of pytorch exchange no gradients"):
        planned(settings("devices=2"), LAPTOP)
    assert benchmark(planned(settings("devices=2", "phase=infer"), LAPTOP)).devices == 2


@pytest.mark.parametrize(
    ("options", "strategy", "collective"),
    [
        (("devices=1",), "independent", ""),
        (("devices=2",), "allreduce", "gloo"),
        (("devices=2", "strategy=independent"), "independent", ""),
        (("devices=2", "phase=infer"), "independent", ""),
        (("devices=2", "framework=mxnet"), "parameter_server", "cpu"),
    ],
)
def test_strategy_and_collective(options: tuple[str, ...], strategy: str, collective: str) -> None:
    plan = planned(settings(*options), LAPTOP)
    assert (benchmark(plan).strategy, plan.collective) == (strategy, collective)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("strategy=allreduce",), "one device exchanges no gradients"),
        (("devices=2", "phase=infer", "strategy=allreduce"), "inference exchanges no gradients"),
        (("devices=2", "strategy=parameter_server"), "pytorch has no parameter_server here"),
        (("devices=2", "framework=mxnet", "strategy=allreduce"), "works within one process only"),
        (("devices=2", "framework=tensorflow", "strategy=parameter_server"), "updates asynchronously"),
        (("devices=2", "collective=nccl"), "pytorch exchanges with gloo on cpu, found nccl"),
        (("collective=gloo",), "the ranks exchange nothing, found gloo"),
        (("bucket_mib=64",), "bucket_mib: the ranks exchange nothing, found 64"),
        (("devices=2", "framework=jax", "bucket_mib=64"), "jax has no buckets of gradients"),
        (("devices=2", "bucket_mib=0"), "whole number from 1 to 1000000"),
        (("devices=3", "nodes=2"), "expected a divisor of the 3 devices, found 2"),
    ],
)
def test_what_ranks_cannot_do_is_refused_with_the_reason(options: tuple[str, ...], message: str) -> None:
    with pytest.raises((BadConfiguration, Unsupported), match=message):
        planned(settings(*options), LAPTOP)


def test_copy_engines_reach_the_gpus_of_one_machine() -> None:
    asked = "devices=2", "collective=copy_engine"
    assert planned(settings(*asked), SERVER).collective == "copy_engine"
    with pytest.raises(Unsupported, match="reaches the devices of one machine; use nccl"):
        planned(settings(*asked, "nodes=2"), SERVER)
    with pytest.raises(Unsupported, match="pytorch exchanges with gloo on cpu, found copy_engine"):
        planned(settings(*asked), LAPTOP)
