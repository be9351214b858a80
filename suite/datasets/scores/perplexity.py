"""Perplexity of a language model on Penn Treebank's test split, from a worker's log likelihoods."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.datasets.errors import ScoringError
from suite.datasets.scores import Predictions, Score

ARRAYS = {"nll": ("f", 1)}
TEST = "ptb.test.txt"
MOST_NATS = 700.0  # a mean whose exponential is still a float
ROUNDING = 1e-4  # how far below 0 a framework may round the negative logarithm of a certainty


def score(predictions: Predictions) -> Score:
    """``nll`` [n], see :func:`perplexity`."""
    return Score("perplexity", perplexity(predictions.folder, predictions.arrays["nll"]), {})


def predicted_tokens(folder: Path) -> int:
    """Tokens of the test split that have a predecessor; the end of a line is a token."""
    lines = (folder / TEST).read_text("utf-8").splitlines()
    return sum(len(line.split()) + 1 for line in lines) - 1


def perplexity(folder: Path, nll: NDArray[np.floating[Any]]) -> float:
    """The exponential of the mean of ``nll`` [n]: each predicted token's negative log likelihood in nats.

    Evaluation with batch 1, the state carried through the whole text (``ptb_word_lm.py`` of TensorFlow's
    tutorial). ScoringError where a token is missing or added, or a number is no likelihood.
    """
    wanted = predicted_tokens(folder)
    if len(nll) != wanted:
        raise ScoringError(f"nll: expected one number for each of {wanted} tokens, found {len(nll)}.")
    if not np.isfinite(nll).all() or float(nll.min()) < -ROUNDING:
        raise ScoringError("nll: expected finite numbers of at least 0, found others.")
    mean = math.fsum(nll.astype(np.float64).tolist()) / wanted
    if mean > MOST_NATS:
        raise ScoringError(
            f"nll: expected a mean of at most {MOST_NATS:g}, found {mean:g}: the model diverged."
        )
    return math.exp(mean)
