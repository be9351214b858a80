"""A copy of the worker's code in which one workload has another name.

The name of the folder, the imports and the specification change, and nothing else: code that searches for
the original name finds none.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from suite.containers.engines.native import PROJECT
from suite.containers.images.inside import inside_files


def copy_renamed(workload: str, name: str, folder: Path) -> None:
    """Copy the modules that a worker may import into ``folder``, with ``workload`` as ``name``.

    ``folder`` is then a search path of modules. ``name`` must be a valid name of a module. ValueError if the
    specification does not state its name exactly once.
    """
    inside = f"suite/workloads/{workload}/"
    for path in inside_files(PROJECT):
        relative = path.relative_to(PROJECT).as_posix()
        target = folder / (
            f"suite/workloads/{name}/{relative.removeprefix(inside)}"
            if relative.startswith(inside)
            else relative
        )
        target.parent.mkdir(parents=True, exist_ok=True)
        text = renamed_text(path.read_text("utf-8"), workload, name)
        if relative == f"{inside}spec.py":
            text = renamed_specification(text, workload, name)
        target.write_text(text, "utf-8")
    shutil.copymode(PROJECT, folder)  # the worker in a container runs as another user


def renamed_text(text: str, workload: str, name: str) -> str:
    """The ``text`` of a module that imports ``name`` instead of ``workload``; nothing else changes."""
    pattern = rf"^(\s*(?:from|import)\s+suite\.workloads\.){workload}\b"
    return re.sub(pattern, rf"\g<1>{name}", text, flags=re.MULTILINE)


def renamed_specification(text: str, workload: str, name: str) -> str:
    """The ``text`` of a ``spec.py`` with the name ``name``; ValueError unless it names ``workload`` once."""
    changed, count = re.subn(rf'\bNAME\s*=\s*"{workload}"', f'NAME = "{name}"', text)
    if count != 1:
        raise ValueError(f'{workload}/spec.py: expected NAME = "{workload}" once, found it {count} times')
    return changed
