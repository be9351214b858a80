"""Throughput against that of reference results: rules REG-014 and REG-015; energy: REG-016."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from suite.contract import ConversionKey
from suite.log.files import Raw
from suite.log.reader import read_result, record_of
from suite.submissions.package import check_tree
from suite.submissions.registry import read_registry
from suite.submissions.registry.model import Benchmark, Breach, Reference, Registry, parse_time
from suite.submissions.registry.population import Figure, figure_of, population_breaches
from suite.submissions.registry.traces import Trace, trace_of
from tests.fixtures.good_log import REFERENCE, Good, reference, write_good
from tests.fixtures.honest import NAMES, log_of

TREE = Path(__file__).parents[2] / "submissions"
DAY = parse_time("2026-11-24T07:00:00Z")
# 100 units/s on a device that could do 200 by FLOP and 1000 by bytes.
H200 = Figure(
    work="ncf, f64, train", framework="pytorch", data="synthetic", precision="bf16",
    device="NVIDIA H200", processor=False,
    devices=1, rate=100.0, unit="sample", flop_s=1 / 200, byte_s=1 / 1000, closed=False,
)  # fmt: skip


def trace(name: str, figure: Figure) -> Trace:
    benchmark = Benchmark(name, "box", "")
    return Trace(name, name, benchmark, 1, False, None, DAY, DAY, frozenset(), (), digest=name, figure=figure)


def found(figure: Figure, *references: Figure, **more: Figure) -> list[Breach]:
    """The breaches about ``figure`` beside ``references``; ``more`` are results of others."""
    named = {f"r{number}": one for number, one in enumerate(references)}
    entries = {name: Reference(name, name, name, "measured", "2026-11-24T07:00:00Z") for name in named}
    results = {"subject": figure, **more, **named}
    breaches = population_breaches([trace(*one) for one in results.items()], Registry(references=entries))
    return [one for one in breaches if one.location.startswith("subject")]


def rules(*arguments: Figure, **more: Figure) -> list[str]:
    return [one.rule for one in found(*arguments, **more)]


def test_far_above_the_reference_is_flagged_with_what_it_was_compared_with() -> None:
    assert rules(replace(H200, rate=114.0), H200) == []
    (breach,) = found(replace(H200, rate=130.0), H200, replace(H200, rate=90.0))
    assert (breach.rule, breach.severity) == ("REG-014", None)
    assert "100 samples/s per device of r0 (NVIDIA H200, bf16)" in breach.expected
    assert "the highest of 2 reference results" in breach.expected
    assert breach.found == "130 samples/s per device, 1.30 times"


def test_closed_needs_a_replay_above_the_reference() -> None:
    (breach,) = found(replace(H200, rate=130.0, closed=True), H200)
    assert breach.severity == "reject"
    assert "replay (L3)" in breach.expected


def test_other_results_never_raise_the_reference() -> None:
    assert rules(replace(H200, rate=130.0), H200, other=replace(H200, rate=500.0)) == ["REG-014"]


def test_without_a_reference_there_is_information_only() -> None:
    assert rules(replace(H200, rate=1e9)) == ["REG-015"]
    assert rules(replace(H200, rate=1e9), replace(H200, work="gnmt")) == ["REG-015"]
    assert rules(replace(H200, rate=1e9), replace(H200, data="real, cache warm")) == ["REG-015"]


def test_a_reference_is_not_compared_with_itself() -> None:
    reference = trace("r0", H200)
    entry = Reference("r0", "r0", "r0", "measured", "2026-11-24T07:00:00Z")
    assert list(population_breaches([reference], Registry(references={"r0": entry}))) == []
    assert [one.rule for one in population_breaches([reference], Registry())] == ["REG-015"]


@pytest.mark.parametrize(
    ("flop", "bytes_", "bound"),
    [
        (2.0, 1.5, 200.0),  # a faster device: the larger ratio
        (0.25, 0.5, 50.0),  # a slower one: the same, because the reference uses half of its limits
    ],
)
def test_other_devices_are_scaled_by_the_larger_ratio(flop: float, bytes_: float, bound: float) -> None:
    other = replace(H200, device="NVIDIA Other", flop_s=1 / 200 / flop, byte_s=1 / 1000 / bytes_)
    assert rules(replace(other, rate=bound * 1.1), H200) == []
    assert rules(replace(other, rate=bound * 1.2), H200) == ["REG-014"]


def test_a_slower_device_may_be_used_better_than_a_reference_that_uses_its_own_little() -> None:
    idle = replace(H200, flop_s=1 / 10_000, byte_s=1 / 10_000)  # 1 % of the limits
    slow = replace(H200, device="NVIDIA Other", flop_s=1 / 1000, byte_s=1 / 1000)
    assert rules(replace(slow, rate=100.0), idle) == []
    assert rules(replace(slow, rate=130.0), idle) == ["REG-014"]


def test_the_same_framework_counts_first_and_any_other_without_it() -> None:
    jax = replace(H200, framework="jax", rate=146.0)
    assert rules(replace(H200, rate=130.0), H200, jax) == ["REG-014"]
    assert rules(replace(H200, rate=250.0, framework="tensorflow"), H200, jax) == []
    assert rules(replace(H200, rate=260.0, framework="tensorflow"), H200, jax) == ["REG-014"]


def test_data_that_are_read_are_no_faster_than_synthetic_data() -> None:
    assert rules(replace(H200, data="real, cache warm", rate=130.0), H200) == ["REG-014"]


def test_more_devices_are_compared_per_device_with_fewer() -> None:
    assert rules(replace(H200, devices=8, rate=130.0), H200) == ["REG-014"]
    assert rules(replace(H200, rate=130.0), replace(H200, devices=8)) == ["REG-015"]


def test_processors_are_compared_with_gpus_but_not_gpus_with_processors() -> None:
    cores = replace(H200, device="16 cores of X", processor=True, flop_s=1 / 20, byte_s=None)
    assert rules(cores, H200) == ["REG-014"]
    assert rules(H200, cores) == ["REG-015"]


def test_energy_far_below_the_reference_of_the_same_key_and_device_is_flagged() -> None:
    known = [replace(H200, joules=2.0), replace(H200, joules=2.5)]
    low = replace(H200, joules=1.5)
    assert [(one.rule, one.found) for one in found(low, *known)] == [("REG-016", "1.5 J, 0.75 times")]
    assert rules(replace(H200, joules=1.6), *known) == []
    for other in (
        replace(low, framework="jax"),
        replace(low, devices=2),
        replace(low, precision="tf32"),
        replace(low, joules=None),
    ):
        assert rules(other, *known) == []


_IMAGES = replace(
    REFERENCE, workload="resnet50", variant="v1.5", phase="load", precision="fp32", batch=256, data="real"
)


@pytest.mark.parametrize(
    ("good", "work"),
    [
        (reference(key=_IMAGES), "resnet50, v1.5, load, offline, batch 256, loader native, from None"),
        (
            reference(conversion=ConversionKey("resnet50", "mxnet", "recordio", 1252, "reference", "warm")),
            "resnet50, conversion, recordio, file, shards of 1252",
        ),
    ],
)
def test_loads_and_conversions_are_compared_on_equal_processors(
    good: Good, work: str, tmp_path: Path
) -> None:
    figure = figure_of(read_result(write_good(tmp_path, good)))
    assert figure is not None
    assert (figure.work, figure.device, figure.data) == (work, "32 cores of Imagined CPU", "real, cache warm")
    faster = replace(figure, rate=1.2 * figure.rate)
    assert rules(figure, figure) == []
    assert rules(faster, figure) == ["REG-014"]
    assert rules(faster, replace(figure, device="64 cores of Imagined CPU")) == ["REG-015"]


def test_no_honest_log_is_above_the_references_of_the_project() -> None:
    entries, _ = check_tree(TREE)
    references = [one.trace for one in entries if one.trace is not None]
    honest = []
    for name in NAMES:
        record = record_of(Raw(name, ("run.jsonl",), log_of(name)))
        honest.append(trace_of(record, name, "other", "box"))
    breaches = list(population_breaches([*references, *honest], read_registry(TREE / "registry")))
    assert [one.rule for one in breaches if one.rule in ("REG-014", "REG-016")] == []
    assert len(breaches) < len(honest)  # some are compared: the keys of the others have no reference


def test_the_references_of_the_project_are_its_results() -> None:
    entries, findings = check_tree(TREE)
    document = json.loads((TREE / "registry" / "references.json").read_text())
    named = {row["sha256"] for row in document["references"]}
    assert named == {
        one.digest for one in entries if one.folder.relative_to(TREE).parts[0] == "suite-reference"
    }
    assert not [one for one in findings if one.rule in ("REG-001", "REG-014", "REG-015")]
