"""Facts about a framework that host and judge use without importing it. Standard library only.

A framework is a folder in ``suite/frameworks`` with a ``traits.py``; :func:`framework_names` lists them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import cast

_FOLDER = Path(__file__).parents[1] / "frameworks"


@dataclass(frozen=True, slots=True)
class Helpers:
    """Processes that the ranks of a training job exchange gradients through.

    The parent of the ranks of node 0 starts and ends them. In the values of the variables ``{server}`` (node
    0's address, with one node that of the loopback interface), ``{port}`` (a free port there), ``{address}``
    (this node's) and ``{world_size}`` are replaced.
    """

    program: str  # for python -c
    processes: tuple[Mapping[str, str], ...]  # the variables of each process
    ranks: Mapping[str, str]  # variables of all ranks and of all these processes


@dataclass(frozen=True, slots=True)
class Traits:
    """The facts of one framework: ``suite/frameworks/<framework>/traits.py`` holds them as ``TRAITS``.

    Devices are ``cpu`` and ``cuda``. ``fp64`` is for equivalence tests only: no specification lists it.
    """

    import_name: str  # the package that must import in its environment
    precisions: Mapping[
        str, tuple[str, ...]
    ]  # by device: the precisions that it computes without substitution
    timestamp_kind: Mapping[str, str]  # by device: device | host_completion | host_dispatch
    storage: str  # the storage format that it writes, such as recordio
    storage_files: tuple[
        str, ...
    ]  # endings of the files of a shard: the data, then the index if there is one
    reads_storage: tuple[str, ...]  # the storage formats that its environment can read
    native_devices: tuple[str, ...]  # the devices that its published wheels, outside a container, can drive
    image_python: str  # the Python of its current base image, "3.12"
    colour: str  # of its bars in figures, "#E69F00"
    out_of_memory: tuple[str, ...] = ()  # parts of its error messages, in lower case
    other_imports: tuple[str, ...] = ()  # further packages that its folder and its pairs may import
    links: Mapping[str, str] = field(default_factory=dict)  # by device: a page of wheels that PyPI lacks
    # By device: shared libraries, "nvrtc", that are looked up by name, in its environment or the system
    libraries: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    variables: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # by device: of its workers
    strategies: tuple[str, ...] = ()  # how its ranks can exchange gradients, the default first
    collectives: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by device; the default first
    buckets: bool = False  # it exchanges gradients in buckets of a size that can be chosen
    one_machine: tuple[str, ...] = ()  # the collectives that reach the devices of one machine only
    no_strategy: Mapping[str, str] = field(default_factory=dict)  # why it lacks a strategy, in a clause
    helpers: Helpers | None = None  # None: the ranks exchange without further processes
    gpu_decoder: str = ""  # the package with which its native reader of images decodes on a GPU, if it does
    reference: bool = False  # all other frameworks are compared with its float64 results on a CPU


@cache
def framework_names() -> tuple[str, ...]:
    """The names of all frameworks, sorted."""
    return tuple(sorted(path.parent.name for path in _FOLDER.glob("[a-z]*/traits.py")))


@cache
def traits_of(framework: str) -> Traits:
    """The facts of ``framework``; ValueError if there is none (never imports other names)."""
    if framework not in framework_names():
        raise ValueError(f"framework: expected one of {', '.join(framework_names())}, found {framework!r}")
    return cast("Traits", import_module(f"suite.frameworks.{framework}.traits").TRAITS)


def reference_framework() -> str:
    """The framework whose float64 results on a CPU all others are compared with."""
    return next(name for name in framework_names() if traits_of(name).reference)


def storage_formats() -> dict[str, str]:
    """The storage formats that frameworks write, each with the framework that writes it."""
    return dict(sorted((traits_of(name).storage, name) for name in framework_names()))
