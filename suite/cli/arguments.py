"""What a verb is, and the options that verbs share. Standard library only, as :mod:`suite.cli.verbs`."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from suite.cli.listing import GROUPS, PROGRAMS
from suite.contract.traits import storage_formats
from suite.plan import options as run
from suite.plan.options import Option

FORMATS = ("text", "md", "json")
PLATFORMS = ("linux/amd64", "linux/arm64")
METRICS = (
    *("throughput", "step_time", "step_p50", "step_p99", "peak_memory", "peak_host_memory"),
    *("peak_device_memory", "files_read", "shards_written", "time_to_quality", "quality", "input_wait"),
    *("gpu_power", "gpu_utilisation", "cpu_cores", "setup", "compile", "spread"),
)
BUNDLE_FORMATS = ("oci", "sif", "sqsh", "none")
_PERCENT = re.compile(r"\s*([0-9]{1,3}(?:\.[0-9]{1,6})?)\s*%\s*")


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb. ``module`` is imported when the verb is used, and ``function`` of it called.

    ``function`` takes the arguments that argparse has read. A verb with ``overrides`` takes options of a run
    too, as ``name=value``; where it has no others, and ``hydra`` is true, its function takes all arguments
    unparsed.
    ``storage_code`` is the exit code of a place that cannot be read or written.
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
        """What it does, in a line."""
        return next(members[self.name] for members in GROUPS.values() if self.name in members)

    @property
    def program(self) -> bool:
        """Whether ``module`` is a program of its own, outside of the suite, which make starts."""
        return self.name in PROGRAMS


def percentage(text: str) -> float:
    """A percentage as a part: 0.02 of "2%"."""
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


def positional(option: Option, **changes: Any) -> Option:
    """``option`` without a flag."""
    return replace(option, positional=True, **changes)


def format_of(*values: str) -> Option:
    """The option --format, of these values."""
    return Option("format", "of what is printed", values or FORMATS, default=(values or FORMATS)[0])


def only(name: str) -> Option:
    """A filter by what a run's option ``name`` was."""
    return Option(name, f"only this {name}; several with commas", metavar="A,B", default="")


RESULT = Option("result", "the result's folder", metavar="PATH", type=Path, required=True)
SUBMISSIONS = Option(
    "submissions", "the tree with the registry, and the results to compare with", metavar="DIR",
    default="submissions", type=Path,
)  # fmt: skip
SUBMITTER = Option("submitter", "as in submissions/<submitter>/", metavar="ORG", required=True)
JSON = Option("json", "print one JSON document instead of text", switch=True)
STRICT = Option("strict", "exit 3 in place of 0 when there are flags", switch=True)
KEY = Option("key", "sign with this private key (`make keygen` makes one)", metavar="FILE", type=Path)
OUT = Option("out", "write it there", metavar="DIR", type=Path)
JUNIT = Option("junit", "write the outcome as JUnit XML too", metavar="FILE", type=Path)
FAIL_SLOWER = Option(
    "fail_slower", "exit 5 if B is slower than A by more than this, 6 if that does not show", metavar="N%",
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

# An audit runs a submission again, from its log alone.
AGAIN = (
    RESULT,
    SUBMISSIONS,
    Option("nonce", "64 hexadecimal digits of the auditor's (default: drawn, and printed)", metavar="HEX"),
    KEY,
    replace(OUT, help="where logs and verdict go (default: audits/…)"),
    run.DATA_ROOT,
    run.CACHE_DIR,
    Option("pair", "the submitter's custom pair, where one ran", metavar="FILE", type=Path),
    Option("interpreter", "a Python with the packages that ran", metavar="FILE", type=Path),
    Option("other_code", "run it although this checkout has other code: never L3", switch=True),
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
CONVERSION = (
    WORKLOAD,
    Option("to", "the storage format to write", storage_formats),
    *(run.SCALE, replace(run.BATCH, help="images of a shard", usual="one size for all", metavar="N")),
    *(run.CACHE, run.DIVISION, run.PURPOSE, run.RUNTIME, run.LAUNCHER, run.IMAGE, *run.PATHS, run.BUNDLE),
    Option("measure", "measure the conversion before all is converted", switch=True, default=True),
    *(run.DRY, run.FETCH),
)
BUILD = (
    RULES,
    replace(WORKLOAD, help="this one alone"),
    replace(FRAMEWORK, help="this one alone"),
    PLATFORM,
)
