"""Scores and verdicts on published folders equal those of MLCommons' own tools, or the test states why not.

The oracle is ``mlperf_logging``: its result summarizer and its package checker (without reference convergence
points, which need runs of the reference). It reads no logs of v0.5, to which ``test_mllog_samples.py``
applies the rules of the round by hand.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from suite.mllog import verify
from suite.sandbox.sandbox import Sandbox
from tests.fixtures.mlperf_logs import (
    START_MS,
    SYSTEM,
    changed,
    mll,
    mllog,
    moved,
    publish,
    run_v07,
    system_description,
    time_of,
    without,
)

summarizer = pytest.importorskip(
    "mlperf_logging.result_summarizer.result_summarizer",
    reason="mlperf-logging is not installed: make test installs it",
)
package_checker = pytest.importorskip("mlperf_logging.package_checker.package_checker")
compliance = pytest.importorskip("mlperf_logging.compliance_checker.mlp_compliance")

Lines = list[str]
# The hyperparameters that the rule files of these rounds require of a log.
REQUIRED: dict[str, dict[str, Any]] = {
    "gnmt": {
        "opt_learning_rate_alt_decay_func": False, "opt_learning_rate_decay_factor": 0.5,
        "opt_learning_rate_decay_interval": 809, "opt_learning_rate_decay_steps": 4,
        "opt_learning_rate_remain_steps": 6453, "max_sequence_length": 75,
        "opt_learning_rate_alt_warmup_func": True, "opt_learning_rate_warmup_steps": 200,
    },
    "resnet": {
        "sgd_opt_base_learning_rate": 7.4, "sgd_opt_end_learning_rate": 0.0001,
        "sgd_opt_learning_rate_decay_poly_power": 2, "sgd_opt_learning_rate_decay_steps": 42,
        "sgd_opt_weight_decay": 0.0001, "sgd_opt_momentum": 0.9, "model_bn_span": 208,
        "opt_learning_rate_warmup_epochs": 3,
    },
    "stable_diffusion": {
        "opt_name": "adamw", "opt_adamw_beta_1": 0.9, "opt_adamw_beta_2": 0.999, "opt_adamw_epsilon": 1e-08,
        "opt_adamw_weight_decay": 0.01, "opt_learning_rate_warmup_steps": 1000,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(verify.MLLOG_TASKS) as one:
        yield one


def complete(benchmark: str, run: int) -> Lines:
    """An honest log with every key that the rule files require."""
    lines = run_v07(benchmark, run)
    required = REQUIRED[benchmark]
    for key in required:
        lines = without(lines, key)
    at = next(index for index, line in enumerate(lines) if '"init_stop"' in line)
    added = [mllog(key, value, time_of(lines, "init_start")) for key, value in required.items()]
    return [*lines[:at], *added, *lines[at:]]


def official(folder: Path, ruleset: str) -> tuple[float | None, bool]:
    """The score and the verdict of MLCommons' tools."""
    compliance.enqueued_configs.clear()
    score, _, _ = summarizer._compute_strong_score_standalone(
        folder.name, "a_system", False, str(folder), "training", ruleset
    )
    compliance.enqueued_configs.clear()
    accepted = package_checker.check_training_result_files(
        str(folder.parents[2]), "training", ruleset, True, False, True, False, False
    )
    return score, accepted


def below(lines: Lines) -> Lines:
    """The target is never met."""
    return changed(changed(lines, "eval_accuracy", value=0.2), "run_stop", metadata={"status": "aborted"})


def lost(lines: Lines) -> Lines:
    """The target is met at the first evaluation only."""
    at = next(index for index, line in enumerate(lines) if '"eval_accuracy"' in line)
    later = changed(lines, "eval_accuracy", value=0.2)
    return [*later[:at], *changed([lines[at]], "eval_accuracy", value=0.77), *later[at + 1 :]]


def second_rank(lines: Lines) -> Lines:
    """Another rank logs the start of the run 40 ms later, and its end 25 ms later."""
    shifted = moved(lines, lambda event: event["time_ms"] + (40 if event["key"] == "run_start" else 25))
    mixed = []
    for line, later in zip(lines, shifted, strict=True):
        mixed += [f"0: {line}", f"1: {later}"] if '"run_st' in line else [f"0: {line}"]
    return mixed


def percent(lines: Lines) -> Lines:
    return changed(lines, "eval_accuracy", value=76.1)


def rounded(lines: Lines) -> Lines:
    return changed(lines, "eval_accuracy", value=0.7589999)


def long_start(lines: Lines) -> Lines:
    return changed(lines, "init_start", time_ms=time_of(lines, "init_stop") - 31 * 60_000)


def corrupt(lines: Lines) -> Lines:
    return [*lines, ':::MLLOG {"namespace": "", "time_ms']


