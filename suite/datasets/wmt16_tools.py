"""The steps of WMT16's recipe that need libraries, in a separate environment (requirements/data.txt).

``python -m suite.datasets.wmt16_tools tokenise LANGUAGE IN OUT``, ``learn MERGES OUT IN...``,
``apply CODES IN OUT`` or ``vocabulary OUT IN...``. Prints lines with the number of processed bytes of input.

The recipe calls Moses' ``tokenizer.perl`` at commit 8c5eaa1a and subword-nmt at 48ba99e6. Here sacremoses
0.2.0 tokenises: it has Moses' rules from August 2016 (a comma behind a number at the end of the line is split
off) to November 2018 (from then on Moses always splits a full stop there; sacremoses has the older rule); the
recipe with that commit was published in between. docs/workloads.md describes the comparison.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from suite.datasets.wmt16_text import ENCODING

_LINES = 2000  # of one task
_work: Callable[[str], str]  # the function that the processes apply to a line


def main(arguments: list[str]) -> None:
    """See the module."""
    task, *rest = arguments
    tasks: dict[str, Callable[..., None]] = {
        "tokenise": tokenise,
        "learn": learn,
        "apply": apply,
        "vocabulary": vocabulary,
    }
    tasks[task](*rest)


def tokenise(language: str, source: str, target: str) -> None:
    """Moses tokens of every line, special characters escaped; a line without words stays as it is."""
    from sacremoses import MosesTokenizer

    tokenizer = MosesTokenizer(language)

    def work(line: str) -> str:
        text: str = tokenizer.tokenize(line, return_str=True) if line.strip() else line.removesuffix("\n")
        return text + "\n"

    _in_parallel(work, source, target)


def learn(merges: str, target: str, *sources: str) -> None:
    """Byte-pair merges over all sources together."""
    from subword_nmt.learn_bpe import learn_bpe

    with Path(target).open("w", encoding="utf-8", newline="\n") as out:
        learn_bpe(_lines(sources), out, int(merges))


def apply(codes: str, source: str, target: str) -> None:
    """Every line in byte-pair tokens."""
    from subword_nmt.apply_bpe import BPE

    with Path(codes).open(encoding="utf-8", newline="\n") as file:
        bpe = BPE(file)
    _in_parallel(bpe.process_line, source, target)


def vocabulary(target: str, *sources: str) -> None:
    """The tokens of all sources by falling frequency, those of equal frequency in order of appearance."""
    from subword_nmt.get_vocab import get_vocab

    counted = io.StringIO()
    get_vocab(_lines(sources), counted)
    words = (line.partition(" ")[0] for line in counted.getvalue().split("\n") if line)
    with Path(target).open("w", encoding="utf-8", newline="\n") as out:
        out.writelines(f"{word}\n" for word in words)


def _lines(sources: Iterable[str]) -> Iterator[str]:
    """The lines of several files; prints the number of processed bytes."""
    done = 0
    for source in sources:
        with Path(source).open(**ENCODING) as lines:  # type: ignore[call-overload]
            while part := list(islice(lines, _LINES)):
                yield from part
                done += _size(part)
                print(done, flush=True)


def _in_parallel(work: Callable[[str], str], source: str, target: str) -> None:
    """``work`` on each line of ``source``, in order, by one process for each available core."""
    global _work  # the forked processes inherit it without pickling
    _work = work
    cores = len(os.sched_getaffinity(0))
    done = 0
    with (
        Path(source).open(**ENCODING) as lines,  # type: ignore[call-overload]
        Path(target).open("w", **ENCODING) as out,  # type: ignore[call-overload]
        multiprocessing.get_context("fork").Pool(cores) as pool,
    ):
        parts = iter(lambda: list(islice(lines, _LINES)), [])
        # A few parts at a time, because the pool would read its whole input first.
        while waiting := list(islice(parts, 4 * cores)):
            for text in pool.imap(_part, waiting):
                out.write(text)
            done += sum(map(_size, waiting))
            print(done, flush=True)


def _part(lines: list[str]) -> str:
    return "".join(map(_work, lines))


def _size(lines: list[Any]) -> int:
    return sum(len(line.encode("utf-8", "surrogateescape")) for line in lines)


if __name__ == "__main__":
    main(sys.argv[1:])
