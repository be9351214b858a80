"""The workloads, one folder each. They are found by listing the folders: adding one changes no list."""

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
CUSTOM_PAIR = "suite_custom_pair"  # module name of a custom pair


class CustomPairError(ImportError):
    """A custom pair that cannot be loaded; the message states the reason and contains no path."""


class _SourceOnlyLoader(SourceFileLoader):
    """Compiles the file's current source, never cached bytecode: the digest is of the code that ran."""

    def get_code(self, fullname: str) -> Any:
        """The code object of the source."""
        del fullname
        return self.source_to_code(self.get_data(self.path), self.path)


@cache
def frameworks(workload: str) -> tuple[str, ...]:
    """The frameworks in which ``workload`` exists as a pair."""
    return tuple(name for name in framework_names() if _folder(workload, name))


@cache
def _folder(workload: str, module: str) -> str | None:
    """The package with ``module`` of ``workload``: the workload's folder, else its family's, else None."""
    folders = [folder for folder in (workload, specification(workload).FAMILY) if folder]
    return next((folder for folder in folders if (_HERE / folder / f"{module}.py").is_file()), None)


def _module(workload: str, module: str) -> ModuleType:
    return import_module(f"suite.workloads.{_folder(workload, module) or workload}.{module}")


def open_data(job: Job) -> Data:
    """The data of ``job``; runs inside the container, because it needs numpy."""
    return cast("Data", _module(job.key.workload, "data").open_data(job))


def decoder_of(job: Job) -> str | None:
    """Name and version of the image decoder that ``job`` uses; None where it reads no image files."""
    if job.key.data == "synthetic" or tuple(specification(job.key.workload).LOADERS) == ("native",):
        return None
    return cast("str | None", _module(job.key.workload, "data").decoder(job))


def pair_module(job: Job) -> ModuleType:
    """The module with the ``Pair`` of ``job``; runs inside the container, because it imports the framework.

    CustomPairError where ``job.pair_file`` is set and cannot be loaded as a pair.
    """
    if job.pair_file:
        return _custom_pair(job.pair_file)
    return _module(job.key.workload, job.key.framework)


def conversion_module(framework: str) -> ModuleType:
    """The module with the ``Writer`` of the storage format of ``framework``; runs inside the container."""
    return import_module(f"suite.workloads._conversion.{framework}")


def conversion_decoder() -> str:
    """Name and version of the decoder with which a conversion verifies images; runs inside the container."""
    return cast("str", import_module("suite.common.decoder").DECODER)


def _custom_pair(path: str) -> ModuleType:
    """Import the file ``path`` as the module ``suite_custom_pair`` and require its class ``Pair``."""
    if not Path(path).is_file():
        raise CustomPairError("custom pair: expected a file that the worker can read, found none; check PAIR")
    spec = spec_from_file_location(CUSTOM_PAIR, path, loader=_SourceOnlyLoader(CUSTOM_PAIR, path))
    if spec is None or spec.loader is None:
        raise CustomPairError("custom pair: expected a Python source file, found none")
    module = module_from_spec(spec)
    sys.modules[CUSTOM_PAIR] = module  # before execution: dataclasses and compilers look up their module
    try:
        spec.loader.exec_module(module)
    except MemoryError:
        raise
    except (Exception, SystemExit) as error:
        del sys.modules[CUSTOM_PAIR]
        raise CustomPairError(f"custom pair: importing it failed with {_description(error)}") from error
    if not isinstance(getattr(module, "Pair", None), type):
        del sys.modules[CUSTOM_PAIR]
        raise CustomPairError("custom pair: expected a class named Pair, found none")
    return module


def _description(error: BaseException) -> str:
    """An error's type and message. A SyntaxError's own text contains the path: here only the line."""
    message = f"{error.msg}, line {error.lineno}" if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {message}"


def framework_module(job: Job) -> Any:
    """The module with the ``Framework`` of ``job``; runs inside the container."""
    return import_module(f"suite.frameworks.{job.key.framework}.framework")
