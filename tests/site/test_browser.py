"""The site in a real browser: no request, clean console, accessible, filters, deep links, hostile text."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select

import suite
from suite.compare.compare import ratio_of
from suite.compare.ranking import rank
from suite.compare.ratio import Ratio
from suite.report.compare_text import interval_text
from suite.site.build import build
from suite.site.cache import Cache
from suite.site.collect import Collection, collect
from suite.site.pages import all_pages
from suite.site.pages.result import result_page
from suite.sweep import journal
from tests.fixtures.baselines import write_log
from tests.fixtures.good_log import Good, reference, write_good
from tests.site import browser
from tests.site.browser import console, opened, requests, serious
from tests.site.hostile import STRINGS, hostile_result
from tests.site.pages import Page

pytestmark = pytest.mark.skipif(bool(browser.MISSING), reason=browser.MISSING)
PHONE = 390  # px: the width of its window
SUBMISSIONS = Path(__file__).parents[2] / "submissions"
RESULTS = len(list(SUBMISSIONS.glob("*/*/*/*/*/run.jsonl"))) + 2


@pytest.fixture(scope="module", autouse=True)
def isolated() -> Iterator[bool]:
    with browser.without_network() as isolated:
        yield isolated


@pytest.fixture(scope="module")
def chromium(isolated: bool) -> Iterator[webdriver.Chrome]:
    with browser.browser() as driver:
        yield driver


def test_the_browser_has_no_network(isolated: bool) -> None:
    if not isolated:
        pytest.skip("only root may leave the network")
    assert [name for _, name in socket.if_nameindex()] == ["lo"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The submissions, a practice result and a rejected one, a baseline and a sweep."""
    folder = tmp_path_factory.mktemp("browser")
    shutil.copytree(SUBMISSIONS, folder / "results")
    write_good(folder / "results" / "mine")
    rejected = write_good(folder / "results" / "mine", Good(run_hex="00000002"))
    log = rejected / "run.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"practice"', b'"closed"', 1))
    write_log(folder / "baselines" / "logs")
    sweep = "0" * 12
    options = ("workload=ncf", "framework=pytorch", "phase=train", "scale=reference", "batch=64")
    with journal.locked(folder / "results") as lock:
        journal.append(lock, journal.SweepLine(sweep, 1, 2, study="tensorflow_2017"))
        journal.append(
            lock, journal.JournalLine(options, "c" * 64, "skipped", 11, "no such device", sweep=sweep)
        )
    build(folder / "results", folder / "site", folder / "cache", folder / "baselines")
    return folder / "site"


def some_pages(site: Path) -> list[Path]:
    """One page of each kind, and every tenth result; test_pages.py shows that no page loads anything."""
    kinds = ("workload", "system", "submitter", "sweep", "advice", "baseline")
    groups = [sorted((site / name).glob("*.html"))[0] for name in kinds]
    return [*sorted(site.glob("*.html")), *groups, *sorted((site / "r").glob("*.html"))[::10]]


def wide(driver: webdriver.Chrome) -> bool:
    """Whether the page is wider than its window: only tables and figures may scroll, each by itself."""
    script = "return document.documentElement.scrollWidth > document.documentElement.clientWidth"
    return bool(driver.execute_script(script))


def size(driver: webdriver.Chrome, width: int) -> None:
    """Show pages in a window of this width; chromium's own window cannot be as narrow as a phone."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def test_pages_request_nothing_and_the_console_stays_clean(chromium: webdriver.Chrome, site: Path) -> None:
    for path in some_pages(site):
        opened(chromium, path)
        assert requests(chromium) == [], path
        assert console(chromium) == [], path


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (PHONE, "dark")])
def test_axe_has_no_serious_finding_and_no_page_is_wider_than_its_window(
    chromium: webdriver.Chrome, site: Path, width: int, scheme: str
) -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    size(chromium, width)
    for path in some_pages(site)[:15]:
        opened(chromium, path)
        assert not wide(chromium), path
        assert serious(chromium) == [], path


@pytest.fixture
def phone(chromium: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    """The browser with a window as wide as that of a phone."""
    size(chromium, PHONE)
    yield chromium
    size(chromium, 1280)


# The right edges of each score that is shown and of its unit.
SCORES = """
    const right = cell => cell.getBoundingClientRect().right;
    return [...document.querySelectorAll("table.results td[data-metric='score']")]
        .filter(cell => cell.checkVisibility()).map(cell => Math.max(right(cell), right(cell.nextSibling)));
