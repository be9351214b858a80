"""Accuracy against labels that the host reads from the dataset itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from suite.datasets import scores
from suite.datasets.errors import DatasetCorrupt, ScoringError
from suite.datasets.scores import top1
from suite.workloads import specification
from suite.workloads._classification.sources import validation_labels
from tests.fixtures import image_files

LABELS = np.array([0, 0, 1, 1, 2, 2, 3, 3])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return image_files.with_lists(image_files.folders(tmp_path_factory.mktemp("data")))


def predicted(first: np.ndarray) -> np.ndarray:
    """[n, 4] all classes, ``first`` before the others."""
    return (first[:, None] + np.arange(4)) % 4


def save(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


def score(folder: Path, tmp_path: Path, **arrays: np.ndarray) -> scores.Score:
    return scores.score("resnet50", folder, save(tmp_path / "p.npz", **arrays), "mini")


def test_known_answers_are_scored_in_any_order(folder: Path, tmp_path: Path) -> None:
    order = np.array([3, 1, 0, 2, 7, 5, 4, 6])
    guess = LABELS.copy()
    guess[[0, 4, 5]] = (guess[[0, 4, 5]] + 1) % 4
    found = score(folder, tmp_path, top5=predicted(guess)[order], index=order)
    assert (found.metric, found.value) == ("top1", 5 / 8)
    assert found.others == {"top5": 1.0}, "four classes are all among the first five"
    assert found.metric == specification("resnet50").METRIC


def test_constant_answer_scores_like_chance(folder: Path, tmp_path: Path) -> None:
    assert score(folder, tmp_path, top5=predicted(np.zeros(8, int)), index=np.arange(8)).value == 1 / 4


def test_top5_counts_the_first_five_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top1, "_labels", lambda folder, classes: np.arange(10))
    best = (np.arange(10)[:, None] + np.arange(5)) % 1000
    best[3] = best[3][[4, 1, 2, 3, 0]]
    best[4] += 100
    arrays = {"top5": best, "index": np.arange(10)}
    found = top1.score(scores.Predictions("resnet50", "reference", tmp_path, arrays))
    assert found == scores.Score("top1", 0.8, {"top5": 0.9})


GOOD = {"top5": predicted(LABELS), "index": np.arange(8)}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (GOOD | {"index": np.array([0, 1, 2, 3, 4, 5, 6, 6])}, "exactly once"),
        (GOOD | {"index": np.arange(8) + 1}, "exactly once"),
        (GOOD | {"index": np.arange(8) - 1}, "exactly once"),
        ({"top5": predicted(LABELS)[:7], "index": np.arange(7)}, "exactly once"),
        ({"top5": predicted(np.tile(LABELS, 2)), "index": np.arange(16)}, "exactly once"),
        (GOOD | {"top5": predicted(LABELS)[:7]}, "as index has it"),
        (GOOD | {"top5": predicted(LABELS)[:, :1]}, "as index has it"),
        (GOOD | {"top5": predicted(LABELS) + 1}, r"classes in 0\.\.3"),
        (GOOD | {"top5": predicted(LABELS) - 1}, r"classes in 0\.\.3"),
        (GOOD | {"top5": np.zeros((8, 4), int)}, "different classes"),
        (GOOD | {"top5": predicted(LABELS).astype(float)}, "kind i"),
        (GOOD | {"more": np.zeros(1)}, "expected arrays"),
    ],
)
def test_other_arrays_are_refused(
    folder: Path, tmp_path: Path, arrays: dict[str, np.ndarray], message: str
) -> None:
    with pytest.raises(ScoringError, match=message) as caught:
        score(folder, tmp_path, **arrays)
    assert caught.value.exit_code == 24


def test_cifar_labels_are_the_first_bytes_of_the_records(tmp_path: Path) -> None:
    image_files.records(tmp_path)
    assert validation_labels(tmp_path, 10).tolist() == [number % 10 for number in range(30)]


def test_unreadable_labels_are_reported_as_corrupt_dataset(tmp_path: Path) -> None:
    with pytest.raises(DatasetCorrupt, match=r"train\.txt: expected a list"):
        score(tmp_path, tmp_path, **GOOD)
