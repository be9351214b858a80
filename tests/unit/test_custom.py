"""Custom code: its parts, its digests, and changes.patch, in temporary checkouts."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import pytest

from suite.containers.engines.native import PROJECT
from suite.log.files import MAX_CHANGES, read_folder
from suite.plan.changes import tree_changes
from suite.plan.custom import NO_CUSTOM_CODE, CustomCode, changes_patch, custom_code, packages, unified
from suite.plan.errors import BadConfiguration, EnvironmentProblem
from tests.fixtures.repository import git
from tests.unit.test_plan import settings

DIGEST = "sha256:" + "ab" * 32
PAIR = "suite/workloads/ncf/pytorch.py"
LOCK = "# a lock\ntorch==2.13.0+cpu \\\n    --hash=sha256:00\nNumPy==1.26.4\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A committed tree with a pair, a lock, a Dockerfile and some data."""
    files = {
        PAIR: "class Pair:\n    rate = 1\n",
        "suite/data.bin": "\0\1\2",
        "conf/run.yaml": "phase: train\n",
        "containers/pytorch/requirements-cpu.txt": LOCK,
        "containers/pytorch/Dockerfile": "# why\nARG BASE=old\nFROM ${BASE}\n",
        "README.md": "outside of what counts\n",
        ".gitignore": "__pycache__/\n",
    }
    root = tmp_path / "a checkout"
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    git(root, "init", "--quiet")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message=all")
    return root


def patch_of(custom: CustomCode, root: Path) -> str:
    return changes_patch(custom, "ncf", "pytorch", "practice", root).decode()


def custom_pair(path: Path) -> CustomCode:
    return CustomCode(pair=path, pair_digest=hashlib.sha256(path.read_bytes()).hexdigest())


def test_clean_checkout_without_custom_code_has_no_patch(checkout: Path) -> None:
    (checkout / "README.md").write_text("changed\n")
    (checkout / "suite" / "__pycache__").mkdir()
    (checkout / "suite" / "__pycache__" / "x.pyc").write_bytes(b"\0")
    assert changes_patch(NO_CUSTOM_CODE, "ncf", "pytorch", "practice", checkout) == b""


def test_patch_of_changed_new_and_removed_files_can_be_applied(checkout: Path, tmp_path: Path) -> None:
    (checkout / PAIR).write_text("class Pair:\n    rate = 2")
    (checkout / "suite" / "new ä.py").write_text("x = 'é'\n")
    (checkout / "conf" / "run.yaml").unlink()
    git(checkout, "add", PAIR)  # staged or not makes no difference
    text = patch_of(NO_CUSTOM_CODE, checkout)
    assert text.index("conf/run.yaml") < text.index(r"suite/new \303\244.py") < text.index(PAIR)
    assert "-    rate = 1\n+    rate = 2\n\\ No newline at end of file\n" in text
    assert text == patch_of(NO_CUSTOM_CODE, checkout)
    other = tmp_path / "other"
    git(tmp_path, "clone", "--quiet", str(checkout), str(other))
    (tmp_path / "changes.patch").write_text(text)
    git(other, "apply", str(tmp_path / "changes.patch"))
    assert (other / "suite" / "new ä.py").read_text() == "x = 'é'\n"
    assert (other / PAIR).read_bytes() == (checkout / PAIR).read_bytes()
    assert not (other / "conf" / "run.yaml").exists()


def test_binary_files_are_named_in_the_patch(checkout: Path, tmp_path: Path) -> None:
    (checkout / "suite" / "data.bin").write_bytes(b"\0\1\2\3")
    (checkout / "suite" / "latin.py").write_bytes(b"# caf\xe9\n")
    (checkout / "suite" / "escape.py").write_bytes(b"# \x1b[2J\n")
    (checkout / "rules").mkdir()
    (checkout / "rules" / "link").symlink_to(tmp_path)
    (checkout / "containers" / "wheel.whl").write_bytes(b"\0" * (MAX_CHANGES + 1))
    text = patch_of(NO_CUSTOM_CODE, checkout)
    digest = hashlib.sha256(b"\0\1\2\3").hexdigest()
    assert f"Changed, not shown: 'suite/data.bin', binary, 4 bytes, SHA-256 {digest}\n" in text
    assert "Changed, not shown: 'suite/latin.py', binary, 7 bytes" in text
    assert "Changed, not shown: 'rules/link', a link\n" in text
    assert "'containers/wheel.whl', binary, 1048577 bytes" in text
    assert str(tmp_path) not in text
    folder = tmp_path / "result"
    folder.mkdir()
    (folder / "run.jsonl").write_text("{}\n")
    (folder / "changes.patch").write_text(text)
    changes = read_folder(folder).changes
    assert changes is not None
    assert changes.text


