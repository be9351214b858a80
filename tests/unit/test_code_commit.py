"""The commit of a result's code, found by its digest."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from suite.containers.engines.native import PROJECT
from suite.plan.code import code_digest
from tests.fixtures.honest import NAMES, events_of
from tests.fixtures.repository import git
from tools.code_commit import commits_of, digests


def written(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def history(tmp_path: Path) -> tuple[Path, list[tuple[str, str]]]:
    """A repository, and (commit, digest of its code) from the first to the last."""
    git(tmp_path, "init", "--quiet")
    made = []
    for number, name in enumerate(("suite/a/b.py", "rules/1.0/limits.json", "conf/c.yaml", "suite/a/b.py")):
        written(tmp_path, name, f"{number}\n")
        git(tmp_path, "add", "--all")
        git(tmp_path, "commit", "--quiet", "--message", name)
        made.append((git(tmp_path, "rev-parse", "HEAD"), code_digest(tmp_path)))
    return tmp_path, made


def test_commit_of_another_branch_is_found(history: tuple[Path, list[tuple[str, str]]]) -> None:
    root, made = history
    commit, digest = made[-1]
    git(root, "branch", "submission", commit)
    git(root, "reset", "--quiet", "--hard", made[0][0])
    assert list(commits_of(digest, root)) == [commit]


def test_commit_of_a_merged_branch_is_found(history: tuple[Path, list[tuple[str, str]]]) -> None:
    """The merge has the code of its first parent: git follows only that one, unless asked for all."""
    root, made = history
    commit, digest = made[-1]
    git(root, "branch", "side", commit)
    git(root, "reset", "--quiet", "--hard", made[0][0])
    git(root, "merge", "--quiet", "--no-ff", "--strategy=ours", "--message", "merge", "side")
    git(root, "branch", "--delete", "side")
    assert list(commits_of(digest, root)) == [commit]


def test_every_commit_is_found_by_its_code(history: tuple[Path, list[tuple[str, str]]]) -> None:
    root, made = history
    assert len({digest for _, digest in made}) == len(made)
    for commit, digest in made:
        assert list(commits_of(digest, root)) == [commit]
    assert list(commits_of("0" * 64, root)) == []


@pytest.mark.parametrize(
    "name",
    [
        "docs/a.md",
        "suite/native.so",
        "conf/notes.txt",
        "rules/1.0/images/a.json",
        "rules/1.0/releases/a.json",
    ],
)
def test_files_that_are_no_code_do_not_change_digest(
    history: tuple[Path, list[tuple[str, str]]], name: str
) -> None:
    root, made = history
    written(root, name, "text")
    assert code_digest(root) == made[-1][1]


@pytest.mark.parametrize(
    "name", ["suite/deep/er/c.py", "conf/a/b.yaml", "rules/1.0/RULES.md", "rules/images/a.json"]
)
def test_code_and_rules_change_digest(history: tuple[Path, list[tuple[str, str]]], name: str) -> None:
    root, made = history
    written(root, name, "text")
    assert code_digest(root) != made[-1][1]


def test_history_contains_code_of_honest_logs() -> None:
    """An auditor who runs one again needs it; a squashed history would have lost it."""
    try:
        shallow = git(PROJECT, "rev-parse", "--is-shallow-repository") == "true"
    except subprocess.CalledProcessError:
        pytest.skip("not a git checkout")
    if shallow:
        pytest.skip("a shallow clone: the history is elsewhere")
    headers = [events_of(name)[0]["data"] for name in NAMES]
    wanted = {header["code_digest"] for header in headers if header["git"]["commit"] is not None}
    assert len(wanted) >= 3
    for _, digest in digests():
        wanted.discard(digest)
        if not wanted:
            break
    assert wanted == set()
