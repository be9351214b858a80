"""The site as files: equal bytes on a rebuild, numbers as in the logs, nothing loaded, no dead link."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import suite.site.shell
from suite.cli import main
from suite.contract import ConversionKey
from suite.metrics.metric import Metric
from suite.report import scaling_table
from suite.site.build import SiteError, build
from suite.site.cache import Cache
from suite.site.collect import Collection, collect
from suite.site.html import join, tag, text
from suite.site.pages import all_pages
from suite.site.shell import PRACTICE, policy
from tests.fixtures.forged_storage import LOADED
from tests.fixtures.forging import rewrite
from tests.fixtures.good_log import MINI, Good, write_good
from tests.fixtures.good_log import reference as good_reference
from tests.fixtures.honest import NAMES, write_honest
from tests.fixtures.scaling_sets import Imagined
from tests.site.pages import Page, read
from tests.site.recomputed import Log, four_digits, numbers

SUBMISSIONS = Path(__file__).parents[2] / "submissions"
ON_ONE_DEVICE = SUBMISSIONS / "suite-reference" / "results" / "h200-virtual-machine"  # five repeats each
REPORT_LIMIT = 1 << 20


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build(SUBMISSIONS, folder / "site", folder / "cache")
    return folder / "site"


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def digest_of(result: Path) -> str:
    return hashlib.sha256((result / "run.jsonl").read_bytes()).hexdigest()


def pages_of(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.html"))


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    """Every page of the site by its path, read once: that takes four seconds."""
    return {path: read(path) for path in pages_of(site)}


def test_a_rebuild_without_a_cache_gives_equal_bytes(site: Path, tmp_path: Path) -> None:
    build(SUBMISSIONS, tmp_path / "again", tmp_path / "cache")
    assert files_of(tmp_path / "again") == files_of(site)


def test_a_second_build_writes_nothing_and_a_lost_result_leaves_no_page(tmp_path: Path) -> None:
    results = tmp_path / "results"
    first, second = (write_good(results, Good(run_hex=name)) for name in ("00000001", "00000002"))
    built = build(results, tmp_path / "site", tmp_path / "cache")
    assert built.written == built.files
    before = files_of(tmp_path / "site")
    assert build(results, tmp_path / "site", tmp_path / "cache").written == 0
    (page, other) = sorted((tmp_path / "site" / "r").iterdir())
    page.write_bytes(page.read_bytes().replace(b"samples", b"SAMPLES"))
    other.unlink()
    assert build(results, tmp_path / "site", tmp_path / "cache").written == 2
    assert files_of(tmp_path / "site") == before
    shutil.rmtree(second)
    after = build(results, tmp_path / "site", tmp_path / "cache")
    digest = hashlib.sha256((first / "run.jsonl").read_bytes()).hexdigest()
    assert after.removed == 2  # the page and the log
    assert [path.name for path in (tmp_path / "site" / "r").iterdir()] == [f"{digest}.html"]


def test_a_changed_log_is_checked_again(tmp_path: Path) -> None:
    results = tmp_path / "results"
    folder = write_good(results)
    assert not build(results, tmp_path / "site", tmp_path / "cache").collection.results[0].rejected
    log = folder / "run.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"practice"', b'"closed"', 1))
    (result,) = build(results, tmp_path / "site", tmp_path / "cache").collection.results
    assert result.rejected
    page = read(tmp_path / "site" / "index.html")
    rows = [named for name, named in page.elements if name == "tr" and named.get("class") == "gone"]
    assert len(rows) == 1
    assert any(one.startswith("rejected LOG-") for one in page.text)
    assert "score" not in read(tmp_path / "site" / "r" / f"{result.digest}.html").metrics


def test_a_folder_of_other_files_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "letter.txt").write_text("mine")
    with pytest.raises(SiteError, match="give another TO="):
        build(SUBMISSIONS, tmp_path / "target", tmp_path / "cache")
    assert files_of(tmp_path / "target") == {"letter.txt": b"mine"}


@pytest.mark.parametrize(
    "log", sorted(ON_ONE_DEVICE.glob("*/*/run.jsonl")), ids=lambda path: path.parent.name
)
def test_every_number_of_a_result_page_follows_from_its_log(site: Path, log: Path) -> None:
    digest = hashlib.sha256(log.read_bytes()).hexdigest()
    page = read(site / "r" / f"{digest}.html")
    expected = numbers(log)
    interval = expected.pop("interval", None)
    absent = {name for name, shown in page.metrics.items() if set(shown) == {"–"}}
    shown = {name: values for name, values in page.metrics.items() if name not in absent}
    zero = {"gpu_throttled_percent": ["0 %"]}  # of counters that did not move
    assert shown == expected | zero
    times = {"step_p50_ms", "step_p90_ms", "step_p99_ms", "repeat_step_p50_ms"}
    long_runs = {"drift_percent", "anonymous_growth_bytes", "page_cache_growth_bytes"}
    virtual = {"cpu_throttled_percent", "energy_node_j_per_unit"}  # a virtual machine has no such counters
    spread = {"cv_percent"}  # of several repeats
    assert absent == virtual | long_runs | ((times | spread) - expected.keys())
    if interval is not None:
        assert f"95 % interval {interval[0]} to {interval[1]}" in page.text
    assert expected["score"][0] in read(site / "index.html").metrics["score"]


def test_the_numbers_beneath_the_figure_of_step_times_are_those_of_the_log(site: Path) -> None:
    log = next(ON_ONE_DEVICE.glob("resnet50/*train*/run.jsonl"))
    page = (site / "r" / f"{hashlib.sha256(log.read_bytes()).hexdigest()}.html").read_text()
    table = page[page.index("repeat 4: step time") :]
    rows = re.findall(r"<tr><td>(\d+)</td>((?:<td class=\"n\">[^<]*</td>){5})</tr>", table)[:100]
    read_log = Log(log)
    times = [[four_digits(ns / 1e6) for ns in read_log.durations(repeat)] for repeat in range(5)]
    expected = [(str(10 + step), list(row)) for step, row in enumerate(zip(*times, strict=True))]
    assert [(step, re.findall(r">([^<]+)<", cells)) for step, cells in rows] == expected


def test_pages_are_well_formed_and_load_nothing(pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        names = [name for name, _ in page.elements]
        assert not {"img", "link", "iframe", "object", "embed", "base", "form", "image", "use"} & set(
            names
        ), path
        assert len(page.ids) == len(set(page.ids)), path
        for name, named in page.elements:
            assert not [one for one in named if one.startswith("on") or one in ("src", "style", "srcset")], (
                path
            )
            assert not any("url(" in value for value in named.values()), (path, name)
        first = page.elements[2]  # html, head, meta
        assert first == ("meta", {"http-equiv": "Content-Security-Policy", "content": policy()})


def test_the_policy_allows_exactly_the_style_sheet_and_the_script_of_the_page(site: Path) -> None:
    source = (site / "index.html").read_text()
    for name, number in (("style", 1), ("script", 2)):
        contents = re.findall(rf"<{name}>(.*?)</{name}>", source, re.S)
        assert len(contents) == number
        digests = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in contents]
        hashes = " ".join(f"'sha256-{digest}'" for digest in digests)
        assert f"{name}-src {hashes};" in policy()
    assert policy().startswith("default-src 'none';")


def test_every_link_leads_to_a_page_and_a_position_in_it(pages: dict[Path, Page]) -> None:
    ids = {path: set(page.ids) for path, page in pages.items()}
    for path, page in pages.items():
        for address in page.links:
            name, _, position = address.partition("#")
            target = (path.parent / name).resolve() if name else path.resolve()
            assert target.is_file(), f"{path}: {address}"
            assert not position or position in ids[target], f"{path}: {address}"


def test_the_raw_log_lies_beside_the_pages_as_text(site: Path) -> None:
    logs = list(SUBMISSIONS.glob("*/results/*/*/*/run.jsonl"))
    assert len(logs) > 100
    for log in logs:
        data = log.read_bytes()
        assert (site / "log" / f"{hashlib.sha256(data).hexdigest()}.txt").read_bytes() == data


def test_a_report_is_one_small_file_without_links(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = next(ON_ONE_DEVICE.glob("vgg16/*train*"))
    out = tmp_path / "report.html"
    arguments = ["report", "--result", str(result), "--submissions", str(SUBMISSIONS), "--out", str(out)]
    arguments += ["--cache-dir", str(tmp_path / "cache")]
    assert main(arguments) == 0
    assert capsys.readouterr().out == f"report: {out}\n"
    page = read(out)
    assert out.stat().st_size <= REPORT_LIMIT
    assert page.links == ["#content"]
    assert page.metrics["score"] == numbers(result / "run.jsonl")["score"]
    before = out.read_bytes()
    assert main(arguments) == 0
    assert out.read_bytes() == before
    out.write_text("mine")
    assert main(arguments) == 2
    assert "is no report" in capsys.readouterr().err
    assert out.read_text() == "mine"


def test_a_report_without_submissions_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It would show a withdrawn result as valid."""
    result = next(ON_ONE_DEVICE.glob("vgg16/*train*"))
    arguments = ["report", "--result", str(result), "--out", str(tmp_path / "report.html")]
    assert main([*arguments, "--submissions", str(tmp_path / "none")]) == 2
    assert "--submissions: expected a folder of submissions" in capsys.readouterr().err


