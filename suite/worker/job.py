"""The configuration line as a frozen :class:`suite.workloads.contract.Job`."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from suite.workloads.contract import Job, Key


def parse_job(message: dict[str, Any]) -> Job:
    """A job from its JSON object; TypeError names missing or unknown fields."""
    given = dict(message)
    key = Key(**given.pop("key"))
    known = {field.name for field in fields(Job)} - {"key"}
    unknown = set(given) - known
    if unknown:
        raise TypeError(f"job: unknown fields {sorted(unknown)}")
    return Job(key=key, **given)
