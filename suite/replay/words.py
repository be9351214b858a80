"""From a log's header to the words that make the same run again: nothing is remembered, all is in the log."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from suite.plan.errors import BadConfiguration
from suite.plan.limits import OPTION_OF_LIMIT as LIMITS
from suite.workloads import specification

_KEY = ("phase", "scenario", "precision", "scale", "data", "cache", "batch", "variant", "devices")
_HEADER = ("mode", "division", "purpose", "loader")
# Settings are the log's own words, which no schema bounds: what goes into Hydra's grammar looks like this.
_BOUNDS, _SIZE, _FLAG = r"[0-9][0-9.,-]*", r"[0-9]+", r"true|false"
_SETTINGS = {
    "telemetry": _FLAG,
    "fingerprint": _FLAG,
    "threads": r"[1-9][0-9]*",
    "wait_policy": r"passive|active",
    "fast": _FLAG,
    "storage": r"[a-z]+",
    "device": r"cpu|cuda",
    "cpus": _BOUNDS,
    "cpuset": _BOUNDS,
    "memory_bytes": _SIZE,
    "shm_bytes": _SIZE,
    "custom_image": r"[a-zA-Z0-9][a-zA-Z0-9._:/-]*@sha256:[0-9a-f]{64}",
}


def words_of(header: Mapping[str, Any], pair: Path | None, python: Path | None) -> tuple[str, ...]:
    """The Hydra overrides of the run that ``header`` describes.

    ``pair`` and ``python`` are where a pair and an interpreter of the submitter's own lie here: a log has
    their digests and no paths. BadConfiguration where one is needed and not given, or given and not needed.
    """
    return tuple(_words(header, pair, python))


def setting(settings: Mapping[str, Any], name: str) -> str:
    """The setting ``name`` of a log as a word; BadConfiguration where it is none that a run can have."""
    found = settings.get(name)
    text = str(found).lower() if isinstance(found, bool) else str(found)
    if found is None or not re.fullmatch(_SETTINGS[name], text):
        raise BadConfiguration(
            f"settings.{name}: expected {_SETTINGS[name]} in the log's header, found {text!r}: a run that "
            "did not say it cannot be made again"
        )
    return text


def _words(header: Mapping[str, Any], pair: Path | None, python: Path | None) -> Iterator[str]:
    key, settings = header["key"], header["settings"]
    yield f"workload={key['workload']}"
    yield f"framework={key['framework']}"
    for name in _KEY:
        yield f"{name}={key[name]}"
    for name in _HEADER:
        yield f"{name}={header[name]}"
    for name in ("telemetry", "fingerprint"):
        yield f"{name}={setting(settings, name)}"
    for name in ("threads", "wait_policy", "fast"):
        yield f"framework.{name}={setting(settings, name)}"
    yield f"storage={setting({'storage': 'files', **settings}, 'storage')}"
    yield f"runtime={header['runtime']}"
    for name, word in LIMITS.items():
        if settings.get(name) is not None:
            yield f"runtime.{word}={_quoted(setting(settings, name))}"
    if header["nonce"] is not None:
        yield f"nonce={_quoted(header['nonce'])}"  # digits alone would be read as a number
    usual = specification(key["workload"]).hyperparameters(key["scale"], key["variant"])
    for name, value in header["hyper"].items():
        if usual.get(name) != value:
            yield f"workload.hyper.{name}={_quoted(value)}"
    yield from _own(settings, pair, python)


def _own(settings: Mapping[str, Any], pair: Path | None, python: Path | None) -> Iterator[str]:
    """The submitter's custom image, which the log names, and own files, which it has the digests of."""
    if settings.get("custom_image") is not None:
        yield f"image={_quoted(setting(settings, 'custom_image'))}"
    for word, name, given in (("pair", "custom_pair", pair), ("framework.python", "custom_python", python)):
        digest = settings.get(name)
        option = {"pair": "PAIR", "framework.python": "INTERPRETER"}[word]
        if digest is not None and given is None:
            raise BadConfiguration(
                f"{word}: expected the one that the submission ran, SHA-256 {digest}, found none; give it as "
                f"{option}=path (its text is in changes.patch)"
            )
        if digest is None and given is not None:
            raise BadConfiguration(f"{word}: the submission ran the suite's own, found {given}")
        if given is not None:
            yield f"{word}={_quoted(given)}"


def _quoted(value: object) -> str:
    """``value`` as a text in double quotes of Hydra's grammar."""
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
