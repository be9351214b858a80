"""What differs in the checkout from its commit, as text: of the folders that decide what a run does."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from pathlib import Path

from suite.log.files import MAX_CHANGES
from suite.plan.errors import BadConfiguration, EnvironmentProblem

PARTS = ("suite", "conf", "rules", "containers")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f]")  # tabs, line breaks and form feeds are text
# Everything that a person's git configuration could change in the text of a diff is stated.
_GIT = ("git", "--literal-pathspecs", "-c", "core.quotePath=true", "-c", "diff.suppressBlankEmpty=false")
_DIFF = (
    *("diff", "--text", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--full-index"),
    *("--src-prefix=a/", "--dst-prefix=b/", "--unified=3", "--inter-hunk-context=0", "-O/dev/null"),
    *("--diff-algorithm=myers", "--indent-heuristic", "--submodule=short", "--ignore-submodules=none"),
)


def as_text(data: bytes) -> str | None:
    """``data`` where it is UTF-8 that a terminal shows as it is, else None."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if _CONTROLS.search(text) else text


def tree_changes(root: Path) -> str:
    """The changes since the last commit, new files included, file by file in the order of their names.

    Files that are no text are named with size and SHA-256, links and repositories inside only named. Empty
    where nothing changed, or nobody can tell because ``root`` is no git checkout (the log's header says so).
    """
    if _git(root, "rev-parse", "--verify", "--quiet", "HEAD^{commit}", codes=(0, 1, 128)) == b"":
        return ""
    changed = _git(root, *_DIFF, "--name-only", "--relative", "-z", "HEAD", "--", *PARTS)
    # Only the project's own .gitignore counts: a personal one could hide what takes part.
    others = ("ls-files", "--others", "--exclude-per-directory=.gitignore", "-z", "--", *PARTS)
    tracked, new = (set(_names(found)) for found in (changed, _git(root, *others)))
    found, size = [], 0
    for name in sorted(tracked | new):
        found.append(_new(root, name) if name in new else _change(root, name))
        size += len(found[-1])
        if size > MAX_CHANGES:
            raise _too_large(name)
    return "".join(found)


def _names(listed: bytes) -> list[str]:
    return [os.fsdecode(name) for name in listed.split(b"\0") if name]


def _change(root: Path, name: str) -> str:
    """How the file ``name`` of the last commit changed."""
    path = root / name
    return _unshown(path, name) or _shown(path, name, _git(root, *_DIFF, "--relative", "HEAD", "--", name))


def _new(root: Path, name: str) -> str:
    """The file ``name``, which the last commit does not have; empty where it is gone again."""
    path = root / name
    if unshown := _unshown(path, name):
        return unshown
    try:
        if path.stat().st_size > MAX_CHANGES:
            if not _looks_binary(path):
                raise _too_large(name)
            return _named(path, name)
        diff = _git(root, *_DIFF, "--no-index", "--", "/dev/null", name, codes=(0, 1))
    except (OSError, EnvironmentProblem):
        if path.exists():
            raise
        return ""  # a temporary file of somebody else
    return _shown(path, name, diff)


def _unshown(path: Path, name: str) -> str:
    """What has no text of its own: a link's target may be a folder of this machine."""
    if path.is_symlink():
        return f"Changed, not shown: {name!a}, a link\n"
    return f"Changed, not shown: {name!a}, a repository of its own\n" if path.is_dir() else ""


def _shown(path: Path, name: str, diff: bytes) -> str:
    text = as_text(diff)
    return _named(path, name) if text is None else text


def _named(path: Path, name: str) -> str:
    """A file that is no text: which one, and what it holds now."""
    if not path.exists():
        return f"Removed, not shown: {name!a}, no text\n"
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return f"Changed, not shown: {name!a}, no text, {path.stat().st_size} bytes, SHA-256 {digest}\n"


def _looks_binary(path: Path) -> bool:
    """As git decides: a zero byte near the beginning."""
    with path.open("rb") as file:
        return b"\0" in file.read(8000)


def _too_large(name: str) -> BadConfiguration:
    return BadConfiguration(
        f"changes.patch: expected at most {MAX_CHANGES} bytes of changes in {', '.join(PARTS)}, found more "
        f"at {name!a}; commit what belongs to the code, put data elsewhere, or run from a clean checkout"
    )


def _git(root: Path, *arguments: str, codes: tuple[int, ...] = (0,)) -> bytes:
    """What git prints; its configuration holds, its variables that point elsewhere do not."""
    kept = {name: value for name, value in os.environ.items() if not re.match("GIT_(?!CONFIG|CEILING)", name)}
    try:
        done = subprocess.run(
            [*_GIT, *arguments],
            cwd=root,
            env=kept | {"LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )
    except FileNotFoundError:
        return b""  # without git nobody can tell, as without a checkout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentProblem(f"changes.patch: git cannot tell what was changed: {error}") from error
    if done.returncode not in codes:
        why = (done.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
        raise EnvironmentProblem(
            f"changes.patch: git cannot tell what was changed ({why[:200]}); see what `git status` says"
        )
    return done.stdout
