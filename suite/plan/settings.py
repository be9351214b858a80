"""The settings of a run: the tree that Hydra composes, validated into a frozen dataclass."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from suite import workloads
from suite.containers.engines.container import Limits
from suite.contract import BENCHMARK, LOAD, LOAD_PHASES
from suite.plan.errors import BadConfiguration, did_you_mean, one_of
from suite.plan.kubernetes_options import KubernetesOptions
from suite.plan.kubernetes_options import parse as parse_kubernetes
from suite.plan.limits import FIELDS, parse_limits
from suite.plan.options import MAX, RUN_OPTIONS, RUN_PATHS, SECTIONS, by_name
from suite.plan.slurm_options import SlurmOptions
from suite.plan.slurm_options import parse as parse_launcher

_CHOICES = (
    *("phase", "scenario", "mode", "precision", "scale", "data", "cache", "storage", "loader", "division"),
    *("purpose", "strategy", "collective"),
)
_FRAMEWORK_FIELDS = {"name", *SECTIONS["framework"]}
# The first two by the schema of the log.
_MOST = {"devices": 4096, "nodes": 1024, "framework.threads": 4096, "bucket_mib": 1_000_000}
# Variables of the environment that a worker may be given: those of the libraries that move gradients. Names
# of files would be paths of the machine, and a plug-in would be code that nobody sees.
VARIABLE = r"(NCCL|TORCH_NCCL|TORCH_SYMM_MEM|GLOO)_(?!\w*(FILE|PLUGIN))[A-Z0-9_]{1,60}"
VARIABLE_VALUE = r"[A-Za-z0-9_.,:=^-]{1,100}"
_MOST_ROWS = 2**53 - 1  # of a batch: the largest integer that a log can hold


@dataclass(frozen=True, slots=True)
class Settings:
    """The options as the user gave them; :mod:`suite.plan.resolve` decides those that are ``auto``."""

    workload: str
    framework: str
    runtime: str
    phase: str
    scenario: str
    mode: str
    precision: str
    scale: str
    data: str
    cache: str
    storage: str  # the storage format that a run reads or a conversion writes
    loader: str
    division: str
    purpose: str
    launcher: str
    slurm: SlurmOptions | None  # of launcher=slurm
    kubernetes: KubernetesOptions | None  # of launcher=kubernetes
    limits: Limits
    batch: int | None
    variant: str | None
    devices: int
    device_selection: tuple[str, ...]  # ordinals or UUIDs; empty if only a number of devices was given
    nodes: int
    strategy: str
    collective: str
    bucket_mib: int | None  # of gradients that are exchanged together
    repeats: int | None
    steps: int | None  # of the measurement window
    min_seconds: int | None  # of the measurement window; a pilot decides the steps
    nonce: str | None
    image: str | None  # a custom image, repository@sha256:...
    pair: Path | None  # a custom pair
    bundle: Path | None
    python: str | None
    threads: int | None
    wait_policy: str
    variables: Mapping[str, str]  # of the environment of the workers
    fast: bool
    fetch: bool
    dry: bool
    telemetry: bool
    reuse_compiled: bool
    fingerprint: bool
    hyper: Mapping[str, str]
    data_root: Path
    results_dir: Path
    cache_dir: Path
    baselines: Path
    overrides: tuple[str, ...] = field(default=())
    encoding: str = "file"  # of the images that a conversion stores (suite.workloads.storage)
    batch_max: bool = False  # search the largest batch that fits
    kind: str = BENCHMARK  # of the job: benchmark, load or conversion

    @property
    def counts_given(self) -> bool:
        """Whether the repeats or the steps of a window are given."""
        return any(one is not None for one in (self.repeats, self.steps, self.min_seconds))

    @property
    def devices_per_node(self) -> int:
        """The devices of each node, which have a rank each."""
        return max(1, self.devices // self.nodes)


def validate(tree: Mapping[str, Any], overrides: tuple[str, ...] = (), kind: str = BENCHMARK) -> Settings:
    """``tree`` (plain dictionaries, composed by Hydra) as settings of a ``kind`` of job; BadConfiguration."""
    known = by_name(RUN_OPTIONS)
    for name in tree:
        if name not in known:
            raise BadConfiguration(f"unknown option {name!r}{did_you_mean(name, known)}")
    if missing := [name for name in known if name not in tree]:
        raise BadConfiguration(
            f"{missing[0]}: expected a value, found the option removed from the configuration"
        )
    workload = one_of("workload", _section(tree, "workload", {"name", "hyper"})["name"], workloads.names())
    framework = _section(tree, "framework", _FRAMEWORK_FIELDS)
    if lacking := _FRAMEWORK_FIELDS - set(framework):
        raise BadConfiguration(
            f"framework: expected the fields {sorted(_FRAMEWORK_FIELDS)}, no {min(lacking)}"
        )
    framework_name = one_of("framework", framework["name"], workloads.frameworks(workload))
    if "/" in str(tree["data"]):
        raise BadConfiguration(
            f"data: expected auto, real or synthetic, found a path; use DATA_ROOT={tree['data']} for a folder"
        )
    checked: dict[str, Any] = {name: one_of(name, tree[name], known[name].choices()) for name in _CHOICES}
    checked |= {option.name: _flag(option.name, tree[option.name]) for option in RUN_OPTIONS if option.switch}
    checked |= {option.name: _path(option.name, tree[option.name]) for option in RUN_PATHS}
    devices, device_selection = _devices(tree["devices"])
    pods = _named(tree, "launcher")["name"] == "kubernetes"
    return Settings(
        workload=workload,
        framework=framework_name,
        runtime=one_of("runtime", _section(tree, "runtime", FIELDS)["name"], known["runtime"].choices()),
        limits=_limits(tree["runtime"]),
        launcher=one_of("launcher", _named(tree, "launcher")["name"], known["launcher"].choices()),
        slurm=None if pods else parse_launcher(_named(tree, "launcher")),
        kubernetes=parse_kubernetes(_named(tree, "launcher")) if pods else None,
        batch=None if tree["batch"] == MAX else _count("batch", tree["batch"]),
        batch_max=tree["batch"] == MAX,
        variant=None if tree["variant"] == "auto" else str(tree["variant"]),
        devices=devices,
        device_selection=device_selection,
        nodes=_count("nodes", tree["nodes"]) or 1,
        bucket_mib=_count("bucket_mib", tree["bucket_mib"]),
        repeats=_count("repeats", tree["repeats"]),
        steps=_count("steps", tree["steps"]),
        min_seconds=_count("min_seconds", tree["min_seconds"]),
        nonce=_nonce(tree["nonce"]),
        image=_custom_image(tree["image"]),
        pair=None if tree["pair"] is None else _path("pair", tree["pair"]),
        bundle=_bundle(tree),
        python=None if framework["python"] == "auto" else str(framework["python"]),
        threads=_count("framework.threads", framework["threads"]),
        wait_policy=one_of("framework.wait_policy", framework["wait_policy"], ("passive", "active")),
        variables=_variables(framework["variables"]),
        fast=_flag("framework.fast", framework["fast"]),
        hyper=_hyper(tree["workload"].get("hyper")),
        overrides=overrides,
        kind=LOAD if kind == BENCHMARK and checked["phase"] in LOAD_PHASES else kind,
        **checked,
    )


def _section(tree: Mapping[str, Any], name: str, fields: Set[str]) -> Mapping[str, Any]:
    section = tree[name]
    if not isinstance(section, Mapping) or set(section) - fields or "name" not in section:
        found = sorted(section) if isinstance(section, Mapping) else section
        raise BadConfiguration(f"{name}: expected the fields {sorted(fields)}, found {found}")
    return section


def _named(tree: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = tree[name]
    if not isinstance(section, Mapping) or "name" not in section:
        raise BadConfiguration(f"{name}: expected a section with a name, found {section!r}")
    return section


def _limits(section: Mapping[str, Any]) -> Limits:
    if lacking := FIELDS - set(section):
        raise BadConfiguration(f"runtime: expected the fields {sorted(FIELDS)}, no {min(lacking)}")
    return parse_limits(section)


def _custom_image(value: object) -> str | None:
    if value is None:
        return None
    if not re.fullmatch(r"[a-z0-9][a-zA-Z0-9._:/-]{0,255}@sha256:[0-9a-f]{64}", str(value)):
        raise BadConfiguration(
            f"image: expected repository@sha256:<64 hexadecimal digits>, found {value!r}; a tag can move to "
            "another image: `docker inspect --format '{{.RepoDigests}}' IMAGE` shows the digest"
        )
    return str(value)


def _bundle(tree: Mapping[str, Any]) -> Path | None:
    if tree["bundle"] is None:
        return None
    if tree["image"] is not None:
        raise BadConfiguration(
            "bundle: expected no image=, found one: the bundle contains the pair's image; leave out image="
        )
    return _path("bundle", tree["bundle"])


def _hyper(value: object) -> dict[str, str]:
    """The given hyperparameters as text; :mod:`suite.plan.resolve` checks them."""
    if not isinstance(value, Mapping):
        raise BadConfiguration(f"workload.hyper: expected names and values, found {value!r}")
    return {str(name): str(given) for name, given in value.items() if given is not None}


def _count(name: str, value: object) -> int | None:
    if value == "auto":
        return None
    most = _MOST.get(name, _MOST_ROWS)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        others = f"auto, {MAX}" if name == "batch" else "auto"
        raise BadConfiguration(
            f"{name}: expected {others} or a whole number from 1 to {most}, found {value!r}"
        )
    return value


def _devices(value: object) -> tuple[int, tuple[str, ...]]:
    """Number and names of devices, from a number or a list such as ``[1]`` or ``[GPU-8f6d,GPU-12ab]``."""
    if isinstance(value, str) and re.fullmatch(r"\[.*\]", value):  # make passes a list as text
        value = value[1:-1].split(",")
    if isinstance(value, list):
        names = tuple(str(name).strip() for name in value)
        if not names or not all(re.fullmatch(r"[0-9]+|GPU-[0-9a-f-]+", name) for name in names):
            raise BadConfiguration(f"devices: expected ordinals or UUIDs such as [0], found {value!r}")
        if len(set(names)) < len(names):
            raise BadConfiguration(f"devices: expected each device once, found {value!r}")
        return len(names), names
    return _count("devices", value) or 1, ()


def _variables(value: object) -> dict[str, str]:
    """Name and value of each variable of a list such as ``[NCCL_NVLS_ENABLE:0]``."""
    if not isinstance(value, list):
        raise BadConfiguration(
            f"framework.variables: expected a list such as [NCCL_NVLS_ENABLE:0], found {value!r}"
        )
    variables: dict[str, str] = {}
    for one in value:
        name, _, text = str(one).partition(":")
        if not re.fullmatch(VARIABLE, name) or not re.fullmatch(VARIABLE_VALUE, text) or name in variables:
            raise BadConfiguration(
                "framework.variables: expected NAME:value in each entry, each name once: a variable of NCCL_,"
                " TORCH_NCCL_, TORCH_SYMM_MEM_ or GLOO_ that names no file and no plug-in, and a value "
                f"without blanks and paths; found {one!r}"
            )
        variables[name] = text
    return variables


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise BadConfiguration(f"{name}: expected true or false, found {value!r}")
    return value


def _nonce(value: object) -> str | None:
    if value is None:
        return None
    if not re.fullmatch(r"[0-9a-f]{64}", str(value)):
        raise BadConfiguration(f"nonce: expected 64 hexadecimal digits in lower case, found {value!r}")
    return str(value)


def _path(name: str, value: object) -> Path:
    if not isinstance(value, str) or not value:
        raise BadConfiguration(f"{name}: expected a path, found {value!r}")
    return Path(value).expanduser().resolve()