def test_report_of_a_copy_elsewhere_claims_nothing_that_needs_a_comparison(tmp_path: Path) -> None:
    original = next(ON_ONE_DEVICE.glob("vgg16/*train*"))
    copy = shutil.copytree(original, tmp_path / original.name)
    out = tmp_path / "report.html"
    arguments = ["report", "--result", str(copy), "--submissions", str(SUBMISSIONS), "--out", str(out)]
    assert main([*arguments, "--cache-dir", str(tmp_path / "cache")]) == 0
    words = "".join(read(out).text)
    assert "make quote RESULT=… compares this result with all submissions" in words
    assert "Assurance level" not in words


def test_copy_does_not_hide_the_original(tmp_path: Path) -> None:
    """A submitter whose name comes first has packaged the log of another one."""
    original = next(ON_ONE_DEVICE.glob("vgg16/*train*"))
    below = original.relative_to(SUBMISSIONS / "suite-reference")
    for submitter in ("aaa", "suite-reference"):
        shutil.copytree(original, tmp_path / "tree" / submitter / below)
    shutil.copytree(SUBMISSIONS / "registry", tmp_path / "tree" / "registry")
    (one,) = collect(tmp_path / "tree", Cache(tmp_path / "cache")).results
    assert (one.row.submitter, one.struck) == ("suite-reference", False)


