"""BLEU of translations against their references, as people write them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.datasets.errors import ScoringError
from suite.datasets.scores import Predictions, Score

ARRAYS = {"tokens": ("i", 2), "index": ("i", 1)}
EOS = 3
_SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")


def score(predictions: Predictions) -> Score:
    """``tokens`` [n, L] ids, ``index`` [n] the positions of the sentences in the test set, each once."""
    return bleu(predictions.folder, predictions.arrays["tokens"], predictions.arrays["index"])


def bleu(folder: Path, tokens: NDArray[np.integer[Any]], index: NDArray[np.integer[Any]]) -> Score:
    """Uncased corpus BLEU (0..100) against ``newstest2014.de``: sacrebleu with -lc --tokenize intl."""
    import sacrebleu  # here, because only this function needs it and it is slow to import

    # As the reader of the sources: a sentence ends at a newline alone, and may be empty.
    references = (folder / "newstest2014.de").read_bytes().decode().removesuffix("\n").split("\n")
    if len(tokens) != len(index) or not np.array_equal(np.sort(index), np.arange(len(references))):
        raise ScoringError(
            f"expected each of the {len(references)} test sentences exactly once, found {len(tokens)} "
            f"with {len(np.unique(index))} different positions."
        )
    hypotheses = [""] * len(references)
    for position, text in zip(index.tolist(), texts(folder, tokens), strict=True):
        hypotheses[position] = text
    result = sacrebleu.corpus_bleu(hypotheses, [references], lowercase=True, tokenize="intl")
    return Score("bleu", float(result.score), {"brevity_penalty": float(result.bp)})


def _lines(file: Path) -> list[str]:
    """The lines of ``file``, split at newlines alone: sentences and entries may hold other separators."""
    return file.read_text("utf-8").rstrip("\n").split("\n")


def texts(folder: Path, tokens: NDArray[np.integer[Any]]) -> list[str]:
    """``tokens`` [n, L] as sentences: cut at the first EOS, BPE joined, detokenised."""
    vocabulary = [*_SPECIALS, *filter(None, _lines(folder / "vocab.bpe.32000"))]
    # A model's vocabulary is padded to a multiple of eight.
    limit = -(-len(vocabulary) // 8) * 8
    if int(tokens.min()) < 0 or int(tokens.max()) >= limit:
        raise ScoringError(f"tokens: expected ids in 0..{limit - 1}, found {tokens.min()}..{tokens.max()}.")
    vocabulary += ["<unk>"] * (limit - len(vocabulary))
    sentences = []
    for row in tokens.tolist():
        ids = row[: row.index(EOS)] if EOS in row else row
        sentences.append(detokenise(" ".join(vocabulary[token] for token in ids)))
    return sentences


_ESCAPES = (("&#124;", "|"), ("&#91;", "["), ("&#93;", "]"), ("&lt;", "<"), ("&gt;", ">"))
_QUOTES = (("&apos;", "'"), ("&quot;", '"'), ("&amp;", "&"))


def detokenise(text: str) -> str:
    """BPE-joined, Moses-tokenised text as people write it, as far as BLEU's tokenisation distinguishes."""
    text = f"{text} ".replace("@@ ", "").replace(" @-@ ", "-").strip()
    for escape, character in (*_ESCAPES, *_QUOTES):
        text = text.replace(escape, character)
    text = re.sub(r" ([.,;:!?%)\]}])", r"\1", text)
    return re.sub(r"([(\[{]) ", r"\1", text)