def test_removed_binary_and_nested_repository_are_named(checkout: Path) -> None:
    (checkout / "suite" / "data.bin").unlink()
    inside = checkout / "suite" / "inside"
    inside.mkdir()
    git(inside, "init", "--quiet")
    (inside / "x.py").write_text("x = 1\n")
    git(inside, "add", "--all")
    git(inside, "commit", "--quiet", "--message=x")
    text = patch_of(NO_CUSTOM_CODE, checkout)
    assert "Removed, not shown: 'suite/data.bin', binary\n" in text
    assert "Changed, not shown: 'suite/inside/', a nested repository\n" in text


def test_git_configuration_does_not_change_the_patch(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"line {number}\n" for number in range(40)]
    (checkout / PAIR).write_text("".join(lines))
    git(checkout, "commit", "--quiet", "--all", "--message=lines")
    (checkout / PAIR).write_text("".join([*lines[:10], "other\n", *lines[11:]]))
    (checkout / "suite" / "hidden.py").write_text("x = 1\n")
    expected = tree_changes(checkout)
    assert "hidden.py" in expected
    for name, value in {
        "diff.context": "9",
        "diff.noprefix": "true",
        "diff.external": "false",
        "color.ui": "always",
        "core.excludesFile": str(checkout / "README.md"),
    }.items():
        git(checkout, "config", name, value)
    (checkout / "README.md").write_text("hidden.py\n")
    (checkout / ".git" / "info" / "attributes").write_text("*.py -diff\n")
    (checkout / ".git" / "info" / "exclude").write_text("hidden.py\n")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "false")
    assert tree_changes(checkout) == expected


def test_patch_without_a_checkout_states_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (tmp_path / "suite").mkdir()
    assert tree_changes(tmp_path) == ""
    git(tmp_path, "init", "--quiet")  # nothing committed yet
    assert tree_changes(tmp_path) == ""


def test_too_many_changes_are_refused_with_the_fix(checkout: Path) -> None:
    (checkout / "suite" / "table.txt").write_text("0123456789\n" * 100_000)
    with pytest.raises(
        BadConfiguration, match=r"changes.patch: expected at most 1048576 .*'suite/table.txt'"
    ):
        patch_of(NO_CUSTOM_CODE, checkout)


def test_custom_pair_is_compared_with_the_suites_pair(checkout: Path, tmp_path: Path) -> None:
    file = tmp_path / "alice" / "pair.py"
    file.parent.mkdir()
    file.write_text("class Pair:\n    rate = 3\n")
    custom = custom_pair(file)
    assert patch_of(custom, checkout) == (
        f"custom pair: custom/pair.py, SHA-256 {custom.pair_digest}, instead of {PAIR}\n"
        f"--- {PAIR}\n+++ custom/pair.py\n@@ -1,2 +1,2 @@\n class Pair:\n-    rate = 1\n+    rate = 3\n"
    )
    file.write_text("class Pair:\n    rate = 4\n")
    with pytest.raises(BadConfiguration, match="changed while the run was prepared"):
        patch_of(custom, checkout)


def test_custom_pair_equal_to_the_suites_pair_is_declared(checkout: Path) -> None:
    custom = custom_pair(checkout / PAIR)
    assert patch_of(custom, checkout).startswith("custom pair: custom/pair.py, SHA-256 ")


def test_custom_interpreter_is_compared_with_the_lock(checkout: Path) -> None:
    custom = CustomCode(
        python=Path("/usr/bin/python3"),
        python_digest="00",
        packages=("numpy==1.26.4", "torch==2.15.0.dev1+cpu"),
        lock="containers/pytorch/requirements-cpu.txt",
    )
    assert patch_of(custom, checkout).splitlines()[1:] == [
        *("--- containers/pytorch/requirements-cpu.txt", "+++ custom/packages.txt", "@@ -1,2 +1,2 @@"),
        *(" numpy==1.26.4", "-torch==2.13.0+cpu", "+torch==2.15.0.dev1+cpu"),
    ]
    unlocked = CustomCode(
        python=custom.python, packages=custom.packages, lock="containers/pytorch/requirements-cuda.txt"
    )
    assert patch_of(unlocked, checkout).count("\n+") == 3


