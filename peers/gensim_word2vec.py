"""word2vec in gensim, as its users run it: skip-gram from a file. The suite's pair is compared with it.

    python -m peers.gensim_word2vec --variant d100 --threads 2

Needs gensim in a separate environment (``pip install gensim``). The text is the suite's synthetic one, or
``--text`` a text8; the model, window, negatives, sub-sampling and rate are those of the specification.
Reading the file, pairing and training are timed, the vocabulary is not.

``--phase infer`` asks ``most_similar`` for the nearest words among random vectors of the same sizes. It takes
one query per call, where the suite takes a batch, because gensim has no other interface.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from gensim.models import KeyedVectors, Word2Vec

from peers.arm import SpanTimes, timed
from suite.workloads.word2vec import data, spec, text


def lines(words: list[str]) -> Iterator[str]:
    """Lines with the number of words that the suite's windows may cross."""
    for start in range(0, len(words), spec.LINE):
        yield " ".join(words[start : start + spec.LINE]) + "\n"


def corpus(options: argparse.Namespace, vocabulary: int) -> tuple[list[str], dict[str, int]]:
    """The words to train on, and how often each word of the vocabulary occurs."""
    if options.text:
        words = text.read_words(options.text)
        counts_by_word = {word.decode(): n for word, n in text.vocabulary(words, spec.MIN_COUNT).items()}
        return [word.decode() for word in words[: options.words]], counts_by_word
    drawn, counts = data.zipf(vocabulary, options.words)
    names = [f"w{rank}" for rank in range(vocabulary)]
    return [names[word] for word in drawn], dict(zip(names, counts.tolist(), strict=True))


def trained(options: argparse.Namespace, dims: spec.Dimensions) -> tuple[int, SpanTimes]:
    """The number of words trained on once, and the times."""
    hyper = spec.hyperparameters(options.scale, options.variant)
    words, counts = corpus(options, dims.vocabulary)
    model = Word2Vec(
        sg=1,
        hs=0,
        vector_size=dims.width,
        window=dims.window,
        negative=dims.negatives,
        sample=float(hyper["sample"]),
        alpha=float(hyper["rate"]),
        min_count=1,
        workers=options.threads,
    )
    model.build_vocab_from_freq(counts, corpus_count=len(words))
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.writelines(lines(words))
        file.flush()
        times, _ = timed(
            lambda first, steps: model.train(corpus_file=file.name, total_words=len(words), epochs=1), 0, 1
        )
    return len(words), times


def answered(options: argparse.Namespace, dims: spec.Dimensions) -> tuple[int, SpanTimes]:
    """The number of queries answered in about ``--seconds``, and the times; norms are computed before."""
    vectors = KeyedVectors(dims.width)
    rows = np.random.default_rng(1).standard_normal((dims.vocabulary, dims.width), np.float32)
    vectors.add_vectors([f"w{rank}" for rank in range(dims.vocabulary)], rows)

    def ask(first: int, queries: int) -> None:
        for rank in range(first, first + queries):
            vectors.most_similar(f"w{rank % dims.vocabulary}", topn=spec.NEIGHBOURS)

    ask(0, 3)  # computes the norms
    start = time.perf_counter()
    ask(3, 10)
    queries = max(10, round(options.seconds / (time.perf_counter() - start) * 10))
    times, _ = timed(ask, 13, queries)
    return queries, times


def main() -> None:
    """Train once or answer queries, and print one JSON line with units, wall and processor seconds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--phase", choices=("train", "infer"), default="train")
    parser.add_argument("--scale", choices=tuple(spec.VARIANTS), default="reference")
    parser.add_argument("--variant", choices=spec.VARIANTS["reference"], default="d200")
    parser.add_argument("--words", type=int, default=2_000_000)
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds of queries")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--text", type=Path, help="a text8 file (default: synthetic words)")
    options = parser.parse_args()
    dims = spec.dimensions(options.scale, options.variant)
    count, times = (trained if options.phase == "train" else answered)(options, dims)
    report = {"side": "gensim", "steps": 1, "units": count, "wall_s": times.wall, "cpu_s": times.cpu}
    tables = 2 * dims.vocabulary * dims.width
    print(json.dumps({**report, "others_s": times.others, "parameters": tables}))


if __name__ == "__main__":
    main()
