"""Which code runs: the digest of the files' contents, and what git says."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from suite.runtime.native import PROJECT

_PARTS = ("suite/**/*.py", "conf/**/*.yaml", "rules/**/*")


def code_digest(root: Path = PROJECT) -> str:
    """SHA-256 over the sorted list of (SHA-256 of the contents, name) of every file that takes part.

    The lock of images does not: it names images by digest, and published layers by the digest of the code in
    them; neither do releases, which are named by this digest. The header's ``rules.files`` states the digests
    of the entries that a run uses.
    """
    files = {path for part in _PARTS for path in root.glob(part) if path.is_file()}
    for beside in ("images", "releases"):
        files -= set(root.glob(f"rules/*/{beside}/**/*"))
    lines = []
    for path in sorted(files, key=lambda p: p.relative_to(root).as_posix()):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        lines.append(f"{content}  {path.relative_to(root).as_posix()}\n")
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def git_state(root: Path = PROJECT) -> tuple[dict[str, object], dict[str, str]]:
    """``commit`` and ``dirty``, and why they are null where there is no repository."""
    commit = _git(root, "rev-parse", "HEAD")
    changed = _git(root, "status", "--porcelain", "--", "suite", "conf", "rules", "containers")
    if commit is None or changed is None:
        why = "not a git checkout, or git is missing"
        return {"commit": None, "dirty": None}, {"git.commit": why, "git.dirty": why}
    return {"commit": commit, "dirty": bool(changed)}, {}


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
