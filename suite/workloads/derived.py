"""The index of a dataset: a folder derived from the dataset's files once, which names that dataset."""

from __future__ import annotations

import json
from pathlib import Path

FOLDER = "index"
MANIFEST = "index.json"  # written last: it exists only in a complete folder


def seal(folder: Path, index_format: str, digest: str) -> None:
    """Write the manifest: ``folder`` is the complete index of the dataset with this digest."""
    sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    manifest = {"format": index_format, "dataset": digest, "files": sizes}
    (folder / MANIFEST).write_text(json.dumps(manifest))


def current(folder: Path, index_format: str, digest: str) -> bool:
    """Whether ``folder`` is a complete index of that dataset in that format; compares the files' sizes."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        files: dict[str, int] = manifest["files"]
        complete = all((folder / name).stat().st_size == size for name, size in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    return complete and (manifest.get("format"), manifest.get("dataset")) == (index_format, digest)
