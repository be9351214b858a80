"""The declaration of a package's sandbox tasks: an allow-list of functions by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Tasks:
    """The ``TASKS`` of a module ``suite.<package>.tasks``.

    ``functions`` take JSON values as keyword arguments and return JSON values. ``prepare`` runs once, before
    the limits apply, and performs the late imports of the functions. ``late_imports`` are top-level packages
    that a task may still import. An exception of a type in ``fatal`` ends the whole command with its message;
    any other exception is a fault of one task.
    """

    functions: Mapping[str, Callable[..., Any]]
    prepare: Callable[[], None] = lambda: None
    late_imports: frozenset[str] = field(default_factory=frozenset)
    fatal: tuple[type[Exception], ...] = ()
