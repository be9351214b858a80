"""The options of a run, each declared once: name, values, default and a sentence of help.

The validation of settings (:mod:`suite.plan.settings`), make's variables, the help pages and the table in
README.md are derived from this list; a test compares ``conf/run.yaml`` with it. ``make help`` works without
an environment: this module imports the standard library only and runs on Python 3.10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suite import workloads
from suite.contract import FORWARD_BACKWARD, INDEPENDENT, LOAD_PHASES
from suite.contract.traits import framework_names, storage_formats, traits_of

AUTO, MAX = "auto", "max"


@dataclass(frozen=True, slots=True)
class Option:
    """One option: ``data_root`` is ``data_root=`` in Hydra, ``--data-root`` elsewhere, ``DATA_ROOT`` in make.

    ``values`` is the closed list of valid values; without one, ``metavar`` describes them. ``type`` converts
    the text (argparse). ``default`` is the value if the option is not given; if it is ``auto``, ``usual``
    describes the suite's choice. ``many``: several values are possible. A ``positional`` argument has no
    flag. ``make`` lists its make variables if they differ from its name.
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
        """The make variables that set it."""
        return self.make or (self.name.upper(),)

    @property
    def flag(self) -> str:
        """Its flag on the command line of verbs that use argparse."""
        return "--" + self.name.replace("_", "-")

    def choices(self) -> tuple[str, ...]:
        """Its valid values, including ``auto`` if that is the default; empty if the list is not closed."""
        values = tuple(self.values() if callable(self.values) else self.values)
        return (AUTO, *values) if values and self.default == AUTO and AUTO not in values else values

    def shown(self) -> tuple[str, ...]:
        """Its valid values for a help page, without ``auto``, which is shown as the default."""
        if self.switch:
            return ("1", "0")
        return tuple(value for value in self.choices() if value != AUTO) or (self.metavar,)

    def shown_default(self) -> str:
        """The default for a help page."""
        if self.switch:
            return "1" if self.default else "0"
        return self.usual or ("" if self.default is None else str(self.default))


WORKLOAD = Option("workload", "model, dataset and quality metric", workloads.names)
FRAMEWORK = Option("framework", "the framework that computes the workload", framework_names)
SCALE = Option(
    "scale", "the published model, or the same code with small dimensions", ("reference", "mini"),
    default=AUTO, usual="`reference` on a GPU with room for it, else `mini`",
)  # fmt: skip
BATCH = Option(
    "batch",
    "per device and step; a value outside the workload's list makes the run open; `max`: the largest that "
    "fits",
    metavar=f"<number>|{MAX}", default=AUTO, usual="first of the list",
)  # fmt: skip
CACHE = Option(
    "cache", "page cache of the operating system; `cold`: files are evicted before each repeat",
    ("warm", "cold"), default="warm",
)  # fmt: skip
DIVISION = Option(
    "division", "`closed`: by the rules; `open`: differences declared; `practice`: mini",
    ("closed", "open", "practice"), default=AUTO, usual="`practice` at mini, else `open`",
)  # fmt: skip
PURPOSE = Option("purpose", "whether the run counts as an attempt", ("trial", "submission"), default="trial")
RUNTIME = Option(
    "runtime", "where the workers run",
    ("docker", "podman", "apptainer", "enroot", "native"), default=AUTO,
    usual="a container if a GPU or `closed` requires one and an engine answers, else `native`",
)  # fmt: skip
LAUNCHER = Option(
    "launcher",
    "`slurm`: a job, prepared on this machine, run on its nodes; `kubernetes`: a JobSet, written for you to "
    "apply",
    ("local", "slurm", "kubernetes"), default="local",
)  # fmt: skip
IMAGE = Option(
    "image", "your custom image by digest: the run is open", metavar="<repository>@sha256:<digest>"
)
DRY = Option("dry", "show the plan, its cost and every rule that it would break; do nothing", switch=True)
FETCH = Option("fetch", "allow a download of more than 1 GB", switch=True)
DATA_ROOT = Option("data_root", "where datasets are kept", metavar="DIR", default="data", type=Path)
RESULTS_DIR = Option("results_dir", "where results are kept", metavar="DIR", default="results", type=Path)
CACHE_DIR = Option(
    "cache_dir", "where downloads and builds are kept", metavar="DIR", default=".cache", type=Path
)
BUNDLE = Option(
    "bundle", "the folder that `make fetch` made, with image, wheels and data", metavar="DIR", type=Path
)
BASELINES = Option(
    "baselines", "where baselines of the machine are kept; a run cites the newest", metavar="DIR",
    default="baselines", type=Path,
)  # fmt: skip
PATHS = (DATA_ROOT, RESULTS_DIR, CACHE_DIR)
RUN_PATHS = (*PATHS, BASELINES)
NONCE = Option(
    "nonce",
    "from the submissions registry or an auditor (docs/submitting.md)",
    metavar="<64 hexadecimal digits>",
)
PAIR = Option("pair", "your custom pair: the run is open", metavar="FILE", type=Path)

