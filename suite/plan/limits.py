"""The limits of ``runtime.*``: set by the engine and read back from the control group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from suite.containers.engines.container import CannotRun, Limits
from suite.log.limits import LIMITS
from suite.plan.errors import BadConfiguration
from suite.plan.options import SECTIONS

FIELDS = frozenset({"name", *SECTIONS["runtime"]})
OPTION_OF_LIMIT = {setting: option for option, (setting, _) in LIMITS.items()}
SHARED_MEMORY = 16 << 30  # bytes; loaders and NCCL use it; unused shared memory takes no memory


def parse_limits(section: Mapping[str, Any]) -> Limits:
    """The limits in a ``runtime`` section; BadConfiguration names the field and its valid values."""
    shared = section["shm_size"]
    try:
        return Limits.parse(
            section["cpus"], section["cpuset"], section["memory"], None if shared == "auto" else shared
        )
    except CannotRun as error:
        raise BadConfiguration(f"runtime.{error}") from error


def first_given(limits: Limits) -> str | None:
    """The option name of the first limit that is set; None where none is."""
    given = limits.names()
    return OPTION_OF_LIMIT[given[0]] if given else None
