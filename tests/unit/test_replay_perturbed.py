"""Times that follow the work pass; a name that is known, and work that is not done, do not."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from suite import workloads
from suite.audit.items import DIFFERENT, INSIDE, NOT_COMPARABLE
from suite.audit.perturbed import MOST_WIDER, ON_A_PROCESSOR, TOLERANCE, Timed, factor, judge
from suite.containers.engines.native import PROJECT
from suite.containers.images.inside import inside_files
from suite.replay.renamed import rename, renamed_specification, renamed_text

WORK = (10, 10, 40, 80, 160)  # as it is, renamed, widened by 4, 8, 16


def times(fixed: float, each: float, *, noise: float = 0.001, **ns: int) -> list[Timed]:
    """Times of a fixed part and a part for each unit of work, in ms; ``ns`` replaces single ones."""
    titles = ("plain", "renamed", "first", "second", "third")
    found = []
    for title, work in zip(titles, WORK, strict=True):
        best = ns.get(title, int((fixed + each * work) * 1e6))
        found.append(Timed(title, work * 10**9, (best, int(best * (1 + noise)))))
    return found


def outcomes(found: list[Timed], least: float = TOLERANCE) -> list[str]:
    return [item.outcome for item in judge(found, least)]


@pytest.mark.parametrize(("fixed", "each"), [(0, 10), (50, 10), (300, 10), (1, 1000)])
def test_a_time_that_follows_the_work_passes(fixed: float, each: float) -> None:
    assert outcomes(times(fixed, each)) == [INSIDE] * 4


def test_work_that_is_not_done_costs_nothing() -> None:
    assert outcomes(times(500, 0))[2] == DIFFERENT
    assert outcomes(times(500, 0.2), ON_A_PROCESSOR)[2] == DIFFERENT


def test_a_name_that_is_known_is_faster() -> None:
    found = times(0, 10, plain=90_000_000)
    assert outcomes(found) == [DIFFERENT, INSIDE, INSIDE, INSIDE]
    assert outcomes(times(0, 10, plain=97_000_000)) == [INSIDE] * 4


def test_a_renamed_run_may_be_faster() -> None:
    assert outcomes(times(0, 10, plain=140_000_000)) == [INSIDE] * 4


def test_a_size_that_is_known_is_cheaper_than_its_work() -> None:
    found = times(0, 10, plain=40_000_000, renamed=40_000_000)
    assert outcomes(found) == [INSIDE, INSIDE, INSIDE, DIFFERENT]


def test_a_bend_in_the_line_is_seen() -> None:
    assert outcomes(times(0, 10, third=1_300_000_000))[1] == DIFFERENT
    assert outcomes(times(0, 10, third=2_000_000_000))[1] == DIFFERENT


def test_a_noisy_machine_decides_nothing() -> None:
    assert set(outcomes(times(500, 0, noise=0.4))) == {NOT_COMPARABLE}


def test_a_name_that_saves_most_of_the_time_is_seen_through_noise() -> None:
    assert outcomes(times(0, 10, noise=0.4, plain=10_000_000))[0] == DIFFERENT


def test_short_steps_are_widened_until_they_are_mostly_work() -> None:
    assert factor(100 * 25_000_000) == 1
    assert factor(100 * 6_000_000) == 4
    assert factor(1) == MOST_WIDER


def test_only_imports_are_renamed() -> None:
    text = (
        "from suite.workloads.ncf import spec\n"
        "    from suite.workloads.ncf.data import open_data\n"
        "import suite.workloads.ncf.spec\n"
        "from suite.workloads.ncfx import other\n"
        'KNOWN = "ncf", "suite.workloads.ncf"\n'
    )
    assert renamed_text(text, "ncf", "w0") == (
        "from suite.workloads.w0 import spec\n"
        "    from suite.workloads.w0.data import open_data\n"
        "import suite.workloads.w0.spec\n"
        "from suite.workloads.ncfx import other\n"
        'KNOWN = "ncf", "suite.workloads.ncf"\n'
    )


@pytest.mark.parametrize("workload", workloads.names())
def test_every_specification_states_its_name_once(workload: str) -> None:
    text = (PROJECT / "suite" / "workloads" / workload / "spec.py").read_text()
    assert 'NAME = "w0a1b2c3d"' in renamed_specification(text, workload, "w0a1b2c3d")


def test_a_specification_without_its_name_is_refused() -> None:
    with pytest.raises(ValueError, match="found it 0 times"):
        renamed_specification("TITLE = 'ncf'", "ncf", "w0")


@pytest.mark.parametrize("workload", ["gnmt", "resnet50"])
def test_a_workload_with_another_name_is_nowhere_imported_by_its_own(workload: str, tmp_path: Path) -> None:
    place = rename(workload, "w0a1b2c3d", tmp_path)
    found = {path.relative_to(place).as_posix() for path in place.rglob("*.py")}
    assert len(found) == len(inside_files())
    assert "suite/workloads/w0a1b2c3d/spec.py" in found
    assert not (place / "suite/workloads" / workload).exists()
    for path in place.rglob("*.py"):
        if workload not in path.read_text():
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            assert not any(f"{name}.".startswith(f"suite.workloads.{workload}.") for name in names), path