def prefixed(lines: Lines) -> Lines:
    return ["starting", *(f" 50%|#####     | 3/6 0: {line}" for line in lines), "done"]


def no_stop(lines: Lines) -> Lines:
    return without(lines, "run_stop")


def no_platform(lines: Lines) -> Lines:
    return without(lines, "submission_platform")


def repeated_header(lines: Lines) -> Lines:
    return [*lines[:5], *lines[:5], *lines[5:]]


def write_scaling(folder: Path) -> None:
    (folder / "scaling.json").write_text('{"scaling_factor": 1.0042}')


def nothing(folder: Path) -> None:
    pass


def remove_one(folder: Path) -> None:
    (folder / "result_3.txt").unlink()


def known_file(folder: Path) -> None:
    (folder / "package_checker_params").write_text("rcp-bypass")


def empty_fields(folder: Path) -> None:
    value = system_description(cooling="", host_processor_caches="", accelerator_interconnect="")
    (folder.parents[2] / "systems" / f"{SYSTEM}.json").write_text(json.dumps(value))


def same_seed(folder: Path) -> None:
    for path in folder.glob("result_*.txt"):
        path.write_text("\n".join(changed(path.read_text().splitlines(), "seed", value=1)))


# The edit of each log, how many logs of the folder it is made to, and the change of the folder.
CASES: dict[str, tuple[Callable[[Lines], Lines], int, Callable[[Path], None]]] = {
    "honest": (list, 0, nothing),
    "scaled": (list, 0, write_scaling),
    "one aborted": (below, 1, nothing),
    "two aborted": (below, 2, nothing),
    "target met first, lost last": (lost, 5, nothing),
    "a second rank": (second_rank, 5, nothing),
    "percent in two": (percent, 2, nothing),
    "just below the target": (rounded, 2, nothing),
    "31 minutes of initialisation": (long_start, 2, nothing),
    "a corrupt line": (corrupt, 1, nothing),
    "text around the lines": (prefixed, 5, nothing),
    "one without end": (no_stop, 1, nothing),
    "two without platform": (no_platform, 2, nothing),
    "a header twice": (repeated_header, 5, nothing),
    "four runs": (list, 0, remove_one),
    "parameters of the package checker": (list, 0, known_file),
    "empty fields": (list, 0, empty_fields),
    "the same seed": (list, 0, same_seed),
}


def assert_equal(folder: Path, ruleset: str, sandbox: Sandbox) -> dict[str, Any]:
    """Score and verdict equal those of MLCommons' tools; returns the score."""
    (examined,) = verify.verify_tree(sandbox, folder)["folders"]
    expected_score, expected_accepted = official(folder, ruleset)  # afterwards: it rewrites scaling.json
    errors = [one for one in examined["outcomes"] if one["outcome"] == "error"]
    assert examined["score"]["minutes"] == pytest.approx(expected_score, abs=1e-9), examined["outcomes"]
    assert (not errors) == expected_accepted, errors
    score: dict[str, Any] = examined["score"]
    return score


@pytest.mark.parametrize("name", CASES)
def test_score_and_verdict_of_resnet_equal_official_ones(name: str, tmp_path: Path, sandbox: Sandbox) -> None:
    edit, count, change = CASES[name]
    logs = [complete("resnet", run) for run in range(5)]
    folder = publish(
        tmp_path, [edit(log) if run < count else log for run, log in enumerate(logs)], round_="4.0"
    )
    change(folder)
    assert_equal(folder, "4.0.0", sandbox)


@pytest.mark.parametrize(("edited", "value"), [(1, 0.2), (2, 0.2), (3, 24.1)])
def test_gnmt_of_v07_equals_official_ones(
    edited: int, value: float, tmp_path: Path, sandbox: Sandbox
) -> None:
    """Ten runs; BLEU in percent does not meet the target of v0.7."""
    logs = [complete("gnmt", run) for run in range(10)]
    logs[:edited] = [changed(log, "eval_accuracy", value=value) for log in logs[:edited]]
    score = assert_equal(publish(tmp_path, logs, "gnmt", "0.7"), "0.7.0", sandbox)
    assert (score["minutes"] is None) == (edited > 1)


@pytest.mark.parametrize("missing", [4, 5])
def test_unet3d_tolerates_four_of_forty_runs(missing: int, tmp_path: Path, sandbox: Sandbox) -> None:
    """In the open division, in which no target is required since v1.0."""
    logs = [changed(run_v07("resnet", run), "submission_benchmark", value="unet3d") for run in range(40)]
    logs = [changed(log, "submission_division", value="open") for log in logs]
    logs[:missing] = [no_stop(log) for log in logs[:missing]]
    folder = publish(tmp_path, logs, "unet3d", "1.0")
    (folder.parents[2] / "systems" / f"{SYSTEM}.json").write_text(
        json.dumps(system_description(division="open"))
    )
    score = assert_equal(folder, "1.0.0", sandbox)
    assert score["counted"] == (32 if missing < 5 else 0)


