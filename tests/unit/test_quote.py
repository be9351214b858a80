"""Quotes: the sentence follows from the log byte for byte, and verification names each edited field."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from suite.audit import quote
from suite.checker import check_result
from suite.cli import main
from suite.log.model import Record
from suite.submissions import system as description
from tests.fixtures.forging import rewrite
from tests.fixtures.good_container import rules_of
from tests.fixtures.good_log import MINI, Good, reference, write_good
from tests.fixtures.registered import Registrar, result

HOSTILE = (
    'a "quoted" name',
    "a 'quoted' name",
    "back\\slash\\",
    '"; SHA-256 of the log ' + "0" * 64,
    "\u202egpj.exe",
    "H\u0455200",
    "line\nbreak\x1b[31m",
    "x" * 1000,
    "box: 999999 samples/s",
    "box, 999999 SAMPLES per second",
    "box, 3.5 s to accuracy",
    "box, 7 ms",
    "box (99.9 %)",
    "12x faster box",
    "box in closed division",
    "box, rules 1.0, assurance level L3",
    "box (95 % interval",
)
QUOTABLE = (
    *("NVIDIA H100 80GB HBM3", "Intel(R) Xeon(R) CPU @ 2.20GHz", "AMD EPYC 7B13 64-Core Processor"),
    *("Intel(R) Core(TM) Ultra 7 155H", "DGX H200, 8 GPUs", "8x H200 750W", "vm-standard-8 (16 GB)"),
    *("::error file=a::b", "}{0.__class__}{"),
)
GOODS = {
    "training": Good(),
    "inference": Good(key=replace(MINI, phase="infer")),
    "one stream": Good(key=replace(MINI, phase="infer", scenario="single_stream", batch=1)),
    "quality": Good(mode="quality"),
    "on an H200": reference(),
}


def record_of(folder: Path, good: Good) -> Record:
    record = check_result(write_good(folder, good), rules_of).record
    assert record is not None
    return record


@pytest.fixture(scope="module")
def fields(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The fields of an honest training; copy them before changing them."""
    return quote.fields_of(record_of(tmp_path_factory.mktemp("r"), Good()), "L1", "Example 1")


@pytest.mark.parametrize("name", GOODS)
def test_quote_is_parsed_back(name: str, tmp_path: Path) -> None:
    record = record_of(tmp_path, GOODS[name])
    made = quote.fields_of(record, "L0", None)
    text = quote.sentence(made)
    assert quote.parse(text) == made
    assert quote.digest_in(text) == record.digest
    assert ("practice division, a small model" in text) == (record.division == "practice")
    assert ("95 % interval" in text) == (record.mode == "throughput")


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """An honest training."""
    return record_of(tmp_path_factory.mktemp("record"), Good())


