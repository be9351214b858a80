"""WMT16 from archives of the publishers' layout: each step, the whole recipe, interruption and resumption."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from suite.datasets import catalogue, wmt16
from suite.datasets.catalogue import Archive, CatalogueEntry, Recipe
from suite.datasets.errors import DatasetCorrupt, DatasetMissing, FetchFailed, NoSpace
from suite.datasets.verify import sha256_file
from suite.datasets.wmt16_text import clean_pairs, segments
from suite.environments import environments

# The content of the archives, and its tokens by Moses. The recipe drops pairs 3 to 6: an empty side, 81
# words, ten times the length, a letter outside Latin-1.
PAIRS = (
    ("Resumption of the session", "Wiederaufnahme der Sitzungsperiode"),
    (
        "It's Mr. Smith's \"car\" & that's 5,300 [EUR], p. 3.",
        "Das ist z.B. Müllers Auto (5.300 §), d.h. seins.",
    ),
    ("", "Leer."),
    (" ".join(["word"] * 81), "zu lang"),
    ("one", " ".join(["wort"] * 10)),
    ("a heart ♥", "ein Herz"),
    ("The house | is old...", "Das Haus | ist alt..."),
    ("The session is old.", "Die Sitzungsperiode ist alt."),
    ("The old house", "Das alte Haus"),
)
KEPT = (
    ("Resumption of the session", "Wiederaufnahme der Sitzungsperiode"),
    (
        "It &apos;s Mr. Smith &apos;s &quot; car &quot; &amp; that &apos;s 5,300 &#91; EUR &#93; , p . 3 .",
        "Das ist z.B. Müllers Auto ( 5.300 § ) , d.h. seins .",
    ),
    ("The house &#124; is old ...", "Das Haus &#124; ist alt ..."),
    ("The session is old .", "Die Sitzungsperiode ist alt ."),
    ("The old house", "Das alte Haus"),
)
TEST_PAIRS = (("The house is “old”.", "Das Haus ist „alt“."), ("Is it? &amp; no", "Ist es so? &amp; nein"))


def sgm(sentences: list[str]) -> bytes:
    """A test set as the publisher writes it."""
    lines = "".join(f'<seg id="{n}"> {text}  </seg>\n' for n, text in enumerate(sentences, 1))
    return (
        f'<refset setid="t" srclang="any">\n<doc docid="d">\n<p>\n{lines}</p>\n</doc>\n</refset>\n'.encode()
    )


def tgz(path: Path, members: Mapping[str, bytes]) -> None:
    """An archive like the publisher's, with an additional member."""
    with tarfile.open(path, "w:gz") as tar:
        for name, content in {"../escaped": b"never unpacked", **members}.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def text(rows: tuple[tuple[str, str], ...], side: int) -> bytes:
    return "".join(f"{row[side]}\n" for row in rows).encode()


def md5(content: bytes) -> str:
    return f"md5:{hashlib.md5(content).hexdigest()}"


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the archives under the publishers' names."""
    folder = tmp_path_factory.mktemp("archives")
    parts = (PAIRS[:4], PAIRS[4:7], PAIRS[7:])
    names = (
        ("de-en.tgz", "europarl-v7.de-en"),
        ("training-parallel-commoncrawl.tgz", "commoncrawl.de-en"),
        ("training-parallel-nc-v11.tgz", "training-parallel-nc-v11/news-commentary-v11.de-en"),
    )
    for part, (archive, stem) in zip(parts, names, strict=True):
        tgz(folder / archive, {f"{stem}.de": text(part, 1), f"{stem}.en": text(part, 0)})
    sides = [[pair[side] for pair in TEST_PAIRS] for side in (0, 1)]
    tests = {
        "dev/newstest2014-ende-src.en.sgm": sgm(["the other direction"]),
        "dev/newstest2014-deen-ref.en.sgm": sgm(sides[0]),
        "dev/newstest2014-deen-src.de.sgm": sgm(sides[1]),
    }
    tgz(folder / "dev.tgz", tests)
    return folder


