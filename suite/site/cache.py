"""What was computed before: facts and pages by the digest of everything that they follow from.

A result's key covers the bytes of its files, its path in the folder, its withdrawal, the rest of the
registry, all rules and all code of the suite. An entry is therefore never stale; the folder may be deleted at
any time.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson

from suite.log.files import ALLOWED
from suite.rules.root import SHIPPED
from suite.submissions.registry.read import WITHDRAWALS

_SUITE = Path(__file__).resolve().parents[1]
_CODE = (".py", ".css", ".js", ".json")
_STATS = "files.json"  # digests of files by path, size and times, as in git's index


class Cache:
    """The entries in the folder ``path``, which is made when the first one is written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stats: dict[str, list[Any]] = self.read(_STATS) or {}
        self._seen: dict[str, list[Any]] = {}

    def read(self, name: str) -> Any:
        """The JSON values of one entry; None where there is none that can be read."""
        try:
            return orjson.loads((self.path / name).read_bytes())
        except (OSError, ValueError):
            return None

    def write(self, name: str, value: Any) -> None:
        """Write one entry of JSON values."""
        write(self.path / name, orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS))

    def read_text(self, name: str) -> str | None:
        """The text of one entry; None where there is none."""
        try:
            return (self.path / name).read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            return None

    def write_text(self, name: str, value: str) -> None:
        """Write one entry of text."""
        write(self.path / name, value.encode())

    def digest(self, path: Path | str) -> str:
        """SHA-256 of a regular file, read again only if its size, times or inode changed; else empty.

        ``path`` is absolute.
        """
        version = version_of(path)
        if version is None:
            return ""
        name = str(path)
        known = self._stats.get(name)
        if known is None or known[:-1] != version:
            try:
                known = [*version, sha256(Path(path).read_bytes()).hexdigest()]
            except OSError:
                return ""
        self._seen[name] = known
        return str(known[-1])

    def close(self) -> None:
        """Keep the digests of the files that were read."""
        if any(self._stats.get(name) != known for name, known in self._seen.items()):
            self.write(_STATS, self._stats | self._seen)


def version_of(path: Path | str) -> list[int] | None:
    """What changes with a regular file: size, times, inode and device; None where there is no such file."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev]


def write(path: Path, data: bytes) -> None:
    """Write a file at once: a reader sees the old bytes or the new ones."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise


def key_of(files: Cache, folder: Path, root: Path, registry: str, withdrawal: str) -> str:
    """The key of the result in ``folder``: its files, its path below ``root``, registry, rules and code."""
    location = location_of(folder, root)
    names = sorted(os.listdir(folder))  # noqa: PTH208 - a Path for each of thousands of files is slow
    others = [name for name in names if name not in ALLOWED]
    parts = [f"{files.digest(f'{folder}/{name}') if name in names else ''} {name}" for name in ALLOWED]
    return _digest([*parts, *others, location, registry, withdrawal, code_digest()])


def location_of(folder: Path, root: Path) -> str:
    """The path of ``folder`` below ``root``; its name where it lies elsewhere. Both are absolute."""
    path, above = str(folder), f"{root}/"
    return path.removeprefix(above) if path.startswith(above) else folder.name


def registry_digest(root: Path, valid_waivers: Iterable[str]) -> str:
    """One digest of the registry in ``root`` and of the names of the waivers that are valid now.

    Withdrawals are left out: each concerns one result only, and is part of its key.
    """
    folder = root / "registry"
    own = folder / f"{WITHDRAWALS}.json"
    files = sorted(
        path for path in folder.rglob("*") if path.is_file() and not path.is_symlink() and path != own
    )
    lines = [f"{sha256(path.read_bytes()).hexdigest()} {path.relative_to(folder)}" for path in files]
    return _digest([*lines, *sorted(valid_waivers)])


@cache
def code_digest() -> str:
    """One digest of the code, style sheet and script of the suite, and of all rules."""
    code = [path for path in _SUITE.rglob("*") if path.suffix in _CODE and path.is_file()]
    rules = [path for path in SHIPPED.path.rglob("*.json") if path.is_file()]
    named = [(path.relative_to(_SUITE.parent).as_posix(), path) for path in code]
    named += [(path.relative_to(SHIPPED.path).as_posix(), path) for path in rules]
    return _digest(f"{sha256(path.read_bytes()).hexdigest()} {name}" for name, path in sorted(named))


def _digest(lines: Iterable[str]) -> str:
    return sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()