"""


@pytest.mark.parametrize("name", ["index.html", "workload/*", "system/*", "submitter/*"])
def test_each_score_is_within_the_width_of_a_phone(phone: webdriver.Chrome, site: Path, name: str) -> None:
    for path in sorted(site.glob(name)):
        opened(phone, path)
        found = phone.execute_script(SCORES)
        assert len(found) == len(phone.find_elements(By.CSS_SELECTOR, "table.results tbody tr")) > 0
        assert max(found) <= PHONE, path
        assert not wide(phone), path


def test_each_score_is_within_the_width_of_a_phone_without_javascript(site: Path) -> None:
    with browser.browser(scripts=False) as driver:
        size(driver, PHONE)
        opened(driver, sorted((site / "workload").glob("*.html"))[0])
        cells = driver.find_elements(By.CSS_SELECTOR, "table.results td[data-metric='score']")
        assert cells
        assert all(cell.is_displayed() and right_of(cell) <= PHONE for cell in cells)


def test_cards_are_rows_of_a_table_to_a_screen_reader(phone: webdriver.Chrome, site: Path) -> None:
    opened(phone, sorted((site / "workload").glob("*.html"))[0])
    nodes = phone.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    roles = [node["role"]["value"] for node in nodes if not node["ignored"]]
    for role, selector in (("row", "table.cards tbody tr"), ("cell", "table.cards tbody td")):
        assert roles.count(role) == len(phone.find_elements(By.CSS_SELECTOR, selector)) > 0


@pytest.mark.parametrize("width", [1280, PHONE])
def test_each_figure_is_shown_once_within_the_window(
    chromium: webdriver.Chrome, site: Path, width: int
) -> None:
    size(chromium, width)
    for path in some_pages(site):
        opened(chromium, path)
        drawn = chromium.find_elements(By.CSS_SELECTOR, ".drawing svg")
        shown = [one for one in drawn if one.is_displayed()]
        assert len(shown) == len(chromium.find_elements(By.CSS_SELECTOR, "figure.plot")), path
        assert all(right_of(one) <= width for one in shown), path
    size(chromium, 1280)


def test_a_comparison_is_within_the_width_of_a_phone(phone: webdriver.Chrome, site: Path) -> None:
    digests = [path.stem for path in sorted((site / "r").glob("*.html"))[:8]]
    opened(phone, site / "compare.html", f"#v=1&results={','.join(digests)}")
    cells = phone.find_elements(By.CSS_SELECTOR, "#compare td")
    assert len(cells) > 8
    assert all(right_of(cell) <= PHONE for cell in cells)


def right_of(element: WebElement) -> float:
    """Where an element ends, in px from the left edge of the page."""
    return float(element.rect["x"] + element.rect["width"])


def shown_rows(driver: webdriver.Chrome) -> list[str]:
    rows = driver.find_elements(By.CSS_SELECTOR, "table.results tbody tr")
    return [row.text for row in rows if row.is_displayed()]


def test_a_filter_shows_its_rows_and_the_address_restores_it(chromium: webdriver.Chrome, site: Path) -> None:
    opened(chromium, site / "index.html")
    everything = shown_rows(chromium)
    assert len(everything) == RESULTS
    workload = next(
        one
        for one in chromium.find_elements(By.CSS_SELECTOR, ".filters label")
        if one.text.startswith("workload")
    )
    Select(workload.find_element(By.TAG_NAME, "select")).select_by_visible_text("vgg16")
    found = shown_rows(chromium)
    count = len(list(SUBMISSIONS.glob("*/*/*/vgg16/*/run.jsonl")))
    assert len(found) == count
    assert all("vgg16" in row for row in found)
    assert f"{count} of {RESULTS} results" in chromium.find_element(By.CSS_SELECTOR, ".filters output").text
    heading = next(
        one for one in chromium.find_elements(By.CSS_SELECTOR, "thead button") if one.text == "score"
    )
    heading.send_keys(Keys.ENTER)
    ordered = shown_rows(chromium)
    address = chromium.current_url
    assert address.endswith("#v=1&order=descending&sort=score&workload=vgg16")
    opened(chromium, site / "index.html", address[address.index("#") :])
    assert shown_rows(chromium) == ordered
    assert sorted(found) == sorted(ordered)
    scores = [float(row.split(" images/s")[0].split()[-1].replace(",", "")) for row in ordered]
    assert scores == sorted(scores, reverse=True)
    next(one for one in chromium.find_elements(By.TAG_NAME, "button") if one.text == "Reset").click()
    assert shown_rows(chromium) == everything


def test_an_address_of_unknown_values_shows_everything(chromium: webdriver.Chrome, site: Path) -> None:
    opened(chromium, site / "index.html", "#v=1&workload=%3Cimg%20src%3Dx%3E&sort=constructor&order=up&%zz=1")
    assert len(shown_rows(chromium)) == RESULTS
    assert console(chromium) == []


def test_chosen_results_are_compared(chromium: webdriver.Chrome, site: Path) -> None:
    opened(chromium, site / "index.html", "#v=1&workload=resnet50")
    boxes = [one for one in chromium.find_elements(By.CSS_SELECTOR, "tbody input") if one.is_displayed()]
    button = next(
        one for one in chromium.find_elements(By.TAG_NAME, "button") if one.text == "Compare selected"
    )
    assert not button.is_enabled()
    for box in boxes:
        box.send_keys(Keys.SPACE)
    button.click()
    text = chromium.find_element(By.ID, "compare").text
    assert "NOT COMPARABLE" in text  # training and inference
    assert text.count(" images/s") >= len(boxes)
    assert serious(chromium) == []


MINUTE = 60_000_000_000
COMPARED = {
    "A": Good(spread=(1.0, 1.01, 0.98, 1.02, 1.0), begins=tuple(at * MINUTE for at in (1, 4, 5, 8, 9))),
    "steady": Good(run_hex="00000001", step_ns=2_100_000, spread=(1.0, 1.001, 1.0, 0.999, 1.0)),
    "wide": Good(run_hex="00000002", step_ns=1_900_000, spread=(1.0, 1.4, 0.7, 1.2, 0.9)),
    "interleaved": Good(
        run_hex="00000003",
        spread=(1.05, 1.055, 1.03, 1.08, 1.06),
        begins=tuple(at * MINUTE for at in (2, 3, 6, 7, 10)),
    ),
    "one repeat": Good(run_hex="00000004", mode="quality"),
    "another repeat": Good(run_hex="00000005", mode="quality"),
    "another scale": reference(),
}


def ratios(driver: webdriver.Chrome, page: Path, *digests: str) -> list[tuple[str, str]]:
    """The ratio to A and its interval on the comparing page, of each result but A."""
    opened(driver, page, f"#v=1&results={','.join(digests)}")
    rows = driver.find_elements(By.CSS_SELECTOR, "#compare table tbody tr")
    cells = [[one.text for one in row.find_elements(By.CSS_SELECTOR, "th, td")] for row in rows]
    return [(row[4], row[5]) for row in cells if len(row) == 7][1:]


def printed(ratio: Ratio | None) -> tuple[str, str]:
    """A ratio and its interval as `make compare` prints them."""
    assert ratio is not None
    return f"{ratio.value:.4f}", interval_text(ratio)


def test_ratios_and_intervals_are_those_of_make_compare(chromium: webdriver.Chrome, tmp_path: Path) -> None:
    loaded = {
        name: suite.load(write_good(tmp_path / "results" / name.replace(" ", "-"), good))
        for name, good in COMPARED.items()
    }
    build(tmp_path / "results", tmp_path / "site", tmp_path / "cache")

    def shown(*names: str) -> list[tuple[str, str]]:
        return ratios(chromium, tmp_path / "site" / "compare.html", *(loaded[name].sha256 for name in names))

    for pair in (("A", "steady"), ("A", "wide"), ("wide", "steady"), ("interleaved", "A")):
        found = suite.compare(*(loaded[name] for name in pair))
        assert found.paired == ("interleaved" in pair)
        assert shown(*pair) == [printed(found.rows[0].ratio)], pair
        assert ("are paired" in chromium.find_element(By.ID, "compare").text) == found.paired
    three = ("A", "steady", "interleaved")
    ranked = rank([loaded[name]._content["comparable"] for name in three]).rows
    assert ranked[0].label == "A"  # the page compares with the first, `make compare` with the fastest
    assert shown(*three) == [printed(row.speed) for row in sorted(ranked[1:], key=lambda row: row.label)]
    assert shown("one repeat", "another repeat") == [("1.0000", "–")]
    assert shown("A", "another scale") == [("–", "–")]
    assert "NOT COMPARABLE" in chromium.find_element(By.ID, "compare").text
    assert console(chromium) == []


def test_ratios_of_times_and_of_few_repeats_are_those_of_make_compare(
    chromium: webdriver.Chrome, tmp_path: Path
) -> None:
    write_good(tmp_path / "results")
    (honest,) = collect(tmp_path / "results", Cache(tmp_path / "cache")).results
    sides = ((61.0, 64.5), (70.25, 66.0, 69.125), (60.0, 60.5, 60.25, 61.0, 90.0))
    results = []
    for number, repeats in enumerate(sides):
        facts = {**honest.facts, "audit": {**honest.facts["audit"], "sha256": f"{number:064x}"}}
        facts["compared"] = {**facts["compared"], "metric": "time_to_quality_s", "repeats": repeats}
        results.append(replace(honest, facts=facts))
    page = tmp_path / "compare.html"
    page.write_text(all_pages(Collection(tuple(results), (), ()))["compare.html"], "utf-8")
    for first, second in ((0, 1), (1, 0), (0, 2), (1, 2)):
        expected = printed(ratio_of("time_to_quality_s", sides[first], sides[second]))
        assert ratios(chromium, page, f"{first:064x}", f"{second:064x}") == [expected]


def test_comparison_ignores_a_hostile_address(chromium: webdriver.Chrome, site: Path) -> None:
    opened(chromium, site / "compare.html", "#v=1&results=__proto__,%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E")
    assert "2 of the results in the address" in chromium.find_element(By.ID, "compare").text
    assert console(chromium) == []


def test_the_keyboard_reaches_everything_and_first_skips_the_navigation(
    chromium: webdriver.Chrome, site: Path
) -> None:
    opened(chromium, site / "index.html")
    body = chromium.find_element(By.TAG_NAME, "body")
    body.send_keys(Keys.TAB)
    first = chromium.switch_to.active_element
    assert first.text == "Skip to content"
    first.send_keys(Keys.ENTER)
    chromium.switch_to.active_element.send_keys(Keys.TAB)
    assert chromium.execute_script("return document.querySelector('main').contains(document.activeElement)")


def test_without_javascript_the_table_is_there_and_the_comparison_names_the_command(site: Path) -> None:
    with browser.browser(scripts=False) as driver:
        opened(driver, site / "index.html")
        assert len(shown_rows(driver)) == RESULTS
        assert driver.find_elements(By.CLASS_NAME, "filters") == []
        opened(driver, site / "compare.html")
        text = driver.find_element(By.TAG_NAME, "main").text
        assert "make compare A=" in text
        assert "Without JavaScript" in text


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pages of results whose every string is hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    write_good(folder / "results")
    write_good(folder / "results", reference())
    honest = collect(folder / "results", Cache(folder / "cache")).results
    count = 2 * len(STRINGS)
    results = tuple(hostile_result(honest[start % len(honest)], start) for start in range(count))
    pages = dict(all_pages(Collection(results, (), tuple(one for each in results for one in each.findings))))
    pages |= {f"r/{result.digest}.html": result_page(result) for result in results}
    pages |= {f"report-{index}.html": result_page(one, site=False) for index, one in enumerate(results[:2])}
    for name, page in pages.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(page, "utf-8")
    return folder


def test_hostile_text_runs_nothing_and_breaks_no_layout(chromium: webdriver.Chrome, hostile: Path) -> None:
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    paths = [*sorted(hostile.glob("*.html")), *sorted((hostile / "r").glob("*.html"))]
    assert len(paths) > 2 * len(STRINGS)
    for path in paths:
        opened(chromium, path, "#v=1&results=" + ",".join(f"{number:064x}" for number in range(12)))
        assert not chromium.execute_script("return window.attacked"), path
        assert requests(chromium) == [], path
        assert console(chromium) == [], path
        assert not wide(chromium), path
        for name, named in Page(path.read_text("utf-8")).elements:
            assert name not in ("img", "textarea"), path
            assert "onload" not in named, path
            assert "onerror" not in named, path


def test_hostile_text_is_accessible_too(chromium: webdriver.Chrome, hostile: Path) -> None:
    for path in [hostile / "index.html", *sorted((hostile / "r").glob("*.html"))[:3]]:
        opened(chromium, path)
        assert serious(chromium) == [], path
