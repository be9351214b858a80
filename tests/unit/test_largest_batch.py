"""``batch=max``: the search, where it is refused, its record in the log, and probes in real workers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from suite.checker import check_result
from suite.cli import main
from suite.contract import STEPS
from suite.harness import largest
from suite.harness.largest import FEW, FITS, search
from suite.plan import prepare
from suite.plan.errors import BadConfiguration, EnvironmentProblem, Unsupported
from suite.plan.plan import Plan
from suite.plan.prepared import Resources, with_batch
from suite.sweep.results import configuration, finished_results
from tests.equivalence.interpreters import interpreter
from tests.fixtures import forged as f
from tests.fixtures.forged import put
from tests.fixtures.forging import Events, rewrite
from tests.fixtures.good_container import rules_of
from tests.fixtures.good_log import REFERENCE, Good, reference, write_good
from tests.unit.test_plan import SERVER, planned, settings

PAIRS = Path(__file__).parents[1] / "fixtures" / "pairs"
SEARCH = [[65536, 3, FITS], [131072, 3, "out_of_memory"], [65536, 110, FITS]]


@pytest.mark.parametrize("first", [1, 20, 256, 100_000])
@pytest.mark.parametrize("most", [1, 7, 100, 255, 256, 257, 4_000, 1_000_000])
def test_search_ends_at_most_a_sixteenth_below_the_largest_batch(first: int, most: int) -> None:
    tried: list[int] = []

    def probe(batch: int, steps: int) -> str:
        assert steps in (FEW, STEPS)
        tried.append(batch)
        return FITS if batch <= most else "out_of_memory"

    found = search(first, probe)
    assert found is not None
    assert found <= most < found + max(1, found / 16) * 2
    assert len(tried) < 45
    if found >= 128 and first % 8 == 0:
        assert found % 8 == 0


def test_search_requires_that_the_batch_runs_all_steps() -> None:
    def probe(batch: int, steps: int) -> str:
        return FITS if batch <= (1000 if steps == FEW else 900) else "out_of_memory"

    assert search(128, probe) == 896


def test_search_returns_none_if_nothing_fits() -> None:
    assert search(64, lambda batch, steps: "out_of_memory") is None


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("division=closed", "runtime=native"), "batch: closed takes one of .* found max; use division=open"),
        (("phase=infer", "scenario=single_stream"), "batch: single_stream has batch 1, found max"),
        (("mode=quality",), "batch: max requires mode=throughput"),
    ],
)
def test_batch_max_is_refused_where_it_is_not_allowed(options: tuple[str, ...], why: str) -> None:
    chosen = settings("batch=max", *options)
    machine = SERVER if "division=closed" in options else None
    with pytest.raises(BadConfiguration, match=why):
        planned(chosen, machine) if machine else planned(chosen)


@pytest.mark.parametrize("value", ["most", "0", "[8]"])
def test_invalid_batch_values_are_refused(value: str) -> None:
    with pytest.raises(BadConfiguration, match="batch: expected auto, max or a whole number from 1"):
        settings(f"batch={value}")


def searched(events: Events) -> None:
    """What a search for the batch of the good log would have written."""
    data = events[0]["data"]
    data["settings"]["batch_search"] = [list(row) for row in SEARCH]
    data["overrides"].append("batch=max")
    f.reseal(events)


def test_log_with_a_consistent_batch_search_is_accepted(tmp_path: Path) -> None:
    folder = rewrite(write_good(tmp_path, reference()), searched)
    assert check_result(folder, rules_of).findings == ()


@pytest.mark.parametrize(
    "search_rows",
    [
        [[65536, 3, FITS], [131072, 3, "out_of_memory"]],  # it never ran all steps
        [*SEARCH, [32768, 3, FITS]],
        [[65536, 3, FITS], [65536, 110, FITS]],  # nothing larger was tried
        [[65536, 3, FITS], [262144, 3, "out_of_memory"], [65536, 110, FITS]],
        [[131072, 110, FITS], *SEARCH],  # a larger one ran
        "max",
        [["65536", 110, FITS]],
        [],
    ],
    ids=str,
)
def test_batch_search_that_contradicts_the_batch_is_rejected(search_rows: Any, tmp_path: Path) -> None:
    edited = f.both(searched, put("header", "settings.batch_search", search_rows), f.reseal)
    verdict = check_result(rewrite(write_good(tmp_path, reference()), edited), rules_of)
    assert {finding.rule for finding in verdict.rejections} == {"ID-014"}


def test_batch_max_without_a_search_is_rejected(tmp_path: Path) -> None:
    folder = rewrite(write_good(tmp_path, Good()), put("header", "overrides", ["batch=max"]))
    assert {finding.rule for finding in check_result(folder, rules_of).rejections} == {"ID-009"}


def test_dry_run_of_batch_max_agrees_with_the_run(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folders = [f"{name}_dir={tmp_path / name}" for name in ("results", "cache")]
    run = ["run", "workload=ncf", "framework=pytorch", "data=synthetic", "runtime=native", "dry=true"]
    assert main([*run, "batch=max", *folders]) == 0
    assert "the rules reject nothing in this run" in capfd.readouterr().out


def test_batch_search_is_refused_in_closed(tmp_path: Path) -> None:
    good = replace(reference(), key=REFERENCE, division="closed", differences=())
    verdict = check_result(rewrite(write_good(tmp_path, good), searched), rules_of)
    assert "ID-014" in {finding.rule for finding in verdict.rejections}


def ready(tmp_path: Path, pair: str, *options: str) -> tuple[Plan, Resources]:
    """A plan of ``batch=max`` in a custom pair, and all that its workers need."""
    chosen = settings(
        *("batch=max", "data=synthetic", f"pair={PAIRS / pair}", "framework.threads=1", *options),
        *(f"framework.python={interpreter('pytorch')}", f"results_dir={tmp_path}/results"),
        *(f"cache_dir={tmp_path}/cache", "runtime=native"),
    )
    plan = planned(chosen)
    return plan, prepare.prepare_resources(plan)


def test_probes_find_largest_batch_and_header_lists_them(tmp_path: Path) -> None:
    lines: list[str] = []
    plan, resources = ready(tmp_path, "limited.py")
    before = configuration(plan, resources.custom)
    plan = largest.find_largest(with_batch(plan, 2), resources, lines.append)
    assert plan.search == ((2, FEW, FITS), (4, FEW, "out_of_memory"), (3, FEW, FITS), (3, STEPS, FITS))
    assert lines[-1] == "batch 3 is the largest that fits"
    header = prepare.prepare_run(plan, resources, attempt=1).header
    assert header["key"]["batch"] == header["settings"]["batch"] == 3
    assert header["settings"]["batch_search"] == [list(row) for row in plan.search]
    # A matrix finds such a result by its options, with any batch.
    log = tmp_path / "results" / "found" / "run.jsonl"
    log.parent.mkdir(parents=True)
    ends = {"kind": "footer", "mono_ns": 5}
    first = {"kind": "header", "wall": "2026-12-01T00:00:00.000000Z", "data": header}
    log.write_text(f"{json.dumps(first)}\n{json.dumps(ends)}\n")
    (found,) = finished_results(tmp_path / "results")
    assert found.configuration == json.loads(json.dumps(before))


def test_batch_search_on_a_cpu_stays_within_its_memory_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(largest, "_available", lambda: 750 << 20)
    plan, resources = ready(tmp_path, "growing.py")
    plan = largest.find_largest(with_batch(plan, 512), resources, lambda line: None)
    assert plan.search[0] == (512, FEW, FITS)
    failed = [outcome for _, _, outcome in plan.search if outcome != FITS]
    assert set(failed) == {"beyond_memory"}
    room = largest._ROOM * 750  # MiB
    # Python and PyTorch take 150 to 400 of it, each sample a half.
    assert 2 * (room - 400) < plan.key.batch < 2 * (room - 150)


def test_batch_search_reports_that_no_batch_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(largest, "_available", lambda: 64 << 20)
    plan, resources = ready(tmp_path, "limited.py")
    with pytest.raises(Unsupported, match=r"found none: 2 beyond memory, 1 beyond memory; it .* 51 MiB"):
        largest.find_largest(with_batch(plan, 2), resources, lambda line: None)


def test_other_worker_failure_ends_the_search(tmp_path: Path) -> None:
    with pytest.raises(
        EnvironmentProblem, match=r"cannot try 256: .*custom pair: expected a class named Pair"
    ):
        largest.find_largest(*ready(tmp_path, "empty.py"), lambda line: None)
