"""The pages of baselines, sweeps and advice: their numbers, their links, and files that lie or attack."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from suite.cli import main
from suite.compare.journal import JOURNAL, JournalLine, SweepLine, lines_of
from suite.contract import Key
from suite.log.units import quantity
from suite.metrics.baseline import Baseline, Cohort
from suite.report.baseline_text import rate_text
from suite.site.build import build
from suite.site.sweeps import MOST_CELLS, MOST_SWEEPS, journal_of
from suite.sweep import journal
from tests.fixtures.baselines import baseline, write_log
from tests.fixtures.good_log import MINI, Good, write_good
from tests.site.hostile import STRINGS
from tests.site.pages import Page, read

KIND = Cohort("Xeon", 2, {})
SWEEP = "0123456789ab"
COMMON = ("workload=ncf", "framework=pytorch", "phase=train")


def shared(folder: Path, one: Baseline, kind: str = "") -> Path:
    path = folder / (kind or one.cohort.folder) / f"{one.digest}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(one.shared())
    return path


def site_of(tmp_path: Path, baselines: str = "baselines") -> Path:
    (tmp_path / "results").mkdir(exist_ok=True)
    build(tmp_path / "results", tmp_path / "site", tmp_path / "cache", tmp_path / baselines)
    return tmp_path / "site"


def rows_of(page: Page) -> list[str]:
    return [text for text in page.text if text.strip()]


# ------------------------------------------------------------------------------------------ baselines


def test_a_slow_machine_has_its_verdict_figures_and_conditions_on_its_page(tmp_path: Path) -> None:
    folder = tmp_path / "baselines"
    rates = {"cpu.copy": 1e9, "cpu.triad": 5e8}
    for number in range(10):
        shared(folder, baseline(number, rates, f"{number:064x}"))
    slow = replace(
        baseline(99, rates | {"cpu.copy": 7e8}, f"{99:064x}"), conditions=("CPU group: 1 of 2 cores",)
    )
    shared(folder, slow)
    site = site_of(tmp_path)
    page = read(site / "baseline" / f"{slow.digest}.html")
    assert "cohort: slow" in page.text
    assert "self: unknown" in page.text
    assert [one for one in page.text if one.startswith("cpu.copy is slow: -30.0% from the median of n = 10")]
    assert "condition: CPU group: 1 of 2 cores" in page.text
    assert "-30.0 %, percentile 0 of 10" in page.text  # the strip
    for name, series in slow.series.items():
        assert (name, rate_text(series, series.rate)) in set(pairwise(page.text))
    listed = read(site / "baselines.html")
    assert f"baseline/{slow.digest}.html" in listed.links
    assert listed.text.count("slow") == 1
    assert listed.text.count("ok") == 10  # each of the others has ten machines to be compared with


def test_of_a_log_and_its_shared_file_the_log_counts(tmp_path: Path) -> None:
    folder = tmp_path / "baselines"
    log = write_log(folder / "logs")
    digest = hashlib.sha256((log / "run.jsonl").read_bytes()).hexdigest()
    forged = replace(baseline(1, {"cpu.copy": 1e15}), digest=digest)
    shared(folder, forged)
    page = read(site_of(tmp_path) / "baseline" / f"{digest}.html")
    assert "cpu.gemm_fp32" in page.text
    assert "log: its chain of digests, its checks and the number of its windows were verified" in page.text


@pytest.mark.parametrize("inside", [False, True])
def test_logs_of_baselines_are_no_results(tmp_path: Path, inside: bool) -> None:
    name = "results/baselines" if inside else "baselines"
    write_log(tmp_path / name / "logs")
    (tmp_path / "results").mkdir(exist_ok=True)
    built = build(tmp_path / "results", tmp_path / "site", tmp_path / "cache", tmp_path / name)
    assert built.collection.results == ()
    assert list((tmp_path / "site" / "baseline").iterdir())


def test_files_that_are_no_baselines_are_left_out_with_the_reason(tmp_path: Path) -> None:
    folder = tmp_path / "baselines"
    good = baseline(1, {"cpu.copy": 1e9}, f"{1:064x}")
    shared(folder, good, kind="another-kind")
    secret = tmp_path / "secret.json"
    secret.write_text('{"secret": "of another file"}')
    kind = folder / KIND.folder
    kind.mkdir()
    (kind / f"{2:064x}.json").symlink_to(secret)
    (kind / f"{3:064x}.json").write_text('{"a": 1e400, "<script>alert(1)</script>": [[[[]]]]}')
    (kind / f"{4:064x}.json").write_bytes(b"[" * 100_000)
    (kind / f"{5:064x}.json").write_bytes(b" " * ((1 << 20) + 1))
    value = json.loads(baseline(6, {"cpu.copy": 1e9}, f"{6:064x}").shared())
    value["series"]["cpu.copy"]["windows"][0] = [0, 0]
    (kind / f"{6:064x}.json").write_text(json.dumps(value))
    (folder / "linked").symlink_to(kind)
    site = site_of(tmp_path)
    assert not (site / "baseline").exists()
    page = read(site / "baselines.html")
    lines = [one for one in page.text if one.startswith((KIND.folder, "another-kind"))]
    assert len(lines) == 5
    assert (
        f"another-kind/{1:064x}.json: expected the folder xeon-2-threads, after its kind of machine" in lines
    )
    assert not any("secret" in one for one in page.text)


def test_hostile_text_of_a_baseline_is_text(tmp_path: Path) -> None:
    texts = [one for one in STRINGS if len(one) <= 1000]
    for number, hostile in enumerate(texts):
        one = baseline(number, {"cpu.copy": 1e9}, f"{number:064x}", method=hostile)
        cohort = Cohort(hostile, 2, {hostile: 1})
        shared(
            tmp_path / "baselines",
            replace(
                one, cohort=cohort, suite=hostile, missing={"cpu.jpeg": hostile}, conditions=(hostile,) * 200
            ),
        )
    site = site_of(tmp_path)
    pages = [site / "baselines.html", *(site / "baseline").iterdir()]
    assert len(pages) == 1 + len(texts)
    for path in pages:
        for name, named in read(path).elements:
            assert name not in ("img", "textarea")
            assert not [one for one in named if one.startswith("on")]
        assert read(path).text.count("and 101 more") == (0 if path.name == "baselines.html" else 1)


def test_more_files_than_a_site_may_have_are_counted_and_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("suite.site.baselines.MOST", 2)
    for number in range(5):
        shared(tmp_path / "baselines", baseline(number, {"cpu.copy": 1e9}, f"{number:064x}"))
    site = site_of(tmp_path)
    assert "3 more files: a site has at most 2 baselines" in read(site / "baselines.html").text
    assert len(list((site / "baseline").iterdir())) == 2


def test_the_second_build_reads_no_baseline_again_and_a_changed_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shared(tmp_path / "baselines", baseline(1, {"cpu.copy": 1e9}, f"{1:064x}"))
    site_of(tmp_path)
    monkeypatch.setattr("suite.site.baselines._read", None)
    site_of(tmp_path)
    value = json.loads(path.read_bytes()) | {"suite": "another"}
    path.write_text(json.dumps(value))
    with pytest.raises(TypeError):
        site_of(tmp_path)


# --------------------------------------------------------------------------------------------- sweeps


def cell(outcome: str, *options: str, run_id: str = "", reason: str = "", **more: Any) -> JournalLine:
    sweep = more.pop("sweep", SWEEP)
    return JournalLine((*COMMON, *options), "c" * 64, outcome, 0, reason, run_id=run_id, sweep=sweep, **more)


def write_journal(results: Path, *lines: JournalLine | SweepLine) -> None:
    with journal.locked(results) as lock:
        for line in lines:
            journal.append(lock, line)


def with_batch(batch: int, **changes: Any) -> Key:
    return replace(MINI, batch=batch, **changes)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site of one sweep: two batches measured, one out of memory, and cells of every other outcome."""
    tmp_path = tmp_path_factory.mktemp("swept")
    results = tmp_path / "results"
    names = {
        batch: write_good(
            results, Good(key=with_batch(batch), run_hex=f"{batch:08x}", step_ns=batch * 10_000)
        ).name
        for batch in (256, 512)
    }
    again = write_good(results, Good(key=with_batch(256), run_hex="00000001", step_ns=2_600_000)).name
    full = write_good(results, Good(key=with_batch(65536), run_hex="0000ffff", out_of_memory_in=1)).name
    rejected = write_good(results, Good(key=with_batch(128), run_hex="00000002"))
    log = rejected / "run.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"practice"', b'"closed"', 1))
    write_journal(
        results,
        SweepLine(SWEEP, 7, 10),
        cell("ok", "batch=256", run_id=names[256], reference=0),
        cell("ok", "batch=512", run_id=names[512]),
        cell("oom", "batch=65536", run_id=full),
        cell("ok", "batch=128", run_id=rejected.name),
        cell("ok", "batch=1024", run_id=names[512]),  # a lie
        cell("ok", "batch=2048", run_id="20261118T1106Z-nobody"),
        cell("timeout", "batch=4096", reason="it took longer than 600 s"),
        cell("error", "batch=8192", reason="<script>alert(1)</script>"),
        cell("skipped", "batch=16384", reason="not on this device"),
        cell("ok", "batch=256", run_id=again, reference=1),
        cell("skipped", "data=synthetic", reason="no such pair", sweep=""),
        cell("ok", "devices=2", sweep="ncf-pytorch-train-fp32-mini-weak-01234567"),
    )
    return site_of(tmp_path)


