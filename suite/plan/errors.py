"""Typed refusals: each says what was expected, what was found and how to fix it, and has its exit code."""

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
    """The device, framework or runtime cannot do what was asked for."""

    code = 11


class DatasetProblem(Refusal):
    """A dataset is missing, or its files are not what the rules say."""

    code = 12


class EnvironmentProblem(Refusal):
    """Python, a wheel or a compiler is missing, or a download needs consent."""

    code = 13


class RuleProblem(Refusal):
    """The checker would reject the result, so it is not measured."""

    code = 14


class StorageProblem(Refusal):
    """No space, a read-only folder, an input or output error."""

    code = 15


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`` (did you mean X?)`` where something similar is known, else an empty string."""
    spelt = {one.lower(): one for one in known}
    close = get_close_matches(word.lower(), spelt, n=1, cutoff=0.5)
    return f" (did you mean {spelt[close[0]]}?)" if close else ""


def one_of(name: str, value: object, allowed: Iterable[str]) -> str:
    """``value`` as a member of the closed list ``allowed``; BadConfiguration otherwise."""
    known = list(allowed)
    if isinstance(value, str) and value in known:
        return value
    hint = did_you_mean(str(value), known)
    raise BadConfiguration(f"{name}: expected one of {', '.join(known)}, found {value!r}{hint}")
