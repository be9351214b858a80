"""The checks of published logs: honest logs pass, and each edit fails the check meant for it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from suite.mllog.examine import examine
from suite.mllog.outcomes import CHECKS, ERROR, INFORMATION, PASSED, WARNING
from tests.fixtures.mlperf_logs import (
    START_MS,
    changed,
    mllog,
    moved,
    publish,
    run_v05,
    run_v06,
    run_v07,
    system_description,
    time_of,
    without,
)

RUNS = 5
Lines = list[str]


def found(path: Path, requested_round: str = "any") -> dict[str, Any]:
    """The outcomes for ``path``, as the sandbox returns them."""
    value: dict[str, Any] = json.loads(json.dumps(examine(path, requested_round), allow_nan=False))
    return value


def outcomes(value: dict[str, Any], *severities: str) -> set[str]:
    return {one["check"] for one in value["outcomes"] if one["outcome"] in severities}


def worst_outcome(value: dict[str, Any], check: str) -> dict[str, Any]:
    """The worst outcome of a check."""
    rows = [one for one in value["outcomes"] if one["check"] == check]
    worst: dict[str, Any] = min(
        rows, key=lambda one: (ERROR, WARNING, INFORMATION, PASSED).index(one["outcome"])
    )
    return worst


def five(edit: Callable[[Lines], Lines] = list, edited: Sequence[int] = (2,)) -> list[Lines]:
    """Five honest logs of which some are edited."""
    return [edit(run_v07(run=run)) if run in edited else run_v07(run=run) for run in range(RUNS)]


def test_honest_folder_passes_every_check(tmp_path: Path) -> None:
    value = found(publish(tmp_path, five()))
    assert (outcomes(value, ERROR, WARNING), outcomes(value, INFORMATION)) == (set(), set())
    assert outcomes(value, PASSED) == set(CHECKS) - {"duplicates"}
    assert (value["round"], value["benchmark"], value["forms"]) == ("2.0", "resnet", ["v0.7"])
    assert value["layout"] == {
        "org": "ExampleOrg", "system": "a_system", "benchmark": "resnet", "scaling": None,
    }  # fmt: skip


def test_score_is_mean_without_fastest_and_slowest_run(tmp_path: Path) -> None:
    value = found(publish(tmp_path, five()))
    minutes = sorted(log["minutes"] for log in value["logs"])
    assert value["score"]["minutes"] == pytest.approx(sum(minutes[1:4]) / 3)
    assert (value["score"]["counted"], value["score"]["converged"]) == (3, 5)
    first = run_v07(run=0)
    assert value["logs"][0]["minutes"] == pytest.approx(
        (time_of(first, "run_stop") - time_of(first, "run_start")) / 60_000
    )


def not_converged(lines: Lines) -> Lines:
    return changed(changed(lines, "eval_accuracy", value=0.7), "run_stop", metadata={"status": "aborted"})


def test_score_drops_one_unconverged_run_as_slowest(tmp_path: Path) -> None:
    value = found(publish(tmp_path, five(not_converged)))
    minutes = sorted(log["minutes"] for log in value["logs"] if log["status"] == "success")
    assert value["score"]["minutes"] == pytest.approx(sum(minutes[1:]) / 3)
    assert (value["score"]["counted"], value["score"]["converged"]) == (3, 4)


def test_two_unconverged_runs_give_no_score(tmp_path: Path) -> None:
    runs = [not_converged(run_v07(run=run)) if run < 2 else run_v07(run=run) for run in range(RUNS)]
    value = found(publish(tmp_path, runs))
    assert value["score"]["minutes"] is None
    assert worst_outcome(value, "score")["found"] == "2 runs did not converge, at most 1 may"


def test_v06_and_v05_pass_the_checks_of_their_rounds(tmp_path: Path) -> None:
    value = found(publish(tmp_path, [run_v06(run=run) for run in range(10)], "gnmt", "0.6"))
    assert (outcomes(value, ERROR, WARNING), value["round"]) == (set(), "0.6")
    assert outcomes(value, INFORMATION) == {"types", "seeds"}
    assert value["score"]["counted"] == 8
    early = publish(
        tmp_path / "early", [run_v05(run=run, converged=run % 3 > 0) for run in range(100)], "ncf", "0.5"
    )
    shutil.rmtree(early.parents[2] / "systems")
    value = found(early)
    assert outcomes(value, ERROR, WARNING) == {"status", "quality"}  # of the runs that did not converge
    assert outcomes(value, INFORMATION) == {"types", "submission", "init", "system"}
    assert (value["score"]["counted"], value["score"]["converged"]) == (
        48,
        66,
    )  # of the first 50 that converged
    assert value["logs"][0]["seeds"] == ["7000"]


def double(lines: Lines) -> Lines:
    return [*lines, *lines]


def halved(lines: Lines) -> Lines:
    """run_stop at half of the run: now before some evaluation."""
    start, stop = time_of(lines, "run_start"), time_of(lines, "run_stop")
    return moved(lines, lambda e: (start + stop) // 2 if e["key"] == "run_stop" else e["time_ms"])


def a_tenth_earlier(lines: Lines) -> Lines:
    """run_stop a tenth of the run earlier."""
    start, stop = time_of(lines, "run_start"), time_of(lines, "run_stop")
    return moved(lines, lambda e: stop - (stop - start) // 10 if e["key"] == "run_stop" else e["time_ms"])


def backwards(lines: Lines) -> Lines:
    start = time_of(lines, "run_start")
    return moved(lines, lambda e: start - 5 if e["key"] == "run_stop" else e["time_ms"])


def started_late(lines: Lines) -> Lines:
    """run_start one millisecond before run_stop."""
    stop = time_of(lines, "run_stop")
    return moved(lines, lambda e: stop - 1 if e["key"] == "run_start" else e["time_ms"])


def ranked(lines: Lines) -> Lines:
    return [f"0: {line}" for line in lines]


def shuffled(lines: Lines) -> Lines:
    return [*lines[:20], *reversed(lines[20:])]


def second_stop(lines: Lines) -> Lines:
    stop = mllog("run_stop", None, time_of(lines, "run_start") + 9, "INTERVAL_END", status="success")
    return [*lines[:22], stop, *lines[22:]]


def peaked(lines: Lines) -> Lines:
    """The target is met at the first evaluation and lost at the last one."""
    edited, first = [], True
    for line in lines:
        value = (0.77 if first else 0.7) if '"key": "eval_accuracy"' in line else None
        edited += changed([line], "eval_accuracy", value=value) if value else [line]
        first = first and value is None
    return edited


# Each edit, made to two of five logs, with the check that finds it and the severity.
EDITS: dict[str, tuple[Callable[[Lines], Lines], str, str]] = {
    "run_stop before run_start": (backwards, "interval", ERROR),
    "init_stop too late": (
        lambda r: changed(r, "init_stop", time_ms=START_MS + 29_990_000), "interval", WARNING,
    ),
    "a start of 25 hours": (lambda r: changed(r, "init_start", time_ms=START_MS - 90_000_000), "init", ERROR),
    "run_start just before run_stop": (started_late, "within run", ERROR),
    "run_stop halved": (halved, "within run", ERROR),
    "run_stop a tenth earlier": (a_tenth_earlier, "within run", ERROR),
    "lines shuffled, one rank": (lambda r: ranked(shuffled(r)), "order", WARNING),
    "time NaN": (lambda r: changed(r, "eval_accuracy", time_ms=float("nan")), "lines", ERROR),
    "times as texts": (lambda r: moved(r, lambda e: str(e["time_ms"])), "lines", ERROR),
    "a second, earlier run_stop": (second_stop, "life", ERROR),
    "every epoch number 1": (
        lambda r: changed(r, "eval_accuracy", metadata={"epoch_num": 1}), "history", WARNING,
    ),
    "epoch numbers backwards": (
        lambda r: [line.replace('"epoch_num": 3', '"epoch_num": 1') for line in r], "history", WARNING,
    ),
    "log appended to itself, later": (lambda r: [*r, *moved(r, lambda e: e["time_ms"] + 9)], "life", ERROR),
    "a corrupt line": (lambda r: [*r, ":::MLLOG {"], "lines", ERROR),
    "run_stop missing": (lambda r: without(r, "run_stop"), "life", ERROR),
    "run_start missing": (lambda r: without(r, "run_start"), "life", ERROR),
    "target met first and lost last": (peaked, "quality", WARNING),
    "last evaluation below the target": (lambda r: changed(r, "eval_accuracy", value=0.7), "quality", ERROR),
    "an accuracy as text": (lambda r: changed(r, "eval_accuracy", value="0.99"), "quality", ERROR),
    "no evaluation": (lambda r: without(r, "eval_accuracy"), "quality", ERROR),
    "cache_clear false": (lambda r: changed(r, "cache_clear", value=False), "settings", WARNING),
    "aborted": (lambda r: changed(r, "run_stop", metadata={"status": "aborted"}), "status", ERROR),
    "a status that is none": (
        lambda r: changed(r, "run_stop", metadata={"status": "splendid"}), "status", ERROR,
    ),
    "an unknown event type": (lambda r: changed(r, "seed", event_type="SOMETHING"), "types", WARNING),
    "batch of -1": (lambda r: changed(r, "global_batch_size", value=-1), "settings", WARNING),
    "half a sample": (lambda r: changed(r, "train_samples", value=0.5), "settings", WARNING),
    "learning rate a text": (
        lambda r: changed(r, "opt_base_learning_rate", value="fast"), "equal settings", WARNING,
    ),
    "another batch": (lambda r: changed(r, "global_batch_size", value=4096), "equal settings", ERROR),
    "a setting that is missing": (lambda r: without(r, "opt_name"), "equal settings", WARNING),
    "another run's seed": (lambda r: changed(r, "seed", value=1000), "seeds", ERROR),
    "no seed": (lambda r: without(r, "seed"), "seeds", ERROR),
    "another organisation": (lambda r: changed(r, "submission_org", value="Others"), "folder", WARNING),
    "two organisations": (
        lambda r: [*r, mllog("submission_org", "Others", START_MS + 1)], "submission", ERROR,
    ),
    "no platform": (lambda r: without(r, "submission_platform"), "submission", ERROR),
    "division spelled otherwise": (
        lambda r: changed(r, "submission_division", value="Closed"), "submission", ERROR,
    ),
    "another division": (lambda r: changed(r, "submission_division", value="open"), "system", ERROR),
    "another status": (lambda r: changed(r, "submission_status", value="cloud"), "system", WARNING),
    "another benchmark": (lambda r: changed(r, "submission_benchmark", value="ssd"), "folder", ERROR),
    "all log lines removed": (lambda r: ["Epoch 1"], "lines", ERROR),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_edit_of_one_log_fails_its_check(name: str, tmp_path: Path) -> None:
    edit, check, severity = EDITS[name]
    value = found(publish(tmp_path, five(edit, (2, 3))))
    row = worst_outcome(value, check)
    assert row["outcome"] == severity, value["outcomes"]
    assert row["found"]
    assert row["expected"]


def test_decreasing_times_are_undecided_without_process_names(tmp_path: Path) -> None:
    value = found(publish(tmp_path, five(shuffled)))
    assert worst_outcome(value, "order")["outcome"] == INFORMATION
    assert "no rank or namespace" in worst_outcome(value, "order")["found"]


def test_events_logged_by_all_ranks_pass(tmp_path: Path) -> None:
    """Two ranks that log the same, interleaved, headers printed late and an evaluation after run_stop."""

    def two_ranks(lines: Lines) -> Lines:
        late = moved(lines, lambda e: e["time_ms"] + 3)
        mixed = [
            line
            for pair in zip([f"0: {x}" for x in lines], [f"1: {x}" for x in late], strict=True)
            for line in pair
        ]
        return [*mixed[12:], "2: " + mllog("submission_poc_name", "somebody", START_MS), *mixed[:12]]

    runs = [two_ranks(run_v07(run=run)) for run in range(RUNS)]
    value = found(publish(tmp_path, runs))
    assert (outcomes(value, ERROR, WARNING), outcomes(value, INFORMATION)) == (set(), set())
    assert value["score"]["minutes"] is not None
    plain = [[line.split(": ", 1)[1] for line in lines] for lines in runs]
    value = found(publish(tmp_path / "unlabelled", plain))
    assert (outcomes(value, ERROR, WARNING), outcomes(value, INFORMATION)) == (set(), {"life", "order"})


def test_training_may_go_on_after_the_target_is_met(tmp_path: Path) -> None:
    """Asynchronous training begins another epoch before it sees that the target is met."""

    def asynchronous(lines: Lines) -> Lines:
        late = time_of(lines, "run_stop") + 9000
        return [*lines, mllog("epoch_start", None, late, "INTERVAL_START", epoch_num=5)]

    value = found(publish(tmp_path, [asynchronous(run_v07(run=run)) for run in range(RUNS)]))
    assert outcomes(value, ERROR, WARNING) == set()


def test_run_stop_before_all_evaluations_is_found_by_the_training_that_follows(tmp_path: Path) -> None:
    def early(lines: Lines) -> Lines:
        return changed(lines, "run_stop", time_ms=time_of(lines, "run_start") + 30_000)

    value = found(publish(tmp_path, five(early)))
    assert worst_outcome(value, "within run")["outcome"] == ERROR
    short = [early(run_v07(run=run, epochs=1)) for run in range(RUNS)]
    value = found(publish(tmp_path / "short", short))  # as an evaluation made offline would be logged
    assert worst_outcome(value, "within run")["outcome"] == WARNING


def test_repeated_event_counts_once(tmp_path: Path) -> None:
    """A logger that prints every line twice, at the same time, as in some published logs."""
    runs = [
        [line for text in run_v07(run=run) for line in (text, f"I1122 log.py:136] {text}")]
        for run in range(RUNS)
    ]
    assert outcomes(found(publish(tmp_path, runs)), ERROR, WARNING) == set()


def edit_system(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path = folder.parents[2] / "systems" / "a_system.json"
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def unlink_system(folder: Path) -> None:
    (folder.parents[2] / "systems" / "a_system.json").unlink()


def link(folder: Path) -> None:
    (folder / "result_2.txt").unlink()
    (folder / "result_2.txt").symlink_to("result_1.txt")


def pipe(folder: Path) -> None:
    (folder / "result_2.txt").unlink()
    os.mkfifo(folder / "result_2.txt")


def write_system(text: str) -> Callable[[Path], Any]:
    return lambda folder: (folder.parents[2] / "systems" / "a_system.json").write_text(text)


FOLDERS: dict[str, tuple[Callable[[Path], Any], str, str]] = {
    "four of five runs": (lambda f: (f / "result_3.txt").unlink(), "runs", ERROR),
    "a sixth run": (lambda f: shutil.copy(f / "result_0.txt", f / "result_5.txt"), "runs", ERROR),
    "a file that is no log": (lambda f: (f / "notes.docx").write_text("x"), "files", WARNING),
    "a log that is a link": (link, "files", ERROR),
    "a log that is a pipe": (pipe, "files", ERROR),
    "no description": (unlink_system, "system", ERROR),
    "a description that is no JSON": (write_system("{"), "system", ERROR),
    "a description that is a list": (write_system("[]"), "system", ERROR),
    "a description without end": (write_system("[" * 5000), "system", ERROR),
    "a field missing": (lambda f: edit_system(f, lambda v: v.pop("cooling")), "system", ERROR),
    "emptied fields": (lambda f: edit_system(f, lambda v: v.update(dict.fromkeys(v, ""))), "system", WARNING),
    "another submitter": (
        lambda f: edit_system(f, lambda v: v.update(submitter="Others")),
        "system",
        WARNING,
    ),
    "another division": (lambda f: edit_system(f, lambda v: v.update(division="open")), "system", WARNING),
    "another status": (
        lambda f: edit_system(f, lambda v: v.update(status="Available cloud")),
        "system",
        WARNING,
    ),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_edit_of_folder_fails_its_check(name: str, tmp_path: Path) -> None:
    spoil, check, severity = FOLDERS[name]
    folder = publish(tmp_path, five())
    spoil(folder)
    assert worst_outcome(found(folder), check)["outcome"] == severity


def test_wrong_benchmark_folder_name_fails(tmp_path: Path) -> None:
    folder = publish(tmp_path, five())
    value = found(folder.rename(folder.with_name("ssd")))
    assert "folder" in outcomes(value, ERROR, WARNING)
    spelled = publish(tmp_path / "other", five())
    assert outcomes(found(spelled.rename(spelled.with_name("ResNet50"))), ERROR, WARNING) == set()


def test_metrics_of_one_evaluation_are_merged(tmp_path: Path) -> None:
    def diffusion(lines: Lines) -> Lines:
        lines = without(changed(lines, "submission_benchmark", value="stable_diffusion"), "eval_accuracy")
        at = time_of(lines, "run_stop") - 5
        fid = mllog("eval_accuracy", 88.0, at, samples_count=512, metric="FID")
        return [
            *lines[:-1],
            fid,
            mllog("eval_accuracy", 0.16, at + 1, samples_count=512, metric="CLIP"),
            lines[-1],
        ]

    runs = [diffusion(run_v07(run=run)) for run in range(10)]
    value = found(publish(tmp_path, runs, "stable_diffusion", "4.0"))
    assert outcomes(value, ERROR, WARNING) == set()
    assert json.loads(value["logs"][0]["last_evaluation"]["value"]) == {"CLIP": 0.16, "FID": 88.0}


def test_weak_scaling_has_no_score(tmp_path: Path) -> None:
    hpc = [changed(run_v07("deepcam", run), "submission_benchmark", value="deepcam") for run in range(7)]
    folder = publish(tmp_path, hpc, "deepcam", "2.0")
    weak = folder.parent / "weak"
    weak.mkdir()
    value = found(folder.rename(weak / "deepcam"))
    assert value["layout"]["scaling"] == "weak"
    assert worst_outcome(value, "runs")["outcome"] == PASSED
    assert worst_outcome(value, "score")["found"].startswith("weak scaling is scored by throughput: 7 models")
    assert outcomes(value, ERROR, WARNING) == set()


def test_single_log_has_only_log_checks(tmp_path: Path) -> None:
    path = publish(tmp_path, five()) / "result_3.txt"
    value = found(path)
    assert (outcomes(value, ERROR, WARNING), value["score"], len(value["logs"])) == (set(), None, 1)
    assert value["logs"][0]["minutes"] == pytest.approx(4.1, abs=0.1)


def test_v05_description_is_read_from_entry_json(tmp_path: Path) -> None:
    folder = publish(tmp_path, five(), round_="0.5")
    shutil.rmtree(folder.parents[2] / "systems")
    (folder.parent / "entry.json").write_text(json.dumps({"division": "open", "status": "on-premise"}))
    row = worst_outcome(found(folder), "system")
    assert (row["outcome"], row["expected"]) == (WARNING, "submission_division as in entry.json: open")


def test_system_fields_match_published_descriptions() -> None:
    assert len(system_description()) == 33
