"""No file uses a term that the glossary lists under "do not write"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from suite.containers.engines.native import PROJECT

GLOSSARY = PROJECT / "docs" / "glossary.md"
FOLDERS = ("suite", "conf", "containers", "docs", "tools", "peers", "tests", "rules")
SUFFIXES = (".py", ".md", ".yaml", ".sh")
# The changelog names what was renamed; `is now` is the message to who gives a renamed option.
EXEMPT_FILES = {GLOSSARY, Path(__file__)}
EXEMPT_LINES = re.compile(r"\bis now\b")

# Each term as this test finds it: in the sense that the glossary replaces, not in every sense of English.
PATTERNS = {
    "the window's edges": r"window's edges|edges of (the|a) window",
    "mark": (
        r"(?<!pytest\.)(?<!question )(?<!order )\bmarks?\b(?!=pytest)|\w+_marks?\b"
        r"|\bmarks?_(?!non_differentiable)\w+"  # PyTorch's name
    ),
    "worker number": r"worker number|number of the worker",
    "word": r"\bfurther words?\b|\b(cli|argv|option)_words?\b|\*words: (str|object)\b",
    "place": (
        r"(?<!in )(?<!In )(?<!takes )(?<!take )(?<!decimal )(?<!in_)\bplaces?\b(?! of)"
        r"|\w+(?<!in)_places?\b"
    ),
    "own": (
        r"\bOWN\b|\bown_(?!pass)\w+|\w+(?<!its)(?<!their)_own\b"
        r"|\b(an?|your|the user's) own (pair|image|dataset)"
    ),
    "form": r"\bFORM=|\b(record|storage)[ _]forms?\b|\bform=",
    "picture": r"(?i)pictures?",
    "by turns": r"\bby turns\b",
    "mend": r"\bmend(s|ed|ing)?\b",
    "judge (the process)": r"\bjudge (process|child)\b|\bthe judge\b",
    "lay out": r"\b(lay|lays|laid|laying)[ _]out\b",
    "registry": r"\b(dataset|container) registr(y|ies)|registry of (images|datasets)",
    "level of assurance": r"(?i)levels? of assurance",
    "tells": r"\b(tells?|told)\b(?! apart|\(\))",
}


def pages() -> Iterator[Path]:
    yield from (PROJECT / name for name in ("README.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml"))
    for folder in FOLDERS:
        for path in sorted((PROJECT / folder).rglob("*")):
            if path.suffix in SUFFIXES and path not in EXEMPT_FILES:
                yield path


def uses(term: str) -> list[str]:
    pattern = re.compile(PATTERNS[term])
    return [
        f"{path.relative_to(PROJECT)}:{number}: {line.strip()}"
        for path in pages()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line) and not EXEMPT_LINES.search(line)
    ]


def test_every_replaced_term_of_the_glossary_has_a_pattern() -> None:
    rows = [
        line.strip("| ").split(" | ") for line in GLOSSARY.read_text().splitlines() if line.startswith("|")
    ]
    listed = {row[2].strip() for row in rows if len(row) > 2} - {"do not write", "---"}
    assert listed == set(PATTERNS)


@pytest.mark.parametrize("term", PATTERNS)
def test_no_file_uses_a_replaced_term(term: str) -> None:
    assert uses(term) == []
