"""Compiled functions that later processes of a run load instead of tracing them again.

PyTorch's own caches keep what its compiler makes of a traced function, but each process traces again: for
``resnet50`` two of the three seconds in which a repeat on a GPU compiles from full caches. This keeps the
result of the trace too, by ``torch.compile(...).aot_compile``, which is experimental: where it fails, the
function is compiled as without this module.

PyTorch loads such code without its guards, which test whether the code fits what it is called with. Instead
the file holds *facts*: every value that a guard reads (a size, a name, a constant of a module, the shape of a
weight) as text. Code runs only where all facts hold, otherwise the function is compiled anew. What no guard
reads is in the name of the file: source code of the suite, versions and settings of PyTorch.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import io
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence, Sized
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from suite.frameworks.pytorch.caches import sources

Facts = dict[str, str]  # expression -> description of its value

_IMPORTED = "__import_"  # how the compiler names a module in its expressions: __import_suite_dot_common
_BUILTINS = "__builtins_dict__"  # functions of Python, which do not change
_STATE = "global state"
_CONSTANTS = (
    *(bool, int, float, complex, str, bytes, type(None), Enum, np.generic),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
    *(torch._ops.OpOverload, torch._ops.OpOverloadPacket),
)

_logger = logging.getLogger(__name__)


class Kept:
    """``function`` compiled, by an earlier process that kept it in ``folder``, or by this one.

    ``function`` is a function or method of the suite with positional arguments and without free variables.
    """

    def __init__(self, function: Callable[..., Any], folder: Path, backend: Any = "inductor") -> None:
        self._function, self._folder = function, folder
        self._compiler = functools.partial(torch.compile, dynamic=False, backend=backend)
        self._owner = (function.__self__,) if isinstance(function, MethodType) else ()
        self._plain: Any = getattr(function, "__func__", function)
        self._compiled: list[tuple[Facts, Callable[..., Any]]] = []
        self._fallback: Callable[..., Any] | None = None  # compiled without being kept

    @staticmethod
    def can_keep(function: Callable[..., Any]) -> bool:
        """Whether ``function`` can be kept: values of free variables would be kept with it."""
        plain = getattr(function, "__func__", function)
        owner = type(getattr(function, "__self__", None)).__module__
        of_suite = all(name.split(".")[0] in ("suite", "builtins") for name in (plain.__module__, owner))
        return of_suite and isinstance(plain, FunctionType) and plain.__closure__ is None

    def __call__(self, *arguments: Any) -> Any:
        """The result of the compiled function."""
        if self._fallback is not None:
            return self._fallback(*arguments)
        arguments = (*self._owner, *arguments)
        values = _Values(self._plain, arguments)
        for facts, code in self._compiled:
            if values.agree(facts):
                return code(*arguments)
        found = self._load(values) or self._compile(arguments, values)
        if found is None:
            self._fallback = self._compiler(self._function)
            return self._fallback(*arguments[len(self._owner) :])
        self._compiled.append(found)
        return found[1](*arguments)

    @functools.cached_property
    def _name(self) -> str:
        """What code has in common that could do for this function here."""
        name = f"{self._plain.__module__}.{self._plain.__qualname__}"
        settings = (import_module(f"torch.{part}.config") for part in ("_inductor", "_functorch"))
        parts = [name, torch.__version__, str(torch.version.git_version), sources()]
        parts += [one.get_hash().hex() for one in settings]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]

    def _load(self, values: _Values) -> tuple[Facts, Callable[..., Any]] | None:
        for file in sorted(self._folder.glob(f"{self._name}-*")):
            try:
                header, _, code = file.read_bytes().partition(b"\n")
                facts = json.loads(header)
                if values.agree(facts):
                    return facts, _unguarded(
                        torch.compiler.load_compiled_function(
                            io.BytesIO(code), f_globals=self._plain.__globals__
                        )
                    )
            except Exception:  # another GPU, say: PyTorch compares it
                _logger.warning(
                    "%s cannot be loaded and is compiled", self._plain.__qualname__, exc_info=True
                )
        return None

    def _compile(self, arguments: Sequence[Any], values: _Values) -> tuple[Facts, Callable[..., Any]] | None:
        facts: Facts = {_STATE: _state()}  # not what it is while the compiler works

        def read(guards: Sequence[Any]) -> list[bool]:
            found = {guard.orig_guard.name: guard.value for guard in guards if guard.has_value}
            facts.update(_facts({name: value for name, value in found.items() if _BUILTINS not in name}))
            return [False] * len(guards)

        try:
            with torch._dynamo.config.patch(enable_aot_compile=True):
                compiled: Any = self._compiler(
                    self._function, fullgraph=True, options={"guard_filter_fn": read}
                )
                code = compiled.aot_compile((tuple(arguments[len(self._owner) :]), {}))
            if not values.agree(facts):
                raise ValueError("expected facts that hold for what was compiled, found others")
        except Exception:  # such as a break of the graph
            _logger.warning("%s is traced by each process", self._plain.__qualname__, exc_info=True)
            return None
        try:
            self._write(facts, code)
        except Exception:
            _logger.warning("%s cannot be kept", self._plain.__qualname__, exc_info=True)
        return facts, _unguarded(code)

    def _write(self, facts: Facts, code: Any) -> None:
        header = json.dumps(facts).encode()
        file = self._folder / f"{self._name}-{hashlib.sha256(header).hexdigest()[:32]}"
        partial = file.with_name(f".{file.name}.{os.getpid()}")
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            code.save_compiled_function(str(partial))
            partial.write_bytes(header + b"\n" + partial.read_bytes())
            partial.rename(file)  # several ranks may do so at once
        finally:
            partial.unlink(missing_ok=True)


class _Values:
    """The values of the compiler's expressions in a call of ``function``."""

    def __init__(self, function: Any, arguments: Sequence[Any]) -> None:
        bound = inspect.signature(function).bind(*arguments)
        bound.apply_defaults()
        self._names = {"L": bound.arguments, "G": _Globals(function.__globals__)}

    def agree(self, facts: Facts) -> bool:
        """Whether all ``facts`` hold."""
        values = {}
        for name in (name for name in facts if name != _STATE):
            with contextlib.suppress(Exception):  # an attribute is missing here, say
                # As trustworthy as the code that is kept with it: both are from the cache of the run.
                values[name] = eval(name, dict(self._names))  # noqa: S307
        return {_STATE: _state(), **_facts(values)} == facts


