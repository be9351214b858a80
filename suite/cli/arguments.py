"""The type of a verb, and the options that verbs share. Standard library only, as :mod:`suite.cli.verbs`."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from suite.cli.listing import GROUPS, PROGRAMS
from suite.contract.traits import storage_formats
from suite.plan import options as run
from suite.plan.options import Option
from suite.workloads.storage import KINDS

FORMATS = ("text", "md", "json")
PLATFORMS = ("linux/amd64", "linux/arm64")
METRICS = (
    *("throughput", "step_time", "step_p50", "step_p99", "latency", "peak_memory", "peak_host_memory"),
    *("peak_device_memory", "files_read", "shards_written", "batches_delivered", "time_to_quality"),
    *("quality", "input_wait", "gpu_power", "gpu_utilisation", "cpu_cores", "setup", "compile", "spread"),
    *("step_histogram", "step_ecdf", "step_trace", "telemetry"),
)
BUNDLE_FORMATS = ("oci", "sif", "sqsh", "none")
_PERCENT = re.compile(r"\s*([0-9]{1,3}(?:\.[0-9]{1,6})?)\s*%\s*")


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb: ``function`` of ``module``, which is imported when the verb is used.

    ``function`` gets the arguments that argparse has parsed; with ``hydra`` it gets them unparsed. A verb
    with ``overrides`` accepts these options of a run as ``name=value``. ``storage_code`` is the exit code of
    a path that cannot be read or written.
    """

    name: str
    module: str
    options: tuple[Option, ...] = ()
    overrides: tuple[Option, ...] = ()
    function: str = "main"
    hydra: bool = False
    storage_code: int = 2

    @property
    def help(self) -> str:
        """Its help, in one line."""
        return next(members[self.name] for members in GROUPS.values() if self.name in members)

    @property
    def program(self) -> bool:
        """Whether ``module`` is a program outside of the suite, which make starts."""
        return self.name in PROGRAMS


def percentage(text: str) -> float:
    """A percentage as a fraction: 0.02 for "2%"."""
    found = _PERCENT.fullmatch(text)
    if found is None or float(found[1]) >= 100:
        raise argparse.ArgumentTypeError(
            f"expected a percentage from 0% to below 100%, such as 2%, found {text!r}"
        )
    return float(found[1]) / 100


def share(text: str) -> float:
    """A number above 0, at most 100."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 100:
        raise argparse.ArgumentTypeError(f"expected a number above 0, found {text}")
    return value


def seconds(text: str) -> float:
    """A time above 0, in seconds."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected seconds above 0, found {text}")
    return value


def since(text: str) -> str:
    """A time in UTC as a log writes it, from a date, a time, or an age in hours or days."""
    if age := re.fullmatch(r"([0-9]{1,4})([hd])", text):
        hours = int(age[1]) * (24 if age[2] == "d" else 1)
        found = datetime.now(UTC) - timedelta(hours=hours)
    else:
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"expected a date such as 2026-11-24, a time such as 2026-11-24T07:30, or an age such as 12h "
                f"or 7d, found {text!r}"
            ) from None
        found = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    return found.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def positional(option: Option, **changes: Any) -> Option:
    """``option`` without a flag."""
    return replace(option, positional=True, **changes)


def format_of(*values: str) -> Option:
    """The option --format with these values."""
    return Option("format", "format of the output", values or FORMATS, default=(values or FORMATS)[0])


def only(name: str) -> Option:
    """A filter by the value of a run's option ``name``."""
    return Option(name, f"only this {name}; several with commas", metavar="A,B", default="")


RESULT = Option("result", "the result's folder", metavar="PATH", type=Path, required=True)
SUBMISSIONS = Option(
    "submissions", "the tree with the registry, and the results to compare with", metavar="DIR",
    default="submissions", type=Path,
)  # fmt: skip
SUBMITTER = Option("submitter", "as in submissions/<submitter>/", metavar="ORG", required=True)
JSON = Option("json", "print one JSON document instead of text", switch=True)
STRICT = Option("strict", "exit 3 instead of 0 if there are flags", switch=True)
KEY = Option("key", "sign with this private key (`make keygen` makes one)", metavar="FILE", type=Path)
OUT = Option("out", "the folder to write to", metavar="DIR", type=Path)
JUNIT = Option("junit", "write the outcome as JUnit XML too", metavar="FILE", type=Path)
FAIL_SLOWER = Option(
    "fail_slower", "exit 5 if B is slower than A by more than this, 6 if it cannot be decided", metavar="N%",
    type=percentage,
)  # fmt: skip
COMPARISON = (FAIL_SLOWER, JUNIT, format_of())
WORKLOAD, FRAMEWORK = run.WORKLOAD, run.FRAMEWORK
ACCELERATOR = Option("accelerator", "of the wheels", ("auto", "cpu", "cuda"), default="auto")
PLATFORM = Option("platform", "of the image", PLATFORMS, default=PLATFORMS[0])
RULES = Option("rules", "whose lock", ("1.0", "practice"), default="1.0")
LOCK_NAME = positional(
    Option("name", "which entries (default: all that are not archived)", metavar="NAME"), many=True
)
SEVERAL = "one or several with commas (default: all)"
THREADS = Option("threads", "of the processor (default: all cores)", metavar="N", type=int)

# Audits that run a submission again, from its log only.
AGAIN = (
    RESULT,
    SUBMISSIONS,
    Option("nonce", "64 hexadecimal digits of the auditor's (default: drawn, and printed)", metavar="HEX"),
    KEY,
    replace(OUT, help="folder for logs and verdict (default: audits/…)"),
    run.DATA_ROOT,
    run.CACHE_DIR,
    Option("pair", "the submitter's custom pair, if the run had one", metavar="FILE", type=Path),
    Option("interpreter", "a Python with the packages of the run", metavar="FILE", type=Path),
    Option("other_code", "run it even if this checkout has other code: never L3", switch=True),
    run.FETCH,
    JSON,
)
SWEEP = (
    Option("dry", "show the plan and the times, and do nothing", switch=True),
    run.RESULTS_DIR,
)
SWEEP_OVERRIDES = tuple(
    option
    for option in run.RUN_OPTIONS
    if option.name not in ("workload", "framework", "phase", "dry", "results_dir")
)
SCALE_OVERRIDES = tuple(
    option
    for option in run.RUN_OPTIONS
    if option.name
    not in ("workload", "framework", "devices", "nodes", "mode", "purpose", "dry", "results_dir")
)
CONVERSION = (
    WORKLOAD,
    Option("to", "the storage format to write", storage_formats),
    *(run.SCALE, replace(run.BATCH, help="images per shard", usual="equal for all", metavar="N")),
    *(run.CACHE, run.DIVISION, run.PURPOSE, run.RUNTIME, run.LAUNCHER, run.IMAGE, *run.PATHS, run.BUNDLE),
    Option(
        "resize",
        "store squares of so many pixels instead of the unchanged files; with `ENCODE`",
        metavar="PIXELS",
    ),
    Option("encode", "`raw`: rows of RGB; `jpeg`: JPEG files of quality 95; with `RESIZE`", KINDS),
    Option("measure", "measure the conversion before converting the dataset", switch=True, default=True),
    *(run.DRY, run.FETCH),
)
BUILD = (
    RULES,
    replace(WORKLOAD, help="only this one"),
    replace(FRAMEWORK, help="only this one"),
    PLATFORM,
)