def table_of(page: Page) -> dict[str, list[str]]:
    """The texts of the row of each batch."""
    found: dict[str, list[str]] = {}
    at = page.text.index("Cells")
    batch = ""
    for text in page.text[at:]:
        if text == "Notes":
            break
        if text.isdigit() and int(text) & (int(text) - 1) == 0:
            batch = text
            found[batch] = []
        elif batch:
            found[batch].append(text)
    return found


def test_each_cell_of_a_sweep_has_its_outcome_and_reason(swept: Path) -> None:
    rows = table_of(read(swept / "sweep" / f"{SWEEP}.html"))
    outcomes = {batch: row[0] for batch, row in rows.items()}
    assert outcomes == {
        "128": "error", "256": "ok", "512": "ok", "1024": "error", "2048": "error", "4096": "timeout",
        "8192": "error", "16384": "skipped", "65536": "oom",
    }  # fmt: skip
    assert list(outcomes) == sorted(outcomes, key=int)
    assert "it took longer than 600 s" in rows["4096"]
    assert "<script>alert(1)</script>" in rows["8192"]
    assert rows["128"][-1].startswith(("LOG-", "DIV-"))


def test_a_throughput_is_that_of_a_checked_result_and_links_to_it(swept: Path) -> None:
    page = read(swept / "sweep" / f"{SWEEP}.html")
    assert len(page.metrics["score"]) == 2
    index = read(swept / "index.html")
    assert set(page.metrics["score"]) <= set(index.metrics["score"])
    links = [one for one in page.links if one.startswith("../r/")]
    assert len(set(links)) >= 2
    assert all((swept / "sweep" / one).resolve().is_file() for one in links)


