"""GNMT's batches: files of the mini dataset, padding, order, and agreement with the specification."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from suite.common.stream import digest_arrays
from suite.contract import STEPS, WARMUP_STEPS, BadData, Job, Key
from suite.datasets import wmt16_mini
from suite.worker import record
from suite.workloads.gnmt import data, index, pinned, spec


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The generated dataset."""
    root = tmp_path_factory.mktemp("wmt16-mini")
    for name, content in wmt16_mini.generate().items():
        (root / name).write_bytes(content)
    return root


def job(
    folder: Path | str, batch: int = 32, seed: int = 5, mode: str = "throughput", source: str = "real"
) -> Job:
    """A training job at mini scale."""
    key = Key("gnmt", "pytorch", "train", "offline", "fp32", batch, 1, "mini", source, "warm", "v2")
    return Job(key, mode, seed, 0, {}, "cpu", 1, True, 0, 0, str(folder), "")


def units_of(arrays: data.Arrays) -> int:
    """Source tokens and predicted tokens, padding not counted."""
    return int((arrays["source"] != spec.PAD).sum() + (arrays["target_out"] != spec.PAD).sum())


def test_pinned_numbers_match_files(folder: Path) -> None:
    for batch in spec.BATCHES["mini"]:
        found = data.pinned_numbers(data.Real(job(folder, batch)).lengths(), batch, 19)
        assert list(zip(*found, strict=True)) == list(pinned.work("wmt16-mini", batch))


@pytest.mark.parametrize("source", ["real", "synthetic"])
@pytest.mark.parametrize("batch", [1, 32, 64])
def test_batches_have_specified_units(folder: Path, source: str, batch: int) -> None:
    wanted = job(folder, batch, source=source)
    opened = data.open_data(wanted)
    promised = spec.units(wanted.key, wanted.seed)
    assert [units_of(opened.batch(step)) for step in range(STEPS)] == list(promised)


def test_auditor_computes_batches_of_a_throughput_run(folder: Path) -> None:
    measured, audited = (data.open_data(job(folder, mode=mode)) for mode in ("throughput", "batches"))
    for step in (0, 10, 109):
        assert digest_arrays(measured.batch(step)) == digest_arrays(audited.batch(step))


@pytest.mark.parametrize("source", ["real", "synthetic"])
def test_batches_are_well_formed(folder: Path, source: str) -> None:
    opened = data.open_data(job(folder, source=source))
    for step in range(STEPS):
        arrays = opened.batch(step)
        assert {array.dtype for array in arrays.values()} == {np.dtype(np.int32)}
        assert (arrays["source"].shape[1], arrays["target_in"].shape[1]) == opened.shape(step)
        assert arrays["target_in"].shape == arrays["target_out"].shape
        assert ((arrays["source"] != spec.PAD).sum(axis=1) == arrays["source_lengths"]).all()
        assert (arrays["source"][:, 0] == spec.BOS).all()
        assert (arrays["target_in"][:, 0] == spec.BOS).all()
        for row, length in enumerate(arrays["target_lengths"]):
            inputs, outputs = arrays["target_in"][row], arrays["target_out"][row]
            assert outputs[length - 1] == spec.EOS
            assert (inputs[1:length] == outputs[: length - 1]).all()
            assert not inputs[length:].any()
            assert not outputs[length:].any()
        assert max(array.max() for array in arrays.values()) < spec.dimensions("mini", "v2").vocabulary


def test_seed_permutes_only_measured_batches(folder: Path) -> None:
    first, second = data.Real(job(folder, seed=1)), data.Real(job(folder, seed=2))

    def content(opened: data.Real, step: int) -> bytes:
        return opened.batch(step)["source"].tobytes()

    for step in range(WARMUP_STEPS):
        assert content(first, step) == content(second, step)
    measured = range(WARMUP_STEPS, STEPS)
    assert {content(first, step) for step in measured} == {content(second, step) for step in measured}
    assert [content(first, step) for step in measured] != [content(second, step) for step in measured]
    assert content(first, STEPS) == content(first, WARMUP_STEPS)  # a tail goes round


def test_synthetic_batches_stay_the_same_and_differ_by_seed() -> None:
    first, again = (data.Synthetic(job("", seed=1, source="synthetic")) for _ in range(2))
    other = data.Synthetic(job("", seed=2, source="synthetic"))
    for step in range(WARMUP_STEPS):
        assert (first.batch(step)["source"] == again.batch(step)["source"]).all()
    assert (first.batch(1)["source"] != other.batch(1)["source"]).any()
    assert {first.slot(step) for step in range(STEPS)} == set(range(spec.BUCKETS))


def test_quality_epoch_reads_each_pair_at_most_once(folder: Path) -> None:
    opened = data.Real(job(folder, mode="quality"))
    seen = [row for step in range(opened.steps_per_epoch) for row in opened._entry(step)[1].tolist()]
    assert len(seen) == len(set(seen)) == opened.steps_per_epoch * 32
    assert opened.steps_per_epoch >= 120  # of 125: the remainder of each bucket is dropped
    following = opened._entry(opened.steps_per_epoch)[1].tolist()
    assert following != opened._entry(0)[1].tolist()


def test_evaluation_covers_every_line_once(folder: Path) -> None:
    batches = list(data.Real(job(folder, mode="quality")).evaluation())
    index = np.concatenate([batch["index"] for batch in batches])
    assert sorted(index.tolist()) == list(range(300))
    lines = (folder / "newstest2014.tok.bpe.32000.en").read_text(encoding="utf-8").splitlines()
    for batch in batches:
        for row, line in enumerate(batch["index"]):
            assert batch["source_lengths"][row] == len(lines[line].split()) + 2
        assert batch["source"].shape[1] % data.EVALUATION_ROUND == 0
    with pytest.raises(ValueError, match="data=real"):
        data.Synthetic(job("", source="synthetic")).evaluation()


def test_words_outside_the_vocabulary_become_unk(tmp_path: Path) -> None:
    (tmp_path / "vocab").write_text("the\nhouse\n", encoding="utf-8")
    (tmp_path / "text").write_text("the red house\n\n", encoding="utf-8")
    ids = index.read_vocabulary(tmp_path / "vocab", 8)
    assert ids == {"the": 4, "house": 5}
    found = [sentence.tolist() for sentence in index.sentences(tmp_path, "text", ids)]
    assert found == [[2, 4, 1, 5, 3], [2, 3]]
    with pytest.raises(BadData, match="vocab: expected at most 1 words, found 2"):
        index.read_vocabulary(tmp_path / "vocab", 5)


def test_dataset_too_small_for_batch_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="fills a batch of 3000"):
        data.Real(job(folder, 3000))


def test_files_that_do_not_belong_together_are_refused(folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    with (tmp_path / "train.tok.clean.bpe.32000.de").open("a", encoding="utf-8") as file:
        file.write("das Haus\n")
    with pytest.raises(BadData, match=r"32000.de: expected 4000 lines as .*en has, found 4001"):
        data.Real(job(tmp_path))


def test_every_shape_of_real_batches_runs_at_setup(folder: Path) -> None:
    opened = data.Real(job(folder))
    chosen = record.RecordingData(opened).first_of_each_shape()
    assert {opened.shape(step) for step in chosen} == {opened.shape(step) for step in range(STEPS)}
    assert len(chosen) == len({opened.shape(step) for step in chosen})
    staged = record.RecordingData(data.Synthetic(job("", source="synthetic")))
    assert len(staged.first_of_each_shape()) == spec.BUCKETS
