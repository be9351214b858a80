"""word2vec's batches: reading, sub-sampling, windows, negatives, shares, purity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suite.contract import BadData, Job, Key
from suite.datasets import text8_mini
from suite.workloads import open_data
from suite.workloads.word2vec import data, spec, text

W, K = 5, 5


def job(folder: Path, *, seed: int = 1, source: str = "real", batch: int = 1000, phase: str = "train") -> Job:
    key = Key("word2vec", "pytorch", phase, "offline", "fp32", batch, 1, "mini", source, "warm", "d100")
    hyper = spec.hyperparameters("mini", "d100")
    return Job(key, "throughput", seed, 0, hyper, "cpu", 1, True, 0, 0, str(folder), "")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("text8-mini")
    for name, content in text8_mini.generate().items():
        (root / name).write_bytes(content)
    return root


@pytest.fixture(scope="module")
def read(folder: Path) -> Any:
    return open_data(job(folder))


def kept(batch: dict[str, Any]) -> int:
    return int(batch["live"][:, 0].sum())


def test_shapes_and_types(read: Any) -> None:
    shapes = {name: (array.shape, array.dtype.name) for name, array in read.batch(0).items()}
    assert shapes == {
        "words": ((875 + 2 * W,), "int32"),
        "targets": ((875, 1 + K), "int32"),
        "contexts": ((875, 2 * W + 1), "float32"),
        "live": ((875, 1 + K), "float32"),
        "word_share": ((875 + 2 * W,), "float32"),
        "target_share": ((875, 1 + K), "float32"),
    }
    assert read.steps_per_epoch == 200
    assert read.slot(0) is None


def test_vocabulary_is_ordered_by_count_then_alphabet(tmp_path: Path) -> None:
    (tmp_path / "text8").write_text(" b a c a b rare d d d")
    words = text.read_words(tmp_path / "text8")
    known = text.vocabulary(words, 2)
    assert list(known.items()) == [(b"d", 3), (b"a", 2), (b"b", 2)]
    assert text.numbered(words, known).tolist() == [2, 1, 1, 2, 0, 0, 0]


def test_epoch_has_every_line_once(read: Any, folder: Path) -> None:
    words = text.read_words(folder / "text8")
    lines = text.numbered(words, text.vocabulary(words, 5)).reshape(200, 1000)

    def of_step(step: int) -> int:
        """The line whose frequent words were dropped and whose rest the step holds."""
        batch = read.batch(step)
        rest = batch["words"][W : W + kept(batch)].tolist()
        (found,) = (at for at, line in enumerate(lines.tolist()) if is_within(rest, line))
        return found

    order = [of_step(step) for step in range(20)]
    assert len(set(order)) == 20
    assert order != list(range(20)), "the order is that of the text"
    assert [of_step(step) for step in range(200, 205)] != order[:5], "epochs repeat each other"


def is_within(rest: list[int], line: list[int]) -> bool:
    """Whether ``rest`` is ``line`` with words left out."""
    words = iter(line)
    return all(word in words for word in rest)


def test_queries_repeat_only_after_whole_vocabulary(folder: Path) -> None:
    for batch in (1, 1000):
        asked = open_data(job(folder, phase="infer", batch=batch))
        found = np.concatenate([asked.batch(step)["queries"] for step in range(2600 // batch)])
        for start in range(0, len(found) - 1299, 1300):
            assert sorted(found[start : start + 1300].tolist()) == list(range(1300))
        assert found.dtype == np.int32
        assert found[:1300].tolist() != list(range(1300))


def test_sub_sampling_keeps_what_the_specification_expects(read: Any) -> None:
    batches = [read.batch(step) for step in range(100)]
    assert np.mean([kept(batch) for batch in batches]) / 1000 == pytest.approx(0.776, abs=0.005)
    pairs = np.mean([batch["contexts"].sum() for batch in batches])
    key = job(Path()).key
    assert pairs == pytest.approx(spec.expected_pairs(key), rel=0.015)
    assert max(kept(batch) for batch in batches) < 875, "a step dropped words for want of room"


def test_surplus_words_are_dropped_and_padding_is_masked() -> None:
    pairs = data.Pairs(job(Path(), batch=100), np.full(1300, 10))
    words = np.arange(100, dtype=np.int32)
    full = pairs.arrays(words, np.zeros(100, np.int64), 1)  # no word is frequent: all are kept
    assert kept(full) == 88
    assert full["words"][W:-W].tolist() == list(range(88))
    part = pairs.arrays(words[:40], np.zeros(40, np.int64), 1)
    assert kept(part) == 40
    assert not part["live"][40:].any()
    assert not part["contexts"][40:].any()
    assert not part["contexts"][:, W].any(), "a centre is not one of its contexts"


def test_windows_are_uniform_and_end_with_the_line() -> None:
    pairs = data.Pairs(job(Path(), batch=8000), np.full(1300, 10))
    lines = np.arange(7000) // 100
    contexts = pairs.arrays(np.zeros(7000, np.int32), lines, 1)["contexts"]
    inner = contexts[(np.arange(7000) % 100 >= W) & (np.arange(7000) % 100 < 100 - W)]
    assert (inner == inner[:, ::-1]).all(), "as many words before as after"
    radius = np.bincount(inner.sum(axis=1).astype(int) // 2)
    assert radius[0] == 0
    assert np.abs(radius[1:] / len(inner) - 0.2).max() < 0.02
    assert not contexts[::100, :W].any()
    assert not contexts[99::100, W + 1 :].any()
    assert contexts[0, W + 1] == 1


def test_negatives_follow_the_noise_and_skip_the_centre(read: Any) -> None:
    counts = np.array([10_000, 625, 16, 1])
    shares = np.bincount(data.noise_table(counts), minlength=4) / data.NOISE
    np.testing.assert_allclose(shares, counts**0.75 / (counts**0.75).sum(), atol=1e-6)
    batch = read.batch(0)
    rows = kept(batch)
    same = batch["targets"][:rows, 1:] == batch["targets"][:rows, :1]
    assert same.any()
    assert ((batch["live"][:rows, 1:] == 0) == same).all()
    assert (batch["targets"][:rows, 0] == batch["words"][W : W + rows]).all()


def test_sub_sampling_follows_word2vec_c() -> None:
    counts = np.array([90_000, 9_900, 100])
    x = counts / 100_000 / 1e-3
    np.testing.assert_allclose(data.kept_shares(counts, 1e-3), (np.sqrt(x) + 1) * 1 / x, rtol=1e-12)
    assert data.kept_shares(counts, 1e-3)[2] > 1


def test_shares_count_the_pairs_of_each_row(read: Any) -> None:
    batch = read.batch(0)
    uses: dict[str, dict[int, float]] = {"word_share": {}, "target_share": {}}
    for centre in range(875):
        positions = np.flatnonzero(batch["contexts"][centre])
        for position in positions:
            word = int(batch["words"][centre + position])
            uses["word_share"][word] = uses["word_share"].get(word, 0) + 1
        for target, live in zip(batch["targets"][centre].tolist(), batch["live"][centre], strict=True):
            uses["target_share"][target] = uses["target_share"].get(target, 0) + live * len(positions)
    for name, ids in (("word_share", batch["words"]), ("target_share", batch["targets"])):
        expected = [min(1, 32 / max(uses[name].get(word, 0), 1)) for word in ids.reshape(-1).tolist()]
        np.testing.assert_allclose(batch[name].reshape(-1), expected, rtol=1e-6)
    assert batch["word_share"].min() < 1


def test_batch_is_pure_function_of_seed_and_step(read: Any, folder: Path) -> None:
    later, first, fresh = read.batch(601), read.batch(0), open_data(job(folder))
    assert all((fresh.batch(601)[name] == later[name]).all() for name in later)
    assert all((fresh.batch(0)[name] == first[name]).all() for name in first)
    assert (open_data(job(folder, seed=2)).batch(0)["targets"] != first["targets"]).any()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("one two\nthree", r"found byte 0x0a at 7 \(line 1"),
        ("one Two", "found byte 0x54 at 4"),
        ("one two", "text8: expected 1300 words that occur 5 times, found 0"),
    ],
)
def test_error_explains_bad_text(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "text8").write_text(content)
    with pytest.raises(BadData, match=message):
        open_data(job(tmp_path))


def test_batch_larger_than_epoch_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="at most the 200000 words of an epoch, found 300000"):
        open_data(job(folder, batch=300_000))


def test_synthetic_data_are_one_batch_for_every_seed(tmp_path: Path) -> None:
    one, other = (open_data(job(tmp_path, source="synthetic", seed=seed)) for seed in (1, 2))
    assert one.slot(0) == one.slot(77) == 0
    assert all((one.batch(0)[name] == other.batch(50)[name]).all() for name in one.batch(0))
    queries = open_data(job(tmp_path, source="synthetic", phase="infer", batch=20_000)).batch(0)["queries"]
    assert (queries == 0).mean() == pytest.approx(1 / 7.75, abs=0.01)  # 1 over the harmonic number of 1300
    with pytest.raises(ValueError, match="data=real"):
        next(one.evaluation())