def test_a_report_of_a_folder_is_one_table(tmp_path: Path) -> None:
    results = tmp_path / "results"
    for name in ("00000001", "00000002"):
        write_good(results, Good(run_hex=name))
    assert main(["report", "--results-dir", str(results), "--cache-dir", str(tmp_path / "cache")]) == 0
    page = read(results / "reports" / "results.html")
    assert len(page.metrics["score"]) == 2
    assert PRACTICE in page.text


def test_practice_carries_a_watermark_and_other_divisions_none(
    pages: dict[Path, Page], tmp_path: Path
) -> None:
    write_good(tmp_path / "results")
    build(tmp_path / "results", tmp_path / "site", tmp_path / "cache")
    (practice,) = (tmp_path / "site" / "r").iterdir()
    assert PRACTICE in read(practice).text
    assert not [path for path, page in pages.items() if PRACTICE in page.text]


def test_wrong_arguments_are_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["site", "--from", str(tmp_path / "absent"), "--to", str(tmp_path / "site")]) == 2
    assert "expected a folder of results or submissions" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    absent = ["--from", str(tmp_path / "empty"), "--baselines", str(tmp_path / "absent")]
    assert main(["site", *absent, "--to", str(tmp_path / "site")]) == 2
    assert "expected a folder of baselines" in capsys.readouterr().err
    assert main(["report", "--results-dir", str(tmp_path / "empty"), "--cache-dir", str(tmp_path)]) == 2
    assert "make run WORKLOAD=ncf" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("stated", "folder", "rejected"),
    [
        ({"system_name": "Second Box"}, "suite-reference/results/second-box", True),
        ({"submitter": "other-labs"}, "other-labs/results/h200-virtual-machine", False),
    ],
)
def test_a_rejected_copy_has_no_score_and_its_original_keeps_it(
    tmp_path: Path, stated: dict[str, str], folder: str, rejected: bool
) -> None:
    """Of two submitters nobody knows who was first, so both are flagged."""
    tree = tmp_path / "submissions"
    original = ON_ONE_DEVICE.relative_to(SUBMISSIONS) / "ncf"
    for part in (original, Path("registry")):
        shutil.copytree(SUBMISSIONS / part, tree / part)
    run = next((tree / original).glob("*train*"))
    twin = tree / folder / "ncf" / run.name
    shutil.copytree(run, twin)
    described = json.loads((twin / "system.json").read_text()) | stated
    (twin / "system.json").write_text(json.dumps(described, indent=2) + "\n")
    rewrite(twin, lambda events: events[0]["data"].update(attempt=2))  # a copy with another digest
    collection = build(tree, tmp_path / "site", tmp_path / "cache").collection
    of_both = {one.folder: one for one in collection.results if one.folder in (run, twin)}
    assert of_both[twin].rejected == rejected
    assert (of_both[twin].level is None) == rejected
    assert not of_both[run].rejected
    assert of_both[run].level == "L0"
    assert "SUBM-007" in {one.rule for one in of_both[run].findings}


