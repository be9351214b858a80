"""Typed refusals: each states what was expected, what was found and the fix, and has an exit code."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class Refusal(Exception):
    """A run that must not start. ``code`` is the exit code of ``python -m suite run``."""

    code = 2


class BadConfiguration(Refusal):
    """An unknown option, a value of the wrong kind, options that contradict each other."""

    code = 10


class Unsupported(Refusal):
    """The device, framework or runtime cannot do what the options require."""

    code = 11


class DatasetProblem(Refusal):
    """A dataset is missing, or its files differ from what the rules state."""

    code = 12


class EnvironmentProblem(Refusal):
    """Python, a wheel or a compiler is missing, or a download needs consent."""

    code = 13


class RuleProblem(Refusal):
    """The checker would reject the result, so it is not measured."""

    code = 14


class StorageProblem(Refusal):
    """No disk space, a read-only folder, or an input/output error."""

    code = 15


class NodeProblem(Refusal):
    """A node of the run does not answer; nothing was measured."""

    code = 23


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`` (did you mean X?)`` where a similar name is in ``known``, else an empty string."""
    spelt = {one.lower(): one for one in known}
    close = get_close_matches(name.lower(), spelt, n=1, cutoff=0.5)
    return f" (did you mean {spelt[close[0]]}?)" if close else ""


def one_of(name: str, value: object, allowed: Iterable[str]) -> str:
    """``value`` as a member of the closed list ``allowed``; BadConfiguration otherwise."""
    known = list(allowed)
    if isinstance(value, str) and value in known:
        return value
    hint = did_you_mean(str(value), known)
    raise BadConfiguration(f"{name}: expected one of {', '.join(known)}, found {value!r}{hint}")
