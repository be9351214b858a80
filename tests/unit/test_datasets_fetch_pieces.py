"""A dataset whose files have separate sources: text8's zip and questions, fetched or copied, verified."""

from __future__ import annotations

import hashlib
import io
import json
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from suite.datasets import catalogue, fetch
from suite.datasets.catalogue import CatalogueEntry, File, Piece
from suite.datasets.errors import DatasetCorrupt, DatasetMissing, FetchFailed

TEXT, QUESTIONS = b" one two one two" * 500, b": numbers\nOne Two one two\n"


def sha1(content: bytes) -> str:
    return f"sha1:{hashlib.sha1(content).hexdigest()}"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """The publishers' folder: text8.zip and questions-words.txt."""
    folder = tmp_path / "published"
    folder.mkdir()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("text8", TEXT)
    (folder / "text8.zip").write_bytes(packed.getvalue())
    (folder / "questions-words.txt").write_bytes(QUESTIONS)
    return folder


@pytest.fixture
def entry(published: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CatalogueEntry]:
    """The rules' entry with small files and a server on this machine."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(published)))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    packed = (published / "text8.zip").read_bytes()
    pieces = {
        "questions-words.txt": Piece(f"{address}/questions-words.txt", sha1(QUESTIONS), len(QUESTIONS)),
        "text8": Piece(f"{address}/text8.zip", sha1(TEXT), len(packed), None, "text8", sha1(packed)),
    }
    files = {"questions-words.txt": File(len(QUESTIONS), None), "text8": File(len(TEXT), None)}
    yield replace(catalogue.entry("text8"), pieces=pieces, files=files, bytes=len(TEXT) + len(QUESTIONS))
    server.shutdown()
    thread.join()
    server.server_close()


def changed(entry: CatalogueEntry, name: str, **fields: object) -> CatalogueEntry:
    pieces = {**entry.pieces, name: replace(entry.pieces[name], **fields)}  # type: ignore[arg-type]
    return replace(entry, pieces=pieces)


def test_rules_name_source_and_checksum_of_every_file() -> None:
    known = catalogue.entry("text8")
    assert set(known.pieces) == set(known.files) == {"text8", "questions-words.txt"}
    assert known.pieces["text8"].url == "http://mattmahoney.net/dc/text8.zip"
    assert known.bytes == sum(file.bytes or 0 for file in known.files.values())


def test_fetched_and_copied_files_are_equal(entry: CatalogueEntry, published: Path, tmp_path: Path) -> None:
    found = fetch.fetch(entry, tmp_path / "fetched")
    assert (found.path / "text8").read_bytes() == TEXT
    manifest = json.loads((found.path / "manifest.json").read_text())
    published_sums = {"questions-words.txt": sha1(QUESTIONS), "text8": sha1(TEXT)}
    assert manifest["parameters"]["published"] == published_sums
    assert fetch.fetch(entry, tmp_path / "zipped", copy=published).digest == found.digest
    (published / "text8").write_bytes(TEXT)
    (published / "text8.zip").unlink()
    assert fetch.fetch(entry, tmp_path / "unpacked", copy=published).digest == found.digest
    (published / "text8").unlink()
    with pytest.raises(DatasetMissing, match=r"expected text8 or data/text8 or text8\.zip in this folder"):
        fetch.fetch(entry, tmp_path / "none", copy=published)


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("text8", {"checksum": f"sha1:{0:040}"}, "text8: expected sha1 0{40}"),
        ("text8", {"archive": f"sha1:{0:040}"}, r"text8\.zip: expected sha1 0{40}"),
        ("text8", {"member": "text9"}, "expected a zip with text9"),
        ("questions-words.txt", {"checksum": f"sha1:{0:040}"}, r"questions-words\.txt: expected sha1 0{40}"),
    ],
)
def test_other_file_is_refused(
    entry: CatalogueEntry, tmp_path: Path, name: str, fields: dict[str, str], message: str
) -> None:
    with pytest.raises(DatasetCorrupt, match=message):
        fetch.fetch(changed(entry, name, **fields), tmp_path / "root")
    assert not (tmp_path / "root" / "text8").exists()


def test_server_without_answer_is_named(entry: CatalogueEntry, tmp_path: Path) -> None:
    for url, message in (("http://127.0.0.1:1/x", "FROM=path"), (entry.pieces["text8"].url + "/x", "404")):
        with pytest.raises(FetchFailed, match=message):
            fetch.fetch(changed(entry, "text8", url=url), tmp_path / "root")
    with pytest.raises(FetchFailed, match="have 26 of 1000 bytes"):
        fetch.fetch(changed(entry, "questions-words.txt", bytes=1000), tmp_path / "root")