@pytest.mark.parametrize("name", HOSTILE)
def test_name_that_could_change_the_claim_is_not_quoted(
    name: str, record: Record, fields: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(quote.QuoteError, match="system_name: expected"):
        quote.fields_of(record, "L0", name)
    if name.isascii() and name.isprintable():  # a device's other characters become "?"
        renamed = check_result(rewrite(write_good(tmp_path, Good()), model(name))).record
        assert renamed is not None
        with pytest.raises(quote.QuoteError, match="device: expected"):
            quote.fields_of(renamed, "L0", "a box")


def model(name: str) -> Callable[[list[dict[str, Any]]], None]:
    """Give the processor of a run without accelerator another name."""

    def forge(events: list[dict[str, Any]]) -> None:
        for event in events:
            if event["kind"] == "env" and event["data"]["side"] == "outside":
                event["data"]["facts"]["cpu"]["model"] = name

    return forge


@pytest.mark.parametrize("name", QUOTABLE)
def test_ordinary_name_is_quoted_as_it_is(name: str, record: Record) -> None:
    made = quote.fields_of(record, "L0", name)
    assert made["system"] == name
    assert quote.parse(quote.sentence(made)) == made


@pytest.mark.parametrize(
    ("value", "low", "high", "shown"),
    [
        (12345.678, 12300.0, 12391.7, ("12346", "12300", "12392")),
        (0.012345, 0.0123, 0.0124, ("0.012345", "0.012300", "0.012400")),
        (1234567.0, 1200000.0, 1271234.0, ("1235000", "1200000", "1272000")),
        (5.0, 5.0, 5.0, ("5.00000", "5.00000", "5.00000")),
        (1.0, 0.99, 1.0101, ("1.000", "0.990", "1.011")),
        (9.99, 9.0, 11.2, ("9.99", "9.00", "11.20")),
        (159556.3, 84424.2, 1449807.0, ("160000", "84000", "1450000")),  # of very unequal repeats
    ],
)
def test_quote_rounds_to_digits_of_the_interval(
    value: float, low: float, high: float, shown: tuple[str, str, str]
) -> None:
    assert quote.rounded(value, low, high) == shown


def test_rounding_moves_the_number_by_at_most_a_twentieth_of_the_interval_and_the_ends_outwards(
    fields: dict[str, str],
) -> None:
    """Two digits of the narrower half: half of the last digit limits the number, a whole one the ends."""
    for scale in range(-6, 12):
        value = 1.2345678 * 10.0**scale
        exact = (value, value * 0.993, value * 1.0071)
        shown, low, high = (float(text) for text in quote.rounded(*exact))
        narrower = 0.007 * value * 1.001
        assert abs(shown - value) <= 0.05 * narrower
        assert exact[1] - 0.1 * narrower < low <= exact[1] * (1 + 1e-12)
        assert exact[2] * (1 - 1e-12) <= high < exact[2] + 0.1 * narrower
        assert all("e" not in text.lower() for text in quote.rounded(value, value * 0.993, value * 1.0071))
    assert Decimal(fields["score"].split()[0]) > 0


EDITS = {
    "workload": "gnmt",
    "variant": "f64",
    "framework": "mxnet",
    "phase": "infer offline",
    "precision": "bf16",
    "scale": "reference",
    "batch": "7",
    "devices": "8",
    "device": "NVIDIA H200",
    "data": "synthetic",
    "cache": "cold",
    "apart": ", with cpus 2",
    "division": "closed division",
    "rules": "0.1",
    "level": "L2",
    "score": "999999 samples/s (95 % interval 999998 to 1000000)",
    "system": "Another 1",
    "sha256": "0" * 64,
}


@pytest.mark.parametrize("name", EDITS)
def test_edited_quote_is_reported_by_field(name: str, fields: dict[str, str]) -> None:
    assert set(EDITS) == set(fields)
    text = quote.sentence({**fields, name: EDITS[name]})
    assert quote.differences(quote.parse(text), fields) == [(name, fields[name], EDITS[name])]


@pytest.mark.parametrize("change", ["{} ", " {}", "{}.", "{}\n", "About {}"])
def test_other_text_is_not_parsed_as_quote(change: str, fields: dict[str, str]) -> None:
    with pytest.raises(quote.QuoteError, match="expected a sentence"):
        quote.parse(change.format(quote.sentence(fields)))


def test_open_quote_lists_differences(tmp_path: Path) -> None:
    def declare(events: list[dict[str, Any]]) -> None:
        rows = [{"rule": name, "reason": "a test"} for name in ("IMG-009", "DIV-005")]
        events[0]["data"] |= {"division": "open", "differences": rows}

    run = rewrite(write_good(tmp_path, reference()), declare)
    record = check_result(run, rules_of).record
    assert record is not None
    made = quote.fields_of(record, "L0", None)
    assert made["division"] == "open division departing from DIV-005, IMG-009"
    assert quote.parse(quote.sentence(made)) == made


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Registrar:
    """One signed submission; read only."""
    folder = tmp_path_factory.mktemp("tree")
    tree = Registrar(folder / "submissions")
    assert tree.submit(result(folder / "r"), stated={"system_name": "The one, 1"}) == 0
    return tree


def test_verify_quote_confirms_a_quote_and_reports_differences(
    tree: Registrar, capsys: pytest.CaptureFixture[str]
) -> None:
    (run,) = tree.runs()
    where = ["--submissions", str(tree.root)]
    assert main(["quote", "--result", str(run), *where]) == 0
    output = capsys.readouterr().out.removesuffix("\n")
    assert 'on "The one, 1"' in output
    assert "assurance level L1" in output
    assert main(["verify-quote", output, *where]) == 0
    assert "holds: " in capsys.readouterr().out
    assert main(["verify-quote", output.replace("level L1", "level L2"), *where]) == 1
    answer = capsys.readouterr().out
    assert "differs: level: expected L1, found L2\n" in answer
    assert f"derived: {output}\n" in answer
    assert main(["verify-quote", f"Faster than all others: {output}", *where]) == 1
    assert "differs: fields" in capsys.readouterr().out


def test_quote_of_missing_log_is_not_verified(
    tree: Registrar, fields: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--submissions", str(tree.root)]
    assert main(["verify-quote", quote.sentence({**fields, "sha256": "0" * 64}), *where]) == 2
    assert "--in DIR names its folder (make: IN=)" in capsys.readouterr().err
    assert main(["verify-quote", "fast", *where]) == 2
    assert main(["verify-quote", "\x1b[31m" + "0" * 64 + "1" * 64, *where]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_verify_quote_finds_log_in_given_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_good(tmp_path / "results")
    (tmp_path / "none").mkdir()
    where = ["--submissions", str(tmp_path / "none")]
    assert main(["quote", "--result", str(run), *where]) == 0
    output = capsys.readouterr().out.removesuffix("\n")
    assert main(["verify-quote", output, *where, "--in", str(tmp_path / "results")]) == 0
    assert main(["--make", "verify-quote", f"SENTENCE={output}", f"IN={tmp_path / 'results'}"]) == 0
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "run.jsonl").symlink_to(run / "run.jsonl")
    assert main(["verify-quote", output, *where, "--in", str(tmp_path / "links")]) == 2


def test_tree_that_is_missing_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Otherwise nothing would be compared, and withdrawn results be quoted."""
    run = write_good(tmp_path / "results")
    assert main(["quote", "--result", str(run), "--submissions", str(tmp_path / "mistyped")]) == 2
    assert "expected a folder of submissions, found none at" in capsys.readouterr().err


def test_rejected_or_unfinished_result_is_not_quoted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "none").mkdir()
    where = ["--submissions", str(tmp_path / "none")]
    bad = rewrite(write_good(tmp_path / "bad"), lambda events: events[-1]["data"]["claims"].update(units=1))
    assert main(["quote", "--result", str(bad), *where]) == 1
    assert "rejected" in capsys.readouterr().err
    unfinished = write_good(tmp_path / "oom", Good(out_of_memory_in=2))
    assert main(["quote", "--result", str(unfinished), *where]) == 1
    assert "no score" in capsys.readouterr().err


def test_quote_uses_described_system(tree: Registrar) -> None:
    (run,) = tree.runs()
    assert json.loads((run / "system.json").read_text())["system_name"] == "The one, 1"
    assert description.slug("The one, 1") == run.parent.parent.name


def test_injected_sentence_does_not_verify(tree: Registrar, capsys: pytest.CaptureFixture[str]) -> None:
    """A name that closes its quotes and makes another claim of the same log."""
    (run,) = tree.runs()
    where = ["--submissions", str(tree.root)]
    assert main(["quote", "--result", str(run), *where]) == 0
    honest = capsys.readouterr().out.removesuffix("\n")
    name = 'The one, 1"; 999999 samples/s on "The one, 1'
    described = (run / "system.json").read_bytes()
    try:
        (run / "system.json").write_bytes(description.encode({**json.loads(described), "system_name": name}))
        assert main(["verify-quote", honest.replace("The one, 1", name), *where]) == 1
    finally:
        (run / "system.json").write_bytes(described)
    assert "holds" not in capsys.readouterr().out


def test_submit_refuses_a_name_that_cannot_be_quoted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = Registrar(tmp_path / "submissions")
    assert tree.submit(result(tmp_path / "r"), stated={"system_name": "box: 999 samples/s"}) == 2
    assert "system_name: expected a name without results" in capsys.readouterr().err
    assert tree.runs() == []
