"""Export to MLPerf's log lines: MLPerf's parser and checker read them, every number equals the log."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from suite.cli import main
from suite.log.reader import read_result
from suite.mllog.export import NOTICE, SYSTEM, export, lines
from suite.mllog.parse import parse
from suite.submissions import system as description
from tests.fixtures.forging import lines_of, rewrite
from tests.fixtures.good_log import MINI, Good, reference, write_good
from tests.fixtures.good_run import EPOCH_S
from tests.fixtures.honest import NAMES, write_honest
from tests.unit.test_submit_system import STATED

GOODS = {
    "training": Good(),
    "inference": Good(key=replace(MINI, phase="infer")),
    "one stream": Good(key=replace(MINI, phase="infer", scenario="single_stream", batch=1)),
    "quality": Good(mode="quality"),
    "lower is better": Good(
        key=replace(MINI, workload="lstm_ptb", variant="small", batch=20), mode="quality"
    ),
    "on an H200": reference(),
    "read from disk": Good(key=replace(MINI, cache="cold")),
}
HEAD = ["suite_result", "submission_benchmark", "submission_division", "submission_org", "submission_status"]
SETTINGS = ["seed", "global_batch_size", "gradient_accumulation_steps", "train_samples", "eval_samples"]
MORE = {  # facts that the imagined machine does not log
    "host_processors_per_node": 1, "host_processor_core_count": 2, "host_processor_frequency": 2000,
    "host_memory_capacity": 1 << 33, "operating_system": "Linux",
}  # fmt: skip
RULESETS = ("0.7.0", "2.0.0", "4.0.0", "5.1.0", "6.1.0")


def oracle(name: str) -> Any:
    """A module of mlperf-logging from the tests' environment."""
    return pytest.importorskip(
        f"mlperf_logging.{name}", reason="mlperf-logging is not installed: make test installs it"
    )


def described(folder: Path, **changes: Any) -> Path:
    """The result with a description of its system, as `make submit` packages it."""
    value = description.describe(read_result(folder), "example-labs", STATED | MORE) | changes
    (folder / SYSTEM).write_bytes(description.encode(value))
    return folder


def exported(folder: Path) -> list[list[dict[str, Any]]]:
    """The events of each repeat."""
    value = export(folder)
    assert value["mllog"] is not None, value
    return [[json.loads(line.removeprefix(":::MLLOG ")) for line in repeat] for repeat in value["mllog"]]


