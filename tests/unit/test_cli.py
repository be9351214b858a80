"""The command line answers at once, knows its verbs, and turns an interrupt into its exit code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from suite import __version__, cli
from tests.starts import bare_starts

ROOT = Path(__file__).resolve().parents[2]


def suite(*words: str) -> subprocess.CompletedProcess[str]:
    """Run ``python -m suite`` with these words."""
    return subprocess.run(
        [sys.executable, "-m", "suite", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_help_is_quick_and_names_every_verb() -> None:
    answer = suite("--help")
    assert answer.returncode == 0
    assert all(f"  {verb} " in answer.stdout for verb in cli.VERBS)
    assert bare_starts("-m", "suite", "--help") < 6


def test_help_imports_nothing_heavy() -> None:
    code = "import sys; from suite.cli import main; main(['--help']); print([m for m in sys.modules])"
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = set(ast_names(answer.stdout.splitlines()[-1]))
    assert not loaded & {"hydra", "numpy", "jsonschema", "rich", "scipy", "psutil", "torch"}


def ast_names(text: str) -> list[str]:
    """The strings of a printed list."""
    return [part.strip(" '[]") for part in text.split(",")]


def test_version_and_no_words() -> None:
    assert suite("--version").stdout == f"suite {__version__}\n"
    assert suite().returncode == cli.USAGE


@pytest.mark.parametrize(("verb", "hint"), [("chek", "python -m suite check"), ("xyzzy", "lists the verbs")])
def test_an_unknown_verb_is_usage(verb: str, hint: str) -> None:
    answer = suite(verb)
    assert answer.returncode == cli.USAGE
    assert hint in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize("verb", list(cli.VERBS))
def test_every_verb_has_help(verb: str) -> None:
    answer = suite(verb, "--help")
    assert answer.returncode == 0, answer.stderr
    assert f"python -m suite {verb}" in answer.stdout


def test_an_interrupt_is_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(verb: str, rest: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_call", interrupted)
    assert cli.main(["check"]) == cli.INTERRUPTED
    assert capsys.readouterr().err == "suite: interrupted\n"
