"""Forgeries by somebody who had not read the rules, judged beside the reference results."""

from __future__ import annotations

import pytest

from suite.submissions.package import check_tree
from suite.submissions.registry import read_registry
from tests.fixtures import consistent as c
from tests.fixtures.consistent_rows import ORDINARY, rules_beside, verdict_of
from tests.fixtures.outsider import ROWS

# Rules about two submissions of one machine: the forger's own honest log breaks them as well.
COPIED = {"REG-007", "REG-008", "REG-011", "REG-012", "SUBM-005", "SUBM-007"}
# Batch 512 has no reference result (REG-015 says so), and what an A100 reaches is only bounded by its limits.
NOT_FOUND = {"small_batch_1.3", "small_batch_2", "device_1.3"}
# The logs of these ideas do not have the form of the schema, so that no other rule judged them.
MALFORMED = ("real_data", "cold_cache", "two_devices")


@pytest.fixture(scope="module")
def found() -> dict[str, set[str]]:
    """The rules that find something in each forgery, without those that honest results break too."""
    others = [one.trace for one in check_tree(c.TREE)[0] if one.trace is not None]
    registry = read_registry(c.TREE / "registry")
    rules = {}
    for _, name, make in ROWS:
        verdict = verdict_of(make())
        rules[name] = {finding.rule for finding in verdict.findings}
        if verdict.record is not None and verdict.accepted:
            rules[name] |= rules_beside(verdict.record, True, others, registry)
        rules[name] -= ORDINARY | COPIED
    return rules


def test_forgeries_that_nothing_finds_are_known(found: dict[str, set[str]]) -> None:
    assert len(found) == 45
    assert {name for name, rules in found.items() if not rules} == NOT_FOUND
    assert all(found[name] <= {"LOG-014", "LOG-015"} for name in found if name.startswith(MALFORMED))