# In the order of the help page. Path options are not part of what is measured, nor of any digest.
RUN_OPTIONS = (
    WORKLOAD,
    FRAMEWORK,
    Option(
        "phase", "training or inference; `load`, `load_infer`: the input pipeline of either alone, without a "
        "model; `make preprocess` converts datasets (docs/data.md)",
        ("train", "infer", *LOAD_PHASES), default="train",
    ),
    Option(
        "scenario", "`single_stream`, of inference: batch 1, the next step starts when the output is there; "
        "`forward_backward`, of training on one device: loss and gradient, without an update",
        ("offline", "single_stream", FORWARD_BACKWARD), default="offline",
    ),
    Option(
        "mode", "`quality`: train to the quality target and measure the time", ("throughput", "quality"),
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
        "reader of dataset images: the framework's pipeline, DALI, or Pillow (equal bytes in all frameworks)",
        ("native", "dali", "pillow"), default="native",
    ),
    BATCH,
    Option(
        "devices", "number or list of devices, counted among those in `CUDA_VISIBLE_DEVICES`, which is "
        "respected and logged", metavar="<number>|[0,1]|[<UUID>]", default=1,
    ),
    Option("nodes", "machines that the devices are on, equally many on each", metavar="<number>", default=1),
    Option(
        "strategy", "how the ranks of a training exchange gradients; `independent`: not at all, published "
        "within a scaling set only",
        ("allreduce", "parameter_server", INDEPENDENT), default=AUTO,
        usual="the framework's; `independent` on one device and in inference",
    ),
    Option(
        "collective", "what moves the gradients; `cpu` and `device`: where MXNet adds them up; "
        "`copy_engine`: PyTorch on GPUs of one machine",
        lambda: sorted({name for found in framework_names()
                        for names in traits_of(found).collectives.values() for name in names}),
        default=AUTO, usual="the framework's first for the device",
    ),
    Option(
        "bucket_mib", "MiB of gradients that PyTorch exchanges together, up to 1,000,000; above the size of "
        "the model, the exchange begins when all gradients are complete", metavar="<number>", default=AUTO,
        usual="PyTorch's: 25",
    ),
    Option(
        "variant", "the published size of the model", metavar="<name>", default=AUTO,
        usual="the workload's first",
    ),
    DIVISION,
    PURPOSE,
    Option(
        "repeats", "fresh starts of all ranks, 1 to 20; more make the interval narrower; another number than "
        "the rules' is a difference from closed", metavar="<number>", default=AUTO, usual="the rules': 5",
    ),
    Option(
        "steps", "measured steps of a window, a multiple of 100 up to 10,000, for drift and growth of memory "
        "(docs/longer.md); a difference from closed", metavar="<number>", default=AUTO, usual="100",
    ),
    Option(
        "min_seconds", "in place of `STEPS`: as many steps as last so long, fixed by an untimed pilot",
        metavar="<number>", default=AUTO, usual="no pilot",
    ),
    RUNTIME,
    LAUNCHER,
    IMAGE,
    PAIR,
    NONCE,
    Option(
        "fingerprint", "untimed steps after repeat 0 that others can recompute; required in closed",
        switch=True, default=True,
    ),
    Option(
        "reuse_compiled",
        "start from what earlier runs compiled and tuned, kept in `CACHE_DIR/compiled`, and keep what this "
        "one compiles; a difference from closed", switch=True,
    ),
    Option("telemetry", "sample counters beside the run; required in closed", switch=True, default=True),
    DRY,
    FETCH,
    *RUN_PATHS,
    BUNDLE,
)  # fmt: skip

# The fields of the sections `framework` and `runtime`, such as framework.threads=2.
SECTIONS = {
    "framework": ("python", "threads", "wait_policy", "variables", "fast"),
    "runtime": ("cpus", "cpuset", "memory", "shm_size"),
}

# Former name -> current name. A verb that has the current option refuses the former name.
RENAMED = {
    "form": "storage",
    "own": "custom",
    "results": "results_dir",
    "cache": "cache_dir",
    "python": "interpreter",
    "output": "out",
    "root": "submissions",
    "wait": "wait_policy",
    "experiment": "sweep",
}


def by_name(options: Iterable[Option] = RUN_OPTIONS) -> dict[str, Option]:
    """``options`` by name."""
    return {option.name: option for option in options}


def path_in_section(name: str) -> str | None:
    """``framework.threads`` for ``threads``, the name of a field of a section; None for any other name."""
    return next((f"{section}.{name}" for section, fields in SECTIONS.items() if name in fields), None)


def renamed(name: str, known: Iterable[str]) -> str | None:
    """The current name of the option that was called ``name``; None unless it is in ``known``."""
    names = set(known)
    if name == "results" and "result" in names:  # a verb that takes one result, and perhaps a folder of them
        return "result"
    current = RENAMED.get(name)
    return current if current in names else None
