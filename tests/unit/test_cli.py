"""The command line starts quickly, lists its verbs, and returns an exit code for errors and interrupts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from suite import __version__, cli
from suite.cli.guard import UsageError, guarded
from suite.cli.verbs import VERBS
from suite.containers.images.errors import ImageProblem
from suite.datasets.errors import DatasetMissing
from suite.plan.errors import BadConfiguration
from suite.sandbox.sandbox import SandboxError
from tests.starts import bare_starts

ROOT = Path(__file__).resolve().parents[2]
OF_THE_SUITE = [name for name, verb in VERBS.items() if not verb.program]


def suite(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``python -m suite`` with these arguments."""
    return subprocess.run(
        [sys.executable, "-m", "suite", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_help_is_quick_and_names_every_verb() -> None:
    answer = suite("--help")
    assert answer.returncode == 0
    assert all(f"  {name} " in answer.stdout for name in OF_THE_SUITE)
    assert bare_starts("-m", "suite", "--help") < 15


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


def test_version_option_and_bare_command_are_answered() -> None:
    assert suite("--version").stdout == f"suite {__version__}\n"
    assert suite().returncode == cli.USAGE


@pytest.mark.parametrize(
    ("verb", "hint"),
    [("chek", "did you mean check?"), ("xyzzy", "lists the verbs"), ("image", "image lock-check")],
)
def test_unknown_verb_is_usage_error(verb: str, hint: str) -> None:
    answer = suite(verb)
    assert answer.returncode == cli.USAGE
    assert hint in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize(
    ("argument", "hint"),
    [("--strikt", "did you mean --strict?"), ("--submissions", "give the value without --submissions")],
)
def test_unknown_argument_has_a_hint(argument: str, hint: str) -> None:
    answer = suite("check-submissions", argument, "folder")
    assert answer.returncode == cli.USAGE
    assert hint in answer.stderr


@pytest.mark.parametrize("verb", OF_THE_SUITE)
def test_every_verb_has_help_with_each_of_its_options(verb: str) -> None:
    answer = suite(*verb.split(), "--help")
    assert answer.returncode == 0, answer.stderr
    assert f"usage: python -m suite {verb}" in answer.stdout
    for option in VERBS[verb].options:
        if option.name not in ("a", "b"):  # the sides of `ab` stand in its usage
            assert option.metavar in answer.stdout
            assert option.positional or option.switch or option.flag in answer.stdout
    for option in VERBS[verb].overrides if VERBS[verb].hydra else ():
        assert f"  {option.name} " in answer.stdout


def test_family_of_verbs_has_help() -> None:
    answer = suite("image", "--help")
    assert answer.returncode == 0
    assert "image lock-check" in answer.stdout
    assert "doctor" not in answer.stdout


def test_internal_error_has_another_exit_code_than_rejection(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(verb: object, rest: list[str]) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(cli, "_call", broken)
    assert cli.main(["check"]) == cli.USAGE
    assert "check: internal error" in capsys.readouterr().err


ERRORS: list[tuple[Exception, int, str]] = [
    (UsageError("expected a folder"), 2, "check: expected a folder\n"),
    (BadConfiguration("batch: expected a number"), 10, "error: batch: expected a number\n"),
    (DatasetMissing("ml-1m: expected it"), 12, "error: ml-1m: expected it\n"),
    (ImageProblem("no base"), 13, "check: no base\n"),
    (SandboxError("line\n::error::"), 2, "check: line\\n::error::\n"),
    (OSError(28, "No space left on device", "/x"), 15, "check: /x: No space left on device\n"),
]


@pytest.mark.parametrize(("error", "code", "message"), ERRORS, ids=[type(row[0]).__name__ for row in ERRORS])
def test_error_prints_one_line_and_returns_its_exit_code(
    error: Exception, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing() -> int:
        raise error

    assert guarded("check", failing, storage_code=15) == code
    assert capsys.readouterr().err == message


def test_interrupt_returns_exit_code_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(verb: str, rest: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_call", interrupted)
    assert cli.main(["check"]) == cli.INTERRUPTED
    assert capsys.readouterr().err == "suite: interrupted\n"
