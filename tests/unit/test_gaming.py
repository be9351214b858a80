"""Every known class of gaming: its forgeries are found by their rules, and honest logs have none."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import replace
from itertools import groupby, product
from pathlib import Path

import pytest

from suite.audit.outcomes import inapplicable
from suite.checker import check_result
from suite.checker.context import Context
from suite.contract import Key
from suite.log.files import read_folder
from suite.log.reader import record_of
from suite.log.statistics import rank_correlation
from suite.rules import LATEST, load
from suite.workloads import names
from tests.fixtures import gaming_table
from tests.fixtures.consistent import shuffle_steps
from tests.fixtures.forged import both
from tests.fixtures.forging import Events, rewrite
from tests.fixtures.gaming import CLASSES, ELSEWHERE, Gamed, corpus
from tests.fixtures.gaming_edits import LONG, device, fact, losses, remade
from tests.fixtures.gaming_rows_across import ACROSS, Across
from tests.fixtures.good_container import rules_of
from tests.fixtures.good_log import MINI, REFERENCE, Good, reference, write_good
from tests.fixtures.honest import NAMES, write_honest
from tests.fixtures.registered import Registrar

HONEST = {
    "a long window": LONG,
    "steps of 70 us": Good(step_ns=70_000, jitter_ns=1_000),
    "device timestamps on steps of 200 us": reference(step_ns=200_000, jitter_ns=5_000),
    "inference on synthetic data": Good(key=replace(MINI, phase="infer", data="synthetic")),
    "training in tf32": Good(key=replace(MINI, precision="tf32")),
}


@pytest.mark.parametrize("row", corpus(), ids=lambda row: f"{row.gaming}: {row.name}")
def test_forgery_of_the_corpus_is_found_by_its_rule(row: Gamed, tmp_path: Path) -> None:
    verdict = check_result(row.forged.make(tmp_path), rules_of)
    found = {finding.rule for finding in verdict.findings}
    assert row.forged.rule in found
    assert found <= {row.forged.rule, *row.forged.also}
    # A rule that an audit reports as not applicable must not find anything.
    assert verdict.record is None or not [rule for rule in found if inapplicable(verdict.record, rule)]
    rejects = {finding.rule for finding in verdict.rejections}
    checks = load(verdict.rules or LATEST).checks
    assert (row.forged.rule in rejects) == (checks[row.forged.rule].severity == "reject")


@pytest.mark.parametrize("row", ACROSS, ids=lambda row: f"{row.gaming}: {row.name}")
def test_forgery_over_several_submissions_is_found(row: Across, tmp_path: Path) -> None:
    tree = Registrar(tmp_path / "submissions")
    row.make(tree, tmp_path / "results")
    assert row.rule in tree.findings()


def test_corpus_covers_all_classes_of_gaming() -> None:
    rows = corpus()
    assert len(rows) >= 100
    assert len({(row.gaming, row.name) for row in rows}) == len(rows)
    known = {row.gaming for row in rows} | {row.gaming for row in ACROSS}
    assert known | set(ELSEWHERE) == set(CLASSES)


def test_threat_model_explains_classes_with_both_severities() -> None:
    checks = load(LATEST).checks
    for gaming, rows in groupby(corpus(), key=lambda row: row.gaming):
        by: dict[str, set[str]] = {"reject": set(), "flag": set()}
        for row in rows:
            by.setdefault(checks[row.forged.rule].severity, set()).add(row.forged.rule)
        if by["reject"] and by["flag"]:
            found = re.search(
                rf"^\| {gaming} \| (.*?) \| (reject|flag) \|", gaming_table.PATH.read_text(), re.M
            )
            assert found, f"{gaming}: {by}"
            assert set(found[1].split(", ")) == by[found[2]]


def test_gaming_page_is_current() -> None:
    old = gaming_table.PATH.read_text()
    assert gaming_table.page(old) == old, "python -m tests.fixtures.gaming_table makes it anew"


@pytest.mark.parametrize("name", HONEST)
def test_honest_log_has_no_finding(name: str, tmp_path: Path) -> None:
    assert check_result(write_good(tmp_path, HONEST[name]), rules_of).findings == ()


# Not measured yet: too slow without the fast path. Closed rejects it.
WITHOUT_BANDS = {("vgg16", "v1", "fp32")}


def test_device_limits_apply_to_a_misspelt_device_name(tmp_path: Path) -> None:
    """Formerly a log with a misspelt device name had no limits, and no rule reported it."""
    renamed = write_honest(NAMES[0], tmp_path)
    rewrite(renamed, both(device("name", "NVIDIA  H200"), fact("inside", "framework.device_name", "?")))
    record = record_of(read_folder(renamed))
    context = Context(record.header.data, load(LATEST), record)
    assert context.device == load(LATEST).device("NVIDIA H200")
    assert context.device is not None


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(("332dc8d8", "60e11c45"))])
def test_steady_repeats_beside_noisy_ones_are_not_copies(name: str, tmp_path: Path) -> None:
    """Shuffled, their departures from a median that others decide correlated by up to 0.86."""
    draw = random.Random(1)

    def shuffled(events: Events) -> None:
        for repeat in range(5):
            shuffle_steps(events, repeat, 0, draw)

    for number in range(3):
        found = check_result(rewrite(write_honest(name, tmp_path / f"{number}"), shuffled)).findings
        assert "COPY-002" not in {finding.rule for finding in found}


def test_five_copies_of_one_repeat_are_found(tmp_path: Path) -> None:
    forge = both(*(remade(1 + target / 100, 4_000, target=target) for target in range(1, 5)))
    found = check_result(rewrite(write_good(tmp_path), forge)).findings
    assert sum(one.rule == "COPY-002" for one in found) == 10


def test_copy_rule_ignores_repeats_with_more_noise_than_signal(tmp_path: Path) -> None:
    folder = rewrite(write_good(tmp_path), remade(1.0, 400_000))
    assert "COPY-002" not in {finding.rule for finding in check_result(folder).findings}


@pytest.mark.parametrize(("workload", "flagged"), [("resnet50_cifar10", False), ("inception_bn_small", True)])
def test_loss_jump_is_flagged_unless_rounding_errors_dominate(
    workload: str, flagged: bool, tmp_path: Path
) -> None:
    """The loss of resnet50_cifar10 on an H200 jumped most after warm-up; that was flagged wrongly."""
    good = reference(key=replace(REFERENCE, workload=workload, variant="v1", batch=128))
    jumping = losses(lambda step, repeat: (30.0 if step < 10 else 2.4) - 1e-3 * step - 1e-6 * repeat)
    found = check_result(rewrite(write_good(tmp_path, good), jumping)).findings
    assert ("WARM-001" in {finding.rule for finding in found}) == flagged


def test_rank_correlation_matches_known_values() -> None:
    assert rank_correlation([1, 2, 3, 4], [10, 20, 40, 9_000]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert rank_correlation([1, 2, 2, 3], [1, 3, 3, 2]) == pytest.approx(1 / 3)  # ties share their rank
    assert rank_correlation([1, 2, 3], [7, 7, 7]) == 0


@pytest.mark.parametrize("version", [LATEST, "practice"])
@pytest.mark.parametrize("workload", names())
def test_loss_bands_are_valid(workload: str, version: str) -> None:
    entry = load(version).workload(workload)
    assert set(entry["batches_by_seed"]) == {"real", "synthetic"}
    keys = []
    repeats: Counter[tuple[str, int]] = Counter()  # the deviation is that of all precisions together
    for row in entry["loss_curve"]:
        repeats[row["variant"], row["batch"]] += row["repeats"]
        assert row["variant"] in entry["variants"]
        assert set(row["precisions"]) <= set(entry["precisions"])
        assert row["repeats"] >= 2
        for name in ("start", "middle", "end"):
            low, high = (float(edge) for edge in row[name])
            assert 0 < low < high
        keys += [(row["variant"], row["batch"], row["data"], precision) for precision in row["precisions"]]
    assert len(set(keys)) == len(keys)
    assert min(repeats.values()) >= 5


@pytest.mark.parametrize("workload", names())
def test_published_batch_has_loss_bands_in_every_precision(workload: str) -> None:
    """Every variant at the published batch, in every precision."""
    entry = load(LATEST).workload(workload)
    settled = {
        (row["variant"], row["batch"], one) for row in entry["loss_curve"] for one in row["precisions"]
    }
    first = product(entry["variants"], entry["batches"][:1], entry["precisions"])
    missing = {(workload, variant, precision) for variant, batch, precision in set(first) - settled}
    assert missing == {one for one in WITHOUT_BANDS if one[0] == workload}


@pytest.mark.parametrize("workload", names())
def test_mini_matrix_has_loss_bands(workload: str) -> None:
    entry = load("practice").workload(workload)
    rows = {(row["variant"], row["batch"], row["data"], *row["precisions"]) for row in entry["loss_curve"]}
    assert (entry["variants"][0], entry["batches"][0], "real", "fp32") in rows


def test_loss_bands_are_selected_by_key() -> None:
    from suite.checker.training import envelope

    rows = load(LATEST).workload("ncf")["loss_curve"]
    key = Key(
        "ncf", "pytorch", "train", "offline", "tf32", 1048576, 1, "reference", "synthetic", "warm", "f64"
    )
    assert envelope(rows, key) is not None
    assert envelope(rows, replace(key, batch=65536)) is None
    assert envelope(rows, replace(key, data="real")) is None
