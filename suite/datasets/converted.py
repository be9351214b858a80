"""A converted dataset: ``<dataset>-<storage format>`` beside the dataset that it was made of.

It holds the same lists, ``storage.json``, the shards, and a manifest with the SHA-256 of the source. It is
built under ``.converting`` and takes its name when it is whole.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from suite.datasets.errors import DatasetCorrupt, NoSpace, storage
from suite.datasets.prepare import MANIFEST, Prepared, flush
from suite.datasets.verify import Progress, parallel
from suite.workloads.storage import SPLITS, Shard, files_digest

STORAGE = "storage.json"
SHARDS, SOURCE = "shards", "source.json"  # in the place of an unfinished conversion
_ROOM = 1.25  # bytes of a storage format over those of the files: LMDB fills whole pages


class Converted:
    """The place of one conversion: where it will be, and what is there of it."""

    def __init__(self, root: Path, source: Prepared, storage_format: str, batch: int) -> None:
        self.name = f"{source.name}-{storage_format}"
        self.target = root / self.name
        self._unfinished = root / ".converting" / self.name
        # A level below, because a worker's caches lie beside its scratch.
        self.place = self._unfinished / "work"
        self._source, self._storage_format, self._batch = source, storage_format, batch

    @property
    def _of(self) -> dict[str, Any]:
        """What is converted: the identity of the source, and how it is cut."""
        named = {
            name: getattr(self._source, name) for name in ("name", "kind", "digest", "bytes", "generator")
        }
        return named | {"pictures_per_shard": self._batch}

    @contextmanager
    def building(self) -> Iterator[Path]:
        """The place of the unfinished conversion, for one process at a time; another source's is removed."""
        with storage(self.place):
            self.place.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise DatasetCorrupt(
                    str(self.place),
                    "one conversion at a time",
                    "another that is running",
                    "Wait for its end.",
                ) from None
            with storage(self.place):
                if _read(self.place / SOURCE) != self._of:
                    for path in self.place.iterdir():
                        _remove(path)
                    (self.place / SOURCE).write_text(json.dumps(self._of), "utf-8")
                self._need_room()
            yield self.place
        finally:
            os.close(lock)

    def _need_room(self) -> None:
        written = sum(path.stat().st_size for path in self.place.glob(f"{SHARDS}/**/*") if path.is_file())
        needed = int(_ROOM * self._source.bytes) - written
        state = os.statvfs(self.place)
        free = state.f_bavail * state.f_frsize
        if free < needed:
            raise NoSpace(
                f"{self.place}: expected {needed / 1e9:.1f} GB free for {self.name}, found {free / 1e9:.1f}. "
                f"Free space there or choose another DATA_ROOT."
            )

    def finish(self, shards: Sequence[tuple[Shard, Mapping[str, Any]]]) -> None:
        """Give the whole conversion its lists, ``storage.json``, manifest and name; ``shards`` have notes."""
        folder = self.place / SHARDS
        counts = {split: [shard.count for shard, _ in shards if shard.split == split] for split in SPLITS}
        with storage(self.place):
            for split in SPLITS:
                shutil.copyfile(self._source.path / f"{split}.txt", folder / f"{split}.txt")
            stored = {"storage": self._storage_format, "shards": counts}
            (folder / STORAGE).write_text(json.dumps(stored) + "\n", "utf-8")
            (folder / MANIFEST).write_text(json.dumps(self._manifest(shards), indent=1) + "\n", "utf-8")
            for name in (*(f"{split}.txt" for split in SPLITS), STORAGE, MANIFEST):
                flush(folder / name)
            folder.rename(self.target)
            flush(self.target.parent)
            shutil.rmtree(self._unfinished)
            with suppress(OSError):  # another conversion is not finished
                self._unfinished.parent.rmdir()

    def _manifest(self, shards: Sequence[tuple[Shard, Mapping[str, Any]]]) -> dict[str, Any]:
        rows = {
            shard.name(self._storage_format): {
                name: note[name] for name in ("pictures", "bytes_in", "bytes_out", "pixels")
            }
            | {"sha256": note["written"]}
            for shard, note in shards
        }
        return {"name": self.name, "storage": self._storage_format, "source": self._of, "shards": rows}

    def whole(self, shards: Sequence[Shard], progress: Progress | None = None) -> bool:
        """Whether the finished conversion is there; DatasetCorrupt where it is of another source, or changed.

        Every shard is read and its digest compared with the manifest's, on all cores.
        """
        if not self.target.exists():
            return False
        fix = f"Remove the folder {self.target} and run the same command again."
        manifest = _read(self.target / MANIFEST)
        if not isinstance(manifest, dict) or manifest.get("source") != self._of:
            found = manifest.get("source") if isinstance(manifest, dict) else "none"
            raise DatasetCorrupt(str(self.target / MANIFEST), f"a conversion of {self._of}", str(found), fix)

        done, total = 0, sum(shard.count for shard in shards)
        with storage(self.target):
            for count in parallel(
                partial(compare_shard, self.target, self._storage_format, manifest, fix), shards
            ):
                done += count
                if progress:
                    progress(f"verifying {self.name}", done, total)
        return True


def compare_shard(
    folder: Path, storage_format: str, manifest: Mapping[str, Any], fix: str, shard: Shard
) -> int:
    """How many images ``shard`` has, if its files have the digest of ``manifest``; else DatasetCorrupt."""
    names = shard.files(storage_format)
    require_files(folder, names, fix)
    wanted = manifest["shards"].get(shard.name(storage_format), {}).get("sha256")
    if (found := files_digest(folder, names)) != wanted:
        raise DatasetCorrupt(str(folder / names[0]), f"the digest {wanted}", found, fix)
    return shard.count


def require_files(folder: Path, names: Sequence[str], fix: str) -> None:
    """DatasetCorrupt for the first of ``names`` that is not in ``folder``."""
    if missing := next((name for name in names if not (folder / name).is_file()), None):
        raise DatasetCorrupt(str(folder / missing), "a file", "none", fix)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()
