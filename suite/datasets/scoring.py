"""Score raw predictions on the host: metric libraries are not in the images, and no worker scores itself."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite import workloads
from suite.datasets import scores_box_ap, scores_top1
from suite.datasets.errors import ScoringError
from suite.datasets.scores_perplexity import perplexity

LARGEST = 1 << 30  # bytes of all arrays together
CANDIDATES = 100  # the held-out positive and 99 negatives
TOP = 10
USERS = {"reference": 6040, "mini": 943}
EOS = 3
_SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")


@dataclass(frozen=True, slots=True)
class Score:
    """The quality metric of the workload, and whatever else its publications report."""

    metric: str
    value: float
    others: Mapping[str, float]


def score(workload: str, dataset_dir: Path, predictions: Path, scale: str) -> Score:
    """The score of a worker's ``.npz`` file; raises :class:`ScoringError` for a file that is not as agreed.

    ``ncf``: ``scores`` [users, 100] float, column 0 the held-out item; every user of the scale's dataset.
    ``gnmt``: ``tokens`` [n, L] ids, ``index`` [n] the places of the sentences in the test set, each once.
    ``faster_rcnn``: see :func:`suite.datasets.scores_box_ap.box_ap`.
    Classifiers: ``top5`` [n, 5] classes, the best first, ``index`` [n] the places of the images, each once.
    ``lstm_ptb``: ``nll`` [n], see :mod:`suite.datasets.scores_perplexity`.
    ``word2vec``: ``vectors`` [n, D], one for each of the most frequent words, in the order of the vocabulary.
    """
    if workload == "ncf":
        scores = load(predictions, {"scores": ("f", 2)})["scores"]
        if len(scores) != USERS[scale]:
            raise ScoringError(f"scores: expected all {USERS[scale]} users, found {len(scores)}.")
        return ranking(scores)
    if workload == "lstm_ptb":
        nll = load(predictions, {"nll": ("f", 1)})["nll"]
        return Score("perplexity", perplexity(dataset_dir, nll), {})
    if workload == "gnmt":
        arrays = load(predictions, {"tokens": ("i", 2), "index": ("i", 1)})
        return bleu(dataset_dir, arrays["tokens"], arrays["index"])
    if workload == "word2vec":
        from suite.datasets import scores_analogy

        return scores_analogy.score(dataset_dir, predictions)
    if workload in workloads.names() and workloads.specification(workload).METRIC == scores_top1.METRIC:
        arrays = load(predictions, {"top5": ("i", 2), "index": ("i", 1)})
        return Score(*scores_top1.accuracy(workload, dataset_dir, arrays, scale))
    if workload == "faster_rcnn":
        found = load(predictions, scores_box_ap.ARRAYS)
        return Score(*scores_box_ap.box_ap(dataset_dir, found, scale))
    raise ScoringError(f"no scoring for workload {workload!r}. Known are {', '.join(workloads.names())}.")


def load(path: Path, wanted: Mapping[str, tuple[str, int]]) -> dict[str, NDArray[Any]]:
    """The arrays ``wanted`` (name -> kind of dtype, number of dimensions); never unpickled, size capped."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > LARGEST:
            raise ScoringError(f"{path.name}: at most {LARGEST} bytes are read, found {size}.")
        with np.load(path, allow_pickle=False) as file:
            if set(file.files) != set(wanted):
                names = sorted(file.files)
                raise ScoringError(f"{path.name}: expected arrays {sorted(wanted)}, found {names}.")
            arrays = {name: np.asarray(file[name]) for name in wanted}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ScoringError(f"{path.name}: expected a plain .npz file, found {error}.") from error
    for name, (kind, dimensions) in wanted.items():
        found = arrays[name]
        if found.dtype.kind != kind or found.ndim != dimensions or not found.size:
            raise ScoringError(
                f"{path.name}: expected {name} of kind {kind} with {dimensions} dimensions and not empty, "
                f"found {found.dtype} {found.shape}."
            )
    return arrays


# Ranking


def ranking(scores: NDArray[np.floating[Any]]) -> Score:
    """HR@10 and NDCG@10 of ``scores`` [users, 100], the positive in column 0 and last in every tie.

    He et al., "Neural Collaborative Filtering", WWW 2017, section 4.1, with the tie rule of MLPerf: a model
    that scores everything alike gets 0, not 1.
    """
    if scores.ndim != 2 or scores.shape[1] != CANDIDATES:
        raise ScoringError(f"scores: expected [users, {CANDIDATES}], found {list(scores.shape)}.")
    if not np.isfinite(scores).all():
        raise ScoringError("scores: expected finite numbers, found NaN or infinity.")
    rank = (scores[:, 1:] >= scores[:, :1]).sum(axis=1)
    hit = rank < TOP
    gain = np.where(hit, 1.0 / np.log2(rank + 2.0), 0.0)
    return Score("hr10", float(hit.mean()), {"ndcg10": float(gain.mean())})


def popularity_hit_rate(items: NDArray[np.integer[Any]], candidates: NDArray[np.integer[Any]]) -> float:
    """HR@10 of ranking ``candidates`` [users, 100] by how often each occurs in ``items`` (training ids).

    The floor that a model which learns nothing but popularity reaches.
    """
    largest = int(max(items.max(), candidates.max()))
    counts = np.bincount(items, minlength=largest + 1)
    return ranking(counts[candidates].astype(np.float64)).value


# Translation


def bleu(folder: Path, tokens: NDArray[np.integer[Any]], index: NDArray[np.integer[Any]]) -> Score:
    """Uncased corpus BLEU (0..100) against ``newstest2014.de``: sacrebleu with -lc --tokenize intl."""
    import sacrebleu  # here, because only this function needs it and it is slow to import

    references = (folder / "newstest2014.de").read_text("utf-8").splitlines()
    if len(tokens) != len(index) or not np.array_equal(np.sort(index), np.arange(len(references))):
        raise ScoringError(
            f"expected each of the {len(references)} test sentences exactly once, found {len(tokens)} "
            f"with {len(np.unique(index))} different places."
        )
    hypotheses = [""] * len(references)
    for place, text in zip(index.tolist(), texts(folder, tokens), strict=True):
        hypotheses[place] = text
    result = sacrebleu.corpus_bleu(hypotheses, [references], lowercase=True, tokenize="intl")
    return Score("bleu", float(result.score), {"brevity_penalty": float(result.bp)})


def texts(folder: Path, tokens: NDArray[np.integer[Any]]) -> list[str]:
    """``tokens`` [n, L] as sentences: cut at the first EOS, BPE joined, detokenised."""
    # split at newlines alone: a vocabulary may hold other separators as entries
    entries = (folder / "vocab.bpe.32000").read_text("utf-8").rstrip("\n").split("\n")
    vocabulary = [*_SPECIALS, *entries]
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
    """BPE-joined, Moses-tokenised text as people write it, as far as BLEU's own tokenisation can see."""
    text = f"{text} ".replace("@@ ", "").replace(" @-@ ", "-").strip()
    for escape, character in (*_ESCAPES, *_QUOTES):
        text = text.replace(escape, character)
    text = re.sub(r" ([.,;:!?%)\]}])", r"\1", text)
    return re.sub(r"([(\[{]) ", r"\1", text)
