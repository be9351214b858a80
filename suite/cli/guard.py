"""Errors of a verb as messages and exit codes (README.md, "Exit codes"), and output that verbs share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

TYPE_CHECKING = False  # importing typing and pathlib would double the time that a help page takes
if TYPE_CHECKING:
    from pathlib import Path

USAGE, MISSING, STORAGE, INTERRUPTED = 2, 13, 15, 130
_MAX_CHARACTERS = 1000  # characters of a message, which may quote a hostile log


class UsageError(Exception):
    """The command cannot be carried out as given. Its notes are printed below the message."""


def progress(line: str) -> None:
    """Print a line of progress on stderr."""
    print(line, file=sys.stderr, flush=True)


def relative(path: Path, to: Path | None = None) -> Path:
    """``path`` relative to the working directory (or to ``to``) if it lies below, for a shorter message."""
    to = to or type(path).cwd()
    return path.relative_to(to) if path.is_relative_to(to) else path


@contextmanager
def storage_problems() -> Iterator[None]:
    """Turn errors of the file system, of the log and of the ledger of attempts into StorageProblem."""
    from suite.datasets.errors import StorageError
    from suite.plan.errors import StorageProblem

    try:
        yield
    except OSError as error:
        raise StorageProblem(error.strerror or str(error)) from error
    except StorageError as error:
        raise StorageProblem(str(error)) from error


def guarded(verb: str, action: Callable[[], int], storage_code: int = USAGE) -> int:
    """The exit code of ``action()``; every exception becomes a message on stderr and a code above 1.

    ``storage_code`` is the code of a path that cannot be read or written.
    """
    try:
        return int(action())
    except KeyboardInterrupt:
        print("suite: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        return discard_output()
    except ModuleNotFoundError as error:
        if (error.name or "suite").partition(".")[0] in ("suite", "tests", "peers"):
            raise
        # Every error class below needs the environment too.
        print(
            f"{verb}: expected the suite's environment, found {sys.executable} without {error.name}; in the "
            f"project's folder run `.venv/bin/python -m suite {verb}` (the first make command makes .venv)",
            file=sys.stderr,
        )
        return MISSING
    except Exception as error:  # noqa: BLE001 - Python's own exit code for a traceback means "rejected" here
        code = exit_code_of(error, storage_code)
        if code is None:
            import traceback

            traceback.print_exc()
            print(f"{verb}: internal error, a bug of the suite", file=sys.stderr)
            return USAGE
        from suite.log.safe import safe

        print(f"{_prefix(error, verb)}: {safe(_message(error), _MAX_CHARACTERS)}", file=sys.stderr)
        for note in getattr(error, "__notes__", ()):
            print(note, file=sys.stderr)
        return code


def discard_output() -> int:
    """Discard further output, whose reader (head, less) has ended; returns the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return USAGE


def exit_code_of(error: Exception, storage_code: int) -> int | None:
    """The exit code of an expected error; None for a bug of the suite.

    The error classes are imported here, so that other starts do not load them.
    """
    from suite.compare.history import HistoryProblem
    from suite.containers.engines.attestation import EngineProblem
    from suite.containers.images.bundle_manifest import BundleProblem
    from suite.containers.images.errors import ImageProblem
    from suite.containers.images.lock import LockProblem
    from suite.datasets.errors import DatasetError
    from suite.environments.errors import EnvironmentMissing, LargeDownload
    from suite.harness.log import LogError
    from suite.log.finding import RecordError
    from suite.plan.errors import Refusal
    from suite.rules import MalformedRules
    from suite.sandbox.sandbox import LimitsError, SandboxError
    from suite.submissions.package import SubmissionError
    from suite.submissions.signing.keys import KeyProblem
    from suite.submissions.system import SystemProblem

    if isinstance(error, Refusal):
        return error.code
    if isinstance(error, DatasetError):
        return error.exit_code
    if isinstance(error, (ImageProblem, EngineProblem, EnvironmentMissing, LargeDownload)):
        return MISSING
    usage = (
        *(UsageError, KeyProblem, SandboxError, LimitsError, RecordError, LogError, HistoryProblem),
        *(SubmissionError, SystemProblem, LockProblem, BundleProblem, MalformedRules),
    )
    if isinstance(error, usage):
        return USAGE
    return storage_code if isinstance(error, OSError) else None


def _prefix(error: Exception, verb: str) -> str:
    """The beginning of the message: "error" for the refusal of a run, else the verb."""
    from suite.datasets.errors import DatasetError
    from suite.plan.errors import Refusal

    return "error" if isinstance(error, (Refusal, DatasetError)) else verb


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)
