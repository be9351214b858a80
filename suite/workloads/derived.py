"""What a reader uses beside a dataset's files: made of them once, in a folder that says of which."""

from __future__ import annotations

import json
from pathlib import Path

FOLDER = "index"
ABOUT = "index.json"  # written last: its presence says that the folder is whole


def seal(folder: Path, form: str, digest: str) -> None:
    """Note in ``folder`` that it holds all that the format ``form`` has of the dataset of this digest."""
    sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    (folder / ABOUT).write_text(json.dumps({"format": form, "dataset": digest, "files": sizes}))


def current(folder: Path, form: str, digest: str) -> bool:
    """Whether ``folder`` holds that, and every file as large as it was written."""
    try:
        about = json.loads((folder / ABOUT).read_text())
        files: dict[str, int] = about["files"]
        whole = all((folder / name).stat().st_size == size for name, size in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    return whole and (about.get("format"), about.get("dataset")) == (form, digest)
