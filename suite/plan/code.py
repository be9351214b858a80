"""Which code runs: the digest of the files' contents, and what git says."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from suite.containers.engines.native import PROJECT

FOLDERS = {"suite": ".py", "conf": ".yaml", "rules": ""}  # where the code is, and how its files' names end
_BESIDE = ("images", "releases")  # of a version of the rules


def code_digest(root: Path = PROJECT) -> str:
    """SHA-256 over the sorted list of (SHA-256 of the contents, name) of every file that takes part.

    The lock of images does not: it names images by digest, and published layers by the digest of the code in
    them; neither do releases, which are named by this digest. The header's ``rules.files`` states the digests
    of the entries that a run uses.
    """
    paths = [path for folder in FOLDERS for path in root.joinpath(folder).rglob("*") if path.is_file()]
    names = filter(takes_part, (path.relative_to(root).as_posix() for path in paths))
    return digest_of({name: hashlib.sha256(root.joinpath(name).read_bytes()).hexdigest() for name in names})


@cache
def code_digest_here() -> str:
    """:func:`code_digest` of this process's own files: every header that it makes says the same."""
    return code_digest()


def takes_part(name: str) -> bool:
    """Whether a file of the project, by its path in it, is one that :func:`code_digest` covers."""
    folder, *inner = name.split("/")
    if folder not in FOLDERS or not name.endswith(FOLDERS[folder]):
        return False
    return not (folder == "rules" and len(inner) > 2 and inner[1] in _BESIDE)


def digest_of(files: Mapping[str, str]) -> str:
    """The digest of files by their paths in the project, each with the SHA-256 of its contents."""
    lines = [f"{files[name]}  {name}\n" for name in sorted(files)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def git_state(root: Path = PROJECT) -> tuple[dict[str, object], dict[str, str]]:
    """``commit`` and ``dirty``, and why they are null where there is no repository."""
    commit = _git(root, "rev-parse", "HEAD")
    changed = _git(root, "status", "--porcelain", "--", "suite", "conf", "rules", "containers")
    if commit is None or changed is None:
        why = "not a git checkout, or git is missing"
        return {"commit": None, "dirty": None}, {"git.commit": why, "git.dirty": why}
    return {"commit": commit, "dirty": bool(changed)}, {}


@cache
def git_state_here() -> tuple[dict[str, object], dict[str, str]]:
    """:func:`git_state` as this process found it; the dictionaries are the caller's to copy."""
    return git_state()


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


if __name__ == "__main__":
    print(code_digest())