@pytest.mark.parametrize(
    ("made", "attributes"),
    [
        ("a", {"href": "javascript:alert(1)"}),
        ("a", {"href": "//evil.example"}),
        ("a", {"href": "https://a.example"}),
        ("p", {"onclick": "x"}),
        ("p", {"style": "x"}),
        ("img", {"src": "x"}),
        ("p", {"id": "a b"}),
        ("p", {"id": '"'}),
    ],
)
def test_no_element_can_hold_a_script_or_an_address_elsewhere(made: str, attributes: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="html:"):
        tag(made, "text", **attributes)


def test_text_is_escaped_in_elements_and_attributes() -> None:
    hostile = "<script>'\"&\u202e\x00"
    shown = tag("p", hostile, title=hostile)
    page = Page(shown)
    assert page.elements == [("p", {"title": "<script>'\"&\\u202e\\x00"})]
    assert page.text == ["<script>'\"&\\u202e\\x00"]
    assert join("<b>", tag("i", "x")) == "&lt;b&gt;<i>x</i>"
    assert len(text("x" * 10_000)) < 3_000


@pytest.mark.parametrize(
    ("name", "drawn"),
    [
        ("results.svg", "results/2x-h200-virtual-machine-one-run-per-gpu"),
        ("scaling-resnet50.svg", "sets/4x-h100-virtual-machine/resnet50-pytorch-*-weak-*"),
        ("scaling-gnmt.svg", "sets/4x-h100-virtual-machine/gnmt-*-weak-1b63d47d"),
    ],
)
def test_the_figures_of_the_docs_are_what_their_commands_draw(name: str, drawn: str, tmp_path: Path) -> None:
    (folder,) = (SUBMISSIONS / "suite-reference").glob(drawn)
    assert main(["plot", "--results-dir", str(folder), "--out", str(tmp_path / name)]) == 0
    committed = Path(__file__).parents[2] / "docs" / name
    assert (tmp_path / name).read_bytes() == committed.read_bytes(), f"make plot OUT=docs/{name} FORCE=1 …"


def test_a_thousand_results_make_a_small_index(tmp_path: Path) -> None:
    write_good(tmp_path / "results")
    (one,) = collect(tmp_path / "results", Cache(tmp_path / "cache")).results
    results = []
    for index in range(1000):
        facts = one.facts | {
            "audit": one.facts["audit"] | {"sha256": hashlib.sha256(b"%d" % index).hexdigest()}
        }
        value = 1e6 + 7919 * index
        metrics = one.row.metrics | {"throughput_per_s": Metric(value, "samples/s")}
        results.append(replace(one, facts=facts, row=replace(one.row, metrics=metrics)))
    pages = dict(all_pages(Collection(tuple(results), (), ())))
    assert pages["index.html"].count("<tr data-digest=") == 1000
    assert len(gzip.compress(pages["index.html"].encode())) < 350_000
    assert len(gzip.compress(pages["compare.html"].encode())) < 350_000


def test_the_script_is_small() -> None:
    script = Path(suite.site.shell.__file__).with_name("assets") / "script.js"
    assert len(gzip.compress(script.read_bytes())) < 30_000


def test_a_link_is_not_followed_and_a_broken_folder_is_a_rejected_result(tmp_path: Path) -> None:
    results = tmp_path / "results"
    secret = tmp_path / "secret.txt"
    secret.write_text("secret of another file")
    (results / "linked").mkdir(parents=True)
    (results / "linked" / "run.jsonl").symlink_to(secret)
    (results / "<script>alert(1)<b>").mkdir()
    (results / "<script>alert(1)<b>" / "run.jsonl").write_bytes(b"\x00\xff not a log")
    collection = build(results, tmp_path / "site", tmp_path / "cache").collection
    assert [one.rejected for one in collection.results] == [True, True]
    written = files_of(tmp_path / "site")
    assert not [name for name, data in written.items() if b"secret of another file" in data or "<" in name]
    for path in pages_of(tmp_path / "site"):
        read(path)


