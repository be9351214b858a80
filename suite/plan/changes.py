"""The differences between the checkout and its commit as text, in the folders that affect a run."""

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
    """``data`` as text if it is UTF-8 without control characters, else None."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if _CONTROLS.search(text) else text


def tree_changes(root: Path) -> str:
    """The changes since the last commit, new files included, file by file in the order of their names.

    Binary files are listed with size and SHA-256, links and nested repositories by name only. Empty where
    nothing changed, and where ``root`` is not a git checkout (the log's header then has no commit).
    """
    if _git(root, "rev-parse", "--verify", "--quiet", "HEAD^{commit}", codes=(0, 1, 128)) == b"":
        return ""
    changed = _git(root, *_DIFF, "--name-only", "--relative", "-z", "HEAD", "--", *PARTS)
    # Only the project's .gitignore counts: a user's global one could hide files that take part.
    others = ("ls-files", "--others", "--exclude-per-directory=.gitignore", "-z", "--", *PARTS)
    tracked, new = (set(_names(found)) for found in (changed, _git(root, *others)))
    found, size = [], 0
    for name in sorted(tracked | new):
        found.append(_new_file(root, name) if name in new else _changed_file(root, name))
        size += len(found[-1])
        if size > MAX_CHANGES:
            raise _too_large(name)
    return "".join(found)


def _names(listed: bytes) -> list[str]:
    return [os.fsdecode(name) for name in listed.split(b"\0") if name]


def _changed_file(root: Path, name: str) -> str:
    """The change of the file ``name``, which the last commit has."""
    path = root / name
    return _link_or_repository(path, name) or _text_or_digest(
        path, name, _git(root, *_DIFF, "--relative", "HEAD", "--", name)
    )


def _new_file(root: Path, name: str) -> str:
    """The content of the new file ``name``; empty where it has disappeared meanwhile."""
    path = root / name
    if unshown := _link_or_repository(path, name):
        return unshown
    try:
        if path.stat().st_size > MAX_CHANGES:
            if not _looks_binary(path):
                raise _too_large(name)
            return _binary_file(path, name)
        diff = _git(root, *_DIFF, "--no-index", "--", "/dev/null", name, codes=(0, 1))
    except (OSError, EnvironmentProblem):
        if path.exists():
            raise
        return ""  # a temporary file of another process
    return _text_or_digest(path, name, diff)


def _link_or_repository(path: Path, name: str) -> str:
    """The line for a link or a nested repository. A link's target may be a folder of this machine."""
    if path.is_symlink():
        return f"Changed, not shown: {name!a}, a link\n"
    return f"Changed, not shown: {name!a}, a nested repository\n" if path.is_dir() else ""


def _text_or_digest(path: Path, name: str, diff: bytes) -> str:
    text = as_text(diff)
    return _binary_file(path, name) if text is None else text


def _binary_file(path: Path, name: str) -> str:
    """The line for a binary file: its name, size and digest."""
    if not path.exists():
        return f"Removed, not shown: {name!a}, binary\n"
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return f"Changed, not shown: {name!a}, binary, {path.stat().st_size} bytes, SHA-256 {digest}\n"


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
    """The output of git, with its configuration but without variables that name another repository."""
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
        return b""  # without git the changes are unknown, as without a checkout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentProblem(f"changes.patch: git cannot list the changes: {error}") from error
    if done.returncode not in codes:
        why = (done.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
        raise EnvironmentProblem(
            f"changes.patch: git cannot list the changes ({why[:200]}); see the output of `git status`"
        )
    return done.stdout
