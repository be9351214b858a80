"""The workloads: one folder each, found by looking, so that adding one touches nothing else."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from suite.workloads.contract import Data, Job, Specification

_HERE = Path(__file__).parent
OWN_PAIR = "suite_own_pair"  # the module's name of a pair from outside


class OwnPairError(ImportError):
    """A pair from outside that cannot be loaded; the message says why and names no path."""


class _Source(SourceFileLoader):
    """Loads what the file says now: neither reads nor writes bytecode, so that its digest is of what ran."""

    def get_code(self, fullname: str) -> Any:
        """The compiled source."""
        del fullname
        return self.source_to_code(self.get_data(self.path), self.path)


@cache
def names() -> tuple[str, ...]:
    """The workloads that exist: folders with a ``spec.py``; one starting with ``_`` is internal."""
    return tuple(sorted(path.parent.name for path in _HERE.glob("[a-z]*/spec.py")))


@cache
def frameworks(workload: str) -> tuple[str, ...]:
    """The frameworks in which ``workload`` exists as a pair."""
    known = {path.stem for path in (_HERE.parent / "frameworks").glob("[a-z]*.py")} - {"common"}
    return tuple(sorted(name for name in known if _folder(workload, name)))


def specification(name: str) -> Specification:
    """The specification of workload ``name``; ValueError if there is none (never imports other names).

    It is the module ``spec``, or that module's ``SPEC`` where a family of workloads fills in the functions.
    """
    if name not in names():
        raise ValueError(f"workload: expected one of {', '.join(names())}, found {name!r}")
    module = import_module(f"suite.workloads.{name}.spec")
    return cast("Specification", getattr(module, "SPEC", module))


@cache
def _folder(workload: str, module: str) -> str | None:
    """The package that holds ``module`` of ``workload``: its own, else its family's, else None."""
    family = getattr(specification(workload), "FAMILY", "")
    folders = [workload, family] if family else [workload]
    return next((folder for folder in folders if (_HERE / folder / f"{module}.py").is_file()), None)


def _module(workload: str, module: str) -> ModuleType:
    return import_module(f"suite.workloads.{_folder(workload, module) or workload}.{module}")


def open_data(job: Job) -> Data:
    """The batches of ``job`` (container side: needs numpy)."""
    return cast("Data", _module(job.key.workload, "data").open_data(job))


def decoder_of(job: Job) -> str | None:
    """What decodes the images that ``job`` reads, with its version; None where it reads none."""
    if job.key.phase == "preprocess":
        return cast("str", import_module("suite.workloads.decoder").DECODER)
    named = getattr(_module(job.key.workload, "data"), "decoder", None)
    return None if named is None or job.key.data == "synthetic" else cast("str | None", named(job))


def pair_module(job: Job) -> ModuleType:
    """The module with the ``Pair`` of ``job`` (container side: imports its framework).

    OwnPairError where ``job.pair_file`` is given and is no such module.
    """
    if job.key.phase == "preprocess":
        return import_module(f"suite.workloads._conversion.{job.key.framework}")
    if job.pair_file:
        return _own_pair(job.pair_file)
    return _module(job.key.workload, job.key.framework)


def _own_pair(path: str) -> ModuleType:
    """The file ``path`` as the module ``suite_own_pair``, which holds a ``Pair``."""
    if not Path(path).is_file():
        raise OwnPairError("own pair: expected a file that the worker can read, found none; check PAIR")
    spec = spec_from_file_location(OWN_PAIR, path, loader=_Source(OWN_PAIR, path))
    if spec is None or spec.loader is None:
        raise OwnPairError("own pair: expected a Python source file, found none")
    module = module_from_spec(spec)
    sys.modules[OWN_PAIR] = module  # before it runs: dataclasses and compilers look their module up
    try:
        spec.loader.exec_module(module)
    except MemoryError:
        raise
    except (Exception, SystemExit) as error:
        del sys.modules[OWN_PAIR]
        raise OwnPairError(f"own pair: importing it failed with {_told(error)}") from error
    if not isinstance(getattr(module, "Pair", None), type):
        del sys.modules[OWN_PAIR]
        raise OwnPairError("own pair: expected a class named Pair that keeps the contract, found none")
    return module


def _told(error: BaseException) -> str:
    """An error's type and message; of a SyntaxError the line, which its message has behind a path."""
    message = f"{error.msg}, line {error.lineno}" if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {message}"


def framework_module(job: Job) -> Any:
    """The module with the ``Framework`` of ``job`` (container side)."""
    return import_module(f"suite.frameworks.{job.key.framework}")