def test_custom_image_is_compared_with_the_lock(checkout: Path) -> None:
    custom = CustomCode(image=f"example.org/mine@{DIGEST}")
    text = changes_patch(custom, "ncf", "pytorch", "1.0", checkout).decode()
    before, after = (line for line in text.splitlines() if line[1:].startswith("ARG BASE="))
    assert before.startswith("-ARG BASE=nvcr.io/nvidia/pytorch:")
    assert after == f"+ARG BASE=example.org/mine@{DIGEST}"


def test_diff_lines_end_like_those_of_git() -> None:
    assert unified("", "a", "x", "y").endswith("+a\n\\ No newline at end of file\n")
    assert unified("a\x0cb\rc\n", "a\x0cb\rd\n", "x", "y").count("\n") == 5
    assert unified("a\n", "a\n", "x", "y") == ""


@pytest.mark.parametrize("image", ["example.org/mine:latest", "mine", f"mine@{DIGEST}0"])
def test_custom_image_by_tag_is_refused_with_the_fix(image: str) -> None:
    with pytest.raises(BadConfiguration, match="a tag can move to another image: `docker inspect"):
        settings(f"image={image}")


def test_settings_without_custom_options_give_no_custom_code() -> None:
    assert custom_code(settings(), "cpu") == NO_CUSTOM_CODE


def test_custom_code_of_the_settings_has_digests(tmp_path: Path) -> None:
    file = tmp_path / "pair.py"
    file.write_text("class Pair: ...\n")
    custom = custom_code(settings(f"pair={file}", f"framework.python={sys.executable}"), "cpu")
    assert custom.pair_digest == hashlib.sha256(file.read_bytes()).hexdigest()
    assert custom.lock == "containers/pytorch/requirements-cpu.txt"
    assert any(package.startswith("pytest==") for package in custom.packages)
    assert list(custom.packages) == sorted(set(custom.packages))
    listed = "".join(f"{package}\n" for package in custom.packages)
    assert custom.python_digest == hashlib.sha256(listed.encode()).hexdigest()
    assert str(tmp_path) not in patch_of_project(custom)


def patch_of_project(custom: CustomCode) -> str:
    return changes_patch(custom, "ncf", "pytorch", "practice", PROJECT).decode()


def test_custom_image_replaces_the_custom_interpreter() -> None:
    custom = custom_code(
        settings(f"image=example.org/mine@{DIGEST}", "framework.python=/opt/bin/python"), "cuda"
    )
    assert custom == CustomCode(image=f"example.org/mine@{DIGEST}")


@pytest.mark.parametrize(
    "content",
    [None, b"\xff\xfe", b"x = '\x1b'\n", b"#" * (MAX_CHANGES + 1)],
    ids=["none", "latin", "escape", "large"],
)
def test_binary_pair_is_refused(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "pair.py"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BadConfiguration, match="pair: expected a Python file in UTF-8"):
        custom_code(settings(f"pair={file}"), "cpu")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (None, "expected an interpreter, found"),
        ("exit 3", "exit code 3"),
        ("echo No module >&2; exit 1", "No module"),
        ("echo hello", "JSONDecodeError"),
        ("echo '[1]'", "TypeError"),
    ],
)
def test_interpreter_without_answer_is_refused(script: str | None, message: str, tmp_path: Path) -> None:
    python = tmp_path / "python"
    if script is not None:
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
    with pytest.raises(EnvironmentProblem, match=message):
        packages(python)


def test_package_names_are_normalised(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(
        """#!/bin/sh\necho '[["Foo_Bar.baz", "1.0"], ["foo-bar-baz", "1.0"], ["x", "1 é"]]'\n"""
    )
    python.chmod(0o755)
    assert packages(python) == ("foo-bar-baz==1.0", "x==1??")
    assert os.access(python, os.X_OK)
