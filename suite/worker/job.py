"""Parse the configuration line to a :class:`suite.contract.Job` or a ``ConversionJob``."""

from __future__ import annotations

from typing import Any

from suite.contract import CONVERSION, ConversionJob, ConversionKey, Job, Key, Network


def parse_job(message: dict[str, Any]) -> Job | ConversionJob:
    """The job of a JSON object; TypeError names missing and unknown fields."""
    values = dict(message)
    key = values.pop("key")
    if values.pop("kind") == CONVERSION:
        return ConversionJob(key=ConversionKey(**key), **values)
    network = values.pop("network", None)
    return Job(key=Key(**key), network=None if network is None else Network(**network), **values)