def in_v06(lines: Lines) -> Lines:
    """The same run in the format of v0.6, with the keys that its rule files require."""
    events = [json.loads(text.removeprefix(":::MLLOG ")) for text in lines]
    stated = {"submission_poc_name": "a name", "submission_entry": "an entry"}
    return [
        *(mll(key, value, START_MS) for key, value in stated.items()),
        *(mll(one["key"], one["value"], one["time_ms"], **one["metadata"]) for one in events),
    ]


@pytest.mark.parametrize("failed", [0, 1, 2])
def test_gnmt_of_v06_equals_official_ones(failed: int, tmp_path: Path, sandbox: Sandbox) -> None:
    """BLEU in percent, which the official rule file for v0.6 does not compare with the target.

    The summarizer of 4.1.68 divides by milliseconds a minute, but times of v0.6 are seconds.
    """
    logs = [changed(complete("gnmt", run), "eval_accuracy", value=24.12) for run in range(10)]
    logs[:failed] = [changed(log, "run_stop", metadata={"status": "aborted"}) for log in logs[:failed]]
    folder = publish(tmp_path, [in_v06(log) for log in logs], "gnmt", "0.6")
    (examined,) = verify.verify_tree(sandbox, folder)["folders"]
    score, accepted = official(folder, "0.6.0")
    assert (score is None) == (failed > 1)
    assert accepted == all(one["outcome"] != "error" for one in examined["outcomes"]) == (failed <= 1)
    minutes = examined["score"]["minutes"]
    assert minutes == (None if score is None else pytest.approx(1000 * score, rel=1e-6))


PRECISIONS = {f"lowest_numerical_precision_in_{part}": "fp8" for part in ("linear", "attn", "comm")}
PARALLEL = dict.fromkeys([f"{kind}_parallelism" for kind in ("tensor", "pipeline", "context", "expert")], 1)
STATED_SINCE_V61 = {**PRECISIONS, **PARALLEL, "micro_batch_size": 1, "config_filename": "a.yaml"}


@pytest.mark.parametrize(
    ("mlperf_round", "benchmark", "runs"),
    [("1.1", "resnet", 5), ("2.0", "resnet", 5), ("2.1", "bert", 10), ("3.0", "bert", 10),
     ("3.1", "bert", 10), ("4.1", "bert", 10), ("5.0", "retinanet", 5), ("5.1", "llama31_8b", 10),
     ("6.0", "llama31_8b", 10), ("6.1", "llama31_8b", 10)],
)  # fmt: skip
def test_open_results_of_the_other_rounds_equal_official_ones(
    mlperf_round: str, benchmark: str, runs: int, tmp_path: Path, sandbox: Sandbox
) -> None:
    """One run without end is tolerated. Their rule files require hyperparameters of closed results only."""
    logs = [changed(run_v07("resnet", run), "submission_benchmark", value=benchmark) for run in range(runs)]
    logs = [changed(log, "submission_division", value="open") for log in logs]
    logs = [changed(log, "eval_accuracy", metadata={"samples_count": 1024}) for log in logs]
    if mlperf_round == "6.1":
        added = [mllog(key, value, START_MS) for key, value in STATED_SINCE_V61.items()]
        logs = [[*log[:8], *added, *log[8:]] for log in logs]
    folder = publish(tmp_path, [no_stop(logs[0]), *logs[1:]], benchmark, mlperf_round)
    description = system_description(division="open")
    (folder.parents[2] / "systems" / f"{SYSTEM}.json").write_text(json.dumps(description))
    assert assert_equal(folder, f"{mlperf_round}.0", sandbox)["minutes"] > 4


def diffusion(run: int, fids: Sequence[float], offline_ms: float = 0) -> Lines:
    """A log of Stable Diffusion, whose two metrics are logged one after the other, possibly after the run."""
    lines = without(complete("stable_diffusion", run), "eval_accuracy")
    end = time_of(lines, "run_stop")
    for index, fid in enumerate(fids):
        at, samples = end - 2000 + offline_ms + 500 * index, 512_000 * (index + 1)
        lines.insert(-1, mllog("eval_accuracy", fid, at, samples_count=samples, metric="FID"))
        lines.insert(-1, mllog("eval_accuracy", 0.16, at + 300, samples_count=samples, metric="CLIP"))
    status = "success" if min(fids) <= 90 else "aborted"
    return changed(lines, "run_stop", metadata={"status": status})


