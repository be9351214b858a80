"""The perturbed audit accepts times that follow the work, and rejects recognised names and skipped work."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from suite import workloads
from suite.audit.items import DIFFERENT, INSIDE, NOT_COMPARABLE
from suite.audit.perturbed import MOST_WIDER, ON_A_PROCESSOR, TOLERANCE, Timed, factor, judge
from suite.containers.engines.native import PROJECT
from suite.containers.images.inside import inside_files
from suite.replay.renamed import copy_renamed, renamed_specification, renamed_text

WORK = (10, 10, 40, 80, 160)  # unchanged, renamed, batch times 4, 8, 16


def times(fixed: float, each: float, *, noise: float = 0.001, **ns: int) -> list[Timed]:
    """Times of ``fixed`` ms and ``each`` ms a unit of work; ``ns`` replaces single times, in ns."""
    titles = ("plain", "renamed", "first", "second", "third")
    found = []
    for title, work in zip(titles, WORK, strict=True):
        best = ns.get(title, int((fixed + each * work) * 1e6))
        found.append(Timed(title, work * 10**9, (best, int(best * (1 + noise)))))
    return found


def outcomes(found: list[Timed], least: float = TOLERANCE) -> list[str]:
    return [item.outcome for item in judge(found, least)]


@pytest.mark.parametrize(("fixed", "each"), [(0, 10), (50, 10), (300, 10), (1, 1000)])
def test_time_that_follows_the_work_is_accepted(fixed: float, each: float) -> None:
    assert outcomes(times(fixed, each)) == [INSIDE] * 4


def test_skipped_work_is_detected() -> None:
    assert outcomes(times(500, 0))[2] == DIFFERENT
    assert outcomes(times(500, 0.2), ON_A_PROCESSOR)[2] == DIFFERENT


def test_faster_time_of_a_recognised_name_is_detected() -> None:
    found = times(0, 10, plain=90_000_000)
    assert outcomes(found) == [DIFFERENT, INSIDE, INSIDE, INSIDE]
    assert outcomes(times(0, 10, plain=97_000_000)) == [INSIDE] * 4


def test_faster_renamed_run_is_accepted() -> None:
    assert outcomes(times(0, 10, plain=140_000_000)) == [INSIDE] * 4


def test_faster_time_of_a_recognised_size_is_detected() -> None:
    found = times(0, 10, plain=40_000_000, renamed=40_000_000)
    assert outcomes(found) == [INSIDE, INSIDE, INSIDE, DIFFERENT]


def test_time_that_is_not_linear_in_the_work_is_detected() -> None:
    assert outcomes(times(0, 10, third=1_300_000_000))[1] == DIFFERENT
    assert outcomes(times(0, 10, third=2_000_000_000))[1] == DIFFERENT


def test_noisy_times_are_not_comparable() -> None:
    assert set(outcomes(times(500, 0, noise=0.4))) == {NOT_COMPARABLE}


def test_recognised_name_that_saves_most_of_the_time_is_detected_in_noise() -> None:
    assert outcomes(times(0, 10, noise=0.4, plain=10_000_000))[0] == DIFFERENT


def test_factor_grows_short_steps() -> None:
    assert factor(100 * 25_000_000) == 1
    assert factor(100 * 6_000_000) == 4
    assert factor(1) == MOST_WIDER


def test_renamed_text_changes_only_imports() -> None:
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
def test_renamed_specification_replaces_the_name_of_every_workload(workload: str) -> None:
    text = (PROJECT / "suite" / "workloads" / workload / "spec.py").read_text()
    assert 'NAME = "w0a1b2c3d"' in renamed_specification(text, workload, "w0a1b2c3d")


def test_renamed_specification_refuses_text_without_the_name() -> None:
    with pytest.raises(ValueError, match="found it 0 times"):
        renamed_specification("TITLE = 'ncf'", "ncf", "w0")


@pytest.mark.parametrize("workload", ["gnmt", "resnet50"])
def test_renamed_copy_never_imports_the_original_name(workload: str, tmp_path: Path) -> None:
    copy_renamed(workload, "w0a1b2c3d", tmp_path)
    found = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.py")}
    assert len(found) == len(inside_files())
    assert "suite/workloads/w0a1b2c3d/spec.py" in found
    assert not (tmp_path / "suite/workloads" / workload).exists()
    for path in tmp_path.rglob("*.py"):
        if workload not in path.read_text():
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            assert not any(f"{name}.".startswith(f"suite.workloads.{workload}.") for name in names), path
