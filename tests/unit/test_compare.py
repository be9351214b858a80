"""Comparisons of two results: refused for incomparable ones; differences are reported before ratios."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from suite.checker.sandboxed import CHECK_TASKS, check_in
from suite.cli import main
from suite.compare.comparable import (
    COMPARE_TASKS,
    GROUPS,
    IMAGE,
    MEANING,
    SETTINGS,
    SYSTEM,
    comparable,
    comparable_in,
)
from suite.compare.compare import NotComparable, compare
from suite.report import junit
from suite.report.compare_text import blocks, to_markdown, to_text
from suite.sandbox.sandbox import Sandbox
from tests.fixtures.forging import Events, rewrite
from tests.fixtures.good_container import Container, rules_of
from tests.fixtures.good_log import MINI, Good, reference, write_good
from tests.fixtures.junit_schema import SCHEMA
from tests.fixtures.slower import GOODS, A, B, slower


def comparison_data(folder: Path, good: Good) -> dict[str, Any]:
    """The comparison data of an imagined run, without a sandbox."""
    value = comparable(write_good(folder, good), rules_of)["comparable"]
    assert value is not None
    return dict(value)


@pytest.fixture(scope="module")
def a(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first side."""
    return write_good(tmp_path_factory.mktemp("a"), A)


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The comparison data of a few runs, by name; copy before changing."""
    folder = tmp_path_factory.mktemp("values")
    goods = GOODS | {
        "quality": Good(mode="quality"),
        "stream": Good(key=replace(MINI, phase="infer", scenario="single_stream", batch=1)),
        "stream slow": slower(0.5, key=replace(MINI, phase="infer", scenario="single_stream", batch=1)),
        "h200": reference(),
    }
    return {name: comparison_data(folder / name, good) for name, good in goods.items()}


Values = dict[str, dict[str, Any]]


def test_compare_reports_slower_run_with_its_difference(values: Values) -> None:
    found = compare(values["a"], values["slow"], 0.05)
    row = found.rows[0]
    assert row.name == "throughput"
    assert row.ratio is not None
    assert row.ratio.value == pytest.approx(1 / 1.1, rel=0.01)
    assert (row.conclusion, found.gate and found.gate.outcome) == ("slower", "fails")
    assert compare(values["slow"], values["a"]).rows[0].conclusion == "faster"


@pytest.mark.parametrize("name", ["scale", "variant", "scenario"])
def test_other_scale_variant_or_scenario_is_not_comparable(values: Values, name: str) -> None:
    other = json.loads(json.dumps(values["same"]))
    other["facts"][MEANING][name] = "another"
    with pytest.raises(NotComparable, match=f"{name}: .* and another"):
        compare(values["a"], other)


def test_equal_runs_are_indistinguishable_and_gate_reports_detectable_difference(values: Values) -> None:
    found = compare(values["a"], values["same"], 0.02)
    assert found.rows[0].conclusion == "indistinguishable"
    assert found.gate is not None
    assert found.gate.outcome == "holds"
    tight = compare(values["a"], values["same"], 0.0)
    assert tight.gate is not None
    assert tight.gate.outcome == "undecidable"
    assert "minimum detectable effect 0." in tight.gate.why


@pytest.mark.parametrize(("other", "named"), [("infer", "phase"), ("quality", "mode")])
def test_compare_refuses_different_workload_phase_or_mode(values: Values, other: str, named: str) -> None:
    with pytest.raises(NotComparable, match=f"not comparable: they differ in .*{named}: "):
        compare(values["a"], values[other])


@pytest.mark.parametrize(("other", "names"), [("bf16", {"precision"}), ("batch", {"batch"})])
def test_differences_in_what_is_measured_come_first_and_a_warning_last(
    values: Values, other: str, names: set[str]
) -> None:
    found = compare(values["a"], values[other])
    assert names <= {one.name for one in found.meaning}
    text = to_text(list(blocks(found)))
    assert text.index("Differences: what is measured") < text.index("How far apart")
    assert text.splitlines()[-1].startswith("DIFFERENT SETTINGS: A and B differ in ")
    assert not found.as_dict()["like_with_like"]
    assert "NOT LIKE" not in to_text(list(blocks(compare(values["a"], values["same"]))))


def test_every_difference_is_reported_in_its_group(values: Values) -> None:
    other = json.loads(json.dumps(values["same"]))
    assert compare(values["a"], other).differences == ()
    for group in GROUPS:
        other["facts"][group]["planted"] = group
    other["facts"][SETTINGS]["threads"] = 64
    other["facts"][SYSTEM]["cpu.model"] = "Another"
    found = compare(values["a"], other).differences
    assert [one.group for one in found if one.name == "planted"] == list(GROUPS)
    assert {(one.name, one.a, one.b) for one in found if one.name != "planted"} == {
        ("threads", 2, 64),
        ("cpu.model", "Imagined CPU", "Another"),
    }
    text = to_text(list(blocks(compare(values["a"], other))))
    assert [line for line in text.splitlines() if "cpu.model" in line] == [
        "  cpu.model  Imagined CPU  Another"
    ]


def test_facts_cover_the_whole_header(values: Values, a: Path) -> None:
    """Every setting and every part of the header that is not unique to a run is in a group."""
    header = json.loads((a / "run.jsonl").read_bytes().splitlines()[0])["data"]
    facts: dict[str, Any] = {}
    for group in values["a"]["facts"].values():
        facts |= group
    alone = {"run_id", "attempt", "nonce", "overrides", "settings_digest", "format", "reasons"}
    alone |= {"warmup_steps", "measured_steps"}  # fixed by the rules
    whole = {"kind", "key", "settings", "hyper", "dataset", "rules", "git", "differences", "mode"}
    assert set(header) - alone - whole <= set(facts)
    same = {"workload", "phase", "mode"}
    for name in ("key", "settings"):
        assert set(header[name]) - same <= set(facts)
    for name in ("hyper", "dataset", "git"):
        assert {f"{name}.{part}" for part in header[name]} <= set(facts)


def test_facts_contain_image_and_engine(values: Values, tmp_path: Path) -> None:
    two = comparison_data(tmp_path / "2", slower(0.0, container=Container(limits={"cpus": "2"})))
    names = {(one.group, one.name) for one in compare(values["a"], two).differences}
    assert {(IMAGE, "image.manifest_digest"), (IMAGE, "container.version"), (SETTINGS, "runtime")} <= names
    four = comparison_data(tmp_path / "4", slower(0.0, container=Container(limits={"cpus": "4"})))
    found = {(one.group, one.name, one.a, one.b) for one in compare(two, four).differences}
    assert found == {(SETTINGS, "cpus", "2", "4"), (IMAGE, "container.limits.cpus", "2", "4")}


def test_null_and_missing_fact_are_equal(values: Values) -> None:
    other = json.loads(json.dumps(values["same"]))
    assert other["facts"][SETTINGS].pop("cpuset", "absent") is None
    assert compare(values["a"], other).differences == ()


def test_latency_is_compared_for_single_stream(values: Values) -> None:
    found = {row.name: row for row in compare(values["stream"], values["stream slow"]).rows}
    for name in ("latency_p50_ms", "latency_p90_ms", "latency_p99_ms"):
        ratio = found[name].ratio
        assert ratio is not None
        assert ratio.value == pytest.approx(1.5, rel=0.05)
        assert found[name].conclusion == "slower"
        assert found[name].unit == "ms"
    assert found["throughput"].conclusion == "slower"
    assert "latency_p50_ms" not in {row.name for row in compare(values["a"], values["same"]).rows}


def test_missing_energy_has_a_reason(values: Values) -> None:
    (row,) = [row for row in compare(values["a"], values["same"]).rows if row.name == "energy"]
    assert (row.a, row.ratio, row.conclusion) == (None, None, "unknown")
    assert row.reason == "A: no accelerator in this run; B: no accelerator in this run"
    counted = compare(values["h200"], {**values["h200"], "sha256": "0" * 64}).rows[1]
    assert (counted.name, counted.unit, counted.conclusion) == ("energy", "J/sample", "indistinguishable")
    assert counted.a is not None
    assert counted.a > 0


def test_energy_per_unit_follows_the_counters(tmp_path: Path) -> None:
    long = reference(step_ns=25_000_000)
    folder = write_good(tmp_path, long)
    events = [json.loads(line) for line in (folder / "run.jsonl").read_bytes().splitlines()]
    edges = [
        one["data"] for one in events if one["kind"] == "telemetry" and one["data"]["source"] == "counters"
    ]
    used = sum(
        (1 if edge["at"] == "window_close" else -1) * edge["devices"][0]["energy_mj"] for edge in edges
    )
    units = sum(one["data"]["units"] for one in events if one["kind"] == "repeat_end")
    energy = comparison_data(tmp_path / "again", long)["metrics"]["energy"]
    assert energy["value"] == pytest.approx(used / 1000 / units)
    assert len(energy["repeats"]) == 5


def test_time_to_quality_without_spread_has_values_and_reason(values: Values) -> None:
    found = compare(values["quality"], {**values["quality"], "sha256": "0" * 64}, 0.02)
    row = found.rows[0]
    assert row.name == "time_to_quality_s"
    assert row.a == row.b
    assert (row.a or 0) > 0
    if len(values["quality"]["metrics"]["time_to_quality_s"]["repeats"]) < 2:
        assert "single repeat" in row.reason
        assert found.gate is not None
        assert found.gate.outcome == "undecidable"


def test_longer_time_to_quality_is_reported_as_slower(values: Values) -> None:
    def with_times(times: list[float]) -> dict[str, Any]:
        metric = {"value": sum(times) / len(times), "unit": "s", "reason": "", "repeats": times}
        return {**values["quality"], "metrics": {"time_to_quality_s": metric}}

    found = compare(with_times([10.0, 10.1, 9.9]), with_times([12.0, 12.1, 11.9]), 0.05)
    assert found.rows[0].conclusion == "slower"
    assert found.gate is not None
    assert found.gate.outcome == "fails"


# The checker rejects control characters before; an accepted log may contain the other characters.
HOSTILE = "\u202e::error::|x|`<b>[a](b)\u2066##[group]\ue000"


def plant(events: Events) -> None:
    """Hostile text as a fact of the machine, the same in all repeats."""
    for event in events:
        if event["kind"] == "env" and event["data"]["side"] == "outside":
            event["data"]["facts"]["cpu"] |= {"model": HOSTILE, "::error::name": "::warning::value"}


def test_hostile_text_is_escaped_in_every_output(
    a: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    b = rewrite(write_good(tmp_path, slower(0.0)), plant)
    for output_format in ("text", "md", "json"):
        report = tmp_path / f"{output_format}.xml"
        arguments = ["compare", str(a), str(b), "--format", output_format, "--junit", str(report)]
        assert main(arguments) == 0
        out = capsys.readouterr().out
        assert "error::" in out
        assert "\u202e" not in out
        assert all(line.isprintable() for line in out.splitlines())
        assert not any(line.strip().startswith(("::", "##[")) for line in out.splitlines())
        if output_format == "md":
            assert "<b>" not in out
        root = etree.parse(report)
        etree.XMLSchema(etree.fromstring(SCHEMA)).assertValid(root)


@pytest.mark.parametrize("width", [40, 50, 60, 80])
def test_folding_puts_no_command_to_a_ci_at_the_start_of_a_line(
    width: int, a: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def forge(events: Events) -> None:
        for event in events:
            if event["kind"] == "env" and event["data"]["side"] == "outside":
                event["data"]["facts"]["cpu"]["model"] = (
                    "a long name of a processor ::error::b ##[group]c :::d"
                )

    b = rewrite(write_good(tmp_path, slower(0.0)), forge)
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["compare", str(a), str(b)]) == 0
    assert main(["summary", str(b)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("processor" in line for line in lines)
    assert max(map(len, lines)) <= width
    assert not any(line.strip().startswith(("::", "##[")) for line in lines)


def test_comparable_has_the_verdict_of_the_checker(a: Path, tmp_path: Path) -> None:
    def longer(events: Events) -> None:
        next(one for one in events if one["kind"] == "repeat_end")["data"]["window"]["ns"] += 1

    broken = rewrite(write_good(tmp_path, A), longer)
    with Sandbox(COMPARE_TASKS, CHECK_TASKS) as sandbox:
        verdict, value = comparable_in(sandbox, a)
        assert (verdict.as_dict(), value) == (
            check_in(sandbox, a).as_dict(),
            comparable(a)["comparable"],
        )
        verdict, value = comparable_in(sandbox, broken)
        assert (verdict.accepted, value) == (False, None)
        assert verdict.as_dict() == check_in(sandbox, broken).as_dict()


def test_gate_and_comparison_set_the_exit_code(
    a: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = write_good(tmp_path / "s", slower(0.10))
    assert main(["compare", str(a), str(slow)]) == 0
    assert main(["compare", str(a / "run.jsonl"), str(slow), "--fail-slower", "2%"]) == 5
    assert "GATE FAILS" in capsys.readouterr().out
    assert main(["compare", str(slow), str(a), "--fail-slower=2 %"]) == 0
    assert main(["compare", str(a), str(slow), "--fail-slower", "9.1%"]) == 6
    assert "undecidable" in capsys.readouterr().out


def test_compare_refuses_rejected_and_unscored_results_with_findings(
    a: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def longer(events: Events) -> None:
        next(one for one in events if one["kind"] == "repeat_end")["data"]["window"]["ns"] += 1

    report = tmp_path / "refused.xml"
    broken = rewrite(write_good(tmp_path / "b", slower(0.0)), longer)
    assert main(["compare", str(a), str(broken), "--junit", str(report)]) == 1
    comparison_data = capsys.readouterr()
    assert "B is rejected, and not compared" in comparison_data.err
    assert "reject: " in comparison_data.err
    assert comparison_data.out == ""
    failure = ET.parse(report).find(".//failure")
    assert failure is not None
    assert failure.get("type") == "rejected"
    memory = write_good(tmp_path / "m", Good(out_of_memory_in=2, run_hex=B))
    assert main(["compare", str(memory), str(a)]) == 1
    assert "A is without a score" in capsys.readouterr().err


def test_incomparable_results_exit_4(a: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    infer = write_good(tmp_path, Good(key=replace(MINI, phase="infer")))
    assert main(["compare", str(a), str(infer)]) == 4
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1] == "compare: NOT COMPARABLE: they differ in phase: train and infer"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{a}"], "expected two results (make: A= and B=) or up to 26 (make: RESULTS='… … …'), found 1"),
        (["{a}", "{a}"], "A and B are one log"),
        (["{a}", "/nowhere/at/all"], "found nothing at /nowhere/at/all"),
        (["{a}", "{a}", "--add"], "--add goes with --baseline"),
        (["{a}", "{a}", "{a}"], "A and B are one log: expected different runs"),
        (["{a}"] * 27, "found 27"),
        (["{a}", "{a}", "{a}", "--fail-slower", "2%"], "--fail-slower compares B with A"),
        (["{a}", "{a}", "--baseline", "x"], "expected one result beside --baseline"),
        (["{a}", "--baseline", "/nowhere/at/all"], "--add creates it"),
    ],
)
def test_wrong_arguments_are_usage_errors(
    arguments: list[str], message: str, a: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *(argument.format(a=a) for argument in arguments)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("text", ["2", "0.02", "-1%", "100%", "1e1%", "%", "nan%"])
def test_gate_option_accepts_percentages(text: str, a: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["compare", str(a), str(a), f"--fail-slower={text}"])
    assert stop.value.code == 2
    assert "expected a percentage" in capsys.readouterr().err


def test_unwritable_junit_exits_2(a: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    b = write_good(tmp_path, slower(0.0))
    assert main(["compare", str(a), str(b), "--junit", str(tmp_path / "no" / "such.xml")]) == 2
    assert "give --junit a file" in capsys.readouterr().err


def test_json_contains_everything_in_the_text(
    a: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    b = write_good(tmp_path, slower(0.10))
    report = tmp_path / "gate.xml"
    arguments = ["compare", str(a), str(b), "--format=json", "--fail-slower=2%", "--junit", str(report)]
    assert main(arguments) == 5
    value = json.loads(capsys.readouterr().out)
    assert value["format"] == "suite-compare/1"
    assert value["gate"]["outcome"] == "fails"
    assert value["metrics"]["throughput"]["conclusion"] == "slower"
    ratio = value["metrics"]["throughput"]["ratio"]
    assert ratio["low"] < ratio["value"] < ratio["high"] < 0.95
    assert value["metrics"]["energy"]["a"] is None
    assert "no accelerator" in value["metrics"]["energy"]["reason"]
    cases = {case.get("name"): case for case in ET.parse(report).getroot().iter("testcase")}
    assert [child.tag for child in cases["not slower by more than 2 %"]] == ["failure"]
    assert [child.tag for child in cases["compare energy"]] == ["skipped"]
    assert [child.tag for child in cases["compare throughput"]] == ["system-out"]


def test_lines_are_folded_to_the_width_of_the_terminal(values: Values) -> None:
    found = compare(values["a"], values["bf16"], 0.02)
    for width in (80, 120):
        assert max(map(len, to_text(list(blocks(found)), width).splitlines())) <= width
    assert "95 % interval" in to_text(list(blocks(found)), 80)


def test_many_differences_are_truncated_and_counted(values: Values) -> None:
    other = json.loads(json.dumps(values["same"]))
    other["facts"][SYSTEM] |= {f"made.up.{number}": number for number in range(5000)}
    found = compare(values["a"], other)
    assert len(found.differences) == 5000
    text = to_text(list(blocks(found)))
    assert text.count("made.up") == 100
    assert "and 4900 more" in text


def test_markdown_is_a_table(values: Values) -> None:
    text = to_markdown(list(blocks(compare(values["a"], values["bf16"], 0.02))))
    assert "### Differences: what is measured" in text
    assert "| precision | fp32 | bf16 |" in text
    rows = [line for line in text.splitlines() if line.startswith("| throughput")]
    assert len(rows) == 1
    assert rows[0].count("|") == 6


def test_junit_counts_and_escapes(tmp_path: Path) -> None:
    path = tmp_path / "x.xml"
    cases = [
        junit.JunitCase("a", junit.PASSED, "fine"),
        junit.JunitCase("b", junit.FAILED, "bad \x00\ud800 <&", "one\n::error::two", kind="undecidable"),
        junit.JunitCase("c", junit.SKIPPED, "not here"),
    ]
    junit.write(path, "compare", cases)
    root = etree.parse(path)
    etree.XMLSchema(etree.fromstring(SCHEMA)).assertValid(root)
    suite = ET.parse(path).getroot()[0]
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["3", "1", "0", "1"]
    failure = suite.find(".//failure")
    assert failure is not None
    assert failure.get("message") == "bad \\x00\\ud800 <&"
    assert failure.text == "one\n\\x3a:error::two"


def test_group_of_what_is_measured_is_first() -> None:
    assert GROUPS[0] == MEANING
