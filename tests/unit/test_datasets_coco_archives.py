"""COCO 2017 from its archives, and the detector's backbone: fetched, verified, unpacked once, resumed."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from suite.datasets import catalogue, coco, fetch
from suite.datasets.catalogue import Unpacked, Weights
from suite.datasets.errors import DatasetCorrupt, FetchFailed, NoSpace
from tests.fixtures import coco_site
from tests.unit.test_datasets_coco import take


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    return coco_site.folders(tmp_path / "site")


def test_archives_of_the_user_are_unpacked(theirs: Path, tmp_path: Path) -> None:
    unpacked = coco_site.archives(theirs, tmp_path / "zips")
    entry = replace(coco_site.official(theirs), unpacked=unpacked)
    found = take(tmp_path / "zips", tmp_path / "data", entry)
    assert found.digest == take(theirs, tmp_path / "linked", entry).digest
    names = {path.relative_to(found.path).as_posix() for path in found.path.rglob("*") if path.is_file()}
    assert names == {
        *found.files,
        "manifest.json",
        ".verified.json",
        *(f"index/{p.name}" for p in found.derived),
    }
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["coco-2017"]
    assert len(list((tmp_path / "zips").iterdir())) == 3, "only read"


def test_archive_with_other_content_is_refused(theirs: Path, tmp_path: Path) -> None:
    unpacked = coco_site.archives(theirs, tmp_path / "zips")
    entry = replace(coco_site.official(theirs), unpacked=unpacked)
    path = tmp_path / "zips/val2017.zip"
    content = bytearray(path.read_bytes())
    content[500] ^= 1
    path.write_bytes(content)
    with pytest.raises(DatasetCorrupt, match=r"val2017\.zip: expected sha256"):
        take(tmp_path / "zips", tmp_path / "data", entry)
    (theirs / "val2017/000000000140.jpg").unlink()
    shutil.rmtree(tmp_path / "zips")
    entry = replace(entry, unpacked=coco_site.archives(theirs, tmp_path / "zips"))
    with pytest.raises(DatasetCorrupt, match=r"val2017\.zip: .*no item named 'val2017/000000000140\.jpg'"):
        take(tmp_path / "zips", tmp_path / "data", entry)
    assert not (tmp_path / "data/coco-2017").exists()


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        self.server.seen.append(self.path)  # type: ignore[attr-defined]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadingHTTPServer]:
    """Serves the folder ``zips``."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(tmp_path / "zips")))
    server.daemon_threads, server.seen = True, []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_archives_are_fetched_unpacked_and_removed(
    theirs: Path, tmp_path: Path, server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"http://127.0.0.1:{server.server_address[1]}"
    unpacked = coco_site.archives(theirs, tmp_path / "zips", address)
    entry = replace(coco_site.official(theirs), unpacked=unpacked)
    train = tmp_path / "zips/train2017.zip"
    train.rename(tmp_path / "later.zip")
    with pytest.raises(FetchFailed, match="404"):
        fetch.fetch(entry, tmp_path / "data")
    (tmp_path / "later.zip").rename(train)
    server.seen.clear()  # type: ignore[attr-defined]
    monkeypatch.setattr(coco, "verify_files", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        fetch.fetch(entry, tmp_path / "data")
    assert server.seen == ["/train2017.zip"], "the others were unpacked before"  # type: ignore[attr-defined]
    monkeypatch.undo()
    found = fetch.fetch(entry, tmp_path / "data")
    assert len(server.seen) == 1  # type: ignore[attr-defined]
    assert (found.digest, len(found.derived)) == (take(theirs, tmp_path / "linked", entry).digest, 3)
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["coco-2017"], "no archive stays"


def test_backbone_with_another_checksum_is_refused(
    theirs: Path, tmp_path: Path, server: ThreadingHTTPServer
) -> None:
    address = f"http://127.0.0.1:{server.server_address[1]}"
    weights = Weights(f"{address}/resnet50-0676ba61.pth", None, "0676ba61")
    entry = replace(coco_site.official(theirs), weights=weights)
    found = take(theirs, tmp_path / "data", entry)
    assert server.seen == [], "FROM= fetches nothing"  # type: ignore[attr-defined]
    with pytest.raises(FetchFailed, match=r"coco-2017 is verified in .*404.*give it as FROM=path"):
        fetch.fetch(entry, tmp_path / "data")
    (tmp_path / "zips").mkdir()
    (tmp_path / "zips/resnet50-0676ba61.pth").write_bytes(b"another network")
    with pytest.raises(DatasetCorrupt, match=r"resnet50-0676ba61\.pth.*: expected sha256 0676ba61…, found"):
        fetch.fetch(entry, tmp_path / "data")
    with pytest.raises(DatasetCorrupt, match=r"zips/resnet50-0676ba61\.pth: expected sha256 0676ba61"):
        fetch.fetch(entry, tmp_path / "data", None, tmp_path / "zips/resnet50-0676ba61.pth")
    assert fetch.fetch(entry, tmp_path / "data", None, theirs) == found, "a folder without it"
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["coco-2017"], "no download stays"
    assert not list(found.path.glob("*.npz"))


def test_rules_list_the_published_archives() -> None:
    entry = catalogue.entry("coco-2017")
    assert entry.unpacked is not None
    assert [(one.member, one.bytes) for one in entry.unpacked.archives] == [
        ("annotations", 252_907_541),
        ("val2017", 815_585_330),
        ("train2017", 19_336_861_798),
    ]
    assert entry.images is not None
    assert (entry.images.train, entry.images.val, entry.images.classes) == (118_287, 5_000, 80)
    assert entry.fetchable
    assert "20.4 GB" in coco.describe(entry)[0]


def test_lack_of_space_is_reported_before_the_download(
    theirs: Path, tmp_path: Path, server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unpacked or downloaded files, and archives of the user, need no further space."""
    archives = coco_site.archives(theirs, tmp_path / "zips").archives
    total = sum(source.bytes for source in archives)
    entry = replace(coco_site.official(theirs), unpacked=Unpacked(archives, 10 * total))
    free = {"bytes": 10 * total - 1}
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=free["bytes"]))
    with pytest.raises(NoSpace, match=f"{10 * total} bytes are needed, {10 * total - 1} are free"):
        fetch.fetch(entry, tmp_path / "data")
    assert server.seen == []  # type: ignore[attr-defined]
    part = tmp_path / "data/.downloads/train2017.zip.part"
    part.parent.mkdir()
    part.write_bytes(b"1234")
    free["bytes"] = 10 * total - 5
    with pytest.raises(NoSpace, match=f"{10 * total - 4} bytes"):
        fetch.fetch(entry, tmp_path / "data")
    free["bytes"] = 9 * total
    take(tmp_path / "zips", tmp_path / "data", entry)
