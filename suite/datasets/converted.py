"""A converted dataset: ``<dataset>-<storage format>`` beside the dataset that it was made of.

It contains the same lists, ``storage.json``, the shards, and a manifest with the SHA-256 of the source. It is
built under ``.converting`` and renamed when it is complete.
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

from suite.datasets.errors import DatasetCorrupt, NoSpace, storage_errors
from suite.datasets.prepare import MANIFEST, PreparedDataset, flush
from suite.datasets.verify import Progress, parallel
from suite.workloads.storage import SPLITS, Shard, encoding_of, files_digest

STORAGE = "storage.json"
SHARDS, SOURCE = "shards", "source.json"  # in the work folder of an unfinished conversion
_SPACE = 1.25  # bytes of a storage format over those of the files: LMDB fills whole pages


class ConvertedDataset:
    """One conversion: its target folder, and the work folder while it is unfinished."""

    def __init__(
        self, root: Path, source: PreparedDataset, storage_format: str, batch: int, encoding: str = "file"
    ) -> None:
        self._encoding = encoding_of(encoding)
        again = {} if self._encoding is None else {"encoding": encoding}
        self.name = "-".join((source.name, storage_format, *again.values()))
        self._again = again
        self.target = root / self.name
        self._unfinished = root / ".converting" / self.name
        # One level deeper, because a worker's caches lie beside its scratch.
        self.work_folder = self._unfinished / "work"
        self._source, self._storage_format, self._batch = source, storage_format, batch

    @property
    def _of(self) -> dict[str, Any]:
        """The identity of the source, and the images of a shard."""
        named = {
            name: getattr(self._source, name) for name in ("name", "kind", "digest", "bytes", "generator")
        }
        return named | {"images_per_shard": self._batch} | self._again

    @contextmanager
    def building(self, images: int = 0) -> Iterator[Path]:
        """The work folder, locked for one process; work on other data is removed from it.

        ``images`` are those of all shards, whose number decides the space that raw pixels need.
        """
        with storage_errors(self.work_folder):
            self.work_folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.work_folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise DatasetCorrupt(
                    str(self.work_folder),
                    "one conversion at a time",
                    "another one that is running",
                    "Wait for its end.",
                ) from None
            with storage_errors(self.work_folder):
                if _read(self.work_folder / SOURCE) != self._of:
                    for path in self.work_folder.iterdir():
                        _remove(path)
                    (self.work_folder / SOURCE).write_text(json.dumps(self._of), "utf-8")
                self._require_space(images)
            yield self.work_folder
        finally:
            os.close(lock)

    def _require_space(self, images: int) -> None:
        stored = self._source.bytes
        if self._encoding is not None and self._encoding.kind == "raw":
            stored = images * 3 * self._encoding.size**2
        written = sum(
            path.stat().st_size for path in self.work_folder.glob(f"{SHARDS}/**/*") if path.is_file()
        )
        needed = int(_SPACE * stored) - written
        state = os.statvfs(self.work_folder)
        free = state.f_bavail * state.f_frsize
        if free < needed:
            raise NoSpace(
                f"{self.work_folder}: expected {needed / 1e9:.1f} GB free for {self.name}, found "
                f"{free / 1e9:.1f}. Free space there or choose another DATA_ROOT."
            )

    def finish(
        self, shards: Sequence[tuple[Shard, Mapping[str, Any]]], seconds: float | None = None, why: str = ""
    ) -> None:
        """Write lists, ``storage.json`` and manifest and rename the folder; ``shards`` with records.

        ``seconds`` is the time that all shards took, None with the reason ``why``.
        """
        folder = self.work_folder / SHARDS
        counts = {split: [shard.count for shard, _ in shards if shard.split == split] for split in SPLITS}
        time = {"reason": why} if seconds is None else {"seconds": round(seconds, 3)}
        manifest = self._manifest(shards) | time
        with storage_errors(self.work_folder):
            for split in SPLITS:
                shutil.copyfile(self._source.path / f"{split}.txt", folder / f"{split}.txt")
            stored = {"storage": self._storage_format, "shards": counts}
            (folder / STORAGE).write_text(json.dumps(stored) + "\n", "utf-8")
            (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", "utf-8")
            for name in (*(f"{split}.txt" for split in SPLITS), STORAGE, MANIFEST):
                flush(folder / name)
            folder.rename(self.target)
            flush(self.target.parent)
            shutil.rmtree(self._unfinished)
            with suppress(OSError):  # another conversion is unfinished
                self._unfinished.parent.rmdir()

    def _manifest(self, shards: Sequence[tuple[Shard, Mapping[str, Any]]]) -> dict[str, Any]:
        rows = {
            shard.name(self._storage_format): {
                name: note[name] for name in ("images", "bytes_in", "bytes_out", "pixels")
            }
            | {"sha256": note["written"]}
            for shard, note in shards
        }
        return {"name": self.name, "storage": self._storage_format, "source": self._of, "shards": rows}

    def manifest(self) -> dict[str, Any]:
        """The manifest of the finished conversion."""
        return dict(_read(self.target / MANIFEST))

    def is_complete(self, shards: Sequence[Shard], progress: Progress | None = None) -> bool:
        """Whether the finished conversion exists; DatasetCorrupt where its source or its content differs.

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
        with storage_errors(self.target):
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
