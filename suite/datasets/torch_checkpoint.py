"""Read the tensors of a PyTorch checkpoint without PyTorch, and without running what a pickle may ask for.

Both forms of ``torch.save`` are read: a zip with ``data.pkl`` and a member for each storage, and the older
one, pickles one after the other with the storages behind. The unpickler knows ordered dictionaries, tensors
and storages, and refuses everything else.
"""

from __future__ import annotations

import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from suite.datasets.errors import DatasetCorrupt, storage

Arrays = dict[str, NDArray[Any]]

_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
_TYPES = {
    "DoubleStorage": "<f8",
    "FloatStorage": "<f4",
    "HalfStorage": "<f2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "ByteStorage": "u1",
    "BoolStorage": "?",
}
_MEND = "Fetch the publisher's file again."


@dataclass(frozen=True, slots=True)
class _Type:
    """Stands for a class of storages."""

    dtype: str


@dataclass(slots=True)
class _Storage:
    dtype: str
    count: int
    values: NDArray[Any] | None = None


@dataclass(frozen=True, slots=True)
class _Tensor:
    """Where a tensor lies in its storage; offsets and strides are in elements."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def array(self) -> NDArray[Any]:
        """A copy of its values; ValueError where it reaches beyond its storage."""
        values = self.storage.values
        if values is None:
            raise ValueError("a tensor without its storage")
        last = self.offset + sum((n - 1) * step for n, step in zip(self.shape, self.strides, strict=True))
        if min(self.offset, *self.shape, *self.strides, 0) < 0 or last >= len(values):
            raise ValueError(f"a tensor of {self.shape} beyond its storage of {len(values)}")
        strides = tuple(step * values.itemsize for step in self.strides)
        view = np.lib.stride_tricks.as_strided(values[self.offset :], self.shape, strides, writeable=False)
        return view.copy()


@dataclass(slots=True)
class _Storages:
    """The storages that a pickle names, each once."""

    by_key: dict[str, _Storage] = field(default_factory=dict)

    def named(self, name: Any) -> _Storage:
        """The storage of a persistent id (kind, type, key, device, count, and in old files a view)."""
        kind, of, key, _, count, *view = name
        if kind != "storage" or not isinstance(of, _Type) or any(view):
            raise pickle.UnpicklingError(f"expected a storage, found {kind!r}")
        return self.by_key.setdefault(str(key), _Storage(of.dtype, int(count)))


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: IO[bytes], storages: _Storages) -> None:
        super().__init__(stream)
        self._storages = storages

    def find_class(self, module: str, name: str) -> Any:
        """Only what a table of tensors is made of."""
        known: dict[tuple[str, str], Any] = {
            ("collections", "OrderedDict"): OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): _tensor,
            ("torch._utils", "_rebuild_parameter"): _parameter,
            **{("torch", kind): _Type(dtype) for kind, dtype in _TYPES.items()},
        }
        if (module, name) not in known:
            raise pickle.UnpicklingError(f"expected nothing but tensors, found {module}.{name}")
        return known[module, name]

    def persistent_load(self, pid: Any) -> _Storage:
        """A storage."""
        return self._storages.named(pid)


def _tensor(of: Any, offset: int, shape: Any, strides: Any, *_: Any) -> _Tensor:
    if not isinstance(of, _Storage):
        raise pickle.UnpicklingError("expected a tensor over a storage")
    return _Tensor(of, int(offset), tuple(map(int, shape)), tuple(map(int, strides)))


def _parameter(data: Any, *_: Any) -> Any:
    return data


def read(path: Path) -> Arrays:
    """The tensors of the checkpoint at ``path`` by name; DatasetCorrupt where it holds anything else."""
    try:
        with storage(path), path.open("rb") as stream:
            found = _zipped(stream) if zipfile.is_zipfile(stream) else _plain(stream)
        if not isinstance(found, Mapping) or not all(isinstance(one, _Tensor) for one in found.values()):
            raise ValueError("values that are no tensors")
        return {str(name): tensor.array() for name, tensor in found.items()}
    except (
        *(pickle.UnpicklingError, zipfile.BadZipFile, EOFError, struct.error),
        *(ValueError, TypeError, KeyError, IndexError, AttributeError, RuntimeError, NotImplementedError),
    ) as error:
        told = f"{type(error).__name__}: {error}"
        raise DatasetCorrupt(str(path), "tensors by name, saved by PyTorch", told, _MEND) from error


def _zipped(stream: IO[bytes]) -> Any:
    with zipfile.ZipFile(stream) as zipped:
        names = [name for name in zipped.namelist() if name.count("/") == 1 and name.endswith("/data.pkl")]
        if len(names) != 1:
            raise ValueError(f"{len(names)} members data.pkl")
        at = names[0].removesuffix("/data.pkl")
        if f"{at}/byteorder" in zipped.namelist() and zipped.read(f"{at}/byteorder") != b"little":
            raise ValueError("numbers that are not little-endian")
        storages = _Storages()
        with zipped.open(names[0]) as table:
            found = _Unpickler(table, storages).load()
        for key, one in storages.by_key.items():
            _fill(one, zipped.read(f"{at}/data/{key}"))
    return found


def _plain(stream: IO[bytes]) -> Any:
    stream.seek(0)
    storages = _Storages()

    def load() -> Any:
        return _Unpickler(stream, storages).load()

    if (found := (load(), load())) != (_MAGIC, _PROTOCOL):
        raise ValueError(f"the marks {found}")
    if load().get("little_endian") is not True:
        raise ValueError("numbers that are not little-endian")
    table, keys = load(), load()
    for key in keys:
        one = storages.by_key[str(key)]
        (count,) = struct.unpack("<q", stream.read(8))
        if count != one.count:
            raise ValueError(f"a storage of {count}, not of {one.count}")
        _fill(one, stream.read(count * np.dtype(one.dtype).itemsize))
    return table


def _fill(one: _Storage, content: bytes) -> None:
    values = np.frombuffer(content, one.dtype)
    if len(values) != one.count:
        raise ValueError(f"a storage of {len(values)}, not of {one.count}")
    one.values = values
