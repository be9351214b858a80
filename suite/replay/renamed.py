"""A copy of the worker's code in which one workload has another name.

A name is in the folder, in the imports and in the specification; nothing else of the code changes, so that
whatever looks for the old name, in a pair or below it, finds none.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from suite.containers.engines.native import PROJECT
from suite.containers.images.inside import inside_files


def rename(workload: str, name: str, place: Path, root: Path = PROJECT) -> Path:
    """Copy what a worker may import of ``root`` into ``place``, with ``workload`` called ``name``.

    Returns ``place``, which is the search path of modules then. ``name`` is a module's name. ValueError where
    the specification does not state its name as it must.
    """
    inside = f"suite/workloads/{workload}/"
    for path in inside_files(root):
        relative = path.relative_to(root).as_posix()
        target = place / (
            f"suite/workloads/{name}/{relative.removeprefix(inside)}"
            if relative.startswith(inside)
            else relative
        )
        target.parent.mkdir(parents=True, exist_ok=True)
        text = renamed_text(path.read_text("utf-8"), workload, name)
        if relative == f"{inside}spec.py":
            text = renamed_specification(text, workload, name)
        target.write_text(text, "utf-8")
    shutil.copymode(root, place)  # a container's worker is another user
    return place


def renamed_text(text: str, workload: str, name: str) -> str:
    """``text`` of a module with its imports of ``workload`` made imports of ``name``, and nothing else."""
    found = rf"^(\s*(?:from|import)\s+suite\.workloads\.){workload}\b"
    return re.sub(found, rf"\g<1>{name}", text, flags=re.MULTILINE)


def renamed_specification(text: str, workload: str, name: str) -> str:
    """The text of a ``spec.py`` with ``name`` in it; ValueError where it does not state ``workload`` once."""
    changed, count = re.subn(rf'\bNAME\s*=\s*"{workload}"', f'NAME = "{name}"', text)
    if count != 1:
        raise ValueError(f'{workload}/spec.py: expected NAME = "{workload}" once, found it {count} times')
    return changed
