"""Fetching against a server on this machine: ranges, truncation, wrong bytes, refusals, copies."""

from __future__ import annotations

import hashlib
import io
import json
import socket
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from suite.cli import main as cli
from suite.datasets import catalogue, download, fetch, prepare
from suite.datasets.catalogue import CatalogueEntry, DownloadSource, File, Ratings
from suite.datasets.errors import DatasetCorrupt, DatasetMissing, FetchFailed, NoSpace

RATINGS = b"".join(b"%d::%d::3::%d\n" % (n % 50 + 1, n * 7 % 90 + 1, 10**9 + n) for n in range(4500))


def _zip(member: str = "ml-1m/ratings.dat", content: bytes = RATINGS) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("ml-1m/README", "read me")
        archive.writestr("../../escaped", "never unpacked")
        archive.writestr(member, content)
    return buffer.getvalue()


ARCHIVE = _zip()


class Server(ThreadingHTTPServer):
    """Serves one archive; each attribute is a way to misbehave."""

    daemon_threads = True
    content = ARCHIVE
    ranges = True
    cut: list[int]  # how many bytes of the body the next answers send before the connection closes
    status: list[int]  # statuses of the next answers
    requests: list[str | None]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.requests.append(wanted)
        if self.server.status:
            self.send_error(self.server.status.pop(0))
            return
        start = 0
        if wanted and self.server.ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            self.send_response(206)
            last = len(self.server.content) - 1
            self.send_header("Content-Range", f"bytes {start}-{last}/{last + 1}")
        else:
            self.send_response(200)
        body = self.server.content[start:]
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: self.server.cut.pop(0)] if self.server.cut else body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Server(("127.0.0.1", 0), Handler)
    server.cut, server.status, server.requests = [], [], []
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def _entry(port: int, archive: bytes = ARCHIVE) -> CatalogueEntry:
    source = DownloadSource(
        url=f"http://127.0.0.1:{port}/datasets/ml-1m.zip",
        bytes=len(archive),
        md5=hashlib.md5(archive).hexdigest(),
        sha256=hashlib.sha256(archive).hexdigest(),
        member="ml-1m/ratings.dat",
    )
    return replace(
        catalogue.entry("ml-1m"),
        files={"ratings.dat": File(len(RATINGS), None)},
        bytes=len(RATINGS),
        source=source,
        ratings=Ratings(4500, 50, 90),
    )


@pytest.fixture
def entry(server: Server) -> CatalogueEntry:
    return _entry(server.server_address[1])


def _only_the_dataset(root: Path) -> bool:
    return [path.name for path in root.iterdir()] == ["ml-1m"]


def test_fetch_verifies_and_unpacks_one_member(server: Server, entry: CatalogueEntry, tmp_path: Path) -> None:
    steps: list[tuple[int, int | None]] = []
    found = fetch.fetch(entry, tmp_path, lambda task, done, total: steps.append((done, total)))
    assert (tmp_path / "ml-1m" / "ratings.dat").read_bytes() == RATINGS
    assert found.digest == catalogue.digest_of({"ratings.dat": hashlib.sha256(RATINGS).hexdigest()})
    assert found.generator is None
    assert (len(ARCHIVE), len(ARCHIVE)) in steps
    manifest = json.loads((tmp_path / "ml-1m" / "manifest.json").read_text())
    assert manifest["parameters"] == {"archive_sha256": hashlib.sha256(ARCHIVE).hexdigest()}
    assert server.requests == [None]
    assert _only_the_dataset(tmp_path)
    assert not (tmp_path.parent / "escaped").exists()
    fetch.fetch(entry, tmp_path)
    assert len(server.requests) == 1, "what is there is not fetched again"


def test_broken_connection_is_resumed(server: Server, entry: CatalogueEntry, tmp_path: Path) -> None:
    server.cut = [1000, 500]
    fetch.fetch(entry, tmp_path)
    assert server.requests == [None, "bytes=1000-", "bytes=1500-"]
    assert (tmp_path / "ml-1m" / "ratings.dat").read_bytes() == RATINGS


