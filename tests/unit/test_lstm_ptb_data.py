"""The language model's text: consecutive windows, the vocabulary, the known entropy, the score."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suite import rules
from suite.contract import STEPS, BadData, Job, Key
from suite.datasets import ptb_mini, scores
from suite.datasets.errors import ScoringError
from suite.rules.targets import impossible, reaches
from suite.workloads.lstm_ptb import data, spec


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The generated dataset."""
    root = tmp_path_factory.mktemp("ptb-mini")
    for name, content in ptb_mini.generate().items():
        (root / name).write_bytes(content)
    return root


def job(
    folder: Path | str, batch: int = 20, seed: int = 5, source: str = "real", mode: str = "throughput"
) -> Job:
    """A training job at mini scale."""
    key = Key("lstm_ptb", "pytorch", "train", "offline", "fp32", batch, 1, "mini", source, "warm", "small")
    hyper = spec.hyperparameters("mini", "small")
    return Job(key, mode, seed, 0, hyper, "cpu", 1, True, 0, 0, str(folder), "")


def tokens(folder: Path, split: str) -> list[str]:
    return (folder / f"ptb.{split}.txt").read_text().replace("\n", " <eos> ").split()


@pytest.mark.parametrize("batch", spec.BATCHES["mini"])
def test_window_continues_previous_window(folder: Path, batch: int) -> None:
    opened = data.Text(job(folder, batch))
    words = tokens(folder, "train")
    vocabulary = data.make_vocabulary(data.read_lines(folder / "ptb.train.txt"))
    ids = np.array([vocabulary[word] for word in words])
    length = len(words) // batch
    for step in (0, 1, 2, opened.steps_per_epoch - 1):
        found = opened.batch(step)
        assert {array.dtype for array in found.values()} == {np.dtype(np.int32)}
        for row in range(batch):
            at = row * length + step * 20
            np.testing.assert_array_equal(found["inputs"][row], ids[at : at + 20])
            np.testing.assert_array_equal(found["targets"][row], ids[at + 1 : at + 21])
    again = opened.batch(opened.steps_per_epoch)
    np.testing.assert_array_equal(again["inputs"], opened.batch(0)["inputs"])


def test_epoch_length_matches_schedule(folder: Path) -> None:
    assert data.Text(job(folder)).steps_per_epoch == int(spec.hyperparameters("mini", "small")["epoch_steps"])
    # of the published text: 929,589 tokens
    for variant in spec.VARIANTS["reference"]:
        steps = spec.dimensions("reference", variant).steps
        wanted = int(spec.hyperparameters("reference", variant)["epoch_steps"])
        assert (929_589 // 20 - 1) // steps == wanted
        assert (929_589 // max(spec.BATCHES["reference"]) - 1) // steps >= STEPS


def test_vocabulary_is_ordered_by_frequency_then_alphabet() -> None:
    lines = [["b", "a", "c"], ["c", "b"], ["c", "c"]]
    assert data.make_vocabulary(lines) == {"c": 0, "<eos>": 1, "b": 2, "a": 3}


def test_evaluation_predicts_every_token_except_first(folder: Path) -> None:
    (arrays,) = data.Text(job(folder, mode="quality")).evaluation()
    count = len(arrays["tokens"])
    assert count == len(tokens(folder, "test"))
    pieces = list(data.windows(arrays["tokens"], 20))
    assert {piece["inputs"].shape for piece in pieces} == {(1, 20)}
    inputs = np.concatenate([piece["inputs"][0] for piece in pieces])[: count - 1]
    targets = np.concatenate([piece["targets"][0] for piece in pieces])[: count - 1]
    np.testing.assert_array_equal(inputs, arrays["tokens"][:-1])
    np.testing.assert_array_equal(targets, arrays["tokens"][1:])
    with pytest.raises(ValueError, match="data=real"):
        data.Synthetic(job("", source="synthetic")).evaluation()


def test_synthetic_ids_are_like_text() -> None:
    first, again = (data.Synthetic(job("", seed=1, source="synthetic")).batch(0) for _ in range(2))
    other = data.Synthetic(job("", seed=2, source="synthetic")).batch(3)
    np.testing.assert_array_equal(first["inputs"], again["inputs"])
    assert (first["inputs"] != other["inputs"]).any()
    np.testing.assert_array_equal(first["inputs"][:, 1:], first["targets"][:, :-1])
    assert 0 <= first["inputs"].min() < first["inputs"].max() < 400
    assert (first["inputs"] < 40).mean() == pytest.approx(0.46, abs=0.08)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("ptb.train.txt", b" a b \n", "ptb.train.txt: expected 400 different words, found 3"),
        ("ptb.train.txt", b"\n\n", "ptb.train.txt: expected text, found no words"),
        ("ptb.test.txt", b"", "ptb.test.txt: expected text, found no words"),
        (
            "ptb.test.txt",
            b" la la \n la nowhere \n",
            "ptb.test.txt line 2: expected words of ptb.train.txt, found 'nowhere'",
        ),
        ("ptb.test.txt", b" \xff \n", "ptb.test.txt: expected UTF-8 text"),
    ],
)
def test_error_explains_bad_file(
    folder: Path, tmp_path: Path, file: str, content: bytes, message: str
) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(content if path.name == file else path.read_bytes())
    with pytest.raises(BadData, match=message):
        data.Text(job(tmp_path))


