"""``python -m suite import``: exit codes, formats, copies in a tree, and escaping of untrusted text."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from suite.cli import main
from suite.mllog import layout, show, verify
from suite.mllog.examine import examine
from suite.mllog.layout import LayoutError
from suite.mllog.outcomes import ERROR, WARNING, error, passed
from suite.sandbox.sandbox import Sandbox
from tests.fixtures.mlperf_logs import changed, mllog, moved, publish, run_v05, run_v07
from tests.hostile.test_output import POISONS, REFUSED, harmless_on_a_terminal


def folder_of(root: Path, runs: int = 5, benchmark: str = "resnet") -> Path:
    return publish(root, [run_v07(run=run) for run in range(runs)], benchmark)


@pytest.fixture(scope="module")
def sandbox() -> Any:
    with Sandbox(verify.MLLOG_TASKS) as one:
        yield one


def verify_tree(sandbox: Sandbox, path: Path, requested_round: str = verify.ANY_ROUND) -> dict[str, Any]:
    value = verify.verify_tree(sandbox, path, requested_round)
    assert json.loads(json.dumps(value, allow_nan=False)) == value
    return value


def found(value: dict[str, Any], check: str) -> list[str]:
    rows = (one for folder in value["folders"] for one in folder["outcomes"] if one["check"] == check)
    return [one["found"] for one in rows if one["outcome"] in (ERROR, WARNING)]


def report_of(folder: dict[str, Any]) -> dict[str, Any]:
    """What the report shows of one examined folder."""
    return {"path": folder["path"], "folders": [folder], "logs": 2, "errors": 1, "warnings": 1}


def test_import_of_honest_folder_exits_0_and_reports_all_passed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder_of(tmp_path)
    assert main(["import", str(path)]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    assert "ExampleOrg, a_system (closed, round 2.0)\n" in output.out
    assert re.search(r"\n  resnet  \d\.\d{3} \(5 of 5 runs converged\)\n", output.out)
    assert output.out.endswith("5 logs in 1 folder: 0 errors, 0 warnings\n")
    assert main(["import", str(path), "--strict"]) == 0


def abort(path: Path, *runs: int, also: str = "") -> None:
    for run in runs:
        lines = changed(run_v07(run=run), "run_stop", metadata={"status": "aborted"})
        (path / f"result_{run}.txt").write_text("\n".join(lines) + also)


def test_import_with_errors_exits_1_with_expected_and_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder_of(tmp_path)
    abort(path, 1, 3, also="\n:::MLLOG {")
    assert main(["import", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert (
        "  resnet  no score: 2 runs did not converge, at most 1 may (3 of 5 runs converged), 6 errors\n"
        in out
    )
    where = "training_results_v2.0/ExampleOrg/results/a_system/resnet/result_1.txt and 1 more"
    assert f"  status: {where}\n    expected success\n    found    aborted\n" in out
    assert f"found    1, the first in line {len(run_v07()) + 1}: not JSON" in out
    assert out.index("Scores") < out.index("Errors") < out.index("5 logs in 1 folder: 6 errors")
    assert main(["import", str(path), "--format", "md"]) == 1
    out = capsys.readouterr().out
    assert "| status | resnet/result\\_1.txt and 1 more | success | aborted |" in out
    assert main(["import", str(path), "--format", "json"]) == 1
    value = json.loads(capsys.readouterr().out)
    assert (value["format"], value["errors"], value["warnings"]) == ("suite-mllog-import/2", 6, 0)
    assert value["folders"][0]["logs"][1]["malformed"] == 1


def test_import_with_warnings_exits_3_with_strict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder_of(tmp_path)
    abort(path, 1)
    assert main(["import", str(path)]) == 0
    assert main(["import", str(path), "--strict"]) == 3
    out = capsys.readouterr().out
    assert "found    aborted; tolerated, this run is not counted" in out
    assert "Errors" not in out


def test_information_is_no_reason_to_exit_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "run.log"
    log.write_text("\n".join(run_v05()))
    assert main(["import", str(log), "--strict"]) == 0
    assert "not decided, or for information: types, submission, init" in capsys.readouterr().out


def test_reader_that_ends_early_is_no_error(tmp_path: Path) -> None:
    """As in ``import … | head -1``, with more lines than a pipe holds."""
    path = folder_of(tmp_path)
    command = [sys.executable, "-m", "suite", "import", str(path), "--format", "json"]
    settings_of_run_1 = changed(run_v07(run=1), "opt_name", value="x" * 200_000)
    (path / "result_1.txt").write_text("\n".join(settings_of_run_1))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"{\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "found nothing at nowhere"),
        (["empty"], "expected logs (result_<i>.txt), found none below it"),
        (["a.zip"], "found a zip archive, which is not unpacked here"),
        (["empty", "--round", "last"], "--round: expected one of 0.5, 0.6, 0.7, 1.0"),
        (["empty", "--round", "9.9"], "6.0, 6.1; found 9.9"),
    ],
)
def test_usage_errors(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04")
    assert main(["import", *arguments]) == 2
    output = capsys.readouterr()
    assert message in output.err
    assert output.out == ""


def test_import_prefers_the_round_given_by_option(sandbox: Sandbox, tmp_path: Path) -> None:
    path = folder_of(tmp_path)
    (folder,) = verify_tree(sandbox, path)["folders"]
    assert folder["round"] == "2.0"
    (folder,) = verify_tree(sandbox, path, "0.6")["folders"]
    assert folder["round"] == "0.6"
    plain = path.rename(tmp_path / "logs")
    (folder,) = verify_tree(sandbox, plain)["folders"]
    assert folder["round"] is None


def same(lines: list[str]) -> list[str]:
    return lines


def other_seed(lines: list[str]) -> list[str]:
    return changed(lines, "seed", value=4711)


def later(lines: list[str]) -> list[str]:
    return moved(other_seed(lines), lambda event: event["time_ms"] + 86_400_000)


@pytest.mark.parametrize(
    ("edit", "copied_part"),
    [
        (same, "the bytes"),
        (other_seed, "the times between the events"),
        (later, "the times between the events"),
    ],
    ids=["same", "seed", "day"],
)
def test_import_finds_copies_within_and_across_folders(
    edit: Callable[[list[str]], list[str]], copied_part: str, sandbox: Sandbox, tmp_path: Path
) -> None:
    path = folder_of(tmp_path / "a")
    (path / "result_3.txt").write_text("\n".join(edit(run_v07(run=1))) + "\n")
    (one,) = found(verify_tree(sandbox, path), "duplicates")
    assert one == f"{copied_part} of result_1.txt"
    publish(tmp_path / "b", [edit(run_v07(run=run)) for run in (0, 2, 7, 8, 9)])
    value = verify_tree(sandbox, tmp_path)
    assert value["logs"] == 10
    _, across = found(value, "duplicates")
    assert across == f"{copied_part} of {path.relative_to(tmp_path)}/result_0.txt, 2 copies in all"


def test_import_walks_tree_in_order_without_following_links(sandbox: Sandbox, tmp_path: Path) -> None:
    inner = folder_of(tmp_path / "b")
    folder_of(tmp_path / "a")
    (tmp_path / "c").symlink_to(inner)
    (tmp_path / ".git").mkdir()
    shutil.copy(inner / "result_0.txt", tmp_path / ".git" / "result_0.txt")
    (inner / "power").mkdir()
    (inner / "power" / "result_0.txt").write_text("")
    value = verify_tree(sandbox, tmp_path)
    assert [Path(one["path"]).relative_to(tmp_path).parts[0] for one in value["folders"]] == ["a", "b"]


def test_import_refuses_too_large_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "MAX_ENTRIES", 3)
    folder_of(tmp_path)
    with pytest.raises(LayoutError, match="at most 3 files"):
        list(layout.log_folders(tmp_path))
    monkeypatch.undo()
    monkeypatch.setattr(layout, "MAX_DEPTH", 2)
    with pytest.raises(LayoutError, match="2 folders deep"):
        list(layout.log_folders(tmp_path))


def test_import_does_not_read_log_over_size_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder_of(tmp_path)
    monkeypatch.setattr(layout, "MAX_LOG", 100)
    rows = [one for one in examine(path, "any")["outcomes"] if one["check"] == "files"]
    assert {one["outcome"] for one in rows} == {ERROR}
    assert all("expected at most 100 bytes" in one["found"] for one in rows)


def test_import_reports_killed_sandbox_as_outcome(tmp_path: Path) -> None:
    path = folder_of(tmp_path)
    with Sandbox(verify.MLLOG_TASKS, wall_seconds=0.0) as impatient:
        value = verify.verify_tree(impatient, path)
    assert found(value, "files") == ["no answer within 0 s"]
    assert "  no single benchmark  0 logs, no time to train, 1 error" in list(show.text(value))


TEXT_POSITIONS: tuple[Callable[[str], list[str]], ...] = (  # where a log can contain untrusted text
    lambda text: changed(run_v07(), "submission_org", value=text),
    lambda text: changed(run_v07(), "submission_status", value=text),
    lambda text: changed(run_v07(), "seed", event_type=text),
    lambda text: changed(run_v07(), "run_stop", metadata={"status": text}),
    lambda text: changed(run_v07(), "opt_name", value=text),
    lambda text: changed(run_v07(), "eval_accuracy", value={text: 1}),
    lambda text: [line.replace('"key": "seed"', f'"key": {json.dumps(text)}') for line in run_v07()],
    lambda text: [f":::MLLOG {{{text}", *run_v07()],
    lambda text: [f"{text} 0: {line}" for line in run_v07()],
)  # fmt: skip


@pytest.mark.parametrize("text", [*POISONS, *REFUSED])
def test_import_report_escapes_hostile_text(text: str, tmp_path: Path) -> None:
    runs = [log_with(text) for log_with in TEXT_POSITIONS]
    folder = publish(tmp_path, [])
    for index, lines in enumerate(runs):
        content = "\n".join(lines).encode("utf-8", "surrogatepass")
        (folder / f"result_{index}.txt").write_bytes(content)
    (folder.parents[2] / "systems" / "a_system.json").write_text(
        json.dumps({"division": text, "submitter": text})
    )
    value = report_of(examine(folder, "any"))
    harmless_on_a_terminal("\n".join(show.text(value)))
    shown = "\n".join(show.markdown(value))
    harmless_on_a_terminal(shown)
    assert "<script" not in shown
    assert not re.search(r"(?<!\\)\[x\]\(", shown)
    assert json.dumps(value, allow_nan=False).isprintable()


def test_import_report_escapes_file_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder_of(tmp_path)
    os.rename(path / "result_4.txt", path / "result_4\x1b[31m.txt")  # noqa: PTH104 - the name is the point
    (path / "::error::x").write_text("")
    assert main(["import", str(path), "--strict"]) == 3
    harmless_on_a_terminal(capsys.readouterr().out)


def test_every_outcome_names_a_known_check() -> None:
    with pytest.raises(KeyError):
        passed("no such check", "", "")
    assert error("lines", "a", "b", "c").outcome == ERROR


ANY = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
NESTED = st.recursive(
    ANY,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)
KEYS = (
    "run_start",
    "run_stop",
    "seed",
    "eval_accuracy",
    "global_batch_size",
    "init_stop",
    "cache_clear",
    "x",
)
METADATA = st.sampled_from(["epoch_num", "metric", "status", "file", "lineno", "pid", "tid"])
EVENTS = st.fixed_dictionaries(
    {
        "key": st.sampled_from([*KEYS, "submission_benchmark", "submission_division"]),
        "time_ms": st.integers(-5, 5) | ANY,
        "value": NESTED,
        "metadata": st.none() | st.dictionaries(METADATA, ANY),
    }
)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.lists(EVENTS, max_size=12), st.sampled_from(["any", "0.5", "6.1"]))
def test_examine_never_raises_on_random_events(events: list[dict[str, Any]], requested_round: str) -> None:
    """For any event, every check has an outcome and the report is printed."""
    lines = [":::MLLOG " + json.dumps(event) for event in events]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "result_0.txt").write_text("\n".join(lines))
        (folder / "result_1.txt").write_text("\n".join([*run_v07()[:20], *lines, mllog("run_stop", None, 5)]))
        value = examine(folder, requested_round)
    assert json.dumps(value, allow_nan=False)
    whole = report_of(value)
    assert list(show.text(whole))
    assert list(show.markdown(whole))
