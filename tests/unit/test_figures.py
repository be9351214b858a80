"""Figures: axes cover the data, tables have the drawn numbers, and no text leaves its element."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import combinations, pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from suite.figures.axis import Axis, scale
from suite.figures.distribution import Sample, cumulative, histogram
from suite.figures.dots import Dot, dots
from suite.figures.frame import CIRCLE, Style, style
from suite.figures.lines import Point, Series, Span, lines
from suite.figures.strips import Strip, strips
from suite.figures.svg import NARROW, SIZE, SMALL, WIDTH, Figure, fit, stacked, width_of, wrapped

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = (
    "</text><script>alert(1)</script>",
    '" onload="alert(1)',
    "<![CDATA[",
    "&amp;<b>&#0;",
    "\x1b[31m\x00\ufffe\u202e",
    "url(https://example.org/x)",
    "x" * 10_000,
    "",
)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e200, max_value=1e200)
POSITIVE = st.floats(min_value=1e-100, max_value=1e100)


def parsed(figure: Figure) -> ElementTree.Element:
    """The file of a figure as XML; asserts what a page requires of every figure."""
    root = ElementTree.fromstring(figure.file())
    names = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert names <= {"svg", "title", "desc", "g", "rect", "line", "path", "circle", "polygon", "text"}
    attributes = {name for element in root.iter() for name in element.attrib}
    assert not {name for name in attributes if name == "style" or name.startswith("on") or "href" in name}
    for element in root.iter():
        for name in ("x", "y", "x1", "y1", "x2", "y2", "cx", "cy", "width", "height"):
            assert math.isfinite(float(element.get(name, "0")))
    assert len({element.get("id") for element in root.iter() if element.get("id")}) == 2
    return root


def texts(figure: Figure) -> list[str]:
    return ["".join(element.itertext()) for element in parsed(figure).iter(f"{SVG}text")]


def outside(figure: Figure) -> list[str]:
    """The texts of a figure that begin or end beyond its viewBox, by the estimate of their width."""
    found = []
    for element in ElementTree.fromstring(figure.inline("a")).iter(f"{SVG}text"):
        if element.get("transform"):  # the watermark lies across the figure
            continue
        value, x = element.text or "", float(element.attrib["x"])
        wide = width_of(value, float(element.get("font-size", SIZE)))
        start = x - {"middle": wide / 2, "end": wide}.get(element.get("text-anchor", ""), 0.0)
        y = float(element.attrib["y"])
        if start < -0.1 or start + wide > figure.width + 0.1 or not 0 < y <= figure.height:
            found.append(value)
    return found


def position(root: ElementTree.Element, value: str, attribute: str = "y") -> float:
    found = next(element for element in root.iter(f"{SVG}text") if element.text == value)
    return float(found.attrib[attribute])


def every_kind(text: str) -> list[Figure]:
    """One figure of each kind with ``text`` for all texts."""
    axis = Axis(text, text)
    points = (Point(1, 2, 1, 3, text), None, Point(2, None, label=text, note=text))
    some = [Series(text, points, style(0)), Series(text + "2", points, style(1))]
    notes = [text]
    return [
        lines(
            text,
            axis,
            axis,
            some,
            subtitle=text,
            notes=notes,
            spans=[Span(0, 1, True)],
            phase=text,
            ideal=text,
        ),
        lines(text, axis, axis, some, bands=True),
        dots(text, axis, [Dot(text, 1, 0.5, 2, (1, 2), text, text, text), Dot(text + "2", None, note=text)]),
        histogram(text, axis, Sample(text, (1, 2, 3)), subtitle=text, notes=notes),
        cumulative(text, axis, [Sample(text, (1, 2)), Sample(text, (3,))], subtitle=text, notes=notes),
    ]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text_and_is_bounded(text: str) -> None:
    for figure in [*every_kind(text), stacked(every_kind(text), text).with_watermark(text)]:
        drawn = figure.file()
        parsed(figure)
        assert "<script" not in drawn
        assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e\ufffe]", drawn)
        assert len(drawn) < 60_000


def test_equal_input_gives_equal_bytes_and_ids_have_the_prefix() -> None:
    for figure, again in zip(every_kind("a"), every_kind("a"), strict=True):
        assert figure.file() == again.file()
        drawn = figure.inline("r17-power")
        assert set(re.findall(r' id="([^"]*)"', drawn)) == {"r17-power-title", "r17-power-desc"}
        assert 'aria-labelledby="r17-power-title r17-power-desc"' in drawn
    for ids in ("", "1a", 'a" onload="', "a b"):
        with pytest.raises(ValueError, match="ids: expected"):
            every_kind("a")[0].inline(ids)


@given(st.lists(NUMBERS, min_size=1, max_size=20), st.booleans(), st.booleans())
@example([5e-324], False, True)
@example([1.0, 1.0 + 1e-10], False, False)
@example([1e20, 1.0001e20], False, False)
@example([2.2250738585e-313, -10000000000.0], False, False)
@settings(max_examples=200, deadline=None)
def test_ticks_cover_the_values_in_order(values: list[float], log: bool, zero: bool) -> None:
    shown = scale(Axis("a", log=log, zero=zero), values, 0, 100)
    positions = [value for value, _ in shown.ticks]
    within = [value for value in values if value > 1e-100 or not shown.log]
    assert positions == sorted(positions)
    invisible = 1e-9 * max(map(abs, within))  # of an axis of such values
    assert shown.low <= min(within) + invisible
    assert shown.high >= max(within) - invisible
    assert 2 <= len(positions) <= 20
    assert len({name for _, name in shown.ticks}) == len(positions)
    if zero and not shown.log:
        assert shown.low <= 0 <= shown.high


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([0, 97], ["0", "20", "40", "60", "80", "100"]),
        ([0.013, 0.031], ["0.010", "0.015", "0.020", "0.025", "0.030", "0.035"]),
        ([0, 84_000_000], ["0", "20", "40", "60", "80", "100"]),
        ([5], ["4.4", "4.6", "4.8", "5.0", "5.2", "5.4", "5.6"]),
    ],
)
def test_ticks_are_round_numbers(values: list[float], labels: list[str]) -> None:
    assert [name for _, name in scale(Axis("a"), values, 0, 100).ticks] == labels


def test_axis_names_its_scaled_unit() -> None:
    assert scale(Axis("rate", "samples/s"), [0, 84e6], 0, 1).title == "rate (million samples/s)"
    memory = scale(Axis("memory", "bytes", zero=True), [3 * 2**30], 0, 1)
    assert (memory.title, memory.ticks[-1][1]) == ("memory (GiB)", "3")
    batch = scale(Axis("batch", log=True, ticks=(64, 256, 1024)), [64, 1024], 0, 100)
    assert [name for _, name in batch.ticks] == ["64", "256", "1,024"]
    assert batch.at(256) == pytest.approx(50)


@given(
    st.lists(st.sampled_from([1, 10, 1e3, 1e4, 123_456]), min_size=1, max_size=30, unique=True),
    st.integers(60, 400),
)
def test_labels_of_a_horizontal_axis_do_not_overlap(values: list[float], width: int) -> None:
    shown = scale(Axis("a", ticks=tuple(values)), values, 0, width).labelled(SMALL)
    ends = [(x - width_of(name, SMALL) / 2, x + width_of(name, SMALL) / 2) for x, name in shown]
    assert all(right < left for (_, right), (left, _) in pairwise(ends))


def test_labels_of_a_crowded_axis_keep_both_ends() -> None:
    values = [float(value) for value in range(8, 45)]
    shown = [name for _, name in scale(Axis("a", ticks=tuple(values)), values, 0, 300).labelled(SMALL)]
    assert (shown[0], shown[-1]) == ("8", "44")
    assert len(shown) < len(values)


def test_long_text_is_cut_to_its_width_and_lines() -> None:
    assert fit("short", 200) == "short"
    cut = fit("W" * 50, 100)
    assert cut.endswith("…")
    assert width_of(cut) <= 100
    found = wrapped("one two three four five six", 60, most=2)
    assert found[0] == "one two"
    assert found[1].endswith("…")
    assert len(found) == 2


def test_a_word_wider_than_a_line_is_broken() -> None:
    found = wrapped("a " + "W" * 12, 5 * SIZE, most=4)
    assert found == ["a", "WWWWW", "WWWWW", "WW"]


WORDS = " ".join(f"setting{index} value{index}," for index in range(12))


def of_width(width: float, name: str) -> list[Figure]:
    """Figures of each kind, this many px wide, with names that begin with ``name``."""
    points = (Point(1, 2e6, 1e6, 3e6), Point(2048, 3e6))
    series = [Series(f"{name} {index}", points, style(index)) for index in range(3)]
    rate, batch = Axis("throughput", "images/s", zero=True), Axis("batch", ticks=(1, 2048))
    results = [Dot(f"{name} {index}", 10.0**index, repeats=(1, 2), note="input-bound") for index in range(6)]
    found = [Strip(f"{name} {index}", 2.0, (1.0, 3.0)) for index in range(3)]
    return [
        lines(name, batch, rate, series, subtitle=name, notes=[name], width=width),
        dots(name, rate, results, subtitle=name, notes=[name], width=width),
        histogram(name, rate, Sample(name, (1e6, 2e6, 3e6)), width=width),
        cumulative(name, rate, [Sample(f"{name} {at}", (1e6, 2e6)) for at in range(3)], width=width),
        strips(name, found, subtitle=name, width=width),
    ]


@pytest.mark.parametrize("width", [WIDTH, 580.0, NARROW])
@pytest.mark.parametrize("name", ["short", "NVIDIA H100 80GB HBM3, 16 threads", WORDS, "W" * 200])
def test_no_text_ends_outside_of_the_figure(name: str, width: float) -> None:
    for figure in of_width(width, name):
        assert figure.width == width
        assert outside(figure) == [], figure.title


@pytest.mark.parametrize("width", [WIDTH, NARROW])
def test_names_of_series_and_of_results_are_complete(width: float) -> None:
    by_line, by_value, _, by_share, _ = of_width(width, WORDS)
    for figure in (by_line, by_value, by_share):
        shown = " ".join(texts(figure))
        for index in range(3):
            assert f"{WORDS} {index}" in shown


def test_markers_at_one_position_do_not_cover_each_other() -> None:
    circle = Style("#0072B2", CIRCLE)
    series = [Series(f"s{at}", (Point(1, 100), Point(4, 100 - at / 10)), circle) for at in range(3)]
    figure = lines("t", Axis("x", ticks=(1, 4)), Axis("y", zero=True), series)
    below = position(parsed(figure), "y", "y")
    points = [
        (float(one.attrib["cx"]), float(one.attrib["cy"]))
        for one in parsed(figure).iter(f"{SVG}circle")
        if float(one.attrib["cy"]) > below
    ]
    assert len(points) == 6
    radius = 4.0
    assert all(math.dist(one, other) >= 2 * radius for one, other in combinations(points, 2))
    assert all(radius <= x <= WIDTH - radius for x, _ in points)
    assert "points at one position are drawn beside each other" in texts(figure)


def test_a_line_without_markers_has_none() -> None:
    line = Series("ideal", (Point(1, 1), Point(2, 2)), Style("currentColor", CIRCLE, "1 4"), markers=False)
    assert not list(parsed(lines("t", Axis("x"), Axis("y"), [line])).iter(f"{SVG}circle"))


def test_results_are_ordered_by_value_and_not_by_name() -> None:
    results = [Dot("b", 9), Dot("a", 100), Dot("c", 20), Dot("d", None, note="OOM", reason="too large")]
    figure = dots("t", Axis("rate", "images/s"), results)
    assert [row[0] for row in figure.table.rows] == ["a", "c", "b", "d"]
    assert figure.table.rows[-1] == ("d", "OOM (too large)")
    root = parsed(figure)
    assert position(root, "a") < position(root, "c") < position(root, "b") < position(root, "d")
    figure = dots("t", Axis("time", "ms"), results, lowest_first=True)
    assert [row[0] for row in figure.table.rows] == ["b", "c", "a", "d"]


def test_results_of_one_name_share_a_row_with_a_lane_each() -> None:
    results = [
        Dot("resnet50", 10, series="pytorch", style=style(0)),
        Dot("vgg16", 30, series="pytorch", style=style(0)),
        Dot("resnet50", 40, series="jax", style=style(1)),
        Dot("vgg16", None, note="OOM", series="jax", style=style(1)),
    ]
    figure = dots("t", Axis("rate"), results)
    shown = texts(figure)
    assert shown.count("resnet50") == shown.count("vgg16") == 1
    assert [row[:3] for row in figure.table.rows] == [
        ("resnet50", "jax", "40"),
        ("resnet50", "pytorch", "10"),
        ("vgg16", "pytorch", "30"),
        ("vgg16", "jax", "OOM"),
    ]


def test_reason_of_a_missing_point_is_drawn_before_other_labels() -> None:
    points = (Point(1, 0, label="batch 1"), Point(1, None, label="OOM"), Point(2, 10))
    figure = lines("t", Axis("x"), Axis("y", zero=True), [Series("a", points, style(0))])
    assert "OOM" in texts(figure)
    assert "batch 1" not in texts(figure)


def test_wide_interval_is_cut_and_the_table_has_its_end() -> None:
    figure = dots("t", Axis("rate"), [Dot("a", 10, 2, 500)])
    assert ("a", "10", "2", "500") in figure.table.rows
    assert "500" not in texts(figure)
    figure = lines("t", Axis("x"), Axis("y", zero=True), [Series("", (Point(1, 10, 2, 500),), style(0))])
    assert figure.table.rows == (("1", "10", "2", "500"),)
    assert "500" not in texts(figure)


def test_missing_value_is_shown_as_missing_and_not_as_zero() -> None:
    points = (Point(1, 5), Point(2, None, note="no counter"), Point(3, 7))
    figure = lines("t", Axis("x"), Axis("y", zero=True), [Series("a", points, style(0))])
    assert "no value" in texts(figure)
    assert figure.table.rows[1] == ("a", "2", "null (no counter)")
    drawn = parsed(figure)
    assert len(list(drawn.iter(f"{SVG}circle"))) == 3  # two points and the legend
    assert not [path for path in drawn.iter(f"{SVG}path") if path.get("stroke") == style(0).colour]  # no line


@pytest.mark.parametrize(
    "draw",
    [
        lambda: lines("t", Axis("x"), Axis("y"), []),
        lambda: lines("t", Axis("x"), Axis("y"), [Series("a", (), style(0))], bands=True),
        lambda: lines("t", Axis("x"), Axis("y"), [Series("a", (Point(1, None),), style(0))]),
        lambda: lines("t", Axis("x", log=True), Axis("y", log=True), [Series("a", (Point(1, 1),), style(0))]),
        lambda: dots("t", Axis("x"), []),
        lambda: dots("t", Axis("x"), [Dot("a", 0)]),
        lambda: histogram("t", Axis("x"), Sample("", ())),
        lambda: histogram("t", Axis("x"), Sample("", (1,))),
        lambda: histogram("t", Axis("x"), Sample("", (0, 0, 0))),
        lambda: cumulative("t", Axis("x"), [Sample("a", ())]),
        lambda: cumulative("t", Axis("x"), [Sample("a", (2,))]),
    ],
)
def test_no_data_and_single_points_are_drawn(draw: Callable[[], Figure]) -> None:
    parsed(draw())


@given(st.lists(st.tuples(POSITIVE, POSITIVE), max_size=12))
@settings(max_examples=60, deadline=None)
def test_any_numbers_are_drawn(pairs: list[tuple[float, float]]) -> None:
    series = [Series("a", tuple(Point(x, y, y / 2, 2 * y) for x, y in pairs), style(0))]
    values = tuple(y for _, y in pairs)
    figures = [
        lines("t", Axis("x"), Axis("y"), series, ideal="ideal", cut=True),
        lines("t", Axis("x", log=True), Axis("y", log=True), series),
        dots("t", Axis("x"), [Dot(str(index), value) for index, value in enumerate(values)]),
        histogram("t", Axis("x"), Sample("", values)),
        cumulative("t", Axis("x"), [Sample("a", values)]),
    ]
    for figure in figures:
        for element in parsed(figure).iter():
            if element.tag in (f"{SVG}circle", f"{SVG}polygon"):
                assert 0 <= float(element.get("cx", "0")) <= WIDTH


def test_histogram_counts_every_value_once() -> None:
    values = (*(1 + 0.001 * (index % 97) for index in range(500)), 50.0)
    figure = histogram("t", Axis("time", "ms"), Sample("", values))
    assert sum(int(row[2]) for row in figure.table.rows) == 501
    assert figure.table.rows[-1] == ("above", "50", "1")
    assert any("1 of 501 values" in text and "50 ms" in text for text in texts(figure))


def test_distribution_has_the_nearest_rank_percentiles() -> None:
    samples = [Sample("a", tuple(range(1, 101))), Sample("b", (7.0,))]
    figure = cumulative("t", Axis("time", "ms"), samples)
    rows = {row[0]: row[1:] for row in figure.table.rows}
    assert (rows["50 %"], rows["99 %"], rows["100 %"]) == (("50", "7"), ("99", "7"), ("100", "7"))


def test_ideal_line_is_in_proportion_to_the_first_point() -> None:
    axis = Axis("devices", ticks=(1, 2, 4))
    series = [Series("a", (Point(1, 10), Point(2, 19), Point(4, 30)), style(0))]
    figure = lines("t", axis, Axis("rate", zero=True), series, ideal="ideal")
    dotted = next(
        e.attrib["d"] for e in parsed(figure).iter(f"{SVG}path") if e.get("stroke-dasharray") == "1 4"
    )
    (_, low), (_, high) = (map(float, pair.split()) for pair in dotted[1:].split("L"))
    y = {value: position(parsed(figure), value) - 4 for value in ("0", "10", "40")}
    assert low == pytest.approx(y["10"], abs=0.2)
    assert high == pytest.approx(y["40"], abs=0.2)
    assert "ideal" in texts(figure)


def test_values_far_above_are_drawn_at_the_edge_with_a_note() -> None:
    points = tuple(Point(step, 2000.0 if step == 50 else 10.0) for step in range(100))
    figure = lines("t", Axis("step"), Axis("time", "ms"), [Series("", points, style(0))], cut=True)
    assert any("1 of 100 values" in text and "2,000 ms" in text for text in texts(figure))
    assert "2,000" not in texts(figure)


def test_stacked_figures_do_not_overlap_and_keep_their_tables() -> None:
    one = dots("first", Axis("a"), [Dot("x", 1)])
    two = lines("second", Axis("a"), Axis("b"), [Series("", (Point(1, 2),), style(0))])
    both = stacked([one, two], "both")
    assert both.height >= one.height + two.height
    assert [row[0] for row in both.table.rows] == ["first", "result", "x", "second", "a", "1"]
    assert len({len(row) for row in both.table.rows}) == 1
    with pytest.raises(ValueError, match="at least one figure"):
        stacked([], "none")


def test_strip_has_percentile_and_difference_from_the_median_of_the_others() -> None:
    found = Strip("cpu.triad", 90.0, (80.0, 90.0, 100.0, 110.0, 120.0))
    assert found.percentile == 30  # one is smaller, one is equal
    assert found.difference(90) == pytest.approx(-10)
    assert (found.quantile(0), found.quantile(0.25), found.quantile(1)) == (80, 90, 120)
    shown = strips("This machine", [found])
    assert shown.table.rows == (("cpu.triad", "-10.0", "30", "5", "-20.0", "-16.0", "+16.0", "+20.0"),)
    assert "-10.0 %, percentile 30 of 5" in shown.inline("a")
    assert "is at the end of the axis" not in shown.inline("a")
    far = strips("This machine", [Strip("disk.read", 1.0, (10.0, 11.0, 12.0))])
    assert "is at the end of the axis" in far.inline("a")
    many = strips("This machine", [Strip("disk.read", 50.0, tuple(map(float, range(1, 101))))])
    assert many.inline("a").count("<circle") == 1  # that of the legend: the band alone is drawn
