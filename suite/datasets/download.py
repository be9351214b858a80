"""Download a publisher's archive; an interrupted download is resumed, a wrong digest is refused."""

from __future__ import annotations

import fcntl
import http.client
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

from suite.datasets.catalogue import DownloadSource
from suite.datasets.errors import DatasetCorrupt, FetchFailed, NoSpace, storage_errors
from suite.datasets.install import verify_archive
from suite.datasets.verify import Progress

DOWNLOADS = ".downloads"
_BLOCK = 1 << 16
_TIMEOUT_S = 30
_ATTEMPTS = 3
_AGENT = "deep-learning-benchmark-suite"
_OTHERWISE = "Fetch the file by other means and give it as FROM=path."


def require_space(root: Path, wanted: int) -> None:
    """Raise ``NoSpace`` where fewer than ``wanted`` bytes are free; makes ``root``."""
    with storage_errors(root):
        root.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(root).free
    if free < wanted:
        raise NoSpace(f"{root}: {wanted} bytes are needed, {free} are free. Choose another DATA_ROOT.")


def download(source: DownloadSource, folder: Path, progress: Progress | None = None) -> Path:
    """The verified archive in ``folder``; an earlier partial download there is continued."""
    name = source.url.rsplit("/", 1)[-1]
    part = folder / f"{name}.part"
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with part.open("ab") as stream, exclusive(stream, part):
            problem = _fill(source, stream, progress)
            done = stream.tell()
        if not done:
            discard(part)
    if done < source.bytes:
        again = "to continue" if done else "when the server can be reached"
        raise FetchFailed(
            f"{source.url}: {problem}; have {done} of {source.bytes} bytes. Run the same command again "
            f"{again}, or fetch the file by other means and give it as FROM=path."
        )
    try:
        verify_archive(source, part)
    except DatasetCorrupt:
        discard(part)
        raise
    return part


def discard(part: Path) -> None:
    """Remove a download, and the folder of downloads once it is empty."""
    part.unlink()
    if not any(part.parent.iterdir()):
        part.parent.rmdir()


def size_of(url: str) -> int:
    """The size that the server states for ``url``; FetchFailed without an answer or a size."""
    request = urllib.request.Request(url, method="HEAD", headers={"User-Agent": _AGENT})
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
            length = response.headers.get("Content-Length", "")
    except (OSError, http.client.HTTPException) as error:
        raise FetchFailed(f"{url}: cannot connect ({error}). {_OTHERWISE}") from error
    if not length.isdigit():
        raise FetchFailed(f"{url}: expected a size (Content-Length), found none. {_OTHERWISE}")
    return int(length)


@contextmanager
def exclusive(lock: IO[Any], path: Path) -> Iterator[None]:
    """Lock the open file ``lock`` for one process; FetchFailed where another process works on ``path``."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FetchFailed(f"another process is working on {path}. Wait for it to end.") from None
    yield


def _fill(source: DownloadSource, stream: BinaryIO, progress: Progress | None) -> str:
    """Append to ``stream`` until it has the size of the source; returns the text of the last problem."""
    problem = "the server sent no data"
    for _ in range(_ATTEMPTS):
        if stream.tell() >= source.bytes:
            break
        try:
            _receive(source, stream, progress)
            problem = "the connection ended early"
        except urllib.error.HTTPError as error:
            problem = f"the server answered {error.code} {error.reason}"
            if error.code < 500:
                break
        except urllib.error.URLError as error:
            problem = f"cannot connect ({error.reason})"
        except (TimeoutError, ConnectionError, http.client.HTTPException) as error:
            problem = f"the connection broke ({str(error) or type(error).__name__})"
    return problem


def _receive(source: DownloadSource, stream: BinaryIO, progress: Progress | None) -> None:
    """One request for the missing bytes. A server without ranges sends the file from its start."""
    have = stream.tell()
    headers = {"User-Agent": _AGENT, "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    request = urllib.request.Request(source.url, headers=headers)
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
        resumed = response.status == 206 and response.headers.get("Content-Range", "").startswith(
            f"bytes {have}-"
        )
        if have and not resumed:
            stream.truncate(0)
            stream.seek(0)
        # One byte beyond the expected size proves that it is another file.
        while stream.tell() <= source.bytes:
            block = _read(response, min(_BLOCK, source.bytes + 1 - stream.tell()))
            if not block:
                return
            stream.write(block)
            if progress:
                progress(f"downloading {source.url}", stream.tell(), source.bytes)


def _read(response: http.client.HTTPResponse, count: int) -> bytes:
    """A block of the answer; failures become ConnectionError, to distinguish them from the disk's."""
    try:
        return response.read(count)
    except OSError as error:
        raise ConnectionError(str(error)) from error
