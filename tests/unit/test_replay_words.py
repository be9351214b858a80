"""A log alone makes the same run again: words from its header compose to the settings that it states."""

from __future__ import annotations

from collections.abc import Mapping
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
from suite.replay import again
from suite.replay.again import ReplayOptions
from suite.replay.words import words_of
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
    "no fingerprint": ["workload=word2vec", "framework=pytorch", "data=synthetic", "fingerprint=false"],
}


def planned(words: list[str] | tuple[str, ...]) -> Plan:
    with composer() as compose:
        return resolve(compose([*words, "data_root=data"]), LAPTOP, no_engine)


def run_of(plan: Plan, replayed: tuple[int, ...] = ()) -> PreparedRun:
    """The run of ``plan``, of one on real data with what stands for its dataset."""
    dataset = prepare_data(replace(plan, key=replace(benchmark(plan), data="synthetic")))
    workers = NativeWorkers(Path("/env/bin/python"), plan.threads, "passive", "")
    resources = Resources(dataset, workers, None, NO_CUSTOM_CODE)
    data = build_header(plan, load(plan.rules_version), dataset, None, NO_CUSTOM_CODE, b"", 1)
    return PreparedRun(plan, resources, 1, b"", data, replayed)


def header(plan: Plan) -> Mapping[str, Any]:
    return run_of(plan).header


@pytest.mark.parametrize("run", RUNS)
def test_a_header_makes_the_same_run_again(run: str) -> None:
    first = planned(RUNS[run])
    words = words_of(header(first), None, None)
    second = replace(planned(words), run_id=first.run_id)
    assert header(second)["overrides"] != header(first)["overrides"]
    assert {item.name: item.outcome for item in identity(header(first), header(second))} == dict.fromkeys(
        ("image", "code", "dataset", "settings"), EQUAL
    )
    seeds = [[run_of(plan).seed(repeat) for repeat in range(5)] for plan in (first, second)]
    assert seeds[0] == seeds[1]


def test_a_replay_has_the_seeds_of_the_repeats_that_it_runs_again() -> None:
    plan = planned(RUNS["ncf"])
    whole, chosen = run_of(plan), run_of(replace(plan, repeats=2), (3, 1))
    assert [chosen.seed(0), chosen.seed(1)] == [whole.seed(3), whole.seed(1)]


def test_own_files_are_asked_for_by_their_digest(tmp_path: Path) -> None:
    data = dict(header(planned(RUNS["ncf"])))
    with pytest.raises(BadConfiguration, match="ran the suite's own"):
        words_of(data, tmp_path / "pair.py", None)
    data["settings"] = {**data["settings"], "custom_pair": "ab" * 32}
    with pytest.raises(BadConfiguration, match=f"SHA-256 {'ab' * 32}.*PAIR=path"):
        words_of(data, None, None)
    assert f'pair="{tmp_path}/pair.py"' in words_of(data, tmp_path / "pair.py", None)


def test_limits_and_own_images_are_words_again() -> None:
    data = dict(header(planned(RUNS["ncf"])))
    image = "registry.example/own@sha256:" + "1" * 64
    limits = {"cpus": "1.5", "cpuset": "0-3,5", "memory_bytes": 8 << 30, "shm_bytes": 1 << 30}
    data["settings"] = {**data["settings"], **limits, "custom_image": image}
    data["runtime"] = "docker"
    with composer() as compose:
        found = compose(words_of(data, None, None))
    assert (found.image, found.runtime) == (image, "docker")
    asked = found.limits
    assert (asked.cpus, asked.cpuset) == ("1.5", "0-3,5")
    assert (asked.memory_bytes, asked.shm_bytes) == (8 << 30, 1 << 30)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("threads", None), ("threads", "2,3"), ("wait_policy", "${oc.env:HOME}"), ("fast", "yes")),
        *(("cpuset", "${oc.env:HOME}"), ("memory_bytes", "8g"), ("storage", "files,lmdb")),
        ("custom_image", "${oc.env:HOME}@sha256:" + "1" * 64),
    ],
)
def test_a_setting_that_no_run_has_becomes_no_word(name: str, value: object) -> None:
    """A log's settings are free text: none may reach Hydra, which resolves variables, as it stands."""
    data = dict(header(planned(RUNS["ncf"])))
    data["settings"] = {**data["settings"], name: value}
    with pytest.raises(BadConfiguration, match=rf"settings\.{name}"):
        words_of(data, None, None)


def here(place: Path, **more: Any) -> ReplayOptions:
    return ReplayOptions(place, place / "data", place / "cache", **more)


def test_other_code_is_refused_with_the_commit_to_check_out(tmp_path: Path) -> None:
    data = header_of(Good())
    with pytest.raises(RuleProblem) as refused:
        again.ready(data, here(tmp_path), (0,))
    assert data["code_digest"] in str(refused.value)
    assert data["git"]["commit"] in str(refused.value)
    assert "OTHER_CODE=1" in str(refused.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"mode": "quality"}, "found mode quality"),
        ({"rules": {"version": "0.2"}}, "found 0.2"),
        ({"kind": "conversion"}, "found a conversion"),
    ],
)
def test_what_is_no_replay_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    data = header_of(Good())
    data = {
        **data,
        **{name: {**data[name], **new} if isinstance(new, dict) else new for name, new in change.items()},
    }
    with pytest.raises(Unsupported, match=said):
        again.ready(data, here(tmp_path, other_code=True), (0,))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--nonce", "ab"], "--nonce: expected 64"),
        (["--device", "cpu", "--key", "none.pem"], "prove no time"),
        (["--repeats", "6"], "expected 1 to 5"),
        (["--device", "cpu", "--framework", "jax", "--other-code"], "framework"),
    ],
)
def test_a_command_that_cannot_be_carried_out_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    result = write_good(tmp_path / "results")
    places = ["--out", str(tmp_path / "out"), "--cache-dir", str(tmp_path), "--data-root", str(tmp_path)]
    assert main(["audit-replay", "--result", str(result), *places, *options]) != 0
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_replay_goes_nowhere_into_the_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = write_good(tmp_path)
    assert main(["audit-replay", "--result", str(result), "--out", str(result / "out")]) == 2
    assert "outside of the result" in capsys.readouterr().err


def test_a_gpu_run_without_a_gpu_is_told_of_the_first_steps(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(again, "detect_machine", lambda: LAPTOP)
    data = dict(header(planned(RUNS["ncf"])))
    data["settings"] = {**data["settings"], "device": "cuda"}
    with pytest.raises(Unsupported, match="DEVICE=cpu"):
        again.ready(data, here(tmp_path), (0,))
