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

from suite.contract.traits import framework_names
from suite.contract.workloads import names, specification

if TYPE_CHECKING:
    from suite.contract import Data, Job

__all__ = [
    "CUSTOM_PAIR",
    "CustomPairError",
    "decoder_of",
    "framework_module",
    "frameworks",
    "names",
    "open_data",
    "pair_module",
    "specification",
]

_HERE = Path(__file__).parent
CUSTOM_PAIR = "suite_custom_pair"  # the module's name of a pair from outside


class CustomPairError(ImportError):
    """A pair from outside that cannot be loaded; the message says why and names no path."""


class _Source(SourceFileLoader):
    """Loads what the file says now: neither reads nor writes bytecode, so that its digest is of what ran."""

    def get_code(self, fullname: str) -> Any:
        """The compiled source."""
        del fullname
        return self.source_to_code(self.get_data(self.path), self.path)


@cache
def frameworks(workload: str) -> tuple[str, ...]:
    """The frameworks in which ``workload`` exists as a pair."""
    return tuple(name for name in framework_names() if _folder(workload, name))


@cache
def _folder(workload: str, module: str) -> str | None:
    """The package that holds ``module`` of ``workload``: its own, else its family's, else None."""
    folders = [folder for folder in (workload, specification(workload).FAMILY) if folder]
    return next((folder for folder in folders if (_HERE / folder / f"{module}.py").is_file()), None)


def _module(workload: str, module: str) -> ModuleType:
    return import_module(f"suite.workloads.{_folder(workload, module) or workload}.{module}")


def open_data(job: Job) -> Data:
    """The batches of ``job`` (container side: needs numpy)."""
    return cast("Data", _module(job.key.workload, "data").open_data(job))


def decoder_of(job: Job) -> str | None:
    """What decodes the images that ``job`` reads, with its version; None where it reads none."""
    if job.key.data == "synthetic" or tuple(specification(job.key.workload).LOADERS) == ("native",):
        return None
    return cast("str | None", _module(job.key.workload, "data").decoder(job))


def pair_module(job: Job) -> ModuleType:
    """The module with the ``Pair`` of ``job`` (container side: imports its framework).

    CustomPairError where ``job.pair_file`` is given and is no such module.
    """
    if job.pair_file:
        return _custom_pair(job.pair_file)
    return _module(job.key.workload, job.key.framework)


def conversion_module(framework: str) -> ModuleType:
    """The module with the ``Writer`` of the storage format of ``framework`` (container side)."""
    return import_module(f"suite.workloads._conversion.{framework}")


def conversion_decoder() -> str:
    """What decodes the images that a conversion verifies, with its version (container side)."""
    return cast("str", import_module("suite.common.decoder").DECODER)


def _custom_pair(path: str) -> ModuleType:
    """The file ``path`` as the module ``suite_custom_pair``, which holds a ``Pair``."""
    if not Path(path).is_file():
        raise CustomPairError("custom pair: expected a file that the worker can read, found none; check PAIR")
    spec = spec_from_file_location(CUSTOM_PAIR, path, loader=_Source(CUSTOM_PAIR, path))
    if spec is None or spec.loader is None:
        raise CustomPairError("custom pair: expected a Python source file, found none")
    module = module_from_spec(spec)
    sys.modules[CUSTOM_PAIR] = module  # before it runs: dataclasses and compilers look their module up
    try:
        spec.loader.exec_module(module)
    except MemoryError:
        raise
    except (Exception, SystemExit) as error:
        del sys.modules[CUSTOM_PAIR]
        raise CustomPairError(f"custom pair: importing it failed with {_told(error)}") from error
    if not isinstance(getattr(module, "Pair", None), type):
        del sys.modules[CUSTOM_PAIR]
        raise CustomPairError("custom pair: expected a class named Pair that keeps the contract, found none")
    return module


def _told(error: BaseException) -> str:
    """An error's type and message; of a SyntaxError the line, which its message has behind a path."""
    message = f"{error.msg}, line {error.lineno}" if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {message}"


def framework_module(job: Job) -> Any:
    """The module with the ``Framework`` of ``job`` (container side)."""
    return import_module(f"suite.frameworks.{job.key.framework}.framework")