def test_next_command_continues_the_download(server: Server, entry: CatalogueEntry, tmp_path: Path) -> None:
    server.cut = [1000, 0, 0]
    with pytest.raises(FetchFailed, match=rf"have 1000 of {len(ARCHIVE)} bytes.*again to continue") as caught:
        fetch.fetch(entry, tmp_path)
    assert caught.value.exit_code == 12
    assert not (tmp_path / "ml-1m").exists()
    server.requests.clear()
    fetch.fetch(entry, tmp_path)
    assert server.requests == ["bytes=1000-"]
    assert _only_the_dataset(tmp_path)


def test_server_without_ranges_sends_the_file_from_its_start(
    server: Server, entry: CatalogueEntry, tmp_path: Path
) -> None:
    server.ranges = False
    server.cut = [1000]
    fetch.fetch(entry, tmp_path)
    assert server.requests == [None, "bytes=1000-"]
    assert (tmp_path / "ml-1m" / "ratings.dat").read_bytes() == RATINGS


def test_wrong_bytes_are_refused_and_removed(server: Server, entry: CatalogueEntry, tmp_path: Path) -> None:
    changed = bytearray(ARCHIVE)
    changed[100] ^= 1
    server.content = bytes(changed)
    with pytest.raises(DatasetCorrupt) as caught:
        fetch.fetch(entry, tmp_path)
    assert hashlib.sha256(ARCHIVE).hexdigest() in caught.value.expected
    assert caught.value.found == hashlib.sha256(changed).hexdigest()
    assert not any(tmp_path.iterdir()), "a wrong file must not be resumed"


def test_longer_file_is_not_read_to_its_end(server: Server, entry: CatalogueEntry, tmp_path: Path) -> None:
    server.content = ARCHIVE + bytes(10_000_000)
    with pytest.raises(DatasetCorrupt, match=f"found {len(ARCHIVE) + 1} bytes"):
        fetch.fetch(entry, tmp_path)
    assert len(server.requests) == 1


def test_http_errors_have_distinct_messages(server: Server, entry: CatalogueEntry, tmp_path: Path) -> None:
    server.status = [404]
    with pytest.raises(FetchFailed, match=r"404 Not Found.*FROM=path"):
        fetch.fetch(entry, tmp_path)
    assert len(server.requests) == 1, "what is not there is not asked for again"
    server.status = [503, 502]
    fetch.fetch(entry, tmp_path)
    assert len(server.requests) == 4


def test_refused_connection_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as bound_socket:
        bound_socket.bind(("127.0.0.1", 0))  # bound, not listening: refuses
        with pytest.raises(FetchFailed, match=r"cannot connect.*refused.*FROM=path"):
            fetch.fetch(_entry(bound_socket.getsockname()[1]), tmp_path)
    assert not any(tmp_path.iterdir())


def test_second_download_of_the_same_file_is_refused(
    server: Server, entry: CatalogueEntry, tmp_path: Path
) -> None:
    folder = tmp_path / download.DOWNLOADS
    folder.mkdir()
    part = folder / "ml-1m.zip.part"
    with (
        part.open("ab") as stream,
        download.exclusive(stream, part),
        pytest.raises(FetchFailed, match="another"),
    ):
        fetch.fetch(entry, tmp_path)
    assert not server.requests


def test_lack_of_space_is_reported_before_the_download(
    server: Server, entry: CatalogueEntry, tmp_path: Path
) -> None:
    assert entry.source is not None
    huge = replace(entry, source=replace(entry.source, bytes=1 << 60))
    with pytest.raises(NoSpace, match="are free") as caught:
        fetch.fetch(huge, tmp_path)
    assert caught.value.exit_code == 15
    assert not server.requests


