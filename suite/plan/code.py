"""The identity of the code that runs: the digest of its files, and the state of the git checkout."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from suite.containers.engines.native import PROJECT

FOLDERS = {"suite": ".py", "conf": ".yaml", "rules": ""}  # folder -> ending of the covered files
_NOT_COVERED = ("images", "releases")  # folders in a version of the rules


def code_digest(root: Path = PROJECT) -> str:
    """SHA-256 over the sorted list of (SHA-256 of the contents, name) of every covered file.

    The image lock is not covered: it names images by digest, published layers by the digest of
    their code. Releases are not covered either: they are named by this digest. The header's ``rules.files``
    holds the digests of the lock entries that a run uses.
    """
    paths = [path for folder in FOLDERS for path in root.joinpath(folder).rglob("*") if path.is_file()]
    names = filter(is_covered, (path.relative_to(root).as_posix() for path in paths))
    return digest_of({name: hashlib.sha256(root.joinpath(name).read_bytes()).hexdigest() for name in names})


@cache
def current_code_digest() -> str:
    """:func:`code_digest` of the running code, computed once per process."""
    return code_digest()


def is_covered(name: str) -> bool:
    """Whether :func:`code_digest` covers the file with this path in the project."""
    folder, *inner = name.split("/")
    if folder not in FOLDERS or not name.endswith(FOLDERS[folder]):
        return False
    return not (folder == "rules" and len(inner) > 2 and inner[1] in _NOT_COVERED)


def digest_of(files: Mapping[str, str]) -> str:
    """The digest of ``files``: path in the project -> SHA-256 of the contents."""
    lines = [f"{files[name]}  {name}\n" for name in sorted(files)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


@cache
def current_git_state() -> tuple[dict[str, object], dict[str, str]]:
    """``commit`` and ``dirty``, and the reasons if they are null because there is no repository.

    They are read once per process; callers copy the dictionaries before changing them.
    """
    commit = _git("rev-parse", "HEAD")
    changed = _git("status", "--porcelain", "--", "suite", "conf", "rules", "containers")
    if commit is None or changed is None:
        why = "not a git checkout, or git is missing"
        return {"commit": None, "dirty": None}, {"git.commit": why, "git.dirty": why}
    return {"commit": commit, "dirty": bool(changed)}, {}


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(PROJECT), *arguments], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


if __name__ == "__main__":
    print(code_digest())
