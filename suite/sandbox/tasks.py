"""What a package declares so that its functions can be run in the sandbox: an allow-list by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Tasks:
    """The ``TASKS`` of a module ``suite.<package>.tasks``.

    ``functions`` take JSON values as keywords and return JSON values. ``prepare`` runs once, before anything
    is refused: it imports what the functions import late. ``late_imports`` are top-level packages that they
    may still import then. An exception of a type in ``fatal`` ends the whole command with its message alone;
    any other is a fault of one task.
    """

    functions: Mapping[str, Callable[..., Any]]
    prepare: Callable[[], None] = _nothing
    late_imports: frozenset[str] = field(default_factory=frozenset)
    fatal: tuple[type[Exception], ...] = ()
