"""The configuration line as a frozen :class:`suite.contract.Job`, or of a conversion as its job."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from suite.contract import CONVERSION, ConversionJob, ConversionKey, Job, Key


def parse_job(message: dict[str, Any]) -> Job | ConversionJob:
    """A job from its JSON object, of the kind that it names; TypeError names missing or unknown fields."""
    given = dict(message)
    key = given.pop("key")
    if given.pop("kind") == CONVERSION:
        _require_known(given, ConversionJob)
        return ConversionJob(key=ConversionKey(**key), **given)
    _require_known(given, Job)
    return Job(key=Key(**key), **given)


def _require_known(given: dict[str, Any], kind: type[Job | ConversionJob]) -> None:
    if unknown := set(given) - ({field.name for field in fields(kind)} - {"key"}):
        raise TypeError(f"job: unknown fields {sorted(unknown)}")