class _Globals(dict[str, Any]):
    def __missing__(self, name: str) -> Any:
        if not name.startswith(_IMPORTED):
            raise KeyError(name)
        return import_module(name.removeprefix(_IMPORTED).replace("_dot_", "."))


def _facts(values: Mapping[str, Any]) -> Facts:
    """The facts about the ``values`` of expressions; the same tensor under two names is one, too."""
    first: dict[int, str] = {}
    facts: Facts = {}
    for name, value in values.items():
        same = first.setdefault(id(value), name) if isinstance(value, Tensor) else name
        facts[name] = _describe(value) if same == name else f"the same as {same}"
    return facts


def _describe(value: Any) -> str:
    """All that a guard can compare of ``value``; objects in it have guards of their own."""
    if isinstance(value, Tensor):
        facts = (tuple(value.shape), value.stride(), value.dtype, value.device, value.requires_grad)
        return f"{type(value).__name__} {facts}"
    if isinstance(value, _CONSTANTS):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, ModuleType):
        return f"module {value.__name__}"
    if isinstance(value, type | FunctionType | BuiltinFunctionType | MethodType):
        line = value.__code__.co_firstlineno if isinstance(value, FunctionType) else ""
        return f"{value.__module__}.{value.__qualname__} {line}"
    parts: Any = len(value) if isinstance(value, Sized) else None
    if isinstance(value, tuple | list | dict):  # of a dict the keys
        parts = [_describe(part) for part in value]
    if isinstance(value, set | frozenset):
        parts = sorted(_describe(part) for part in value)
    return f"{type(value).__module__}.{type(value).__qualname__} {parts}"


def _state() -> str:
    """Modes of PyTorch that change what a function computes: gradients, autocast, TF32 and others."""
    state: Any = torch._C._dynamo.guards.GlobalStateGuard()
    return str(state.__getstate__())


def _unguarded(code: Any) -> Callable[..., Any]:
    code.disable_guard_check()
    found: Callable[..., Any] = code
    return found
