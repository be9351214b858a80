"""A run starts from what an earlier one compiled, and its log says so."""

from __future__ import annotations

from pathlib import Path

from suite.checker import check_result
from suite.harness.run import execute
from suite.log.reader import read_result
from suite.plan import prepare
from tests.equivalence.interpreters import interpreter
from tests.unit.test_plan import planned, settings


def test_second_run_finds_every_program_that_the_first_compiled(tmp_path: Path) -> None:
    chosen = settings(
        *("framework=jax", "framework.threads=1", "runtime=native", "repeats=1", "reuse_compiled=true"),
        *("fingerprint=false", f"framework.python={interpreter('jax')}"),
        *(f"results_dir={tmp_path}/results", f"cache_dir={tmp_path}/cache", f"data_root={tmp_path}/data"),
    )
    found: list[set[Path]] = []
    for _ in range(2):
        plan = planned(chosen)
        outcome = execute(prepare.prepare_run(plan, prepare.prepare_resources(plan), 1), quiet=True)
        assert outcome.exit_code == 0, outcome.message
        assert read_result(outcome.folder).header["settings"]["reuse_compiled"] is True
        verdict = check_result(outcome.folder)
        assert verdict.accepted, verdict.rejections
        assert "DIV-017" in {finding.rule for finding in verdict.findings}
        programs = (tmp_path / "cache" / "compiled" / "jax").rglob("*-cache")
        found.append({path.relative_to(tmp_path) for path in programs})
    assert found[0]
    assert found[1] == found[0]
