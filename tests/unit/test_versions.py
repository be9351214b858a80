"""Two versions of the rules side by side: the checker judges a log by the version that the log names.

The second version is a toy in a temporary folder: practice with four repeats instead of five, in which a
changed number of threads (ENV-002) rejects instead of flags.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from suite.checker import Verdict, check_result
from suite.rules import LATEST, SHIPPED, VERSIONS, Rules, RulesRoot, load
from tests.fixtures.forged import put, reclaim
from tests.fixtures.forging import Events, rewrite
from tests.fixtures.good_log import Good, write_good

Judge = Callable[[str, int, bool], Verdict]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> RulesRoot:
    """A folder of rules with the shipped versions and the toy version."""
    folder = tmp_path_factory.mktemp("rules")
    for version in VERSIONS:
        shutil.copytree(SHIPPED.folder(version), folder / version)
    limits = {**SHIPPED.limits("practice"), "version": "toy", "base": "practice", "own": []}
    limits["modes"] = {**limits["modes"], "throughput": {"repeats": 4}}
    row = json.loads((SHIPPED.folder(LATEST) / "checks.json").read_text())["ENV-002"]
    (folder / "toy").mkdir()
    (folder / "toy" / "limits.json").write_text(json.dumps(limits))
    (folder / "toy" / "checks.json").write_text(json.dumps({"ENV-002": {**row, "severity": "reject"}}))
    return RulesRoot(folder)


@pytest.fixture
def judge(root: RulesRoot, tmp_path: Path) -> Judge:
    """The verdict on a log by version and number of repeats, with or without one more thread per window."""

    def rules_of(version: str) -> Rules:
        return load(version, root)

    def verdict_of(version: str, repeats: int, thread: bool) -> Verdict:
        def forge(events: Events) -> None:
            events[:] = [one for one in events if one["repeat"] is None or one["repeat"] < repeats]
            header = events[0]["data"]
            header["repeats"] = repeats
            header["rules"] = rules_of(version).stamp(header["key"]["workload"], header["dataset"]["name"])
            if thread:
                put("rank_end", "threads.after", 5)(events)
            reclaim(events)

        return check_result(rewrite(write_good(tmp_path / version / str(repeats), Good()), forge), rules_of)

    return verdict_of


def rejecting(verdict: Verdict) -> set[str]:
    return {finding.rule for finding in verdict.rejections}


def test_rules_root_lists_its_folders_as_versions(root: RulesRoot) -> None:
    assert root.versions == (*sorted(VERSIONS), "toy")
    assert root.lineage("toy") == ("toy", "practice", LATEST)
    assert VERSIONS == (LATEST, "practice")


def test_checker_applies_the_limits_of_the_log_s_version(judge: Judge) -> None:
    assert judge("toy", 4, False).findings == judge("practice", 5, False).findings == ()
    assert "RUN-003" in rejecting(judge("toy", 5, False))
    assert "RUN-003" in rejecting(judge("practice", 4, False))


def test_checker_applies_the_severities_of_the_log_s_version(judge: Judge) -> None:
    assert rejecting(judge("toy", 4, True)) == {"ENV-002"}
    practice = judge("practice", 5, True)
    assert practice.accepted
    assert {finding.rule for finding in practice.flags} == {"ENV-002"}


def test_verdict_names_its_rules_version(judge: Judge) -> None:
    assert judge("toy", 4, False).rules == "toy"
    assert judge("practice", 5, False).rules == "practice"


def test_checker_rejects_an_unknown_version(judge: Judge, root: RulesRoot, tmp_path: Path) -> None:
    folder = write_good(tmp_path / "unknown", Good())

    def forge(events: Events) -> None:
        events[0]["data"]["rules"]["version"] = "toy"

    rewrite(folder, forge)
    (finding,) = check_result(folder).findings  # by the shipped rules, without the toy version
    assert (finding.rule, finding.severity, finding.found) == ("ID-001", "reject", "toy")
    for name in ("../toy", "9.9", ""):
        with pytest.raises(ValueError, match="expected one of"):
            load(name, root)
