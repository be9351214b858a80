"""GNMT's specification: counts against the published ones, units, buckets, schedule."""

from __future__ import annotations

from dataclasses import replace

import pytest

from suite.contract import STEPS, WARMUP_STEPS, Job, Key, Specification
from suite.worker import quality
from suite.workloads.gnmt import pinned, spec

REFERENCE = Key("gnmt", "pytorch", "train", "offline", "fp32", 128, 1, "reference", "synthetic", "warm", "v2")
MINI = replace(REFERENCE, scale="mini", data="real", batch=32)


def test_module_satisfies_specification() -> None:
    module: Specification = spec  # mypy holds the module to the protocol
    assert module.NAME == "gnmt"


def test_parameter_counts() -> None:
    dims = spec.dimensions("reference", "v2")
    found = spec.parameters(dims)
    groups: dict[str, int] = {}
    for parameter in found:
        group = parameter.name.split(".")[0]
        groups[group] = groups.get(group, 0) + parameter.size
    assert sum(groups.values()) == 160_634_433
    assert groups == {  # MLPerf's log prints the whole; these are its parts by formula
        "embedding": 33_095_680,
        "encoder": 46_157_824,
        "decoder": 46_153_728,
        "attention": 2_099_201,
        "classifier": 33_128_000,
    }
    second_biases = len(spec.lstms(dims)) * 4 * dims.hidden
    assert sum(groups.values()) + second_biases == spec.PUBLISHED_PARAMETERS == 160_671_297
    assert len({parameter.name for parameter in found}) == len(found)


def test_operations_per_token() -> None:
    dims = spec.dimensions("reference", "v2")
    assert spec.forward_macs(dims, spec.Work(1, 0, 0)) == pytest.approx(47.19e6, rel=1e-3)
    assert spec.forward_macs(dims, spec.Work(0, 1, 0)) == pytest.approx(80.28e6, rel=1e-3)
    assert spec.forward_macs(dims, spec.Work(0, 0, 1)) == 2 * 1024
    each = spec.window_flop(REFERENCE) / sum(spec.units(REFERENCE, 0)[WARMUP_STEPS:])
    assert each == pytest.approx(382e6, rel=0.01)
    assert spec.window_flop(replace(REFERENCE, phase="infer")) * 3 == spec.window_flop(REFERENCE)
    assert spec.window_flop(replace(REFERENCE, devices=2)) == 2 * spec.window_flop(REFERENCE)


def test_window_bytes_count_weights_and_optimiser_state() -> None:
    read = 160_634_433 - 32_320 * 1024  # without the embedding
    assert spec.window_bytes(REFERENCE) == (read * 8 + 160_634_433 * 24) * 100
    assert spec.window_bytes(replace(REFERENCE, precision="bf16")) == (read * 4 + 160_634_433 * 24) * 100
    assert spec.window_bytes(replace(REFERENCE, precision="bf16", phase="infer")) == read * 2 * 100


@pytest.mark.parametrize("scale", ["reference", "mini"])
def test_synthetic_lengths_lie_in_their_bucket(scale: str) -> None:
    longest = spec.dimensions(scale, "v2").longest
    ends = spec.bucket_ends(longest)
    for bucket, lengths in enumerate(spec.LENGTHS[scale]):
        assert {spec.bucket_of(*pair, longest) for pair in lengths} == {bucket}
        assert all(3 <= side <= ends[bucket] for pair in lengths for side in pair)


def test_reference_buckets_match_mlperf() -> None:
    assert spec.bucket_ends(50) == (9, 19, 29, 39, 50)
    assert [spec.bucket_of(length, 1, 50) for length in (9, 10, 39, 40, 50)] == [0, 1, 3, 4, 4]


def test_synthetic_lengths_fit_the_published_distribution() -> None:
    tokens: list[int] = []
    padded = 0
    for bucket in spec.synthetic_buckets()[WARMUP_STEPS:]:
        lengths = spec.LENGTHS["reference"][bucket]
        tokens += [source + target - 1 for source, target in lengths]
        padded += len(lengths) * (2 * spec.bucket_ends(50)[bucket] - 1)
    tokens.sort()
    quantiles = [tokens[int(len(tokens) * share)] for share in (0.05, 0.25, 0.5, 0.75, 0.95)]
    assert sum(tokens) / len(tokens) == pytest.approx(50.4, abs=0.5)
    assert quantiles == pytest.approx([21, 35, 49, 65, 85], abs=5)
    assert sum(tokens) / padded == pytest.approx(0.78, abs=0.02)


@pytest.mark.parametrize("batch", [1, 7, 128, 3040])
def test_synthetic_work_equals_count_by_sentence(batch: int) -> None:
    for bucket, lengths in enumerate(spec.LENGTHS["reference"]):
        rows = [lengths[row % len(lengths)] for row in range(batch)]
        found = spec.synthetic_work("reference", bucket, batch)
        assert found.sources == sum(source for source, _ in rows)
        assert found.targets == sum(target - 1 for _, target in rows)
        assert found.pairs == sum(source * (target - 1) for source, target in rows)


@pytest.mark.parametrize("key", [REFERENCE, MINI, replace(MINI, data="synthetic")])
def test_seeds_permute_the_same_work(key: Key) -> None:
    first, second = spec.units(key, 1), spec.units(key, 2)
    assert len(first) == STEPS
    assert first[:WARMUP_STEPS] == second[:WARMUP_STEPS]
    assert first != second
    assert sorted(first[WARMUP_STEPS:]) == sorted(second[WARMUP_STEPS:])
    assert spec.units(replace(key, devices=2), 1) == spec.units(replace(key, batch=2 * key.batch), 1)


def test_warm_up_visits_every_bucket() -> None:
    assert set(spec.synthetic_buckets()[:WARMUP_STEPS]) == set(range(spec.BUCKETS))
    assert len(spec.synthetic_buckets()) == STEPS


def test_every_mini_batch_is_pinned_on_one_two_and_four_devices() -> None:
    wanted = {batch * devices for batch in spec.BATCHES["mini"] for devices in (1, 2, 4)}
    assert pinned.batches("wmt16-mini") == tuple(sorted(wanted))


def test_unpinned_batch_is_refused_with_fix() -> None:
    with pytest.raises(
        ValueError, match=r"batches of 33 for wmt16-mini \(known: 1, 2, 4, 32, 64, .*synthetic"
    ):
        spec.units(replace(MINI, batch=11, devices=3), 0)
    with pytest.raises(ValueError, match="known: none"):
        spec.units(replace(REFERENCE, data="real"), 0)
    with pytest.raises(ValueError, match="found 'v1' at scale 'mini'"):
        spec.dimensions("mini", "v1")


def test_quality_runs_need_no_pinned_list() -> None:
    job = Job(replace(REFERENCE, data="real"), "quality", 1, 0, {}, "cpu", 1, True, 0, 0, "", "")
    assert quality._units(job, 10) is None


def test_learning_rate() -> None:
    hyper = spec.hyperparameters("reference", "v2")
    rates = [spec.recipe_rate(hyper, step) for step in (0, 100, 199, 200, 109_315, 109_316, 150_308)]
    assert rates[0] == pytest.approx(1e-5)
    assert rates[1] == pytest.approx(1e-4)
    assert rates[2] < 1e-3
    assert rates[3:] == pytest.approx([1e-3, 1e-3, 5e-4, 6.25e-5])
    changed = {**hyper, "warmup_steps": "0", "rate_drops": "2:0.5"}
    assert [spec.recipe_rate(changed, step) for step in (0, 1, 2)] == pytest.approx([1e-3, 1e-3, 5e-4])
