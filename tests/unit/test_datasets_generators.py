"""The generated data: pinned bytes, official formats, and the properties that make them learnable."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from suite.common.stream import Stream
from suite.datasets import (
    catalogue as registry,
)
from suite.datasets import (
    cifar_10_mini,
    fixed,
    gratings,
    ml_1m_mini,
    ptb_mini,
    wmt16_mini,
)
from suite.datasets.scores.hr10 import CANDIDATES, ranking


@pytest.fixture(scope="module")
def ratings() -> np.ndarray:
    """[n, 4] user, item, rating, time."""
    lines = ml_1m_mini.generate()["ratings.dat"].decode("ascii").splitlines()
    return np.array([[int(field) for field in line.split("::")] for line in lines])


@pytest.fixture(scope="module")
def text() -> dict[str, list[str]]:
    return {name: data.decode().splitlines() for name, data in wmt16_mini.generate().items()}


@pytest.mark.parametrize("name", sorted(registry.GENERATORS))
def test_generated_bytes_equal_the_rules_digests(name: str) -> None:
    contents = registry.GENERATORS[name].generate()
    entry = registry.entry(name)
    assert len(contents) == entry.count
    # For a dataset of images its lists, which identify each image by its digest.
    listed = {file: data for file, data in contents.items() if entry.images is None or file in entry.files}
    found = {file: (len(data), hashlib.sha256(data).hexdigest()) for file, data in listed.items()}
    assert found == {file: (known.bytes, known.sha256) for file, known in entry.files.items()}
    assert registry.digest_of({file: sha for file, (_, sha) in found.items()}) == entry.digest
    assert entry.bytes == (None if entry.images else sum(size for size, _ in found.values()))
    assert entry.generator == registry.GENERATORS[name].version


@pytest.mark.parametrize("module", [ml_1m_mini, ptb_mini, wmt16_mini])
def test_other_seed_gives_other_data(module: object) -> None:
    generate = module.generate  # type: ignore[attr-defined]
    first, second = generate(seed=1), generate(seed=2)
    assert first.keys() == second.keys()
    assert all(first[name] != second[name] for name in first if not name.startswith("vocab"))


def test_every_rules_file_is_parsed() -> None:
    assert {name for name in registry.names() if name.endswith("-mini")} == set(registry.GENERATORS)
    for name in registry.names():
        entry = registry.entry(name)
        assert entry.name == name
        assert entry.licence
        assert (entry.generator is not None) == (entry.kind == "mini")


def test_datasets_without_digest_have_a_reason() -> None:
    for path in registry.RULES.glob("*/datasets/*.json"):
        data = json.loads(path.read_text())
        nulls = [key for key in ("digest", "bytes", "generator") if data[key] is None]
        assert set(nulls) <= data.get("reasons", {}).keys(), path.name


def test_ratings_have_the_format_of_movielens(ratings: np.ndarray) -> None:
    user, item, rating, time = ratings.T
    assert set(user) == set(range(1, 944))
    assert set(item) == set(range(1, 1001))
    assert set(rating) == {1, 2, 3, 4, 5}
    assert 60_000 <= len(ratings) <= 70_000
    assert Counter(user.tolist()).most_common()[-1][1] >= 20
    assert len({(a, b) for a, b in zip(user.tolist(), item.tolist(), strict=True)}) == len(ratings)
    same = user[1:] == user[:-1]
    assert (time[1:][same] > time[:-1][same]).all(), "the last interaction must be unique"
    assert time.min() > 900_000_000


def popularity_hit_rate(items: np.ndarray, candidates: np.ndarray) -> float:
    """HR@10 of ranking ``candidates`` [users, 100] by how often each occurs in ``items`` (training ids).

    It is the result of a model that has learnt only popularity.
    """
    largest = int(max(items.max(), candidates.max()))
    counts = np.bincount(items, minlength=largest + 1)
    return ranking(counts[candidates].astype(np.float64)).value


def test_popularity_alone_is_far_below_the_target(ratings: np.ndarray) -> None:
    user, item = ratings[:, 0] - 1, ratings[:, 1] - 1
    last = np.append(user[1:] != user[:-1], True)
    assert (user[last] == np.arange(943)).all()
    candidates = np.empty((943, CANDIDATES), np.int64)
    for row in range(943):
        others = np.setdiff1d(np.arange(1000), item[user == row])
        order = Stream("test", "negatives", row).permutation(len(others))
        candidates[row, 0] = item[last][row]
        candidates[row, 1:] = others[order[: CANDIDATES - 1]]
    assert 0.2 < popularity_hit_rate(item[~last], candidates) <= 0.37


def test_parallel_text_is_aligned_and_split(text: dict[str, list[str]]) -> None:
    english, german = text["train.tok.clean.bpe.32000.en"], text["train.tok.clean.bpe.32000.de"]
    assert len(english) == len(german) == 4000
    sources, targets = text["newstest2014.tok.bpe.32000.en"], text["newstest2014.tok.bpe.32000.de"]
    assert len(sources) == len(targets) == len(text["newstest2014.de"]) == 300
    assert len(set(english) | set(sources)) == 4300, "no test sentence may be trained on"
    tokens = Counter(token for line in english + german for token in line.split())
    assert set(text["vocab.bpe.32000"]) == set(tokens)
    assert len(text["vocab.bpe.32000"]) == len(tokens)
    assert {token for line in sources + targets for token in line.split()} <= set(tokens)
    split = sum(count for token, count in tokens.items() if token.endswith("@@"))
    assert 0.1 < split / tokens.total() < 0.3
    assert not any(line.endswith("@@") for line in english + german)
    assert text["newstest2014.de"] == [line.replace("@@ ", "").replace(" .", ".") for line in targets]


def test_german_sentences_agree_and_are_reordered(text: dict[str, list[str]]) -> None:
    """The rules of the grammar, read back from the text: the verb is last, endings follow the noun."""
    article = {"der": "er", "die": "e", "das": "es", "eine": "e"}
    verbs = {"sieht", "findet", "kauft", "verkauft", "malt"}
    agreements = 0
    for line in text["newstest2014.de"]:
        tokens = line.removesuffix(".").split()
        assert tokens[-1] in verbs
        for previous, token in pairwise(tokens):
            if previous in article and token[0].islower():
                assert token.endswith(article[previous])
                agreements += 1
    assert agreements > 100


def test_fixed_point_logarithm_equals_the_logarithm() -> None:
    values = np.array([1, 2, 3, 5, 60, 1000, 65535, 65536, (1 << 31) - 1, 1 << 31, (1 << 32) - 1])
    exact = np.array([math.log2(value) for value in values.tolist()])
    assert np.abs(fixed.log2(values) / fixed.ONE - exact).max() < 2.0**-14
    assert fixed.log2(np.array([1, 2, 1 << 31])).tolist() == [0, fixed.ONE, 31 * fixed.ONE]
    for wrong in (0, -1, 1 << 32):
        with pytest.raises(ValueError, match="log2"):
            fixed.log2(np.array([wrong]))


def test_fixed_point_noise_has_the_moments_of_its_distribution() -> None:
    normal = fixed.normal(Stream("test", "normal"), 200_000) / fixed.ONE
    assert abs(normal.mean()) < 0.01
    assert abs(normal.std() - 1) < 0.01
    gumbel = fixed.gumbel(Stream("test", "gumbel"), 200_000) / fixed.ONE
    assert abs(gumbel.mean() - 0.5772) < 0.015
    assert abs(gumbel.std() - math.pi / math.sqrt(6)) < 0.015


def test_fixed_point_sine_equals_the_sine() -> None:
    angles = np.arange(-100_000, 200_000, 7)
    exact = np.sin(angles / fixed.ONE * 2 * math.pi)
    assert np.abs(fixed.sine(angles) / fixed.ONE - exact).max() < 5e-4
    assert np.abs(fixed.cosine(angles) / fixed.ONE - np.cos(angles / fixed.ONE * 2 * math.pi)).max() < 5e-4
    turn = fixed.ONE
    assert fixed.sine(np.array([0, turn // 2, turn])).tolist() == [0, 0, 0]


def _spectrum(label: int, index: int) -> tuple[float, float]:
    """Angle in degrees, from 0 to 180, and frequency of the strongest wave in a grating of 96 pixels."""
    pixels = gratings.image(("test", index), label, 10, 96, 96).astype(float)
    grey = pixels - pixels.mean(axis=(0, 1))
    power: np.ndarray = (np.abs(np.fft.fft2(grey, axes=(0, 1))) ** 2).sum(axis=2)
    power[:2, :2] = power[:2, -1:] = power[-1:, :2] = power[-1:, -1:] = 0  # the disc is in the lowest ones
    down, right = np.unravel_index(np.argmax(power), power.shape)
    y, x = (int(at) if at < 48 else int(at) - 96 for at in (down, right))
    return math.degrees(math.atan2(y, x)) % 180, math.hypot(x, y)


def test_gratings_have_angle_and_frequency_of_their_class() -> None:
    right = 0
    for label in range(10):
        for index in range(10):
            angle, frequency = _spectrum(label, index)
            off = abs(angle - 22.5 * (label % 5))
            right += min(off, 180 - off) < 15 and abs(frequency - (3, 6)[label >= 5]) < 1.1
    assert right >= 95


def test_generated_cifar_records_have_equal_class_counts() -> None:
    first, second = (cifar_10_mini._batch(seed, "test_batch.bin") for seed in (1, 2))
    records = np.frombuffer(first, np.uint8).reshape(-1, 3073)
    assert np.bincount(records[:, 0]).tolist() == [100] * 10
    assert (records[:20, 0] != records[0, 0]).any(), "classes must not follow each other"
    assert 40 < records[:, 1:].std() < 60
    assert first != second
