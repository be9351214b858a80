"""Files of unpublished size: fetched from a server on this machine, or copied from a folder."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from suite.datasets import catalogue, fetch, fetch_pieces, prepare
from suite.datasets.catalogue import CatalogueEntry, Piece
from suite.datasets.errors import DatasetCorrupt, DatasetMissing, FetchFailed

FILES = {f"ptb.{split}.txt": f" {split} words \n".encode() * 3 for split in ("train", "valid", "test")}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        content = FILES.get(self.path.rsplit("/", 1)[-1])
        if content is None or "gone" in self.path:
            self.send_error(404)
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def entry(monkeypatch: pytest.MonkeyPatch) -> Iterator[CatalogueEntry]:
    """The dataset as a server on this machine publishes it."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    address = f"http://127.0.0.1:{server.server_address[1]}/data"
    pieces = {
        name: Piece(f"{address}/{name}", f"md5:{hashlib.md5(content).hexdigest()}", lines=3)
        for name, content in FILES.items()
    }
    yield replace(catalogue.entry("ptb"), pieces=pieces)
    server.shutdown()
    thread.join()
    server.server_close()


def changed(entry: CatalogueEntry, name: str, **fields: object) -> CatalogueEntry:
    return replace(entry, pieces={**entry.pieces, name: replace(entry.pieces[name], **fields)})  # type: ignore[arg-type]


def test_rules_have_the_published_checksums() -> None:
    known = catalogue.entry("ptb")
    assert set(known.pieces) == set(known.files) == set(FILES)
    assert {source.lines for source in known.pieces.values()} == {42_068, 3_370, 3_761}
    assert all(source.url.endswith(f"/{name}") for name, source in known.pieces.items())


def test_fetch_verifies_every_file(entry: CatalogueEntry, tmp_path: Path) -> None:
    found = fetch.fetch(entry, tmp_path)
    assert {path.name: path.read_bytes() for path in found.paths} == FILES
    manifest = json.loads((tmp_path / "ptb" / "manifest.json").read_text())
    assert manifest["parameters"]["published"] == {n: piece.checksum for n, piece in entry.pieces.items()}
    assert found.digest == catalogue.digest_of(
        {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}
    )
    assert (
        fetch.fetch(changed(entry, "ptb.test.txt", url="http://127.0.0.1:1/"), tmp_path).digest
        == found.digest
    )


def test_manifest_cannot_override_published_checksums(entry: CatalogueEntry, tmp_path: Path) -> None:
    found = fetch.fetch(entry, tmp_path)
    assert prepare.check(entry, found.path, None, verify=True).digest == found.digest
    other = changed(entry, "ptb.valid.txt", checksum=f"md5:{0:032}")
    with pytest.raises(DatasetCorrupt, match=r"ptb\.valid\.txt: expected md5:0{32}, found md5:"):
        prepare.check(other, found.path, None, verify=True)


def test_missing_dataset_names_the_fetch_command(entry: CatalogueEntry, tmp_path: Path) -> None:
    assert "`make data WORKLOAD=lstm_ptb` to fetch it" in str(prepare.missing_dataset(entry, tmp_path))


@pytest.mark.parametrize("below", ["", "data"])
def test_copy_is_taken_without_network(entry: CatalogueEntry, tmp_path: Path, below: str) -> None:
    theirs = tmp_path / "theirs" / below
    theirs.mkdir(parents=True)
    for name, content in FILES.items():
        (theirs / name).write_bytes(content)
    offline = changed(entry, "ptb.test.txt", url="http://127.0.0.1:1/")
    fetch.fetch(offline, tmp_path / "root", copy=tmp_path / "theirs")
    assert (tmp_path / "root" / "ptb" / "ptb.valid.txt").read_bytes() == FILES["ptb.valid.txt"]


def test_wrong_files_are_refused_and_leave_nothing(entry: CatalogueEntry, tmp_path: Path) -> None:
    with pytest.raises(DatasetCorrupt, match=r"ptb\.test\.txt: expected md5 0{32}"):
        fetch.fetch(changed(entry, "ptb.test.txt", checksum=f"md5:{0:032}"), tmp_path)
    with pytest.raises(DatasetCorrupt, match="expected 4 lines"):
        fetch.fetch(changed(entry, "ptb.train.txt", lines=4), tmp_path)
    with pytest.raises(FetchFailed, match="404"):
        fetch.fetch(
            changed(entry, "ptb.valid.txt", url=entry.pieces["ptb.valid.txt"].url + "/gone"), tmp_path
        )
    with pytest.raises(FetchFailed, match=r"refused.*FROM=path"):
        fetch.fetch(changed(entry, "ptb.valid.txt", url="http://127.0.0.1:1/"), tmp_path)
    with pytest.raises(DatasetMissing, match=r"expected ptb\.train\.txt"):
        fetch.fetch(entry, tmp_path, copy=tmp_path)
    assert not (tmp_path / "ptb").exists()


def test_longer_file_is_not_read_to_its_end(
    entry: CatalogueEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_pieces, "LARGEST", 10)
    with pytest.raises(DatasetCorrupt, match="of 11 bytes"):
        fetch.fetch(entry, tmp_path)
    assert not any(tmp_path.iterdir())