@pytest.mark.parametrize(
    ("fids", "offline_ms", "edited"),
    [((95.0, 88.0), 0, 10), ((88.0, 95.0), 0, 10), ((95.0, 88.0), 600_000, 10), ((95.0, 94.0), 0, 1),
     ((95.0, 94.0), 0, 2)],
)  # fmt: skip
def test_stable_diffusion_requires_one_evaluation_that_meets(
    fids: Sequence[float], offline_ms: float, edited: int, tmp_path: Path, sandbox: Sandbox
) -> None:
    """The last one may miss the target, and all may be made offline, after the run."""
    logs = [diffusion(run, fids if run < edited else (95.0, 88.0), offline_ms) for run in range(10)]
    score = assert_equal(publish(tmp_path, logs, "stable_diffusion", "4.0"), "4.0.0", sandbox)
    assert (score["minutes"] is None) == (fids[1] == 94.0 and edited == 2)


def test_weak_scaling_states_models_and_time_as_official_tools_do(tmp_path: Path, sandbox: Sandbox) -> None:
    """Six instances of one HPC job, of which one has no end."""
    logs = [changed(run_v07("deepcam", run), "submission_division", value="open") for run in range(6)]
    added = [mllog("number_of_nodes", 4, START_MS), mllog("accelerators_per_node", 8, START_MS)]
    logs = [[*log[:8], *added, *log[8:]] for log in logs]
    logs[5] = no_stop(logs[5])
    folder = publish(tmp_path, logs, "deepcam", "2.0")
    (folder.parent / "weak").mkdir()
    folder = folder.rename(folder.parent / "weak" / "deepcam")
    scores, _ = summarizer._compute_weak_score_standalone(
        "deepcam", SYSTEM, False, str(folder), "hpc", "2.0.0"
    )
    models, minutes = scores["deepcam:number_of_models"], scores["deepcam:time_to_train_all"]
    (examined,) = verify.verify_tree(sandbox, folder)["folders"]
    assert examined["score"]["reason"].endswith(f"{models} models in {minutes:.3f} minutes")


def test_aborted_run_that_met_the_target_differs(tmp_path: Path, sandbox: Sandbox) -> None:
    """The result summarizer counts it, because its rule files only require that a status is there.

    MLCommons' check of reference convergence counts the same run as one that did not converge. So do we.
    """
    logs = [complete("resnet", run) for run in range(5)]
    logs[0] = changed(logs[0], "run_stop", metadata={"status": "aborted"})
    folder = publish(tmp_path, logs, round_="4.0")
    score, _ = official(folder, "4.0.0")
    (examined,) = verify.verify_tree(sandbox, folder)["folders"]
    minutes = sorted(log["minutes"] for log in examined["logs"])
    assert score == pytest.approx(sum(minutes[1:4]) / 3)
    others = sorted(log["minutes"] for log in examined["logs"][1:])
    assert examined["score"]["minutes"] == pytest.approx(sum(others[1:]) / 3)


def test_missing_hyperparameter_differs(tmp_path: Path, sandbox: Sandbox) -> None:
    """MLCommons' rule files require one of every run of ResNet; we do not check tables of hyperparameters."""
    logs = [complete("resnet", run) for run in range(5)]
    logs[0] = without(logs[0], "sgd_opt_momentum")
    folder = publish(tmp_path, logs, round_="4.0")
    score, _ = official(folder, "4.0.0")
    (examined,) = verify.verify_tree(sandbox, folder)["folders"]
    minutes = [log["minutes"] for log in examined["logs"]]
    assert score == pytest.approx(sum(sorted(minutes[1:])[1:]) / 3)  # as if it had not converged
    assert examined["score"]["minutes"] == pytest.approx(sum(sorted(minutes)[1:4]) / 3)


@pytest.mark.parametrize("name", ["a copy", "run_stop a tenth earlier", "division open in one log"])
def test_edits_that_official_tools_accept_are_errors(name: str, tmp_path: Path, sandbox: Sandbox) -> None:
    """The verdict differs, because MLCommons' tools do not look at times; the score is the same."""
    logs = [complete("resnet", run) for run in range(5)]
    if name == "a copy":
        logs[3] = changed(moved(logs[1], lambda event: event["time_ms"] + 86_400_000), "seed", value=4711)
    elif name == "run_stop a tenth earlier":
        start, stop = time_of(logs[1], "run_start"), time_of(logs[1], "run_stop")
        logs[1] = changed(logs[1], "run_stop", time_ms=stop - (stop - start) // 10)
    else:
        logs[1] = changed(logs[1], "submission_division", value="open")
    folder = publish(tmp_path, logs, round_="4.0")
    score, accepted = official(folder, "4.0.0")
    value = verify.verify_tree(sandbox, folder)
    assert accepted
    assert value["errors"] == 1
    assert value["folders"][0]["score"]["minutes"] == pytest.approx(score)
