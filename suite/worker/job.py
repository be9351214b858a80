"""Parse the configuration line to a :class:`suite.contract.Job` or a ``ConversionJob``."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from suite.contract import CONVERSION, ConversionJob, ConversionKey, Job, Key


def parse_job(message: dict[str, Any]) -> Job | ConversionJob:
    """The job of a JSON object; TypeError names missing and unknown fields."""
    values = dict(message)
    key = values.pop("key")
    if values.pop("kind") == CONVERSION:
        _require_known(values, ConversionJob)
        return ConversionJob(key=ConversionKey(**key), **values)
    _require_known(values, Job)
    return Job(key=Key(**key), **values)


def _require_known(values: dict[str, Any], kind: type[Job | ConversionJob]) -> None:
    if unknown := set(values) - ({field.name for field in fields(kind)} - {"key"}):
        raise TypeError(f"job: unknown fields {sorted(unknown)}")
