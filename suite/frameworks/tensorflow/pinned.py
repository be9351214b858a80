"""Small arrays of the host as tensors of a GPU, without a copy that waits for earlier steps.

By TensorFlow's source (``common_runtime/gpu/gpu_util.cc``) a copy from the host begins when all work that
was enqueued before has ended, and the thread that made the tensor waits for it. Before each step that reads
new data the GPU would then wait for the host to launch the step. But a GPU reads page-locked memory of the
host by itself (CUDA's unified virtual addressing): a tensor of such memory, made with DLPack, is one of the
GPU for TensorFlow, and its copy is an operation of the GPU like any other.
"""

from __future__ import annotations

import ctypes
from collections import deque
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

LARGEST = 1 << 20  # bytes of an array that counts as small
_ROOM = 16 << 20  # bytes of page-locked memory
_ALIVE = 10_000  # DLPack descriptions that are kept: TensorFlow reads one again when it releases the tensor
_ALIGNMENT = 256  # of the arrays in it, in bytes; TensorFlow demands 64
CPU, CUDA = 1, 2  # DLPack's numbers of devices
_CODES = {"i": 0, "u": 1, "f": 2}  # DLPack's numbers of kinds of values
_PORTABLE = 1  # page-locked for every context of the process (CU_MEMHOSTALLOC_PORTABLE)


class _Managed(ctypes.Structure):
    """DLPack's ``DLManagedTensor``. No function to delete it: the memory stays its owner's."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("dimensions", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


def managed(address: int, array: NDArray[Any], device: int) -> tuple[Any, Any]:
    """A DLPack capsule of memory at ``address`` with the shape and type of ``array``, C-contiguous.

    The second value must live as long as the tensor that is made of the capsule.
    """
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    kind, bits = _CODES[array.dtype.kind], 8 * array.dtype.itemsize
    one = _Managed(address, device, 0, array.ndim, kind, bits, 1, shape, None, 0, None, None)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(ctypes.addressof(one), b"dltensor", None), (one, shape)


def _page_locked(size: int, gpu: int) -> int:
    """The address of ``size`` bytes of page-locked memory, kept as long as the process; RuntimeError."""
    driver, context, address = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
    for name, *arguments in (
        ("cuInit", 0),
        ("cuDevicePrimaryCtxRetain", ctypes.byref(context), gpu),
        ("cuCtxPushCurrent_v2", context),
        ("cuMemHostAlloc", ctypes.byref(address), ctypes.c_size_t(size), _PORTABLE),
        ("cuCtxPopCurrent_v2", ctypes.byref(context)),
    ):
        if result := driver[name](*arguments):
            raise RuntimeError(
                f"{name}: expected {size} bytes of page-locked memory, found CUDA error {result}"
            )
    assert address.value is not None
    return address.value


class PinnedArrays:
    """Makes tensors on GPU ``gpu`` of small arrays of the host."""

    def __init__(self, gpu: int) -> None:
        self._gpu = gpu
        self._address = 0
        self._used = 0
        self._alive = deque[Any](maxlen=_ALIVE)

    def takes(self, array: NDArray[Any]) -> bool:
        """Whether :meth:`tensor` takes ``array``: integers or floating-point numbers, not empty, small."""
        return array.dtype.kind in _CODES and 0 < array.nbytes <= LARGEST

    def tensor(self, array: NDArray[Any]) -> Any:
        """A copy of ``array`` on the device: enqueued, not awaited."""
        self._address = self._address or _page_locked(_ROOM, self._gpu)
        if self._used + array.nbytes > _ROOM:
            tf.test.experimental.sync_devices()
            self.reuse()
        address = self._address + self._used
        self._used += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        ctypes.memmove(address, np.ascontiguousarray(array).ctypes.data, array.nbytes)
        capsule, alive = managed(address, array, CUDA)
        self._alive.append(alive)
        with tf.device("/GPU:0"):
            return tf.raw_ops.DeepCopy(x=tf.experimental.dlpack.from_dlpack(capsule))

    def reuse(self) -> None:
        """Use the memory again from its start. The device must have ended all work."""
        self._used = 0
