"""The header of a log gives the options that repeat its run with equal settings and seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from suite.audit.items import EQUAL
from suite.audit.replay import identity
from suite.cli import main
from suite.containers.engines.workers import NativeWorkers
from suite.plan.compose import composer
from suite.plan.custom import NO_CUSTOM_CODE
from suite.plan.errors import BadConfiguration, RuleProblem, Unsupported
from suite.plan.header import build_header
from suite.plan.machine import Machine
from suite.plan.plan import Plan
from suite.plan.prepare import prepare_data
from suite.plan.prepared import PreparedRun, Resources
from suite.plan.resolve import resolve
from suite.replay import repeats
from suite.replay.options import options_of
from suite.replay.repeats import ReplayOptions, prepare_replay
from suite.rules import load
from tests.fixtures.good_log import Good, header_of, write_good
from tests.unit.test_plan import benchmark, no_engine

LAPTOP = Machine(cores=2, gpus=(), visible=None)
NONCE = "12" * 32  # digits alone: Hydra would read a number
RUNS = {
    "ncf": ["workload=ncf", "framework=pytorch"],
    "small things": [
        *("workload=ncf", "framework=mxnet", "framework.threads=3", "framework.wait_policy=active"),
        *("framework.fast=false", "telemetry=false", "purpose=submission", f'nonce="{NONCE}"', "batch=77"),
    ],
    "hyperparameters": [
        *("workload=gnmt", "framework=tensorflow", "data=synthetic"),
        *('workload.hyper.rate_drops="10:0.5 20:0.25"', "workload.hyper.clip=0.10"),
    ],
    "reference": [
        "workload=lstm_ptb",
        "framework=pytorch",
        "scale=reference",
        "data=synthetic",
        "variant=large",
    ],
    "infer": ["workload=resnet50", "framework=pytorch", "phase=infer", "scenario=single_stream"],
    "variables": [
        *("workload=ncf", "framework=pytorch", "devices=2"),
        'framework.variables=[NCCL_NVLS_ENABLE:0,"NCCL_IB_HCA:^mlx5_0:1"]',
    ],
    "no fingerprint": ["workload=word2vec", "framework=pytorch", "data=synthetic", "fingerprint=false"],
}


def plan_of(options: Iterable[str]) -> Plan:
    with composer() as compose:
        return resolve(compose([*options, "data_root=data"]), LAPTOP, no_engine)


def run_of(plan: Plan, replayed: tuple[int, ...] = ()) -> PreparedRun:
    """The prepared run of ``plan``; synthetic data replace a real dataset."""
    dataset = prepare_data(replace(plan, key=replace(benchmark(plan), data="synthetic")))
    workers = NativeWorkers(Path("/env/bin/python"), plan.threads, "passive", "")
    resources = Resources(dataset, workers, None, NO_CUSTOM_CODE)
    data = build_header(plan, load(plan.rules_version), dataset, None, NO_CUSTOM_CODE, b"", 1)
    return PreparedRun(plan, resources, 1, {}, data, replayed)


def header(plan: Plan) -> Mapping[str, Any]:
    return run_of(plan).header


@pytest.mark.parametrize("run", RUNS)
def test_options_of_a_header_repeat_its_run(run: str) -> None:
    first = plan_of(RUNS[run])
    options = options_of(header(first), None, None)
    second = replace(plan_of(options), run_id=first.run_id)
    assert header(second)["overrides"] != header(first)["overrides"]
    assert {item.name: item.outcome for item in identity(header(first), header(second))} == dict.fromkeys(
        ("image", "code", "dataset", "settings"), EQUAL
    )
    seeds = [[run_of(plan).seed(repeat) for repeat in range(5)] for plan in (first, second)]
    assert seeds[0] == seeds[1]


def test_replay_has_the_seeds_of_the_replayed_repeats() -> None:
    plan = plan_of(RUNS["ncf"])
    original, replay = run_of(plan), run_of(replace(plan, repeats=2), (3, 1))
    assert [replay.seed(0), replay.seed(1)] == [original.seed(3), original.seed(1)]


def test_replay_asks_for_a_custom_pair_by_its_digest(tmp_path: Path) -> None:
    data = dict(header(plan_of(RUNS["ncf"])))
    with pytest.raises(BadConfiguration, match="expected none, because the submission ran the suite's"):
        list(options_of(data, tmp_path / "pair.py", None))
    data["settings"] = {**data["settings"], "custom_pair": "ab" * 32}
    with pytest.raises(BadConfiguration, match=f"SHA-256 {'ab' * 32}.*PAIR=path"):
        list(options_of(data, None, None))
    assert f'pair="{tmp_path}/pair.py"' in options_of(data, tmp_path / "pair.py", None)


def test_options_keep_limits_and_custom_container_image() -> None:
    data = dict(header(plan_of(RUNS["ncf"])))
    image = "registry.example/custom@sha256:" + "1" * 64
    limits = {"cpus": "1.5", "cpuset": "0-3,5", "memory_bytes": 8 << 30, "shm_bytes": 1 << 30}
    data["settings"] = {**data["settings"], **limits, "custom_image": image}
    data["runtime"] = "docker"
    with composer() as compose:
        settings = compose(list(options_of(data, None, None)))
    assert (settings.image, settings.runtime) == (image, "docker")
    assert (settings.limits.cpus, settings.limits.cpuset) == ("1.5", "0-3,5")
    assert (settings.limits.memory_bytes, settings.limits.shm_bytes) == (8 << 30, 1 << 30)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("threads", None), ("threads", "2,3"), ("wait_policy", "${oc.env:HOME}"), ("fast", "yes")),
        *(("cpuset", "${oc.env:HOME}"), ("memory_bytes", "8g"), ("storage", "files,lmdb")),
        *(
            ("variables", {"LD_PRELOAD": "x"}),
            ("variables", {"NCCL_P": "${oc.env:HOME}"}),
            ("variables", "x"),
        ),
        ("custom_image", "${oc.env:HOME}@sha256:" + "1" * 64),
    ],
)
def test_replay_refuses_an_invalid_setting(name: str, value: object) -> None:
    """A log's settings are free text, and Hydra resolves variables: unchecked text must not reach it."""
    data = dict(header(plan_of(RUNS["ncf"])))
    data["settings"] = {**data["settings"], name: value}
    with pytest.raises(BadConfiguration, match=rf"settings\.{name}"):
        list(options_of(data, None, None))