def test_a_journal_that_names_a_result_of_another_cell_is_not_believed(swept: Path) -> None:
    rows = table_of(read(swept / "sweep" / f"{SWEEP}.html"))
    assert rows["1024"][-1] == (
        "the journal names a result that measured something else: batch=1024 in the journal, 512 in the log"
    )
    assert rows["2048"][-1].endswith("its result is not here: 20261118T1106Z-nobody")


def test_a_sweep_has_its_figure_its_drift_and_the_cells_that_are_left(swept: Path) -> None:
    page = read(swept / "sweep" / f"{SWEEP}.html")
    assert "svg" in [name for name, _ in page.elements]
    assert [one for one in page.text if one.startswith("reference cell, in order: ")]
    assert "1 cell not run yet." in page.text
    listed = read(swept / "sweeps.html")
    assert listed.links.count(f"sweep/{SWEEP}.html") == 1
    assert "sweep/matrix.html" in listed.links
    assert sorted(path.name for path in (swept / "sweep").iterdir()) == [f"{SWEEP}.html", "matrix.html"]


def test_the_title_of_an_interrupted_sweep_names_its_axes_and_options(tmp_path: Path) -> None:
    """Of one cell that has ended no option differs; a bare 2 might be anything."""
    (tmp_path / "results").mkdir()
    ended = cell("error", "repeats=2", "batch=256", reason="crashed")
    earlier = replace(ended, sweep="f" * 12)  # of a version that wrote no axes
    write_journal(
        tmp_path / "results",
        SweepLine(SWEEP, 1, 2, axes=("batch", "another")), ended, SweepLine("f" * 12, 1, 2), earlier,
    )  # fmt: skip
    site = site_of(tmp_path)
    listed = read(site / "sweeps.html").text
    assert "ncf pytorch train repeats 2: batch" in listed
    assert "ncf pytorch train repeats 2 batch 256" in listed
    page = read(site / "sweep" / f"{SWEEP}.html").text
    assert "ncf pytorch train repeats 2: batch" in page
    assert "256" in page[page.index("Cells") :]