def test_a_scaling_set_has_a_page_with_its_figure_and_groups(tmp_path: Path) -> None:
    results = tmp_path / "results"
    folder = Imagined(devices=(2, 4), scale="reference").write(results)
    build(results, tmp_path / "site", tmp_path / "cache")
    digest = hashlib.sha256((folder / "set.json").read_bytes()).hexdigest()
    page = read(tmp_path / "site" / "scaling" / f"{digest}.html")
    assert "svg" in [name for name, _ in page.elements]
    shown = [text for text in page.text if text in ("single", "independent", "synchronous")]
    assert shown == ["single", "independent", "synchronous"] * 2
    assert any(text.startswith("the synchronous ranks exchange gradients by nccl") for text in page.text)
    listed = read(tmp_path / "site" / "scaling.html")
    assert f"scaling/{digest}.html" in listed.links
    assert {"one device", "2 devices", "4 devices"} <= set(listed.text)
    assert sum(bool(re.fullmatch(r"[0-9.]+ %( \[[0-9.]+, [0-9.]+\])?", text)) for text in listed.text) == 2
    assert any(re.fullmatch(r"2026-\d\d-\d\d", text) for text in listed.text)
    phases = [text for text in read(tmp_path / "site" / "index.html").text if text.startswith("train")]
    assert (phases.count("train"), phases.count("train independent")) == (4, 2)


def test_list_of_scaling_sets_marks_causes_and_has_no_figure_of_a_rejected_group(tmp_path: Path) -> None:
    fast = {"synchronous": 1_700_000, "independent": 1_700_000}
    one = Imagined(scale="reference", steps=fast, cause="a larger cache")
    one.write(tmp_path / "declared")
    replace(one, cause=None).write(tmp_path / "rejected")
    shown = {}
    for name in ("declared", "rejected"):
        build(tmp_path / name, tmp_path / f"site-{name}", tmp_path / "cache")
        shown[name] = read(tmp_path / f"site-{name}" / "scaling.html").text
    assert any(text.endswith(scaling_table.BY_CAUSE) for text in shown["declared"])
    assert "accepted, 2 flags" in shown["declared"]
    assert any("samples/s" in text for text in shown["declared"])
    assert not any("samples/s" in text or "%" in text.replace("95 %", "") for text in shown["rejected"])


def test_page_of_a_scaling_set_says_why_cells_are_null(tmp_path: Path) -> None:
    folder = Imagined().write(tmp_path / "results")
    build(tmp_path / "results", tmp_path / "site", tmp_path / "cache")
    digest = hashlib.sha256((folder / "set.json").read_bytes()).hexdigest()
    page = read(tmp_path / "site" / "scaling" / f"{digest}.html")
    assert "null" in page.text
    assert "SM clock or power null: no accelerator in this run" in page.text


def test_results_of_every_kind_have_pages(tmp_path: Path) -> None:
    results = tmp_path / "results"
    two = replace(MINI, devices=2, strategy="allreduce")
    stream = replace(MINI, phase="infer", scenario="single_stream", batch=1)
    kinds = {
        "quality": Good(mode="quality"),
        "conversion": Good(conversion=ConversionKey("resnet50", "mxnet", "recordio", 20, "mini", "warm")),
        "load": LOADED,
        "two ranks": Good(key=two),
        "two nodes": Good(key=replace(two, nodes=2)),
        "one request at a time": Good(key=stream),
        "out of memory": Good(out_of_memory_in=1),
        "GPU": good_reference(),
    }
    folders = {name: write_good(results / name.replace(" ", "-"), good) for name, good in kinds.items()}
    for number, name in enumerate(NAMES[::7]):
        write_honest(name, results / f"honest-{number}")
    collection = build(results, tmp_path / "site", tmp_path / "cache").collection
    assert [result for result in collection.results if result.row.status == "error"] == []
    pages = {
        name: read(tmp_path / "site" / "r" / f"{digest_of(path)}.html") for name, path in folders.items()
    }
    assert "Quality" in pages["quality"].text
    assert "time_to_quality_s" in pages["quality"].metrics
    assert "shards_written_mb_per_s" in pages["conversion"].metrics
    assert "batches_delivered_mb_per_s" in pages["load"].metrics
    assert [text for text in pages["load"].text if "the input pipeline alone, no model" in text]
    assert [text for text in pages["two ranks"].text if text.startswith("Ranks: ")]
    assert "score" not in pages["out of memory"].metrics
    assert [text for text in pages["conversion"].text if text.startswith("Not shown: ")]
    for page in pages.values():
        assert len(page.ids) == len(set(page.ids))