def replay_options(folder: Path, **more: Any) -> ReplayOptions:
    return ReplayOptions(folder, folder / "data", folder / "cache", **more)


def test_replay_refuses_other_code_and_names_the_commit(tmp_path: Path) -> None:
    data = header_of(Good())
    with pytest.raises(RuleProblem) as refused:
        prepare_replay(data, replay_options(tmp_path), (0,))
    assert data["code_digest"] in str(refused.value)
    assert data["git"]["commit"] in str(refused.value)
    assert "OTHER_CODE=1" in str(refused.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mode": "quality"}, "found mode quality"),
        ({"rules": {"version": "0.2"}}, "found 0.2"),
        ({"kind": "conversion"}, "found a conversion"),
        ({"key": {"nodes": 2}}, "expected a run on one node, found one on 2"),
    ],
)
def test_replay_refuses_quality_conversion_and_old_rules(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    data = header_of(Good())
    data = {
        **data,
        **{name: {**data[name], **new} if isinstance(new, dict) else new for name, new in change.items()},
    }
    with pytest.raises(Unsupported, match=message):
        prepare_replay(data, replay_options(tmp_path, other_code=True), (0,))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--nonce", "ab"], "--nonce: expected 64"),
        (["--device", "cpu", "--repeats", "2"], "--repeats: expected without --device"),
        (["--device", "cpu", "--pair", "pair.py"], "--pair: expected without --device"),
        (["--device", "cpu", "--nonce", "ab"], "--nonce: expected without --device"),
        (["--device", "cpu", "--threads", "0"], "--threads: expected at least 1, found 0"),
        (["--steps", "3"], "--steps: expected with --device"),
        (["--framework", "mxnet"], "--framework: expected with --device"),
        (["--threads", "2"], "--threads: expected with --device"),
        (["--device", "cpu", "--key", "none.pem"], "prove no time"),
        (["--repeats", "6"], "expected 1 to 5"),
        (["--device", "cpu", "--framework", "caffe", "--other-code"], "framework"),
    ],
)
def test_audit_replay_reports_invalid_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    result = write_good(tmp_path / "results")
    paths = ["--out", str(tmp_path / "out"), "--cache-dir", str(tmp_path), "--data-root", str(tmp_path)]
    assert main(["audit-replay", "--result", str(result), *paths, *options]) != 0
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_audit_replay_refuses_an_output_folder_inside_the_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = write_good(tmp_path)
    assert main(["audit-replay", "--result", str(result), "--out", str(result / "out")]) == 2
    assert "outside of the result" in capsys.readouterr().err


@pytest.mark.parametrize("verb", [("audit-replay",), ("audit-replay", "--device", "cpu"), ("audit-perturb",)])
def test_unreadable_result_is_rejected_with_its_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: tuple[str, ...]
) -> None:
    result = write_good(tmp_path / "results")
    (result / "notes.txt").write_text("another file")
    assert main([*verb, "--result", str(result), "--out", str(tmp_path / "out")]) == 1
    printed = capsys.readouterr().out
    assert "LOG-002" in printed
    assert "nothing was run: the checker rejects the result" in printed


def test_replay_of_a_gpu_run_without_a_gpu_suggests_first_steps(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(repeats, "detect_machine", lambda: LAPTOP)
    data = dict(header(plan_of(RUNS["ncf"])))
    data["settings"] = {**data["settings"], "device": "cuda"}
    with pytest.raises(Unsupported, match="DEVICE=cpu"):
        prepare_replay(data, replay_options(tmp_path), (0,))
