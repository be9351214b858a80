"""word2vec in gensim, as its users run it: skip-gram from a file, beside which the suite's pair is timed.

    python -m peers.gensim_word2vec --variant d100 --threads 2

Needs gensim in an environment of its own (``pip install gensim``). The text is the suite's synthetic one, or
``--text`` a text8; the model, window, negatives, sub-sampling and rate are those of the specification.
Reading the file, pairing and training are timed, the vocabulary is not.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gensim.models import Word2Vec

from peers.arm import timed
from suite.workloads.word2vec import data, spec, text


def lines(words: list[str]) -> Iterator[str]:
    """Lines of as many words as the suite's windows may cross."""
    for start in range(0, len(words), spec.LINE):
        yield " ".join(words[start : start + spec.LINE]) + "\n"


def corpus(options: argparse.Namespace, vocabulary: int) -> tuple[list[str], dict[str, int]]:
    """The words to train on, and how often each word of the vocabulary occurs."""
    if options.text:
        found = text.read_words(options.text)
        known = {word.decode(): count for word, count in text.vocabulary(found, spec.MIN_COUNT).items()}
        return [word.decode() for word in found[: options.words]], known
    drawn, counts = data.zipf(vocabulary, options.words)
    names = [f"w{rank}" for rank in range(vocabulary)]
    return [names[word] for word in drawn], dict(zip(names, counts.tolist(), strict=True))


def main() -> None:
    """Train once over the words and print one JSON line: words per second of wall and of processor time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--scale", choices=tuple(spec.VARIANTS), default="reference")
    parser.add_argument("--variant", choices=spec.VARIANTS["reference"], default="d200")
    parser.add_argument("--words", type=int, default=2_000_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--text", type=Path, help="a text8 file; else synthetic words")
    options = parser.parse_args()
    dims = spec.dimensions(options.scale, options.variant)
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
    report = {"side": "gensim", "steps": 1, "units": len(words), "wall_s": times.wall, "cpu_s": times.cpu}
    print(json.dumps({**report, "others_s": times.others, "parameters": 2 * dims.vocabulary * dims.width}))


if __name__ == "__main__":
    main()
