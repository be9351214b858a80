"""The generator of ``wmt16-mini``: a small grammar, English to something like German, as BPE'd parallel text.

English is determiner, adjective?, noun, verb, determiner, adjective?, noun, adverb?. The other language puts
the adverb first and the verb last, and its determiners and adjective endings follow the noun's gender, so
that a translator must reorder and agree. Some words are split as byte-pair encoding splits rare words
(``Blu@@ me``), adjectives always before their ending. No pair of the test set occurs in the training set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from suite.common.stream import Stream

NAME = "wmt16-mini"
VERSION = "wmt16-mini/1"
SEED = 1
TRAIN, TEST = 4000, 300

# English and German, split as BPE tokens; the gender of a noun is its index modulo three.
_NOUNS = (
    ("dog", "Hund"),
    ("cat", "Katze"),
    ("gar@@ den", "Gär@@ tlein"),
    ("table", "Tisch"),
    ("flower", "Blu@@ me"),
    ("house", "Haus"),
    ("key", "Schlüs@@ sel"),
    ("news@@ paper", "Zei@@ tung"),
    ("book", "Buch"),
)
_ADJECTIVES = (("old", "alt"), ("small", "klein"), ("beau@@ tiful", "schön"), ("red", "rot"))
_VERBS = (
    ("sees", "sieht"),
    ("finds", "findet"),
    ("buys", "kauft"),
    ("sells", "ver@@ kauft"),
    ("paints", "malt"),
)
_ADVERBS = (("today", "heute"), ("often", "oft"), ("some@@ times", "manch@@ mal"))
_DETERMINERS = (("the", ("der", "die", "das")), ("a", ("ein", "eine", "ein")))
_ENDINGS = ("er", "e", "es")


def parameters() -> dict[str, int]:
    """The parameters that the manifest records beside the generator's version."""
    return {"seed": SEED, "train": TRAIN, "test": TEST}


def generate(seed: int = SEED) -> dict[str, bytes]:
    """The files by name, as the reference scripts name them; one sentence or one vocabulary entry a line."""
    pairs = _distinct(seed, TRAIN + TEST)
    train, test = pairs[:TRAIN], pairs[TRAIN:]
    counts = Counter(token for pair in train for side in pair for token in side.split())
    vocabulary = sorted(counts, key=lambda token: (-counts[token], token))
    return {
        "train.tok.clean.bpe.32000.en": _text(english for english, _ in train),
        "train.tok.clean.bpe.32000.de": _text(german for _, german in train),
        "newstest2014.tok.bpe.32000.en": _text(english for english, _ in test),
        "newstest2014.tok.bpe.32000.de": _text(german for _, german in test),
        "newstest2014.de": _text(_plain(german) for _, german in test),
        "vocab.bpe.32000": _text(vocabulary),
    }


def _distinct(seed: int, count: int) -> list[tuple[str, str]]:
    """The first ``count`` different pairs of the stream."""
    found: dict[tuple[str, str], None] = {}
    index = 0
    while len(found) < count:
        found[_pair(seed, index)] = None
        index += 1
    return list(found)


def _pair(seed: int, index: int) -> tuple[str, str]:
    """Sentence ``index`` in both languages."""
    draws = iter(Stream(VERSION, "sentence", seed, index).integers(1 << 20, 9).tolist())
    subject, subject_there = _phrase(next(draws), next(draws), next(draws))
    verb, verb_there = _VERBS[next(draws) % len(_VERBS)]
    object_, object_there = _phrase(next(draws), next(draws), next(draws))
    # One sentence in four has no adverb.
    adverb, adverb_there = (*_ADVERBS, ("", ""))[next(draws) % 4]
    english = [subject, verb, object_, adverb, "."]
    german = [adverb_there, subject_there, object_there, verb_there, "."]
    return " ".join(filter(None, english)), " ".join(filter(None, german))


def _phrase(determiner: int, adjective: int, noun: int) -> tuple[str, str]:
    """Determiner, adjective (none in half of the phrases) and noun in both languages."""
    gender = noun % len(_NOUNS) % 3
    the, articles = _DETERMINERS[determiner % 2]
    thing, thing_there = _NOUNS[noun % len(_NOUNS)]
    if adjective % 8 >= len(_ADJECTIVES):
        return f"{the} {thing}", f"{articles[gender]} {thing_there}"
    quality, stem = _ADJECTIVES[adjective % 8]
    return f"{the} {quality} {thing}", f"{articles[gender]} {stem}@@ {_ENDINGS[gender]} {thing_there}"


def _plain(tokens: str) -> str:
    """The sentence as people write it: without BPE separators, the full stop joined to the last word."""
    return tokens.replace("@@ ", "").replace(" .", ".")


def _text(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