@pytest.mark.parametrize("copy_kind", ["zip", "file", "folder", "folder of the zip"])
def test_copy_is_taken_without_network(
    server: Server, entry: CatalogueEntry, tmp_path: Path, copy_kind: str
) -> None:
    theirs, root = tmp_path / "theirs", tmp_path / "data"
    (theirs / "ml-1m").mkdir(parents=True)
    if "zip" in copy_kind:
        (theirs / "ml-1m.zip").write_bytes(ARCHIVE)
    else:
        (theirs / "ml-1m" / "ratings.dat").write_bytes(RATINGS)
    inside = {"zip": theirs / "ml-1m.zip", "file": theirs / "ml-1m" / "ratings.dat"}
    before = sorted((path, path.stat().st_mtime_ns) for path in theirs.rglob("*"))
    fetch.fetch(entry, root, copy=inside.get(copy_kind, theirs))
    assert (root / "ml-1m" / "ratings.dat").read_bytes() == RATINGS
    assert before == sorted((path, path.stat().st_mtime_ns) for path in theirs.rglob("*"))
    assert not server.requests
    assert _only_the_dataset(root)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (RATINGS[:-1], "bytes"),
        (RATINGS + b"\n", "more than"),
        (RATINGS.replace(b"::3::", b"::x::", 1), "line 1"),
        (b"51" + RATINGS[1:].replace(b"\n", b"", 1), "line 1"),
        (RATINGS.replace(b"\n2::", b"\n1::"), "users=49"),
    ],
)
def test_copy_that_is_no_movielens_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "ratings.dat"
    path.write_bytes(content)
    with pytest.raises(DatasetCorrupt, match=message):
        fetch.fetch(_entry(1), tmp_path / "data", copy=path)
    assert not any((tmp_path / "data").iterdir())


def test_archives_that_differ_from_the_publishers_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "ml-1m.zip"
    path.write_bytes(_zip(content=RATINGS + b"1::1::1::1\n"))
    with pytest.raises(DatasetCorrupt, match=r"bytes|sha256"):
        fetch.fetch(_entry(1), tmp_path / "data", copy=path)
    # archives with the right checksum: a missing member, and a member above its size limit
    for archive, message in (
        (_zip("other"), "ratings.dat"),
        (_zip(content=RATINGS + bytes(10**7)), "more than"),
    ):
        path.write_bytes(archive)
        with pytest.raises(DatasetCorrupt, match=message):
            fetch.fetch(_entry(1, archive), tmp_path / "data", copy=path)
    assert not any((tmp_path / "data").iterdir())
    with pytest.raises(DatasetMissing, match="no such file"):
        fetch.fetch(_entry(1), tmp_path / "data", copy=tmp_path / "absent")
    (tmp_path / "hollow").mkdir()
    with pytest.raises(DatasetMissing, match="found none"):
        fetch.fetch(_entry(1), tmp_path / "data", copy=tmp_path / "hollow")


# CIFAR-10: several members of a tar.gz

BATCHES = {
    f"cifar-10-batches-bin/{name}.bin": hashlib.sha256(name.encode()).digest() * 100
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
}