def test_text_too_short_for_batch_is_refused(folder: Path) -> None:
    with pytest.raises(BadData, match=r"at least 110 windows of 20 tokens, found 49 .* batch of 100"):
        data.Text(job(folder, 100))
    assert data.Text(job(folder, 100, mode="quality")).steps_per_epoch == 49


# Entropy


def likelihoods(folder: Path) -> np.ndarray:
    """Negative log likelihoods of the test tokens under the chain that made them."""
    successors, ends = ptb_mini.chain()
    odds = np.diff(ends, axis=1, prepend=0) / ends[0, -1]
    names = {ptb_mini._word(index): index + 1 for index in range(ptb_mini.WORDS)} | {"<eos>": 0}
    states = [names[word] for word in tokens(folder, "test")]
    likely = [odds[a][successors[a] == b].sum() for a, b in pairwise(states)]
    return -np.log(np.array(likely))


def test_best_perplexity_is_that_of_generating_chain(folder: Path) -> None:
    entry = rules.load("practice").dataset("ptb-mini")
    best = ptb_mini.best_perplexity()
    assert float(entry["best_perplexity"]) == pytest.approx(best, abs=1e-4)
    assert math.exp(likelihoods(folder).mean()) == pytest.approx(best, rel=0.03)


def test_target_lies_between_best_and_unigram_perplexity(folder: Path) -> None:
    wanted = rules.load("practice").workload("lstm_ptb")["quality"]["small"]
    best, target = ptb_mini.best_perplexity(), float(wanted["target"])
    assert target == pytest.approx(1.4 * best, abs=0.01)
    chain = math.exp(likelihoods(folder).mean())
    assert float(wanted["bound"]) < 0.98 * chain
    assert reaches(chain, wanted)
    assert not impossible(chain, wanted)
    counts = Counter(tokens(folder, "train"))
    shares = np.array([counts[word] for word in tokens(folder, "test")]) / counts.total()
    unigram = math.exp(-np.log(shares).mean())
    assert unigram > 20 * target
    assert not reaches(unigram, wanted)
    assert impossible(5.0, wanted)
    higher = {"target": "0.75"}
    assert [reaches(value, higher) for value in (0.74, 0.75)] == [False, True]
    assert not impossible(1e9, higher)


def test_generated_lines_resemble_treebank(folder: Path) -> None:
    assert len(set(tokens(folder, "train"))) == spec.dimensions("mini", "small").vocabulary == 400
    for split, least in ptb_mini.TOKENS.items():
        assert least <= len(tokens(folder, split)) < least + 400
        lines = (folder / f"ptb.{split}.txt").read_text().split("\n")
        assert lines.pop() == ""
        assert all(line.startswith(" ") and line.endswith(" ") and line.strip() for line in lines)


# Score


def saved(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def test_perplexity_of_known_likelihoods(folder: Path, tmp_path: Path) -> None:
    count = len(tokens(folder, "test")) - 1
    path = saved(tmp_path / "p.npz", nll=np.full(count, math.log(400), np.float32))
    found = scores.score("lstm_ptb", folder, path, "mini")
    assert found.metric == spec.METRIC
    assert found.value == pytest.approx(400, rel=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda nll: nll[:-1], "each of 10014 tokens, found 10013"),
        (lambda nll: np.append(nll, 1), "found 10015"),
        (lambda nll: np.where(np.arange(len(nll)) == 7, -1, nll), "at least 0"),
        (lambda nll: np.where(np.arange(len(nll)) == 7, np.nan, nll), "finite"),
        (lambda nll: nll.astype(int), "kind f"),
        (lambda nll: 800 * nll, "a mean of at most 700, found 800"),
    ],
)
def test_invalid_likelihoods_are_refused(folder: Path, tmp_path: Path, change: Any, message: str) -> None:
    path = saved(tmp_path / "p.npz", nll=change(np.ones(len(tokens(folder, "test")) - 1)))
    with pytest.raises(ScoringError, match=message):
        scores.score("lstm_ptb", folder, path, "mini")