@pytest.fixture
def entry(archives: Path) -> CatalogueEntry:
    """The rules' entry, with the sizes and checksums of these archives, but none of the results."""
    real = catalogue.entry("wmt16")
    assert real.recipe is not None
    rows = []
    for archive in real.recipe.archives:
        path = archives / archive.name
        known = archive.sha256 is not None and path.is_file()
        size, digest = (path.stat().st_size, sha256_file(path)) if known else (None, None)
        rows.append(replace(archive, bytes=size, sha256=digest))
    return replace(real, published={}, recipe=Recipe(tuple(rows), disk_bytes=1 << 20, pairs=len(KEPT)))


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of the tools; the test is skipped without one."""
    if given := os.environ.get("SUITE_PYTHON_DATA"):
        monkeypatch.setattr(environments, "ensure_tools", lambda *_: Path(given))
    elif not environments.tools_plan("data").ready:
        pytest.skip("no environment of the data tools: make test makes it, or set SUITE_PYTHON_DATA")


class Progress:
    """The reported progress."""

    def __init__(self) -> None:
        self.tasks: list[str] = []

    def __call__(self, task: str, done: int, total: int | None) -> None:
        if task not in self.tasks:
            self.tasks.append(task)

    @property
    def skipped(self) -> set[str]:
        return {task.split(": ")[1] for task in self.tasks if task.endswith("done before")}


def test_rules_have_the_published_sums() -> None:
    entry = catalogue.entry("wmt16")
    assert entry.unavailable is None
    assert set(entry.published) == set(entry.files)
    assert entry.published["newstest2014.de"] == "md5:f6c3818b477e4a25cad68b61cc883c17"
    assert entry.recipe is not None
    assert entry.recipe.pairs == 4_068_191
    members = [
        member for archive in entry.recipe.archives for member in archive.members if not archive.instead
    ]
    assert len(members) == len(set(members)) == 8
    assert set(wmt16.TEST.values()) <= set(members)


def test_segments_are_read_from_an_sgm_file() -> None:
    written = (
        b'<doc>\n<seg id="1">  Two \t words </seg>\n<SEG id="2">on two\n lines&amp;</SEG>\n<hl>no</hl>\n'
    )
    assert list(segments(written)) == [b"Two words\n", b"on two lines&amp;\n"]


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        (("a  b\t\n", " c \n"), ("a b", "c")),
        ((" \n", "c\n"), None),
        ((" ".join("a" * 80), "b " * 80), (" ".join("a" * 80), ("b " * 80).strip())),
        ((" ".join("a" * 81), "b " * 80), None),
        (("a " * 9, "b"), (("a " * 9).strip(), "b")),
        (("a " * 10, "b"), None),
        (("a" * 1000, "b"), ("a" * 1000, "b")),
        (("a" * 1001, "b"), None),
        (("ÿ\xa0ü", "b"), ("ÿ ü", "b")),
        (("a", "„b“"), None),
        (("a", b"\xff".decode("utf-8", "surrogateescape")), None),
    ],
)
def test_clean_pairs_drops_unusable_pairs(pair: tuple[str, str], expected: tuple[str, str] | None) -> None:
    assert list(clean_pairs([pair])) == ([] if expected is None else [expected])


@pytest.mark.usefixtures("tools")
def test_recipe_gives_the_published_files(archives: Path, entry: CatalogueEntry, tmp_path: Path) -> None:
    """The recipe stops at a file that differs from the reference, resumes there, and gives the files."""
    before = sorted((path.name, path.stat().st_mtime_ns) for path in archives.iterdir())
    recipe = entry.recipe
    assert recipe is not None
    progress = Progress()
    with pytest.raises(DatasetCorrupt, match=f"stage clean: expected 4068191 pairs, found {len(KEPT)} pairs"):
        wmt16.obtain(entry, replace(recipe, pairs=4_068_191), tmp_path, progress, archives)
    assert progress.skipped == set()
    assert "wmt16: tokenise train.de" in progress.tasks

    progress = Progress()
    wrong = replace(entry, published={"vocab.bpe.32000": "md5:" + "0" * 32})
    found = r"vocab.bpe.32000 \(stage vocabulary\): expected md5:0{32}, found md5:[0-9a-f]{32}"
    with pytest.raises(DatasetCorrupt, match=found):
        wmt16.obtain(wrong, recipe, tmp_path, progress, archives)
    assert not (tmp_path / "wmt16").exists()
    assert len(progress.skipped) == 5, "extract, and four files tokenised"

    progress = Progress()
    made = [path for path in (tmp_path / ".wmt16.making").iterdir() if path.name in entry.files]
    sums = {path.name: md5(path.read_bytes()) for path in made}
    assert len(sums) == 5
    wmt16.obtain(replace(entry, published=sums), recipe, tmp_path, progress, archives)
    assert len(progress.skipped) == 11
    assert "vocabulary" not in progress.skipped
    assert sorted(path.name for path in tmp_path.iterdir()) == ["wmt16"], "nothing of the work stays"
    assert before == sorted((path.name, path.stat().st_mtime_ns) for path in archives.iterdir())
    check_files(tmp_path / "wmt16", entry)


def check_files(folder: Path, entry: CatalogueEntry) -> None:
    """The result for each input pair."""
    names = {*entry.files, "manifest.json", ".verified.json", "index"}
    assert {path.name for path in folder.iterdir()} == names
    assert (folder / "newstest2014.de").read_bytes() == text(TEST_PAIRS, 1)
    words = []
    for side, name in enumerate(wmt16.SIDES):
        encoded = (folder / f"train.tok.clean.bpe.32000.{name}").read_text("utf-8")
        assert encoded.replace("@@ ", "") == text(KEPT, side).decode()
        assert "@@ " in encoded
        words += encoded.split()
    tested = (folder / "newstest2014.tok.bpe.32000.de").read_text("utf-8").replace("@@ ", "")
    assert tested == "Das Haus ist „ alt “ .\nIst es so ? &amp; amp ; nein\n"
    counts, first = Counter(words), {word: at for at, word in reversed(list(enumerate(words)))}
    expected = sorted(counts, key=lambda word: (-counts[word], first[word]))
    assert (folder / "vocab.bpe.32000").read_text("utf-8").splitlines() == expected


class Server(ThreadingHTTPServer):
    """Serves a folder."""

    daemon_threads = True


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def served(archives: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server(("127.0.0.1", 0), partial(Quiet, directory=str(archives))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


def at(recipe: Recipe, base: str) -> Recipe:
    """The recipe with its archives at another address."""
    return replace(recipe, archives=tuple(replace(one, url=base + one.name) for one in recipe.archives))


def test_archives_are_fetched_and_verified(served: str, entry: CatalogueEntry, tmp_path: Path) -> None:
    assert entry.recipe is not None
    recipe = at(entry.recipe, served)
    found = wmt16._archives(recipe, tmp_path, None, lambda *_: None)
    assert list(found) == [one.name for one in recipe.archives if one.instead is None]
    assert all(path.parent == tmp_path for path in found.values())
    (tmp_path / "training-parallel-nc-v11.tgz").write_bytes(b"other")
    with pytest.raises(DatasetCorrupt, match=r"nc-v11.tgz: expected \d+ bytes, found 5 bytes"):
        wmt16._archives(recipe, tmp_path, None, lambda *_: None)
    absent = replace(recipe, archives=(replace(recipe.archives[0], url=served + "absent.tgz"),))
    with pytest.raises(FetchFailed, match=r"absent.tgz: cannot connect .*404.*FROM=path"):
        wmt16._archives(absent, tmp_path, None, lambda *_: None)


def test_lack_of_space_is_reported_before_a_fetch(entry: CatalogueEntry, tmp_path: Path) -> None:
    assert entry.recipe is not None
    with pytest.raises(NoSpace, match="are free"):
        wmt16.obtain(entry, replace(entry.recipe, disk_bytes=1 << 60), tmp_path)
    assert not any(tmp_path.iterdir())


def test_archives_of_the_user_are_verified(archives: Path, entry: CatalogueEntry, tmp_path: Path) -> None:
    assert entry.recipe is not None
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    for path in archives.iterdir():
        if path.name != "de-en.tgz":
            (theirs / path.name).write_bytes(path.read_bytes())
    obtain = partial(wmt16.obtain, entry, entry.recipe, tmp_path / "data")
    with pytest.raises(DatasetMissing, match=r"found no de-en.tgz or training-parallel-europarl-v7.tgz"):
        obtain(None, theirs)
    (theirs / "training-parallel-europarl-v7.tgz").write_bytes((archives / "de-en.tgz").read_bytes())
    assert "training-parallel-europarl-v7.tgz" in wmt16._archives(
        entry.recipe, tmp_path, theirs, lambda *_: None
    )
    changed = bytearray((theirs / "training-parallel-commoncrawl.tgz").read_bytes())
    changed[50] ^= 1
    (theirs / "training-parallel-commoncrawl.tgz").write_bytes(changed)
    with pytest.raises(DatasetCorrupt, match=r"commoncrawl.tgz: expected sha256"):
        obtain(None, theirs)
    with pytest.raises(DatasetMissing, match="expected a folder"):
        obtain(None, tmp_path / "absent")


def test_archive_without_checksum_is_refused_if_its_files_differ(
    archives: Path, entry: CatalogueEntry, tmp_path: Path
) -> None:
    assert entry.recipe is not None
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    for path in archives.iterdir():
        (theirs / path.name).write_bytes(path.read_bytes())
    tgz(theirs / "dev.tgz", {"dev/newstest2014-ende-src.en.sgm": sgm(["other"])})
    with pytest.raises(
        DatasetCorrupt, match=r"dev.tgz: expected a member newstest2014-deen-ref.en.sgm, found none"
    ):
        wmt16.obtain(entry, entry.recipe, tmp_path / "data", None, theirs)
    (theirs / "dev.tgz").write_bytes((archives / "dev.tgz").read_bytes()[:200])
    with pytest.raises(DatasetCorrupt, match=r"dev.tgz: expected a whole tar archive"):
        wmt16.obtain(entry, entry.recipe, tmp_path / "data", None, theirs)


def test_archive_names_come_from_their_addresses() -> None:
    assert Archive("http://a.example/b/c.tgz", None, None, (), None).name == "c.tgz"