def test_published_figures_come_from_the_suite_and_not_from_the_journal(tmp_path: Path) -> None:
    options = (
        *("workload=resnet50", "framework=pytorch", "phase=train", "scale=reference", "precision=fp32"),
        *("data=synthetic", "batch=64", "devices=1"),
    )
    skipped = JournalLine(options, "c" * 64, "skipped", 11, "no GPU", sweep=SWEEP)
    (tmp_path / "results").mkdir()
    other = replace(skipped, sweep="f" * 12)
    write_journal(
        tmp_path / "results",
        SweepLine(SWEEP, 1, 1, study="tensorflow_2017"),
        skipped,
        SweepLine("f" * 12, 1, 1, study="../../../secret"),
        other,
    )
    site = site_of(tmp_path)
    page = read(site / "sweep" / f"{SWEEP}.html")
    assert "TensorFlow benchmarks, May 2017" in page.text
    assert "published: P100, DGX-1" in page.text
    assert "219 images/s" in page.text
    assert [one for one in page.text if one.startswith("published figures are from https://")]
    assert "219 images/s" not in read(site / "sweep" / f"{'f' * 12}.html").text


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 60_000,
        b'{"options": ["a=1"], "code": "c", "outcome": "fine", "exit_code": 0, "reason": ""}',
        b'{"options": [1], "code": "c", "outcome": "ok", "exit_code": 0, "reason": ""}',
        b'{"options": "a", "code": "c", "outcome": "ok", "exit_code": 0, "reason": ""}',
        b'{"options": ["a=1"], "code": "c", "outcome": "ok", "exit_code": 1e400, "reason": ""}',
        b'{"options": ["a=1"], "code": "c", "outcome": [], "exit_code": 0, "reason": ""}',
        b'{"options": ["a=1"], "code": "c", "outcome": "ok", "exit_code": 0, "reason": "", "seconds": NaN}',
        b'{"options": ["a=1"], "code": "c", "outcome": "ok", "exit_code": 0, "reason": "", "key": {"a": []}}',
        b'{"options": ["a=1"], "code": "c", "outcome": "ok", "exit_code": 0, "reason": "", "more": 1}',
        b'{"options": ["a=1"], "code": "c", "outcome": "ok", "exit_code": 0}',
        b'{"seed": true, "sweep": "a", "cells": 1}',
        b'{"seed": 1}',
        b"\xff\xfe{}",
        b"null",
    ],
)
def test_a_line_of_another_format_is_none(line: bytes) -> None:
    assert list(lines_of(line.decode("utf-8", "replace"))) == []


