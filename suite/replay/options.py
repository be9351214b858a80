"""The options that repeat a run, from the header of its log alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from suite.contract import MEASURED_STEPS
from suite.plan.errors import BadConfiguration
from suite.plan.limits import OPTION_OF_LIMIT as LIMITS
from suite.plan.settings import VARIABLE, VARIABLE_VALUE
from suite.workloads import specification

_KEY = ("phase", "scenario", "precision", "scale", "data", "cache", "batch", "variant", "devices", "strategy")
_HEADER = ("mode", "division", "purpose", "loader")
# The schema does not restrict the settings of a log: only values that match these patterns reach Hydra.
_BOUNDS, _SIZE, _FLAG = r"[0-9][0-9.,-]*", r"[0-9]+", r"true|false"
_SETTINGS = {
    "telemetry": _FLAG,
    "fingerprint": _FLAG,
    "threads": r"[1-9][0-9]*",
    "wait_policy": r"passive|active",
    "fast": _FLAG,
    "variables": rf"{VARIABLE}:{VARIABLE_VALUE}",
    "storage": r"[a-z]+",
    "collective": r"[a-z_]+",
    "bucket_mib": r"[1-9][0-9]*",
    "device": r"cpu|cuda",
    "cpus": _BOUNDS,
    "cpuset": _BOUNDS,
    "memory_bytes": _SIZE,
    "shm_bytes": _SIZE,
    "custom_image": r"[a-zA-Z0-9][a-zA-Z0-9._:/-]*@sha256:[0-9a-f]{64}",
}


def options_of(header: Mapping[str, Any], pair: Path | None, python: Path | None) -> Iterator[str]:
    """Yield the options (Hydra overrides) of the run that ``header`` describes.

    ``pair`` and ``python`` are the paths of the submitter's custom pair and interpreter on this machine: a
    log has their digests and no paths. Raises BadConfiguration if one is missing or not part of the run.
    """
    key, settings = header["key"], header["settings"]
    yield f"workload={key['workload']}"
    yield f"framework={key['framework']}"
    for name in _KEY:
        yield f"{name}={key[name]}"
    for name in _HEADER:
        yield f"{name}={header[name]}"
    for name in ("telemetry", "fingerprint"):
        yield f"{name}={setting(settings, name)}"
    exchange = [name for name in ("collective", "bucket_mib") if settings.get(name) is not None]
    yield from (f"{name}={setting(settings, name)}" for name in exchange)
    for name in ("threads", "wait_policy", "fast"):
        yield f"framework.{name}={setting(settings, name)}"
    yield from _variables(settings.get("variables", {}))
    if header["measured_steps"] != MEASURED_STEPS:
        yield f"steps={header['measured_steps']}"
    yield f"storage={setting({'storage': 'files', **settings}, 'storage')}"
    yield f"runtime={header['runtime']}"
    for name, option in LIMITS.items():
        if settings.get(name) is not None:
            yield f"runtime.{option}={_quoted(setting(settings, name))}"
    if header["nonce"] is not None:
        yield f"nonce={_quoted(header['nonce'])}"  # digits alone would be read as a number
    defaults = specification(key["workload"]).hyperparameters(key["scale"], key["variant"])
    for name, value in header["hyper"].items():
        if defaults.get(name) != value:
            yield f"workload.hyper.{name}={_quoted(value)}"
    yield from _custom_options(settings, pair, python)


def _variables(found: object) -> Iterator[str]:
    listed = [f"{name}:{value}" for name, value in found.items()] if isinstance(found, Mapping) else [found]
    if listed:
        checked = [_quoted(setting({"variables": one}, "variables")) for one in listed]
        yield f"framework.variables=[{','.join(checked)}]"


def setting(settings: Mapping[str, Any], name: str) -> str:
    """The setting ``name`` of a log as the value of an option; BadConfiguration if no run can have it."""
    found = settings.get(name)
    text = str(found).lower() if isinstance(found, bool) else str(found)
    if found is None or not re.fullmatch(_SETTINGS[name], text):
        raise BadConfiguration(
            f"settings.{name}: expected text that matches {_SETTINGS[name]} in the log's header, found "
            f"{text!r}: a run cannot be replayed without this setting"
        )
    return text


def _custom_options(settings: Mapping[str, Any], pair: Path | None, python: Path | None) -> Iterator[str]:
    """The custom container image, which the log names, and the custom files, of which it has the digests."""
    if settings.get("custom_image") is not None:
        yield f"image={_quoted(setting(settings, 'custom_image'))}"
    for option, make_option, name, path in (
        ("pair", "PAIR", "custom_pair", pair),
        ("framework.python", "INTERPRETER", "custom_python", python),
    ):
        digest = settings.get(name)
        if digest is not None and path is None:
            raise BadConfiguration(
                f"{option}: expected the file that the submission ran, SHA-256 {digest}, found none; set "
                f"{make_option}=path (changes.patch has its text)"
            )
        if digest is None and path is not None:
            raise BadConfiguration(
                f"{option}: expected none, because the submission ran the suite's, found {path}; leave "
                f"{make_option} out"
            )
        if path is not None:
            yield f"{option}={_quoted(path)}"


def _quoted(value: object) -> str:
    """``value`` as text in double quotes, in Hydra's grammar."""
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
