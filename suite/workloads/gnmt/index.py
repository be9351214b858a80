"""Parallel text as ids, mapped into memory, because parsing four million lines takes long.

The folder ``index/`` of a dataset holds for each text that the reader uses the ids of all sentences, one
after the other (``<text>.ids``, uint16, with BOS and EOS), and their lengths (``<text>.lengths``, uint16).
The host derives it from the text when the dataset is prepared. Without it the text is parsed, with the same
result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from suite.contract import BadData
from suite.workloads import derived
from suite.workloads.gnmt import spec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ids = NDArray[np.int32]

FORMAT = "gnmt-index/1"
TEXTS = (
    "train.tok.clean.bpe.32000.en",
    "train.tok.clean.bpe.32000.de",
    "newstest2014.tok.bpe.32000.en",
)
VOCABULARY = "vocab.bpe.32000"
_LINES = 20_000  # parsed at a time
_LARGEST = 1 << 16  # ids and lengths fit in sixteen bits


class Sentences(Sequence["Ids"]):
    """Sentences as ids between BOS and EOS, from flat arrays that may be mapped files."""

    def __init__(self, ids: NDArray[Any], lengths: NDArray[Any]) -> None:
        self._ids = ids
        self.lengths: NDArray[np.int64] = lengths.astype(np.int64)
        self._starts = np.concatenate(([0], np.cumsum(self.lengths)))

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, at: int) -> Ids: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Ids]: ...

    def __getitem__(self, at: int | slice) -> Ids | Sequence[Ids]:
        if isinstance(at, slice):
            return [self[row] for row in range(*at.indices(len(self)))]
        return np.asarray(self._ids[self._starts[at] : self._starts[at + 1]], np.int32)


def sentences(folder: Path, text: str, ids: dict[str, int]) -> Sentences:
    """The sentences of ``text`` in ``folder``: from the index, else parsed; unknown words become UNK."""
    index = folder / derived.FOLDER
    if (index / derived.MANIFEST).is_file():
        flat = np.memmap(index / f"{text}.ids", dtype="<u2", mode="r")
        return Sentences(flat, np.fromfile(index / f"{text}.lengths", dtype="<u2"))
    parts = list(_parsed(folder / text, ids))
    if not parts:
        raise BadData(f"{text}: expected sentences, found none; prepare the dataset again")
    return Sentences(*(np.concatenate([part[side] for part in parts]) for side in (0, 1)))


def read_vocabulary(path: Path, limit: int) -> dict[str, int]:
    """Word to id, from a file with one word per line; ids from 4 on. BadData for more than ``limit`` ids."""
    words = path.read_text(encoding="utf-8").split("\n")
    ids = {word: spec.SPECIALS + at for at, word in enumerate(word for word in words if word)}
    if spec.SPECIALS + len(ids) > limit:
        room = limit - spec.SPECIALS
        raise BadData(f"{path.name}: expected at most {room} words, found {len(ids)}")
    return ids


def write(folder: Path, target: Path, digest: str, progress: Callable[[int, int], None]) -> None:
    """Write the index of the texts in ``folder`` to the existing folder ``target``; needs a few MB of memory.

    ``digest`` is the dataset's, for :func:`current`. ``progress`` is called with characters read and bytes in
    all. BadData where an id or a length exceeds sixteen bits.
    """
    ids = read_vocabulary(folder / VOCABULARY, _LARGEST)
    total = sum((folder / text).stat().st_size for text in TEXTS)
    done = 0
    for text in TEXTS:
        with (target / f"{text}.ids").open("wb") as flat, (target / f"{text}.lengths").open("wb") as lengths:
            for part, sizes, characters in _parsed(folder / text, ids):
                if sizes.max(initial=0) >= _LARGEST:
                    raise BadData(
                        f"{text}: expected sentences of fewer than {_LARGEST} tokens, found {sizes.max()}"
                    )
                flat.write(part.astype("<u2").tobytes())
                lengths.write(sizes.astype("<u2").tobytes())
                done += characters
                progress(min(done, total), total)
    derived.seal(target, FORMAT, digest)


def current(index: Path, digest: str) -> bool:
    """Whether the folder ``index`` holds a complete index of the dataset with this digest."""
    return derived.current(index, FORMAT, digest)


def _parsed(path: Path, ids: dict[str, int]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], int]]:
    """The text in parts: ids of all sentences with BOS and EOS, their lengths, and characters read."""
    with path.open(encoding="utf-8", newline="\n") as lines:
        while part := list(islice(lines, _LINES)):
            words = [line.split() for line in part]
            lengths = np.fromiter((len(line) + 2 for line in words), np.int64, len(words))
            flat = np.full(int(lengths.sum()), spec.BOS, np.int64)
            inside = np.ones(len(flat), bool)
            ends = np.cumsum(lengths)
            inside[ends - 1] = inside[ends - lengths] = False
            flat[ends - 1] = spec.EOS
            known = (ids.get(word, spec.UNK) for line in words for word in line)
            flat[inside] = np.fromiter(known, np.int64, int(inside.sum()))
            yield flat, lengths, sum(map(len, part))