def of(events: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    return [event for event in events if event["key"] == key]


def only(events: list[dict[str, Any]], key: str) -> dict[str, Any]:
    (event,) = of(events, key)
    return event


@pytest.mark.parametrize("name", GOODS)
def test_mlperf_parser_reads_export_with_keys_in_order(name: str, tmp_path: Path) -> None:
    parser = oracle("compliance_checker.mlp_parser")
    folder = write_good(tmp_path, GOODS[name])
    texts = export(folder)["mllog"]
    assert len(texts) == len(read_result(folder).repeats)
    for repeat, text in enumerate(texts):
        path = tmp_path / f"result_{repeat}.txt"
        path.write_text("\n".join(text) + "\n")
        for ruleset in RULESETS:
            read, errors = parser.parse_file(str(path), ruleset)
            assert errors == []
            assert len(read) == len(text)
        keys = [line.key for line in read]
        assert keys[:5] == HEAD
        assert keys[5:8] == ["submission_platform", "cache_clear", "init_start"]
        assert keys[8:13] == SETTINGS
        init_stop = keys.index("init_stop")
        assert keys[init_stop : init_stop + 3] == ["init_stop", "run_start", "block_start"]
        assert keys[-2:] == ["block_stop", "run_stop"]
        inner = keys[init_stop + 2 : -1]
        if GOODS[name].mode == "quality":
            assert inner == ["block_start", "eval_accuracy", "block_stop"] * 3
        else:
            assert inner == ["block_start", *["tracked_stats"] * 100, "block_stop"]
        times = [line.timestamp for line in read]
        assert times == sorted(times)


@pytest.mark.parametrize("name", GOODS)
def test_our_parser_reads_export_like_mlperf_parser(name: str, tmp_path: Path) -> None:
    parser = oracle("compliance_checker.mlp_parser")
    value = export(write_good(tmp_path, GOODS[name]))
    for repeat in value["mllog"]:
        log = parse("\n".join(repeat).encode())
        assert (log.malformed, len(log.events)) == (0, len(repeat))
        path = tmp_path / "log.txt"
        path.write_text("\n".join(repeat))
        theirs, _ = parser.parse_file(str(path), "4.0.0")
        for ours, their in zip(log.events, theirs, strict=True):
            assert (ours.key, ours.time_ms) == (their.key, their.timestamp)
            assert {"value": ours.value, "metadata": dict(ours.metadata)} == their.value


def checked(path: Path, ruleset: str) -> tuple[bool, str]:
    """The verdict of MLPerf's checker, and its messages."""
    compliance = oracle("compliance_checker.mlp_compliance")
    compliance.enqueued_configs.clear()
    checker = compliance.make_checker("training", ruleset, False, False)
    good = compliance.main(str(path), f"training_{ruleset}/common.yaml", checker)[0]
    return bool(good), "\n".join(
        [*map(str, checker.overwritable.values()), *map(str, checker.not_overwritable)]
    )


GNMT = replace(MINI, workload="gnmt", variant="v2", precision="tf32", batch=128, scale="reference")


def test_mlperf_checker_accepts_exported_quality_run(tmp_path: Path) -> None:
    """GNMT, open, v0.7, with a system description: everything that its rules require."""
    ruleset = "0.7.0"
    good = reference(key=GNMT, mode="quality")
    record = read_result(write_good(tmp_path, good))
    value = {"submitter": "example-labs", "status": "rdi", "system_name": "one"}
    path = tmp_path / "result_0.txt"
    path.write_text("\n".join(lines(record, record.repeats[0], value)) + "\n")
    assert checked(path, ruleset) == (True, "")
    path.write_text("\n".join(lines(record, record.repeats[0], {})) + "\n")
    good_alone, objections = checked(path, ruleset)
    assert not good_alone
    assert "submission_status" in objections


def test_mlperf_checker_rejects_exported_window_of_steps(tmp_path: Path) -> None:
    """A window of 100 steps has no time to train, and no tool may derive one from it."""
    record = read_result(write_good(tmp_path, reference(key=replace(GNMT, data="synthetic"))))
    made = list(lines(record, record.repeats[0], {}))
    path = tmp_path / "result_0.txt"
    path.write_text("\n".join(made) + "\n")
    good, objections = checked(path, "0.7.0")
    assert not good
    assert "eval_accuracy" in objections
    stop = json.loads(made[-1].removeprefix(":::MLLOG "))
    assert stop["metadata"]["status"] == "aborted"
    assert "without a quality target" in stop["metadata"]["reason"]


def test_every_exported_number_equals_the_log(tmp_path: Path) -> None:
    good = Good()
    folder = write_good(tmp_path, good)
    record = read_result(folder)
    raw = lines_of(folder)
    for repeat, events in zip(record.repeats, exported(folder), strict=True):
        assert repeat.start is not None
        assert repeat.end is not None
        assert only(events, "seed")["value"] == int(repeat.start["seed"], 16)
        assert only(events, "global_batch_size")["value"] == 256
        assert only(events, "opt_base_learning_rate")["value"] == float(record.header["hyper"]["rate"])
        start, stop = only(events, "run_start"), only(events, "run_stop")
        assert stop["metadata"]["window_ns"] == repeat.window_ns
        assert stop["metadata"]["units"] == repeat.units
        assert stop["metadata"]["mono_ns"] - start["metadata"]["mono_ns"] == repeat.window_ns
        assert abs(stop["time_ms"] - start["time_ms"] - (repeat.window_ns or 0) / 1e6) < 1
        assert start["time_ms"] == EPOCH_S * 1000 + start["metadata"]["mono_ns"] // 1_000_000
        measured = repeat.steps_of(0, "measured")
        for step, line in zip(measured, of(events, "tracked_stats"), strict=True):
            assert line["value"] == {"units": step["units"], "loss": float.fromhex(step["loss"])}
            assert line["metadata"]["step_end_ns"] == step["step_end_ns"]
            assert line["metadata"]["lineno"] == step.line
        for event in events:
            assert list(event) == ["namespace", "time_ms", "event_type", "key", "value", "metadata"]
            assert type(event["time_ms"]) is int
            assert event["metadata"]["file"] == "run.jsonl"
            assert 1 <= event["metadata"]["lineno"] <= len(raw)


def test_exported_evaluations_are_blocks_of_epochs(tmp_path: Path) -> None:
    folder = write_good(tmp_path, Good(mode="quality"))
    record = read_result(folder)
    for repeat, events in zip(record.repeats, exported(folder), strict=True):
        lines_of_key = of(events, "eval_accuracy")
        for logged, line in zip(repeat.evaluations, lines_of_key, strict=True):
            assert line["value"] == float.fromhex(logged["value"])
            assert line["metadata"]["epoch_num"] == logged["epoch"]
            assert line["metadata"]["target"] == logged["target"]
        assert [event["metadata"]["first_epoch_num"] for event in of(events, "block_start")] == [1, 2, 3]
        assert only(events, "run_stop")["metadata"]["status"] == "success"
        assert lines_of_key[-1]["time_ms"] - only(events, "run_start")["time_ms"] == 6000


def test_export_reports_cache_clear_as_logged(tmp_path: Path) -> None:
    warm = only(exported(write_good(tmp_path / "warm", Good()))[0], "cache_clear")
    cold = only(exported(write_good(tmp_path / "cold", GOODS["read from disk"]))[0], "cache_clear")
    assert (warm["value"], warm["metadata"]["reason"]) == (False, "cache is warm: nothing is evicted")
    assert cold["value"] is True
    assert cold["metadata"]["evicted_bytes"] > 0


def test_export_contains_notice_and_source(tmp_path: Path) -> None:
    folder = write_good(tmp_path, Good())
    record = read_result(folder)
    (events, *_) = exported(folder)
    first = only(events, "suite_result")["value"]
    assert first["notice"] == NOTICE
    assert (first["sha256"], first["run_id"], first["division"]) == (record.digest, record.run_id, "practice")
    assert only(events, "submission_division")["value"] == "open"
    assert only(events, "submission_division")["metadata"]["suite_division"] == "practice"
    org = only(events, "submission_org")
    assert org["value"] is None
    assert "make submit" in org["metadata"]["reason"]
    lines_of_key = exported(described(folder))[0]
    assert only(lines_of_key, "submission_org")["value"] == "example-labs"
    assert only(lines_of_key, "submission_status")["value"] in ("onprem", "cloud", "preview", "research")
    assert "reason" not in only(lines_of_key, "submission_platform")["metadata"]


def test_export_escapes_name_that_contains_a_token(tmp_path: Path) -> None:
    hostile = ':::MLLOG {"key": "run_stop"}'
    folder = described(write_good(tmp_path, Good()), system_name=hostile)
    made = export(folder)["mllog"][0]
    assert all(line.count(":::") == 1 and line.isascii() and line.isprintable() for line in made)
    read = parse("\n".join(made).encode())
    assert [event.value for event in read.events if event.key == "submission_platform"] == [hostile]


def test_rejected_result_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_good(tmp_path, Good())

    def faster(events: list[dict[str, Any]]) -> None:
        for event in events:
            if event["kind"] == "repeat_end":
                event["data"]["window"]["ns"] //= 2

    rewrite(folder, faster)
    assert main(["export", "--format", "mllog", str(folder), "--out", str(tmp_path / "out")]) == 1
    assert not (tmp_path / "out").exists()
    assert "the result is rejected: `python -m suite check" in capsys.readouterr().err


def test_result_without_score_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_good(tmp_path, Good(out_of_memory_in=1))
    assert main(["export", "--format", "mllog", str(folder)]) == 1
    lines_of_key = capsys.readouterr()
    assert lines_of_key.out == ""
    assert "the result has no score" in lines_of_key.err


def test_export_refuses_invalid_system_description(tmp_path: Path) -> None:
    folder = write_good(tmp_path, Good())
    (folder / "system.json").write_text('{"submitter": "a", "submitter": "b"}')
    assert "cannot be read" in export(folder)["why_not"]
    described(folder, status="splendid")
    assert "cannot be read" in export(folder)["why_not"]


def test_export_without_out_writes_below_results_and_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = write_good(tmp_path / "results", Good())
    out = Path("results", "mllog", folder.name)
    assert main(["export", str(folder / "run.jsonl")]) == 0
    assert capsys.readouterr().out == f"written: {out}/result_0.txt to result_4.txt\n"
    assert len(list(out.iterdir())) == 5
    assert main(["export", str(folder)]) == 2
    error = capsys.readouterr().err
    assert f"found {out}/result_0.txt; name another, or remove it" in error


def test_export_to_standard_output_prints_all_repeats(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_good(tmp_path, Good())
    assert main(["export", "--format", "mllog", str(folder), "--out", "-"]) == 0
    printed = capsys.readouterr().out
    assert printed == "".join(f"{line}\n" for made in export(folder)["mllog"] for line in made)
    assert [e.value["repeat"] for e in parse(printed.encode()).events if e.key == "suite_result"] == [
        0,
        1,
        2,
        3,
        4,
    ]


def test_usage_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_good(tmp_path / "results", Good())
    before = sorted(path.name for path in folder.iterdir())
    out = tmp_path / "out"
    for arguments, message in (
        ([str(tmp_path / "nowhere")], "found nothing at"),
        ([str(folder), "--out", str(folder / "mllog")], "which is never changed"),
        ([str(folder), "--out", str(folder / "run.jsonl")], "which is never changed"),
    ):
        assert main(["export", "--format", "mllog", *arguments]) == 2
        assert message in capsys.readouterr().err
    assert main(["export", "--format", "mllog", str(folder), "--out", str(out)]) == 0
    made = ["".join(f"{line}\n" for line in repeat) for repeat in export(folder)["mllog"]]
    assert [path.read_text() for path in sorted(out.iterdir())] == made
    assert [path.name for path in sorted(out.iterdir())] == [f"result_{repeat}.txt" for repeat in range(5)]
    written = {path.name: path.read_bytes() for path in out.iterdir()}
    assert main(["export", "--format", "mllog", str(folder), "--out", str(out)]) == 2
    assert "expected a folder without logs" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in out.iterdir()} == written
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.parametrize("phase", ["train-bf16", "infer-bf16"])
def test_export_accepts_published_results(phase: str, tmp_path: Path) -> None:
    parser = oracle("compliance_checker.mlp_parser")
    folder = write_honest(next(name for name in NAMES if phase in name), tmp_path)
    for made in export(folder)["mllog"]:
        path = tmp_path / "result_0.txt"
        path.write_text("\n".join(made) + "\n")
        read, errors = parser.parse_file(str(path), "6.1.0")
        assert (errors, len(read)) == ([], len(made))
