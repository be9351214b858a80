"""The options of a run, each declared once: name, values, default and a sentence of help.

Everything else that lists them is made from here or tested against it: the validation of settings
(:mod:`suite.plan.settings`), ``conf/run.yaml``, make's variables, the help pages and README.md's table.
``make help`` answers before there is an environment: standard library only, and Python 3.10 is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suite import workloads
from suite.contract.traits import framework_names, storage_formats

AUTO, MAX = "auto", "max"


@dataclass(frozen=True, slots=True)
class Option:
    """One option: ``data_root`` is ``data_root=`` in Hydra, ``--data-root`` elsewhere, ``DATA_ROOT`` in make.

    ``values`` is the closed list of what it may be; without one, ``metavar`` says what is expected. ``type``
    reads the text of an option of argparse. ``default`` is the value where the option is not given; where it
    is ``auto``, ``usual`` says what the suite then chooses. ``many`` takes several values. A ``positional``
    argument has no flag; ``make`` names its variables where they are not its own name.
    """

    name: str
    help: str
    values: tuple[str, ...] | Callable[[], Iterable[str]] = ()
    metavar: str = ""
    default: Any = None
    usual: str = ""
    type: Callable[[str], Any] | None = None
    switch: bool = False
    required: bool = False
    many: bool = False
    positional: bool = False
    make: tuple[str, ...] = ()

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables of make that give it."""
        return self.make or (self.name.upper(),)

    @property
    def flag(self) -> str:
        """Its flag on the command line of the verbs that read theirs with argparse."""
        return "--" + self.name.replace("_", "-")

    def choices(self) -> tuple[str, ...]:
        """What it may be, ``auto`` included where that is the default; empty where the list is not closed."""
        values = tuple(self.values() if callable(self.values) else self.values)
        return (AUTO, *values) if values and self.default == AUTO and AUTO not in values else values

    def shown(self) -> tuple[str, ...]:
        """What it may be, for people: ``auto`` is told as the default."""
        if self.switch:
            return ("1", "0")
        return tuple(value for value in self.choices() if value != AUTO) or (self.metavar,)

    def shown_default(self) -> str:
        """The default, for people."""
        if self.switch:
            return "1" if self.default else "0"
        return self.usual or ("" if self.default is None else str(self.default))


WORKLOAD = Option("workload", "model, dataset and quality metric", workloads.names)
FRAMEWORK = Option("framework", "what computes it", framework_names)
SCALE = Option(
    "scale", "the published model, or the same code with small dimensions", ("reference", "mini"),
    default=AUTO, usual="`reference` on a GPU with room for it, else `mini`",
)  # fmt: skip
BATCH = Option(
    "batch",
    "per device and step; beyond the workload's list the run is open, and with `max`, the largest that fits",
    metavar=f"<number>|{MAX}", default=AUTO, usual="first of the list",
)  # fmt: skip
CACHE = Option(
    "cache", "of the operating system; `cold`: files are evicted before each repeat", ("warm", "cold"),
    default="warm",
)  # fmt: skip
DIVISION = Option(
    "division", "`closed`: by the rules; `open`: differences declared; `practice`: mini",
    ("closed", "open", "practice"), default=AUTO, usual="`practice` at mini, else `open`",
)  # fmt: skip
PURPOSE = Option("purpose", "whether the run counts as an attempt", ("trial", "submission"), default="trial")
RUNTIME = Option(
    "runtime", "where the workers run",
    ("docker", "podman", "apptainer", "enroot", "native"), default=AUTO,
    usual="a container where a GPU or `closed` asks for one and an engine answers, else `native`",
)  # fmt: skip
LAUNCHER = Option(
    "launcher", "`slurm`: a job, prepared here, run on a node", ("local", "slurm"), default="local"
)
IMAGE = Option(
    "image", "your custom image by digest: the run is open", metavar="<repository>@sha256:<digest>"
)
DRY = Option("dry", "show the plan, its cost and every rule it would break; do nothing", switch=True)
FETCH = Option("fetch", "allow a download of more than 1 GB", switch=True)
DATA_ROOT = Option("data_root", "where datasets are kept", metavar="DIR", default="data", type=Path)
RESULTS_DIR = Option("results_dir", "where results are kept", metavar="DIR", default="results", type=Path)
CACHE_DIR = Option(
    "cache_dir", "where downloads and builds are kept", metavar="DIR", default=".cache", type=Path
)
BUNDLE = Option(
    "bundle", "what `make fetch` made: image, wheels and data are taken from there", metavar="DIR", type=Path
)
PATHS = (DATA_ROOT, RESULTS_DIR, CACHE_DIR)
NONCE = Option("nonce", "from a registry", metavar="<64 hexadecimal digits>")
PAIR = Option("pair", "your custom pair: the run is open", metavar="FILE", type=Path)

# In the order of the help page. The path options are no part of what is measured, and of no digest.
RUN_OPTIONS = (
    WORKLOAD,
    FRAMEWORK,
    Option(
        "phase", "training or inference; `make preprocess` converts datasets (docs/data.md)",
        ("train", "infer"), default="train",
    ),
    Option(
        "scenario", "of inference; `single_stream`: batch 1, every output awaited",
        ("offline", "single_stream"), default="offline",
    ),
    Option(
        "mode", "`quality`: train to the target: time to quality", ("throughput", "quality"),
        default="throughput",
    ),
    Option(
        "precision", "`bf16` and `fp16` are mixed, with fp32 master weights",
        ("fp32", "tf32", "bf16", "fp16"), default="fp32",
    ),
    SCALE,
    Option(
        "data", "`real`: read through the input pipeline; `synthetic`: batches on the device",
        ("real", "synthetic"), default=AUTO,
        usual="`real` at mini or where the dataset is prepared, else `synthetic`",
    ),
    CACHE,
    Option(
        "storage", "storage format of a dataset of images (`make preprocess` converts)",
        lambda: ("files", *storage_formats()), default="files",
    ),
    Option(
        "loader",
        "what reads images: the framework's own pipeline, DALI, or Pillow (the same bytes everywhere)",
        ("native", "dali", "pillow"), default="native",
    ),
    BATCH,
    Option(
        "devices", "how many, or which, counted among those in `CUDA_VISIBLE_DEVICES`, which is honoured and "
        "logged", metavar="<number>|[0,1]|[<UUID>]", default=1,
    ),
    Option(
        "variant", "the published size of the model", metavar="<name>", default=AUTO,
        usual="the workload's first",
    ),
    DIVISION,
    PURPOSE,
    RUNTIME,
    LAUNCHER,
    IMAGE,
    PAIR,
    NONCE,
    Option(
        "fingerprint", "untimed steps after repeat 0 that others can compute again; never off in closed",
        switch=True, default=True,
    ),
    Option("telemetry", "sample counters beside the run; never off in closed", switch=True, default=True),
    DRY,
    FETCH,
    *PATHS,
    BUNDLE,
)  # fmt: skip

# What an option was called before: refused with its name of today by the verbs that have that.
RENAMED = {
    "form": "storage",
    "own": "custom",
    "results": "results_dir",
    "cache": "cache_dir",
    "python": "interpreter",
    "output": "out",
    "root": "submissions",
    "wait": "wait_policy",
}


def by_name(options: Iterable[Option] = RUN_OPTIONS) -> dict[str, Option]:
    """Options by their name."""
    return {option.name: option for option in options}


def renamed(name: str, known: Iterable[str]) -> str | None:
    """The name of today of the option that was ``name`` before, where it is among ``known``."""
    today = RENAMED.get(name)
    return today if today in set(known) else None
