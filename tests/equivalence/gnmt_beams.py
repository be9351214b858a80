"""GNMT's beam search in one framework's interpreter, beside a plain search over the same step scores.

``python -m tests.equivalence.gnmt_beams FRAMEWORK FILE`` writes, in float64 and float32, translations with
five beams and with one, the greedy ones, and those of :func:`plain_search`. The weights are large enough that
translations differ, and EOS likely enough that half of them end.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

from suite.common import weights
from suite.workloads.gnmt import spec
from tests.equivalence.case import load
from tests.equivalence.cases.gnmt import END, sentences
from tests.equivalence.runner import build

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = dict[str, NDArray[Any]]

COUNT, BEAMS, LIMIT = 8, 5, 28
SCALE, EOS_BIAS = 8.0, 1.0
_initial = weights.initial


def large_weights(*arguments: Any) -> Iterator[tuple[str, NDArray[Any]]]:
    """The initial weights times ``SCALE``, with a preference for EOS and unchanged softness of attention."""
    for name, array in _initial(*arguments):
        array = array * (1.0 if name == "attention.g" else SCALE)
        if name == "classifier.bias":
            array[spec.EOS] += EOS_BIAS
        yield name, array


def sources(dims: spec.Dimensions) -> Arrays:
    """Sentences of different lengths."""
    rows = sentences(dims.vocabulary, COUNT, "beams")
    padded = np.zeros((COUNT, END), np.int32)
    for row, sentence in zip(padded, rows, strict=True):
        row[: len(sentence)] = sentence
    lengths = np.array([len(row) for row in rows], np.int32)
    return {"source": padded, "source_lengths": lengths, "index": np.arange(COUNT)}


def greedy(pair: Any, arrays: Arrays) -> NDArray[Any]:
    """The tokens of throughput runs, in which EOS does not stop a sentence."""
    inputs = {name: arrays[name] for name in ("source", "source_lengths")}
    inputs["target_in"] = np.zeros((COUNT, LIMIT), np.int32)
    inputs["target_lengths"] = np.full(COUNT, LIMIT, np.int32)
    batch = {name: pair.framework.tensor(array) for name, array in inputs.items()}
    found: NDArray[Any] = pair.framework.array(pair.run(batch, None))
    return found


def plain_search(pair: Any, arrays: Arrays, row: int) -> list[int]:
    """The best translation of sentence ``row``, searched in lists; the decoder only scores next tokens."""
    decoder = pair.decoder({name: arrays[name][row : row + 1] for name in ("source", "source_lengths")})
    alpha, beta = pair.job.number("length_penalty"), pair.job.number("coverage_penalty")
    beams: list[tuple[float, list[int]]] = [(0.0, [spec.BOS])]
    parents = [0]
    covered = [[0.0] * END for _ in range(BEAMS)]
    for _ in range(LIMIT):
        if all(tokens[-1] == spec.EOS for _, tokens in beams):
            break
        last = [tokens[-1] for _, tokens in beams]
        filled = np.array([last + [spec.EOS] * (BEAMS - len(last))], np.int32)
        moves = np.array([parents + [0] * (BEAMS - len(parents))], np.int32)
        log_p, attention, *_ = (pair.framework.array(part) for part in decoder.scores(filled, moves))
        candidates = []
        for beam, (total, tokens) in enumerate(beams):
            if tokens[-1] == spec.EOS:
                candidates.append((total, [*tokens, spec.EOS], beam, 0))
                continue
            covered[beam] = [
                old + float(new) for old, new in zip(covered[beam], attention[0][beam], strict=True)
            ]
            gains = [float(gain) for gain in log_p[beam]]
            best = sorted(range(len(gains)), key=lambda token: (-rounded(gains[token]), token))[:BEAMS]
            candidates += [
                (total + gains[token], [*tokens, token], beam, rank) for rank, token in enumerate(best)
            ]
        candidates.sort(key=lambda candidate: (-rounded(candidate[0]), candidate[2], candidate[3]))
        beams = [(total, tokens) for total, tokens, *_ in candidates[:BEAMS]]
        parents = [beam for *_, beam, _ in candidates[:BEAMS]]
    finals = [total for total, _ in beams]
    if all(tokens[-1] == spec.EOS for _, tokens in beams):
        finals = []
        for beam, (total, tokens) in enumerate(beams):
            length = tokens.index(spec.EOS) + 1
            log_covered = [math.log(min(seen, 1.0)) for seen in covered[beam] if seen > 0.0]
            finals.append(total / ((5.0 + length) / 6.0) ** alpha + beta * sum(log_covered))
    winner = min(range(len(beams)), key=lambda beam: (-rounded(finals[beam]), beam))
    return cut(beams[winner][1][1:])


def rounded(score: float) -> int:
    """A score in steps of 1/4096."""
    return math.floor(score * 4096 + 0.5)


def cut(tokens: list[int]) -> list[int]:
    """The tokens up to EOS."""
    return tokens[: tokens.index(spec.EOS) + 1] if spec.EOS in tokens else tokens


def rows(found: list[list[int]]) -> NDArray[np.int32]:
    """Ragged tokens as [n, LIMIT], cut at EOS and padded."""
    table = np.full((len(found), LIMIT), spec.PAD, np.int32)
    for row, tokens in zip(table, found, strict=True):
        kept = cut(tokens)
        row[: len(kept)] = kept
    return table


def main(framework: str, file: str) -> None:
    """See the module."""
    case = load("gnmt")
    case.compile_quickly(framework)  # in float32 too: the search does not depend on what compilers optimise
    found: dict[str, Any] = {}
    with mock.patch.object(weights, "initial", large_weights):
        for precision in ("fp64", "fp32"):
            wide = build(case, case.job(framework, precision, "infer", beam=str(BEAMS)))
            narrow = build(case, case.job(framework, precision, "infer", beam="1"))
            arrays = sources(wide.dims)
            found[f"{precision}/beam"] = rows(wide.predict(arrays)["tokens"].tolist())
            found[f"{precision}/plain"] = rows([plain_search(wide, arrays, row) for row in range(COUNT)])
            found[f"{precision}/one"] = rows(narrow.predict(arrays)["tokens"].tolist())
            found[f"{precision}/greedy"] = rows(greedy(narrow, arrays).tolist())
    np.savez(file, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
