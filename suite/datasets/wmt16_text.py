"""The steps of WMT16's recipe that need no library: sentences of SGML files, and the filter of pairs.

The recipe is ``wmt16_en_de.sh`` of the MLPerf reference and of NVIDIA DeepLearningExamples; the scripts that
it calls are Moses' ``input-from-sgm.perl`` and ``clean-corpus-n.perl``, and ``filter_dataset.py``.
Text stays bytes where it does in those scripts. Lines end only at a line feed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

ENCODING = {"encoding": "utf-8", "errors": "surrogateescape", "newline": "\n"}
SHORTEST, LONGEST = 1, 80  # words of a sentence
RATIO = 9  # of the lengths of both sides, at most
LONGEST_WORD = 1000  # letters; the aligner of Moses takes no longer ones

_SEGMENT = re.compile(rb"<seg[^>]*>(.*?)</seg>", re.IGNORECASE | re.DOTALL)
_SPACE = re.compile(r"\s+")
_LONG_WORD = re.compile(rf"[^\s|]{{{LONGEST_WORD + 1}}}")


def segments(sgm: bytes) -> Iterator[bytes]:
    """The sentences of an SGML file, one for each line; white space becomes one space, entities stay."""
    for found in _SEGMENT.finditer(sgm):
        yield b" ".join(found.group(1).replace(b"\n", b"").split()) + b"\n"


def clean_pairs(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The pairs of tokenised lines that the recipe keeps, with single spaces, without line ends.

    Both sides hold 1 to 80 words, neither is over nine times as long as the other, no word has over a
    thousand letters, and every letter is in Latin-1.
    """
    for pair in pairs:
        first, second = (_SPACE.sub(" ", line).strip(" ") for line in pair)
        if _fits(first, second):
            yield first, second


def _fits(first: str, second: str) -> bool:
    counts = [side.count(" ") + 1 if side else 0 for side in (first, second)]
    if min(counts) < SHORTEST or max(counts) > LONGEST or max(counts) > RATIO * min(counts):
        return False
    if _LONG_WORD.search(first) or _LONG_WORD.search(second):
        return False
    try:
        first.encode("latin-1")
        second.encode("latin-1")
    except UnicodeEncodeError:
        return False
    return True
