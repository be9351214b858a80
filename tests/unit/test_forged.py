"""Every rule catches its forgery, and an honest log breaks none."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from suite.audit.outcomes import inapplicable
from suite.checker import Verdict, check_result
from suite.checker.context import RULE_FUNCTIONS
from suite.rules import LATEST, load
from tests.fixtures.forged import DETECTOR, GNMT, LOWER, OTHER, Forged, both, put
from tests.fixtures.forged_baseline import BASELINE_VARIANTS, CITING, READING
from tests.fixtures.forged_fingerprint import FINGERPRINT_VARIANTS
from tests.fixtures.forged_images import HONEST as HONEST_IMAGES
from tests.fixtures.forged_images import VARIANTS
from tests.fixtures.forged_ranks import TWO, TWO_GPU_NODES, TWO_GPUS, TWO_NODES, early_repeats
from tests.fixtures.forged_storage import CONVERSION, IN_RECORDS, LOADED, TO_LMDB
from tests.fixtures.forged_storage import VARIANTS as FORM_VARIANTS
from tests.fixtures.forged_table import NAMED, TABLE
from tests.fixtures.forging import rewrite
from tests.fixtures.gaming import corpus
from tests.fixtures.good_container import rules_of
from tests.fixtures.good_log import MINI, REFERENCE, Good, reference, write_good

_LOAD_INFER = replace(LOADED.key, phase="load_infer", batch=256, scale="reference")
REJECTED = {**VARIANTS, **FORM_VARIANTS, **FINGERPRINT_VARIANTS, **BASELINE_VARIANTS}
HONEST = {
    "ncf train": Good(),
    "ncf infer": Good(key=replace(MINI, phase="infer")),
    "ncf train bf16": Good(key=replace(MINI, precision="bf16")),
    "ncf train fp16": Good(key=replace(MINI, precision="fp16")),
    "ncf infer bf16": Good(key=replace(MINI, phase="infer", precision="bf16")),
    "ncf synthetic": Good(key=replace(MINI, data="synthetic")),
    "ncf cold": Good(key=replace(MINI, cache="cold")),
    "ncf single stream": Good(key=replace(MINI, phase="infer", scenario="single_stream", batch=1)),
    "ncf forward and backward": Good(key=replace(MINI, scenario="forward_backward")),
    "ncf forward and backward, synthetic": Good(
        key=replace(MINI, scenario="forward_backward", data="synthetic")
    ),
    "ncf quality": Good(mode="quality"),
    "lower is better": LOWER,
    "from a trained backbone": DETECTOR,
    "gnmt train": Good(key=GNMT),
    "gnmt synthetic": Good(key=replace(GNMT, data="synthetic")),
    "reference on an H200": reference(),
    "two ranks": TWO,
    "two ranks on two H200": TWO_GPUS,
    "two nodes": TWO_NODES,
    "two nodes with an H200 each": TWO_GPU_NODES,
    "host dispatch": reference(
        key=replace(REFERENCE, framework="tensorflow"), timestamp_kind="host_dispatch"
    ),
    "short steps": Good(step_ns=70_000, jitter_ns=1_000),
    "with a nonce": Good(nonce="5e" * 32),
    "images read from records": IN_RECORDS,
    "citing a baseline": CITING,
    "images read, citing a baseline": READING,
    "conversion": CONVERSION,
    "load": LOADED,
    "load for inference on a GPU": reference(key=_LOAD_INFER, storage="tfrecord"),
    "conversion to lmdb": TO_LMDB,
    "conversion with timestamps in bursts": replace(CONVERSION, trend=0.5, spikes=20, jitter_ns=9_000),
    **HONEST_IMAGES,
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_log_has_no_finding(name: str, tmp_path: Path) -> None:
    verdict = check_result(write_good(tmp_path, HONEST[name]), rules_of)
    assert verdict.findings == ()
    assert verdict.scored


@pytest.mark.parametrize("number", range(20))
def test_honest_logs_of_other_runs_have_no_finding(number: int, tmp_path: Path) -> None:
    verdict = check_result(write_good(tmp_path, Good(run_hex=f"{number:08x}")), rules_of)
    assert verdict.findings == ()


def test_equal_outputs_of_batch_one_have_no_finding(tmp_path: Path) -> None:
    single = HONEST["ncf single stream"]
    equal = [put("step", "output_digest", OTHER, step=step) for step in (7, 8)]
    verdict = check_result(Forged("INFER-002", both(*equal), single).make(tmp_path))
    assert verdict.findings == ()


@pytest.mark.parametrize("forged", TABLE, ids=lambda forged: forged.rule)
def test_forgery_is_found_by_its_rule(forged: Forged, tmp_path: Path) -> None:
    assert_caught(forged, tmp_path)


@pytest.mark.parametrize("name", REJECTED)
def test_forgery_variant_is_rejected_by_its_rule(name: str, tmp_path: Path) -> None:
    assert not assert_caught(REJECTED[name], tmp_path).accepted


def assert_caught(forged: Forged, tmp_path: Path) -> Verdict:
    """The verdict on a forgery, which only its rule and ``also`` may find."""
    verdict = check_result(forged.make(tmp_path), rules_of)
    found = {finding.rule for finding in verdict.findings}
    assert forged.rule in found
    assert found <= {forged.rule, *forged.also}
    for finding in verdict.findings:
        assert finding.location
        assert finding.expected != finding.found
        assert finding.fix
    # A rule that an audit reports as not applicable must not find anything.
    assert verdict.record is None or not [rule for rule in found if inapplicable(verdict.record, rule)]
    rejects = [load(verdict.rules or LATEST).checks[name].severity == "reject" for name in found]
    assert verdict.accepted != any(rejects)
    return verdict


def test_every_rule_has_a_forgery() -> None:
    forged = {forged.rule for forged in TABLE} | {row.forged.rule for row in corpus()}
    # LOG-019 is about the child process: tests/hostile/test_child.py tests it.
    assert sorted(forged | {"LOG-019"}) == sorted(load(LATEST).checks)


def test_every_rule_has_a_function() -> None:
    check_result_once()
    named = {name for name in load(LATEST).checks if not name.startswith("LOG-")}
    assert named == set(RULE_FUNCTIONS)


def check_result_once() -> None:
    """Load the rule functions, which are imported when first needed."""
    from suite.checker.verdict import _rules

    assert _rules()


@pytest.mark.parametrize("name", NAMED)
def test_essential_forgery_is_rejected(name: str, tmp_path: Path) -> None:
    forged = next(forged for forged in TABLE if forged.rule == NAMED[name])
    verdict = check_result(forged.make(tmp_path), rules_of)
    assert not verdict.accepted
    assert NAMED[name] in {finding.rule for finding in verdict.rejections}


@pytest.mark.parametrize(("released_in_ns", "found"), [(400_000, False), (600_000, True)])
def test_release_of_the_ranks_may_take_half_a_millisecond(
    released_in_ns: int, found: bool, tmp_path: Path
) -> None:
    """That of short windows, as here of 0.1 s, may then be over 0.1 % of them."""
    log = write_good(tmp_path, replace(TWO_GPUS, step_ns=1_000_000))
    verdict = check_result(rewrite(log, partial(early_repeats, ns=released_in_ns)), rules_of)
    assert ("RANK-003" in {finding.rule for finding in verdict.findings}) == found
