"""Builds the site: pure functions of checked logs, written only where a file changes."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from suite.checker.verdict import without_collection
from suite.log.files import LOG, read_file
from suite.log.finding import RecordError
from suite.site.cache import Cache, version_of, write
from suite.site.collect import Collection, Result, collect
from suite.site.pages import all_pages
from suite.site.pages.result import result_page

MANIFEST = "site.json"  # the names of the files of the site, so that a rebuild removes those of the last one
_FORMAT = "suite-site/1"
_OURS = re.compile(r"(?:[a-z]+/)?[a-z0-9_-]+\.(?:html|txt)")


class SiteError(Exception):
    """The site cannot be written; the message states what to do."""


@dataclass(frozen=True, slots=True)
class Built:
    """What a build did: the collection, its number of files, and how many of them changed."""

    collection: Collection
    files: int
    written: int
    removed: int


def build(source: Path, target: Path, cache_folder: Path, baselines: Path | None = None) -> Built:
    """Write the site of the results below ``source``, and of the baselines, into ``target``.

    Raises SiteError if ``target`` holds files of something else, OSError.
    """
    before = _manifest(target)
    with without_collection():  # a thousand results make a million strings and no cycles
        return _built(source, target, Cache(cache_folder), before, baselines)


def _built(source: Path, target: Path, cache: Cache, before: set[str], baselines: Path | None) -> Built:
    collection = collect(source, cache, baselines=baselines)
    parts_name, pages_name = (
        f"{sha256(str(path.absolute()).encode()).hexdigest()}.{kind}"
        for path, kind in ((source, "parts"), (target, "pages"))
    )
    parts = cache.read(parts_name) or {}
    for result in collection.results:
        result.made.update(parts.get(result.version, {}))
    pages = dict(all_pages(collection))
    if parts != (made := {result.version: result.made for result in collection.results}):
        cache.write(parts_name, made)
    as_written = cache.read(pages_name) or {}
    now: dict[str, Any] = {}
    folder, written = str(target), 0
    names = set(pages)
    for name, page in pages.items():
        written += _written(target / name, page.encode())
    for result in collection.results:
        files: dict[str, Callable[[Result, Cache, Path], bool]] = {f"r/{result.digest}.html": _page}
        if result.facts["audit"]["sha256"] is not None:
            files[f"log/{result.digest}.txt"] = _log
        for name, write_file in files.items():
            path = f"{folder}/{name}"
            # A file that is as the last build left it, of a result that is as it was then, is not read again.
            now[name] = [result.version, version_of(path)]
            if now[name] != as_written.get(name):
                written += write_file(result, cache, Path(path))
                now[name] = [result.version, version_of(path)]
    names |= set(now)
    if now != as_written:
        cache.write(pages_name, now)
    gone = before - names
    for name in gone:
        with contextlib.suppress(FileNotFoundError):
            (target / name).unlink()
    _written(
        target / MANIFEST, (json.dumps({"format": _FORMAT, "files": sorted(names)}, indent=0) + "\n").encode()
    )
    return Built(collection, len(names), written, len(gone))


def _page(result: Result, cache: Cache, path: Path) -> bool:
    """Write the page of a result, from the cache if nothing that it shows has changed."""
    name = f"{result.version}.html"
    found = cache.read_text(name)
    if found is None:
        found = result_page(result)
        cache.write_text(name, found)
    return _written(path, found.encode())


def _written(path: Path, data: bytes) -> bool:
    """Whether the file had to be written: equal files stay as they are."""
    with contextlib.suppress(OSError):
        if path.read_bytes() == data:
            return False
    write(path, data)
    return True


def _log(result: Result, _cache: Cache, path: Path) -> bool:
    """Copy the log, whose name is its digest, if it is not there yet."""
    folder = os.open(result.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        size = os.stat(LOG, dir_fd=folder, follow_symlinks=False).st_size
        if path.is_file() and path.stat().st_size == size:
            return False
        data = read_file(folder, LOG)
    except (RecordError, OSError) as error:
        raise SiteError(f"{result.folder}: the log changed while the site was built: {error}") from error
    finally:
        os.close(folder)
    if sha256(data).hexdigest() != result.digest:
        raise SiteError(f"{result.folder}: the log changed while the site was built; build it again")
    write(path, data)
    return True


def _manifest(target: Path) -> set[str]:
    """The files of the last build in ``target``; SiteError if it holds something else."""
    try:
        value = json.loads((target / MANIFEST).read_bytes())
        return {name for name in value["files"] if _OURS.fullmatch(name)}
    except FileNotFoundError:
        if target.is_dir() and any(target.iterdir()):
            raise SiteError(
                f"{target}: expected an empty folder or a site, found other files; give another TO="
            ) from None
        return set()
    except (ValueError, KeyError, TypeError) as error:
        raise SiteError(
            f"{target / MANIFEST}: expected the list of a site's files, found {error!r}"
        ) from error
