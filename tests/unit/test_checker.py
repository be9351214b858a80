"""The checker as a command, and before a run."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from suite.checker import check_header, check_result
from suite.cli import main as cli
from suite.rules import LATEST, load
from suite.sandbox import sandbox
from tests.fixtures.forged import SINGLE_STREAM, Forged, equal_batches, header, pick_event, put, shift
from tests.fixtures.forging import Events, lines_of, rewrite
from tests.fixtures.good_container import Container, rules_of
from tests.fixtures.good_log import MINI, REFERENCE, Good, header_of, reference, write_good
from tests.starts import bare_starts


def run(*arguments: str) -> int:
    return cli(["check", *arguments])


def test_batches_of_one_sample_may_recur(tmp_path: Path) -> None:
    """ncf draws negatives with replacement, so an honest run has two equal samples now and then."""
    good = Forged("DATA-003", equal_batches(12), SINGLE_STREAM).make(tmp_path)
    assert check_result(good).rejections == ()


def test_drift_of_one_repeat_is_in_the_singular(tmp_path: Path) -> None:
    good = Good(trend=0.2, counts=(1, 100), differences=(("DIV-015", "one repeat"),))
    (found,) = check_result(write_good(tmp_path, good)).findings
    assert (found.rule, found.found.split(" in ")[1]) == ("STAT-004", "1 repeat")


def test_check_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = write_good(tmp_path / "good", Good())
    flagged = Forged("ENV-002", put("rank_end", "threads.after", 5)).make(tmp_path / "flagged")
    bad = Forged("DIV-015", put("header", "repeats", 4)).make(tmp_path / "bad")
    assert run(str(good)) == 0
    assert run(str(good), "--strict") == 0
    assert run(str(flagged)) == 0
    assert run(str(flagged), "--strict") == 3
    assert run(str(bad)) == 1
    assert run(str(good), str(bad), "--strict") == 1
    assert run(str(tmp_path / "nothing")) == 2
    assert run(str(tmp_path)) == 2
    text, printed = capsys.readouterr()
    assert "a folder of folders" in printed
    assert "flag: ENV-002 at line " in text
    assert "(0 rejections, 1 flag; completed)" in text
    assert "expected 5\n  found    4" in text


def test_check_json_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = Forged("DIV-015", put("header", "repeats", 4)).make(tmp_path)
    assert run(str(bad), "--json") == 1
    [verdict] = json.loads(capsys.readouterr().out)
    assert not verdict["accepted"]
    assert verdict["findings"][0]["rule"] == "DIV-015"
    assert set(verdict["findings"][0]) == {"rule", "severity", "location", "expected", "found", "fix"}


def test_fault_of_a_rule_is_an_internal_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = write_good(tmp_path, Good())
    broken = (
        "import sys; sys.path.insert(0, sys.argv[1]); import suite.checker.dataset; "
        "from suite.checker.context import RULE_FUNCTIONS, RuleFunction; "
        "from suite.sandbox.child import main; "
        "RULE_FUNCTIONS['SEED-001'] = RuleFunction('SEED-001', 'content', False, None, lambda c: [1 // 0]); "
        "sys.exit(main())"
    )
    monkeypatch.setattr(sandbox, "_START", broken)
    assert run(str(good)) == 2
    printed = capsys.readouterr().err
    assert "internal error of the suite: ZeroDivisionError" in printed
    assert "Traceback" not in printed


def test_check_escapes_hostile_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def hostile(events: Any) -> None:
        for event in events:
            if event["kind"] == "env" and event["repeat"] == 2:
                event["data"]["facts"]["note"] = "\u202e\u2066::error::"

    run(str(rewrite(write_good(tmp_path, Good()), hostile)))
    text = capsys.readouterr().out
    assert "ENV-001" in text
    assert "\u202e" not in text
    assert "\\u202e" in text


@pytest.mark.parametrize(
    ("lines", "progress"),
    [
        (1, "before repeat 0"),
        (5, "repeat 0, phase set-up"),
        (6, "repeat 0, phase window"),
        (40, "repeat 0, phase report"),
        (123, "after repeat 0"),
    ],
)
def test_verdict_on_partial_log_states_the_progress(lines: int, progress: str, tmp_path: Path) -> None:
    folder = write_good(tmp_path, Good())
    log = folder / "run.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:lines]))
    verdict = check_result(folder.rename(folder.with_name(folder.name + ".partial")))
    assert [finding.rule for finding in verdict.rejections] == ["RUN-001"]
    assert progress in verdict.reached
    assert verdict.record is not None
    assert not verdict.scored


def test_out_of_memory_is_accepted_without_score(tmp_path: Path) -> None:
    verdict = check_result(write_good(tmp_path, Good(out_of_memory_in=0)))
    assert verdict.accepted
    assert not verdict.scored
    assert [finding.rule for finding in verdict.flags] == ["RUN-002"]


# --- before a run


@pytest.mark.parametrize(
    "good", [Good(), reference(), Good(mode="quality")], ids=["mini", "reference", "quality"]
)
def test_good_header_passes_the_pre_check(good: Good) -> None:
    assert check_header(header_of(good), rules_of(good.version)) == []


def test_open_declares_the_departures_that_closed_rejects() -> None:
    good = reference(key=replace(REFERENCE, batch=1000), differences=())
    data, rules = header_of(good), rules_of(LATEST)
    closed = {finding.rule for finding in check_header({**data, "division": "closed"}, rules)} - {
        "BASE-001",
        "ID-007",
        "TRAIN-012",
    }
    opened = {finding.rule for finding in check_header(data, rules)}
    assert closed == opened == {"DIV-001", "DIV-005", "IMG-001", "IMG-002"}
    declared = [{"rule": rule, "reason": "as measured"} for rule in sorted(closed)]
    assert check_header({**data, "differences": declared}, rules) == []


def test_practice_reports_departures_as_information() -> None:
    data = header_of(Good(key=replace(MINI, batch=1000), hyper={"rate": "2e-3"}))
    findings = check_header(data, load("practice"))
    assert {(finding.rule, finding.severity) for finding in findings} == {
        ("DIV-001", "info"),
        ("DIV-002", "info"),
    }


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"dataset": {"digest": "e" * 64}}, "DATA-002"),
        ({"key": {"phase": "dream"}}, "ID-003"),
        ({"key": {"workload": "../gnmt"}}, "LOG-014"),
        ({"key": {"workload": "os"}}, "ID-003"),
        ({"division": "closed"}, "ID-004"),
        ({"repeats": 3}, "DIV-015"),
        ({"nonce": "short"}, "LOG-014"),
    ],
)
def test_bad_header_is_rejected_by_the_pre_check(change: dict[str, Any], rule: str) -> None:
    data = copy.deepcopy(header_of(Good()))
    for name, value in change.items():
        if isinstance(value, dict):
            data[name] |= value
        else:
            data[name] = value
    findings = check_header(data, load("practice"))
    assert rule in {finding.rule for finding in findings if finding.severity == "reject"}


# --- closed: what is refused before the run is rejected when it is forged


def closed(container: Container | None) -> Good:
    return reference(division="closed", differences=(), purpose="submission", container=container)


@pytest.mark.parametrize(
    ("container", "rules"),
    [
        (Container(), set()),
        (Container("seen"), {"IMG-009"}),
        (Container(pinned=()), {"IMG-010"}),
        (None, {"IMG-001", "IMG-002"}),
    ],
    ids=["resolved and pinned", "unresolved digest", "a tag alone", "native"],
)
def test_closed_accepts_only_locked_images_by_digest(
    container: Container | None, rules: set[str], tmp_path: Path
) -> None:
    good = closed(container)
    before = {finding.rule for finding in check_header(header_of(good), rules_of(LATEST))}
    assert before - {"TRAIN-012"} == rules  # the rules have no loss bands for this batch
    after = {finding.rule for finding in check_result(write_good(tmp_path, good), rules_of).rejections}
    assert after - {"TRAIN-006", "TRAIN-012"} == rules  # and no digest of these weights


def test_out_of_memory_before_attestation_is_accepted(tmp_path: Path) -> None:
    """The worker of repeat 2 did not start, so that only repeats 0 and 1 were attested."""

    def unseen(events: Events) -> None:
        event = pick_event(events, "env", 2, side="outside")
        event["data"]["facts"]["container"] = None
        event["data"]["reasons"] = {"container": "the worker did not come up"}

    folder = rewrite(write_good(tmp_path, Good(container=Container(), out_of_memory_in=2)), unseen)
    verdict = check_result(folder, rules_of)
    assert [finding.rule for finding in verdict.findings] == ["RUN-002"]


def test_open_declares_departures_of_container_images(tmp_path: Path) -> None:
    """Closed rejects an unresolved image; open declares it."""
    declared = (("DIV-005", "a trial"), ("IMG-009", "seen in public, not read back"))
    good = reference(container=Container("seen"), differences=declared)
    verdict = check_result(write_good(tmp_path, good), rules_of)
    assert verdict.accepted
    assert verdict.findings == ()


# --- several edits at once, and edits that must not matter


def test_changed_scale_is_rejected_although_header_agrees(tmp_path: Path) -> None:
    """The forger also changes division, run id, folder, seeds and rules, but not the weights."""
    folder = write_good(tmp_path, Good())
    claimed = reference(key=replace(MINI, scale="reference", data="real"), devices=())

    def forge(events: Any) -> None:
        new = header_of(claimed)
        events[0]["data"] = new
        for event in events:
            if event["kind"] == "repeat_start":
                from suite.contract.seeds import seed_hex

                event["data"]["seed"] = seed_hex(None, claimed.run_id, event["repeat"])

    rewrite(folder, forge)
    verdict = check_result(folder.rename(folder.with_name(claimed.run_id)))
    assert "TRAIN-005" in {finding.rule for finding in verdict.rejections}


def test_halved_window_is_rejected_although_claims_agree(tmp_path: Path) -> None:
    """Halving the window moves its end before the last timestamp."""

    def forge(events: Any) -> None:
        for event in events:
            if event["kind"] in ("rank_end", "repeat_end"):
                window = event["data"]["window"]
                window["ns"] //= 2
                window["close_ns"] = window["open_ns"] + window["ns"]
        from tests.fixtures.forged import reclaim

        reclaim(events)

    verdict = check_result(rewrite(write_good(tmp_path, Good()), forge))
    assert {"TIME-002", "TIME-007"} <= {finding.rule for finding in verdict.rejections}


@pytest.mark.parametrize(("late", "rejected"), [(0.01, False), (0.03, True)])
def test_an_only_repeat_may_be_later(late: float, rejected: bool, tmp_path: Path) -> None:
    """A busy host delays single repeats; with one repeat that and hidden work look the same."""

    def forge(events: Any) -> None:
        length = next(event["data"]["window"]["ns"] for event in events if event["kind"] == "repeat_end")
        by = int(late * length)
        shift("window.close_ns", "window.ns", "receipt.close_ns", by=by, repeat=0)(events)

    folder = write_good(tmp_path, Good(counts=(1, 100), differences=(("DIV-015", "one repeat"),)))
    verdict = check_result(rewrite(folder, forge))
    assert ("TIME-002" in {finding.rule for finding in verdict.rejections}) == rejected


def test_header_helper_updates_settings(tmp_path: Path) -> None:
    folder = rewrite(write_good(tmp_path, Good()), header(loader="dali"))
    assert lines_of(folder)[0]["data"]["settings"]["loader"] == "dali"
    assert check_result(folder).accepted


# --- speed and walls


def test_checker_imports_neither_numpy_nor_host(tmp_path: Path) -> None:
    folder = write_good(tmp_path, Good())
    code = (
        "import sys; from suite.checker import check_result; "
        f"assert check_result({str(folder)!r}).accepted; "
        "print([m for m in ('numpy', 'jsonschema', 'hydra', 'suite.harness', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_checker_time_per_log_is_limited(tmp_path: Path) -> None:
    """About 15 bare starts on an idle machine; the bound finds what multiplies the time."""
    folder = write_good(tmp_path, Good())
    code = (
        "import sys; from suite.checker import check_result; sys.exit(not check_result(sys.argv[1]).accepted)"
    )
    assert bare_starts("-c", code, str(folder)) < 60
