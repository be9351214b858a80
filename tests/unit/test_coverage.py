"""Coverage of closed: reasons come from the rules, done entries from accepted submissions; no score."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from suite.audit import coverage
from suite.audit.coverage import DONE, IMPOSSIBLE, MISSING, CoverageEntry
from suite.cli import main
from suite.contract.traits import framework_names
from suite.rules import LATEST, Rules, load
from suite.workloads import names
from tests.fixtures.registered import ORG, Registrar, result

RULES = load(LATEST)
NCF = ("ncf", "pytorch", "train", "fp32")


class Ready(Rules):
    """The rules with an image of every framework that closed would accept."""

    def base_for(self, framework: str) -> dict[str, Any]:
        return {"name": f"{framework}-ready", "status": "resolved"}

    def published(self, *cell_key: Any, **more: Any) -> tuple[str, ...]:
        return ("sha256:" + "0" * 64,)


@pytest.fixture(scope="module")
def ready() -> list[CoverageEntry]:
    rules = Ready(RULES.version, RULES.limits, RULES.images_folder)
    return list(coverage.cells(rules, "0" * 64, {NCF: ["a run"]}))


@pytest.fixture(scope="module")
def now() -> list[CoverageEntry]:
    return list(coverage.cells(RULES, "0" * 64, {}))


def of(found: list[CoverageEntry], *cell_key: str) -> CoverageEntry:
    (cell,) = [
        cell for cell in found if (cell.workload, cell.framework, cell.phase, cell.precision) == cell_key
    ]
    return cell


def test_coverage_has_one_entry_per_cell(now: list[CoverageEntry]) -> None:
    cell_keys = {(cell.workload, cell.framework, cell.phase, cell.precision) for cell in now}
    assert len(cell_keys) == len(now) == len(names()) * len(framework_names()) * 3 * 4
    assert {cell.status for cell in now} <= {DONE, MISSING, IMPOSSIBLE}
    assert all(bool(cell.reasons) == (cell.status == IMPOSSIBLE) for cell in now)


def test_unresolved_image_is_a_reason(now: list[CoverageEntry]) -> None:
    for cell in now:
        base = RULES.base_for(cell.framework)
        assert base is not None
        if base["status"] != "resolved":
            assert any(reason.startswith(f"IMG-009: {base['name']} is ") for reason in cell.reasons)


def test_with_images_the_remaining_reasons_are_rules(ready: list[CoverageEntry]) -> None:
    assert of(ready, *NCF) == CoverageEntry(*NCF, DONE, (), ("a run",))
    assert of(ready, "ncf", "pytorch", "infer offline", "bf16").status == MISSING
    (reason,) = of(ready, "ncf", "mxnet", "infer offline", "bf16").reasons
    assert reason.startswith("precision bf16 cannot run in mxnet")


def test_undefined_value_of_the_rules_is_a_reason() -> None:
    class Unsettled(Ready):
        def workload(self, name: str) -> dict[str, Any]:
            found = {**super().workload(name), "loss_curve": []}
            known = found["fingerprint"]
            found["fingerprint"] = {**known, "losses": dict.fromkeys(known["losses"])}
            return found

    rules = Unsettled(RULES.version, RULES.limits, RULES.images_folder)
    found = list(coverage.cells(rules, "0" * 64, {}))
    reasons = of(found, *NCF).reasons
    assert [reason.partition(":")[0] for reason in reasons] == ["TRAIN-012", "FING-008"]
    assert of(found, "ncf", "pytorch", "infer offline", "fp32").status == MISSING


def test_coverage_never_has_an_overall_score(now: list[CoverageEntry], ready: list[CoverageEntry]) -> None:
    for found in (now, ready):
        report = coverage.as_dict(found, ORG, RULES)
        assert report["complete"] is False
        assert not [name for name in report if "score" in name or "overall" in name]
        assert list(coverage.lines(found))[-1].startswith("overall score: none")
    whole = [replace(cell, status=DONE, reasons=()) for cell in now]
    assert coverage.as_dict(whole, ORG, RULES)["complete"] is True
    assert "no overall score" in list(coverage.lines(whole))[-1]
    assert coverage.as_dict([], ORG, RULES)["complete"] is False


def test_coverage_says_first_how_to_supply_digests(
    now: list[CoverageEntry], ready: list[CoverageEntry]
) -> None:
    counts, digests, *_ = coverage.lines(now)
    assert counts.startswith(f"closed: {len(now)} entries: 0 done")
    assert digests.startswith(f"{len(now)} entries (jax, mxnet, pytorch, tensorflow) lack a container image")
    assert all(
        command in digests for command in ("`make image-lock`", "`make images`", "`make image-publish`")
    )
    assert not [line for line in coverage.lines(ready) if "image-lock" in line]


@pytest.mark.parametrize("width", [80, 120])
def test_table_fits_the_terminal_and_states_each_reason_once(now: list[CoverageEntry], width: int) -> None:
    ran = replace(now[0], status=DONE, reasons=(), runs=("a run",))
    found = list(coverage.lines([ran, *now[1:]], width))
    assert max(map(len, found)) <= width
    text = " ".join(line.strip() for line in found)
    notes = ["a run", *dict.fromkeys(reason for cell in now for reason in cell.reasons)]
    for note in notes:
        assert text.count(f"] {note}") == 1
    (head,) = [at for at, line in enumerate(found) if line.split()[:2] == ["workload", "framework"]]
    first = now[0]
    assert found[head + 1].split()[:4] == [first.workload, first.framework, "train", first.precision]
    assert found[head + 1].split()[-2:] == [DONE, "[1]"]
    whole = {line.split()[0] for line in found[head + 1 :] if line[0].isalpha()}
    assert {cell.workload for cell in now} <= whole  # no name is folded
    of_jax = [line.split() for line in found if line.startswith("ncf ") and " jax " in line]
    assert [row[2:5] for row in of_jax] == [["all", "all", IMPOSSIBLE]]


def test_practice_results_do_not_count_for_closed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = Registrar(tmp_path / "submissions")
    assert tree.submit(result(tmp_path / "r")) == 0
    capsys.readouterr()
    assert main(["coverage", "--submitter", ORG, "--submissions", str(tree.root), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["counts"][DONE] == 0
    assert report["submitter"] == ORG
    assert main(["coverage", "--submitter", "No Name\x1b[31m", "--submissions", str(tree.root)]) == 2
    assert "\x1b" not in capsys.readouterr().err