def test_a_journal_with_too_many_sweeps_or_cells_is_cut_and_says_so(tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    lines: list[Mapping[str, Any]] = []
    for number in range(MOST_SWEEPS + 20):
        name = f"{number:012x}"
        lines.append({"sweep": name, "seed": 1, "cells": 1})
        lines.append(
            {"options": ["a=1"], "code": "", "outcome": "error", "exit_code": 1, "reason": "x", "sweep": name}
        )
    (results / JOURNAL).write_text("".join(json.dumps(one) + "\n" for one in lines))
    assert "20 older sweeps not shown." in read(site_of(tmp_path) / "sweeps.html").text
    many = [
        {"options": [f"a={n}"], "code": "", "outcome": "error", "exit_code": 1, "reason": "x"}
        for n in range(MOST_CELLS + 1)
    ]
    (results / JOURNAL).write_text("".join(json.dumps(one) + "\n" for one in many))
    assert journal_of(results) == {"sweeps": [], "left_out": 1, "problem": ""}


def test_a_journal_that_is_too_large_or_a_link_is_not_read(tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    with (results / JOURNAL).open("wb") as file:
        file.truncate((32 << 20) + 1)
    page = read(site_of(tmp_path) / "sweeps.html")
    assert [one for one in page.text if one.startswith("The journal could not be read: ")]
    (results / JOURNAL).unlink()
    (results / JOURNAL).symlink_to("/etc/passwd")
    assert "There is no sweep among these results. " in read(site_of(tmp_path) / "sweeps.html").text


# --------------------------------------------------------------------------------------------- advice


@pytest.fixture(scope="module")
def advised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site of nine batches of NCF whose step takes 1 ms and 4 µs a sample."""
    tmp_path = tmp_path_factory.mktemp("advised")
    for number, batch in enumerate((32, 64, 128, 256, 512)):
        good = Good(key=with_batch(batch), run_hex=f"{number:08x}", step_ns=1_000_000 + 4_000 * batch)
        write_good(tmp_path / "results", good)
    return site_of(tmp_path)


def test_the_advice_is_that_of_make_advise(advised: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = read(advised / "advice" / "ncf.html")
    rates = sorted(float(one.replace(",", "")) for one in read(advised / "index.html").metrics["score"])
    goal = float(f"{0.8 * rates[-1]:.3g}")
    results = advised.parent / "results"
    asked = ["advise", "--workload", "ncf", "--results-dir", str(results), "--goal", f"throughput>={goal}"]
    assert main([*asked, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    smallest = found["answers"][0]["smallest"]
    at = page.text.index("80 %")
    assert page.text[at + 2 : at + 5] == [
        f"{smallest['cpus']:g}", str(smallest["devices"]), str(smallest["batch"])
    ]  # fmt: skip
    model = found["groups"][0]["model"]
    step = f"model: 5 cells; a step takes {quantity(model['parameters']['a'] * 1e3, 'ms')} (a)"
    assert [one for one in page.text if one.startswith(step)]
    assert "5 measured configurations" in page.text
    assert sum(one.startswith("../r/") for one in page.links) == 5
    assert "svg" in [name for name, _ in page.elements]


def test_a_second_build_fits_no_model_again(advised: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("suite.site.pages.advice._made", None)
    built = build(advised.parent / "results", advised, advised.parent / "cache", advised.parent / "baselines")
    assert built.written == 0


def test_what_is_rejected_withdrawn_or_no_throughput_gives_no_advice(tmp_path: Path) -> None:
    results = tmp_path / "results"
    write_good(results, Good(mode="quality"))
    rejected = write_good(results, Good(run_hex="00000002"))
    log = rejected / "run.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"practice"', b'"closed"', 1))
    site = site_of(tmp_path)
    assert "There is no accepted result to advise from." in read(site / "advice.html").text
    assert not (site / "advice").exists()