def _tar(contents: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in {"cifar-10-batches-bin/readme.html": b"read me", **contents}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("cifar-10-batches-bin/data_batch_9.bin")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return buffer.getvalue()


def _cifar(archive: bytes, port: int = 1) -> CatalogueEntry:
    source = DownloadSource(
        url=f"http://127.0.0.1:{port}/cifar-10-binary.tar.gz",
        bytes=len(archive),
        md5=None,
        sha256=hashlib.sha256(archive).hexdigest(),
    )
    sha1 = {name: f"sha1:{hashlib.sha1(content).hexdigest()}" for name, content in BATCHES.items()}
    files = {name: File(len(content), None) for name, content in BATCHES.items()}
    return replace(catalogue.entry("cifar-10"), files=files, source=source, published=sha1)


def test_rules_name_the_source_of_cifar() -> None:
    entry = catalogue.entry("cifar-10")
    assert entry.source is not None
    assert entry.source.url == "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
    assert set(entry.files) == set(BATCHES) == set(entry.published)
    assert entry.published["cifar-10-batches-bin/test_batch.bin"].startswith("sha1:67eb016d")
    assert entry.bytes == sum(file.bytes or 0 for file in entry.files.values()) == 6 * 10_000 * 3073


def test_fetch_unpacks_the_members_of_a_tar(server: Server, tmp_path: Path) -> None:
    server.content = _tar(BATCHES)
    found = fetch.fetch(_cifar(server.content, server.server_address[1]), tmp_path)
    assert {path.relative_to(found.path).as_posix(): path.read_bytes() for path in found.paths} == BATCHES
    assert [path.name for path in (found.path / "cifar-10-batches-bin").iterdir()] == [
        path.name for path in (found.path / "cifar-10-batches-bin").glob("*_batch*.bin")
    ]
    assert not list(found.path.glob("*/readme*"))


@pytest.mark.parametrize("copy_kind", ["archive", "folder", "folder of the files", "folder of the archive"])
def test_copy_of_several_files_is_taken(tmp_path: Path, copy_kind: str) -> None:
    theirs, archive = tmp_path / "theirs", _tar(BATCHES)
    (theirs / "cifar-10-batches-bin").mkdir(parents=True)
    if "archive" in copy_kind:
        (theirs / "cifar-10-binary.tar.gz").write_bytes(archive)
    else:
        for name, content in BATCHES.items():
            (theirs / name).write_bytes(content)
    sources = {
        "archive": theirs / "cifar-10-binary.tar.gz",
        "folder of the files": theirs / "cifar-10-batches-bin",
    }
    found = fetch.fetch(_cifar(archive), tmp_path / "data", copy=sources.get(copy_kind, theirs))
    assert {path.relative_to(found.path).as_posix(): path.read_bytes() for path in found.paths} == BATCHES


def test_members_that_differ_from_the_publishers_are_refused(tmp_path: Path) -> None:
    name = "cifar-10-batches-bin/data_batch_4.bin"
    for contents, message in (
        ({**BATCHES, name: b"x" * 3200}, f"{name}: expected sha1:"),
        ({**BATCHES, name: BATCHES[name] + b"x"}, f"{name}: expected 3200 bytes, found more than"),
        (
            {other: content for other, content in BATCHES.items() if other != name},
            f"{name}: expected this file",
        ),
    ):
        archive = _tar(contents)
        (tmp_path / "copy").write_bytes(archive)
        with pytest.raises(DatasetCorrupt, match=message):
            fetch.fetch(_cifar(archive), tmp_path / "data", copy=tmp_path / "copy")
    (tmp_path / "folder/cifar-10-batches-bin").mkdir(parents=True)
    for other in list(BATCHES)[1:]:
        (tmp_path / "folder" / other).write_bytes(BATCHES[other])
    with pytest.raises(DatasetMissing, match="not all of them"):
        fetch.fetch(_cifar(archive), tmp_path / "data", copy=tmp_path / "folder")
    (tmp_path / "no archive").write_bytes(b"neither")
    with pytest.raises(DatasetCorrupt, match="bytes"):
        fetch.fetch(_cifar(archive), tmp_path / "data", copy=tmp_path / "no archive")
    assert not any((tmp_path / "data").iterdir())


# The command


def _run(*arguments: str) -> int:

    return cli(["data", *arguments])


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch, entry: CatalogueEntry) -> CatalogueEntry:
    real = catalogue.entry
    monkeypatch.setattr(catalogue, "entry", lambda name: entry if name == "ml-1m" else real(name))
    return entry


def test_command_fetches_verifies_and_prints_the_licence(
    known: CatalogueEntry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run("--workload", "ncf", "--data-root", str(tmp_path)) == 0
    out = capsys.readouterr().out
    assert out.index("no redistribution") < out.index("fetching"), "the licence is shown before the download"
    assert "digest" in out
    assert _run("--workload", "ncf", "--verify", "--data-root", str(tmp_path)) == 0
    (tmp_path / "ml-1m" / "ratings.dat").write_bytes(RATINGS.replace(b"::3::", b"::4::", 1))
    assert _run("--workload", "ncf", "--verify", "--data-root", str(tmp_path)) == 12
    assert "sha256" in capsys.readouterr().err


@pytest.mark.usefixtures("ample_disk")
def test_command_reports_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = ["--data-root", str(tmp_path)]
    with pytest.raises(SystemExit) as stop:
        _run("--workload", "ncff", *root)
    assert stop.value.code == 2
    assert "did you mean ncf?" in capsys.readouterr().err
    assert _run("--workload", "ncf", "--verify", *root) == 12
    assert "make data WORKLOAD=ncf" in capsys.readouterr().err
    assert _run("--workload", "gnmt", "--from", str(tmp_path), *root) == 12
    assert "found no de-en.tgz or training-parallel-europarl-v7.tgz" in capsys.readouterr().err
    assert _run("--workload", "ncf", "--from", str(tmp_path / "absent"), *root) == 12
    assert "no such file" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())
    assert _run("--workload", "ncf", "--scale", "mini", *root) == 0
    assert prepare.available("ml-1m-mini", tmp_path)
