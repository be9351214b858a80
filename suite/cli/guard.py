"""Where an error of a verb becomes a sentence and an exit code (README.md, "Exit codes")."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

USAGE, MISSING, STORAGE, INTERRUPTED = 2, 13, 15, 130
_LONGEST = 1000  # characters of a message, which may quote a hostile log


class UsageError(Exception):
    """The command cannot be carried out as it was given. Notes are printed below the message."""


def guarded(verb: str, action: Callable[[], int], storage_code: int = USAGE) -> int:
    """The exit code of ``action()``; every failure is a message on stderr, and none is 0 or 1 by accident.

    ``storage_code`` is that of a place that cannot be read or written.
    """
    try:
        return int(action())
    except KeyboardInterrupt:
        print("suite: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe (head, less) went away: nobody is left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return USAGE
    except Exception as error:  # noqa: BLE001 - Python's own exit code for a traceback means "rejected" here
        code = exit_code_of(error, storage_code)
        if code is None:
            import traceback

            traceback.print_exc()
            print(f"{verb}: internal error, a fault of the suite", file=sys.stderr)
            return USAGE
        from suite.log.safe import safe

        print(f"{_speaker(error, verb)}: {safe(_message(error), _LONGEST)}", file=sys.stderr)
        for note in getattr(error, "__notes__", ()):
            print(note, file=sys.stderr)
        return code


def exit_code_of(error: Exception, storage_code: int) -> int | None:
    """The exit code of an error that is expected to happen; None for a bug of ours.

    The classes are imported here, where something has failed already, and not by every start.
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


def _speaker(error: Exception, verb: str) -> str:
    """A refusal of a run speaks for the run, whichever verb has asked for it."""
    from suite.datasets.errors import DatasetError
    from suite.plan.errors import Refusal

    return "error" if isinstance(error, (Refusal, DatasetError)) else verb


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)
