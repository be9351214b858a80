"""No text in a submission can move a cursor, run a formula or leave its cell in any output."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from suite.checker import check_result
from suite.cli import main
from suite.cli.check import print_verdict
from suite.compare.result_row import ResultRow, row_of
from suite.figures.results import Measured, figures
from suite.log.reader import read_result
from suite.report import grid, markdown, summary, summary_text, table
from suite.rules.schemas import schemas_for
from suite.submissions import system
from suite.submissions import text as submission_text
from tests.fixtures.forging import lines_of, rewrite
from tests.fixtures.good_log import Good, write_good

# Texts that the reader accepts, and texts that it refuses.
POISONS = (
    "=cmd()|'!A1",
    "+1+1",
    "-1-1",
    "@SUM(1)",
    "::error file=a::b",
    "</script><script>alert(1)</script>",
    "a | b | c",
    "[x](javascript:alert(1))",
    "\u202egpj.exe",
    "\u2066a\u2028::error::b",
    "[red]bold[/red]",
    "$x_{",
    "%s%n{0.__class__}",
    "'; DROP TABLE results; --",
)
REFUSED = ("\x1b[31m", "\x9b31m", "\x7f", "a\n::error::b", "a\r::error::b", "\x00")


def string_paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every string inside ``value``."""
    if isinstance(value, str):
        yield path
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from string_paths(inner, (*path, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from string_paths(inner, (*path, index))


def put(value: Any, path: tuple[Any, ...], text: str) -> str:
    """Set one string and return what was there."""
    for name in path[:-1]:
        value = value[name]
    before: str = value[path[-1]]
    value[path[-1]] = text
    return before


def poisoned(folder: Path, text: str, version: str = "practice") -> int:
    """Put ``text`` into every string of the log whose schema allows it; returns their number."""
    schemas, planted = schemas_for(version), 0

    def forge(events: list[dict[str, Any]]) -> None:
        nonlocal planted
        for event in events:
            if event["kind"] == "step":
                continue
            for path in list(string_paths(event["data"])):
                before = put(event["data"], path, text)
                if schemas.valid(event["kind"], event["data"]):
                    planted += 1
                else:
                    put(event["data"], path, before)

    rewrite(folder, forge)
    return planted


def harmless_on_a_terminal(shown: str) -> None:
    """Assert that no character moves a cursor or reverses text, and no line is a command to a CI."""
    for line in shown.split("\n"):
        assert line.isprintable(), ascii(line)
        assert not line.lstrip().startswith("::"), line


def plain_table(folder: Path) -> str:
    from rich.console import Console

    out = io.StringIO()
    table.print_table(read_result(folder), Console(file=out, width=200, force_terminal=False))
    return out.getvalue()


def printed(tables: Sequence[summary.Table], width: int) -> str:
    """The tables of a summary in a terminal of ``width`` columns."""
    from rich.console import Console

    out = io.StringIO()
    summary_text.print_tables(tables, Console(file=out, width=width, force_terminal=False))
    return out.getvalue()


@pytest.mark.parametrize("text", POISONS)
@pytest.mark.parametrize("good", [Good(mode="quality"), Good(out_of_memory_in=1)], ids=["quality", "memory"])
def test_outputs_escape_hostile_logs(text: str, good: Good, tmp_path: Path) -> None:
    folder = write_good(tmp_path / "results", good)
    assert poisoned(folder, text) > 15
    verdict = check_result(folder)
    out = io.StringIO()
    print_verdict(verdict, out)
    harmless_on_a_terminal(out.getvalue())
    harmless_on_a_terminal(plain_table(folder))
    for found in verdict.findings:
        harmless_on_a_terminal(submission_text.finding_line(found))
    assert json.dumps(verdict.as_dict()).isprintable()
    rows = summary.tables_of([row_of(folder)])
    check_csv([summary.to_csv(rows)])
    for width in (40, 80, 200):
        harmless_on_a_terminal(printed(rows, width))
    check_markdown(markdown.to_markdown(rows))
    assert json.loads(summary.to_json(rows))
    assert summary.to_json(rows).isascii()


@pytest.fixture(scope="module")
def row(tmp_path_factory: pytest.TempPathFactory) -> ResultRow:
    """The row of an honest result."""
    found = row_of(write_good(tmp_path_factory.mktemp("results"), Good()))
    assert found.status == "accepted"
    return found


def poisoned_row(row: ResultRow, text: str) -> ResultRow:
    """``row`` with ``text`` for every text: more than an accepted log could contain."""
    names = ("device", "submitter", "system", "run_id", "why", "runtime", "limits_text", "unit")
    texts: dict[str, Any] = dict.fromkeys(names, text)
    key = {name: text if isinstance(value, str) else value for name, value in row.key.items()}
    texts |= {"started": text, "settings": {"threads": text, text: text}}
    return replace(row, key=key | {"framework": text}, **texts)


@pytest.mark.parametrize("text", [*POISONS, *REFUSED])
def test_tables_escape_hostile_text(text: str, row: ResultRow) -> None:
    rows = summary.tables_of([poisoned_row(row, text)])
    check_csv([summary.to_csv(rows)])
    for width in (40, 80, 200):
        harmless_on_a_terminal(printed(rows, width))
    check_markdown(markdown.to_markdown(rows))
    assert summary.to_json(rows).isascii()
    grids = grid.grids([grid.entry_of(found) for one in rows for found in one.rows])
    harmless_on_a_terminal(grid.to_text(grids))
    check_csv(grid.to_csv(grids).split("\n\n"))
    check_markdown(grid.to_markdown(grids))
    assert grid.to_json(grids).isascii()


def check_csv(tables: list[str]) -> None:
    """Assert that no cell is a formula, or contains a command to a terminal or a CI."""
    for one in tables:
        harmless_on_a_terminal(one)
        heads, *lines = csv.reader(io.StringIO(one))
        for line in lines:
            assert len(line) == len(heads)
            for cell in line:
                assert not cell.startswith(("=", "@", "+", "\t")), cell
                assert not cell.startswith("-") or re.fullmatch(r"-|-?[0-9.e+-]+", cell), cell


def check_markdown(text: str) -> None:
    """Every row of a table has its heading's cells, and nothing is markup."""
    harmless_on_a_terminal(text)
    assert "<" not in text
    assert "](" not in text.replace("\\](", "")
    cells = None
    for line in text.splitlines():
        if not line.startswith("|"):
            cells = None
            continue
        found = len(re.findall(r"(?<!\\)\|", line.replace("\\\\", "")))
        cells = cells or found
        assert found == cells, line


@pytest.mark.parametrize("text", POISONS)
def test_figures_escape_hostile_text(text: str, row: ResultRow) -> None:
    poisoned = poisoned_row(row, text)
    metrics = {name: replace(metric, unit=text) for name, metric in row.metrics.items()}
    group, status = ("practice", text, text, text), "accepted"
    both = [
        Measured(
            group,
            {**poisoned.key, "batch": batch, text: batch},
            status,
            text,
            replace(poisoned, metrics=metrics),
        )
        for batch in (1, 2)
    ]
    for found in (both, both[:1]):
        for figure in figures(found, "throughput"):
            drawn = figure.file()
            assert {one.tag.rpartition("}")[2] for one in ElementTree.fromstring(drawn).iter()}.isdisjoint(
                ("script", "foreignObject", "a", "use", "image", "style")
            )
            assert not any(character in drawn for character in ("\u202e", "\u2066", "\u2028"))
            assert html.escape(text)[:6] in drawn or not text.isascii() or text.startswith("::")


def test_submission_commands_escape_hostile_descriptions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """check-submissions, and submit, over system.json files with hostile text in every field."""
    root = tmp_path / "submissions"
    parent = root / "an-org" / "practice" / "a-system" / "ncf"
    for number, text in enumerate((*POISONS, *REFUSED)):
        folder = write_good(parent, Good(out_of_memory_in=0, run_hex=f"{number:08x}"))
        hostile: dict[str, Any] = dict.fromkeys(system.names(), text)
        hostile |= {text: text, "reasons": {text: text}}
        (folder / "system.json").write_text(json.dumps(hostile))
        assert main(["submit", "--result", str(folder), "--submitter", "an-org"]) in (1, 2)
        printed = capsys.readouterr()
        harmless_on_a_terminal(printed.out + printed.err)
    for width in ("", "40", "80"):
        monkeypatch.setenv("COLUMNS", width)
        assert main(["check-submissions", str(root)]) == 1
        shown = capsys.readouterr().out
        harmless_on_a_terminal(shown)
        assert shown.count("SUBM-004") > len((*POISONS, *REFUSED))


@pytest.mark.parametrize("text", REFUSED)
def test_refused_text_is_escaped_in_the_message(text: str, tmp_path: Path) -> None:
    folder = write_good(tmp_path, Good(out_of_memory_in=0))
    events = lines_of(folder)
    message = next(event for event in events if event["kind"] == "abort")["data"]["message"]
    data = (folder / "run.jsonl").read_bytes()
    planted = json.dumps(text, ensure_ascii=False).encode()[1:-1]
    (folder / "run.jsonl").write_bytes(data.replace(message.encode(), planted))
    verdict = check_result(folder)
    assert "LOG-018" in {found.rule for found in verdict.findings}
    out = io.StringIO()
    print_verdict(verdict, out)
    harmless_on_a_terminal(out.getvalue())
