"""TensorFlow: device, precision, timestamps, optimisers and the fast path (``tf.function``)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from suite.common.image_reader import DeviceImages
from suite.common.support import UnsupportedJob, unsupported
from suite.contract import Job
from suite.frameworks.common import BaseFramework, HostTimestamps, Results, as_float32
from suite.frameworks.tensorflow.exchange import Exchange
from suite.frameworks.tensorflow.libraries import load_libraries
from suite.frameworks.tensorflow.pinned import PinnedArrays
from suite.frameworks.tensorflow.results import OverlappedResults
from suite.frameworks.tensorflow.scaling import scaling_of
from suite.frameworks.tensorflow.traits import TRAITS

Tensor = Any
Batch = dict[str, Tensor]
Step = Callable[[Batch], Tensor]
Fast = Callable[[Batch, int | None], Tensor]

# To choose a plan for a fused convolution, XLA builds all that cuDNN offers, and cuDNN compiles the kernels
# of many of them (NVRTC), one after the other. On an H100 a step of faster_rcnn did not begin in six minutes,
# a training step of vgg16 and inception_bn_small not in 165 s. Other inference keeps fused convolutions: with
# them resnet50 infers 1.27 times as fast.
SEPARATE_CONVOLUTIONS = "--xla_disable_hlo_passes=cudnn-fused-convolution-rewriter"
NEVER_FUSED = ("faster_rcnn",)


class Framework(BaseFramework):
    """See :class:`suite.contract.Framework`; other members are for pairs, equally named everywhere."""

    name = "tensorflow"

    def __init__(self, job: Job) -> None:
        if reason := unsupported(job.key, job.device):
            raise UnsupportedJob(reason)
        super().__init__()
        self.cuda = job.device.startswith("cuda")
        self.fast = job.fast
        self.timestamp_kind = TRAITS.timestamp_kind["cuda" if self.cuda else "cpu"]
        self.dtype = tf.float64 if job.key.precision == "fp64" else tf.float32
        types = {"bf16": tf.bfloat16, "fp16": tf.float16}
        self.compute_dtype = types.get(job.key.precision, self.dtype)
        self._waits = job.key.scenario == "single_stream"  # for the output of each step
        self._image_copies = ThreadPoolExecutor(1)  # waits for them; starts its thread at its first use
        self._small_arrays = PinnedArrays(job.device_index)
        self._timestamps = HostTimestamps()  # on the CPU a function has completed when its call returns
        # Dropout differs between ranks.
        self.seed = (job.seed + job.rank) % 2**63
        self._set_flags(job)
        self.exchange = Exchange(job, self.cuda)  # its server starts TensorFlow, which fixes the flags
        self.arrivals = self.exchange.arrivals
        self.scaling = scaling_of(job)  # creates variables, so after the choice of devices

    def _set_flags(self, job: Job) -> None:
        threading = tf.config.threading
        if threading.get_intra_op_parallelism_threads() != job.threads:
            threading.set_intra_op_parallelism_threads(job.threads)
        if threading.get_inter_op_parallelism_threads() != 1:
            threading.set_inter_op_parallelism_threads(1)
        devices = tf.config.list_physical_devices("GPU")
        if not self.cuda:
            tf.config.set_visible_devices([], "GPU")
        elif not devices:
            raise UnsupportedJob(f"device: expected a usable GPU for {job.device}, found none in this build")
        else:
            chosen = devices[job.device_index]
            capability = tf.config.experimental.get_device_details(chosen).get("compute_capability", ())
            if reason := unsupported(job.key, job.device, ".".join(map(str, capability))):
                raise UnsupportedJob(reason)
            load_libraries(Path(tf.__file__).parents[1])
            if job.key.phase == "train" or job.key.workload in NEVER_FUSED:
                flags = os.environ.get("XLA_FLAGS", "")
                os.environ["XLA_FLAGS"] = f"{flags} {SEPARATE_CONVOLUTIONS}".strip()
            tf.config.set_visible_devices(chosen, "GPU")
            tf.config.experimental.set_memory_growth(chosen, True)
        tf.config.experimental.enable_tensor_float_32_execution(job.key.precision == "tf32")
        tf.random.set_seed(self.seed)
        if job.deterministic:
            tf.config.experimental.enable_op_determinism()

    def describe(self) -> dict[str, Any]:
        """Versions, device, threads, flags, and the exchange between ranks."""
        build = tf.sysconfig.get_build_info()
        name = None
        if self.cuda:
            device = tf.config.get_visible_devices("GPU")[0]
            name = tf.config.experimental.get_device_details(device).get("device_name")
        facts: dict[str, Any] = {
            "version": tf.__version__,
            "device": "cuda" if self.cuda else "cpu",
            "device_name": name,
            "cuda": build.get("cuda_version"),
            "cudnn": build.get("cudnn_version"),
            "threads": tf.config.threading.get_intra_op_parallelism_threads(),
            "interop_threads": tf.config.threading.get_inter_op_parallelism_threads(),
            "tf32": tf.config.experimental.tensor_float_32_execution_enabled(),
            "compute_dtype": self.compute_dtype.name,
            "fast_path": ("function, xla" if self.cuda else "function") if self.fast else "off",
        }
        if self.cuda:
            facts["xla_flags"] = os.environ.get("XLA_FLAGS", "")
        if self.exchange.active:
            facts["exchange"] = self.exchange.describe()
        return facts

    def synchronize(self) -> None:
        """Wait for every op on the device."""
        if self.cuda:
            tf.test.experimental.sync_devices()
            self._small_arrays.reuse()

    def memory(self) -> dict[str, int | None]:
        """The peak of bytes that tensors held on the device."""
        if not self.cuda:
            return {"peak_device_bytes": None}
        return {"peak_device_bytes": int(tf.config.experimental.get_memory_info("GPU:0")["peak"])}

    def tensor(self, array: NDArray[Any] | DeviceImages) -> Tensor:
        """A copy of ``array`` on the device; floating-point values in the type of the parameters.

        On a GPU int32 becomes int64, which :meth:`make_fast` reverses: a function takes int32 only from host
        memory, so that every step would copy it to the device.
        """
        if self.cuda and isinstance(array, DeviceImages):
            return self._from_device(array)
        array = np.asarray(array)
        if array.dtype.kind == "f":
            array = array.astype(self.dtype.as_numpy_dtype)
        elif self.cuda and array.dtype == np.int32:
            array = array.astype(np.int64)
        if not self.cuda:
            return tf.convert_to_tensor(array.copy())
        if self._small_arrays.takes(array):
            return self._small_arrays.tensor(array)
        with tf.device("/GPU:0"):
            return tf.identity(tf.convert_to_tensor(array))

    def _from_device(self, images: DeviceImages) -> Tensor:
        """A copy on the device of ``images``, enqueued."""
        with tf.device("/GPU:0"):
            # TensorFlow does not expose its stream. Without one DALI exports images that are complete.
            copy = tf.raw_ops.DeepCopy(x=tf.experimental.dlpack.from_dlpack(images.__dlpack__()))
            # Nor does it have events. This pixel reaches the host only after the whole copy is made.
            last = copy[-1, -1, -1]
        self.keep_until(self._image_copies.submit(self.array, last).result, images)
        return copy

    def array(self, tensor: Tensor) -> NDArray[Any]:
        """A copy of ``tensor`` on the host, C-contiguous; half precision as float32."""
        if tensor.dtype in (tf.bfloat16, tf.float16):
            tensor = tf.cast(tensor, tf.float32)
        if self.cuda and isinstance(tensor, tf.Tensor) and "GPU" in tensor.device:
            with tf.device("/CPU:0"):
                return np.asarray(memoryview(tf.identity(tensor)))  # ``numpy`` would copy the copy
        return np.array(tensor.numpy(), order="C")

    def compute(self, tensor: Tensor) -> Tensor:
        """``tensor`` in the compute type: bf16 or fp16 in mixed precision."""
        return tf.cast(tensor, self.compute_dtype)

    def make_fast(self, function: Step, exchanges: bool = False) -> Fast:
        """Turn ``function(batch)`` into ``fast(batch, slot)``: one traced function per set of shapes.

        On a GPU the function is compiled by XLA, except a step that ``exchanges`` between active ranks:
        XLA does not compile the exchange, so the step calls parts that are (:meth:`part`).
        """
        if self.cuda:
            function = _with_int32(function)
        exchanges = exchanges and self.exchange.active
        compiled = self.cuda and not exchanges
        arrivals = self.exchange.arrivals if exchanges else None
        if arrivals is None:
            step = _traced(function, compiled) if self.fast else function
            return lambda batch, slot: step(batch)

        def with_arrival(batch: Batch) -> tuple[Tensor, Tensor]:
            return function(batch), self.exchange.arrival

        recorded = _traced(with_arrival, compiled) if self.fast else with_arrival

        def run(batch: Batch, slot: int | None) -> Tensor:
            del slot
            result, arrival = recorded(batch)
            arrivals.keep(arrival)
            return result

        return run

    def part(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, a part of a step, compiled where :meth:`make_fast` does not compile the step."""
        if self.fast and self.cuda and self.exchange.active:
            return tf.function(function, autograph=False, jit_compile=True)
        return function

    def results(self) -> Results:
        """A new store for the outputs of steps."""
        return OverlappedResults(self) if self.cuda and not self._waits else Results(self)


def _traced(function: Callable[[Batch], Any], compiled: bool) -> Callable[[Batch], Any]:
    """``function`` traced once for each set of shapes and types; ``compiled``: by XLA.

    A call of a ``tf.function`` compares the batch with its signatures in Python, which takes the host as long
    as the rest of the call. A concrete function is looked up by the shapes instead.
    """
    whole = tf.function(function, autograph=False, jit_compile=compiled)
    concrete: dict[tuple[Any, ...], Callable[[Batch], Any]] = {}

    def run(batch: Batch) -> Any:
        kinds = tuple((one.shape, one.dtype) for one in batch.values())
        if kinds not in concrete:
            concrete[kinds] = whole.get_concrete_function(batch)
        return concrete[kinds](batch)

    return run


def _assign(scalar: tf.Variable, value: float) -> None:
    """Assign ``value`` without a copy between host and device, which would wait for every step before.

    ``Range`` on a GPU reads its operands from host memory, where they must be made, and writes to the device;
    this range has one value. The raw ops take the host a quarter of the time of ``tf.range`` and
    ``tf.reshape``.
    """
    with tf.device("/CPU:0"):
        start, limit, delta = (tf.constant(one, scalar.dtype) for one in (value, value + 0.5, 1.0))
    with tf.device(scalar.device):
        one = tf.raw_ops.Range(start=start, limit=limit, delta=delta)
        scalar.assign(tf.raw_ops.Squeeze(input=one))


def _with_int32(function: Step) -> Step:
    """``function`` with the int64 tensors of its batch as int32: see :meth:`Framework.tensor`."""

    def converted(batch: Batch) -> Tensor:
        return function(
            {name: tf.cast(one, tf.int32) if one.dtype == tf.int64 else one for name, one in batch.items()}
        )

    return converted


def zeros_like(variables: Sequence[Any]) -> list[Any]:
    """A variable of zeros, not trained, for each of ``variables``."""
    return [tf.Variable(tf.zeros_like(variable), trainable=False) for variable in variables]


class Adam:
    """Adam after Kingma and Ba with epsilon added after the bias correction; dense on every parameter.

    TensorFlow's kernel adds epsilon before the correction, and computes the correction in the parameters'
    type. With ``epsilon * sqrt(1 - beta2**t)`` and the corrected rate, both computed in float64, its result
    equals PyTorch's formula.
    """

    def __init__(self, parameters: Sequence[Any], hyper: Mapping[str, str]) -> None:
        self.parameters = list(parameters)
        self._dtype = self.parameters[0].dtype
        cast = self._dtype.as_numpy_dtype
        # The kernel rounds the betas to the parameters' type; the bias correction uses the rounded values.
        self._beta1, self._beta2 = float(cast(float(hyper["beta1"]))), float(cast(float(hyper["beta2"])))
        self._epsilon = float(hyper["epsilon"])
        self._rate = tf.Variable(0.0, dtype=tf.float64, trainable=False)
        self._step = tf.Variable(0.0, dtype=tf.float64, trainable=False)
        self._means = zeros_like(self.parameters)
        self._squares = zeros_like(self.parameters)
        self._value: float | None = None

    @property
    def state(self) -> list[Any]:
        """All variables that an update changes."""
        return [self._step, *self._means, *self._squares]

    def set_rate(self, rate: float) -> None:
        """See :class:`suite.frameworks.common.Optimiser`."""
        if rate != self._value:
            self._value = rate
            _assign(self._rate, as_float32(rate))

    def update(self, gradients: Sequence[Tensor]) -> None:
        """See :class:`suite.frameworks.common.Optimiser`."""
        step = self._step.assign_add(1.0)
        root = tf.sqrt(1.0 - tf.pow(tf.constant(self._beta2, tf.float64), step))
        rate = self._rate * root / (1.0 - tf.pow(tf.constant(self._beta1, tf.float64), step))
        zero = tf.zeros((), self._dtype)
        for variable, mean, square, gradient in zip(
            self.parameters, self._means, self._squares, gradients, strict=True
        ):
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=mean.handle,
                v=square.handle,
                beta1_power=zero,
                beta2_power=zero,
                lr=tf.cast(rate, self._dtype),
                beta1=tf.constant(self._beta1, self._dtype),
                beta2=tf.constant(self._beta2, self._dtype),
                epsilon=tf.cast(self._epsilon * root, self._dtype),
                grad=tf.convert_to_tensor(gradient),
            )

    def reset(self) -> None:
        """Set every moment and the step count to zero."""
        for variable in self.state:
            variable.assign(tf.zeros_like(variable))


class Momentum:
    """SGD with momentum by PyTorch's formula and the op's: ``v = momentum * v + g; w -= rate * v``.

    ``decayed`` are the indices of the parameters to whose gradient ``weight_decay * w`` is added first.
    The update adds it in place, as ``v = momentum * (v + weight_decay / momentum * w) + g``: a temporary as
    large as the weights made the update of AlexNet a third slower. This is impossible with a momentum of 0.
    """

    def __init__(
        self, parameters: Sequence[Any], hyper: Mapping[str, str], decayed: Sequence[int] = ()
    ) -> None:
        self.parameters = list(parameters)
        self._momentum = float(hyper["momentum"])
        self._decay = float(hyper["weight_decay"]) if decayed else 0.0
        self._decayed = frozenset(decayed if self._decay else ())
        self.state = zeros_like(self.parameters)
        self._rate = tf.Variable(0.0, dtype=self.parameters[0].dtype, trainable=False)
        self._value: float | None = None

    def set_rate(self, rate: float) -> None:
        """See :class:`suite.frameworks.common.Optimiser`."""
        if rate != self._value:
            self._value = rate
            _assign(self._rate, as_float32(rate))

    def update(self, gradients: Sequence[Tensor]) -> None:
        """See :class:`suite.frameworks.common.Optimiser`."""
        rate, momentum = tf.convert_to_tensor(self._rate), tf.constant(self._momentum, self._rate.dtype)
        decay = tf.constant(self._decay, self._rate.dtype)
        for at, (variable, velocity) in enumerate(zip(self.parameters, self.state, strict=True)):
            gradient = tf.convert_to_tensor(gradients[at])
            if at in self._decayed and self._momentum:
                tf.raw_ops.ResourceApplyGradientDescent(
                    var=velocity.handle, alpha=-decay / momentum, delta=variable
                )
            elif at in self._decayed:
                gradient += decay * variable
            tf.raw_ops.ResourceApplyMomentum(
                var=variable.handle,
                accum=velocity.handle,
                lr=rate,
                grad=gradient,
                momentum=momentum,
            )

    def reset(self) -> None:
        """Set every velocity to zero."""
        for variable in self.state:
            variable.assign(tf.zeros_like(variable))


class Descent:
    """SGD without momentum: ``w -= rate * g``; its only state is the variable ``rate``."""

    def __init__(self, parameters: Sequence[Any]) -> None:
        self.parameters = list(parameters)
        self.rate = tf.Variable(0.0, dtype=self.parameters[0].dtype, trainable=False)
        self._value: float | None = None

    def set_rate(self, rate: float) -> None:
        """See :class:`suite.frameworks.common.Optimiser`."""
        if rate != self._value:
            self._value = rate
            _assign(self.rate, rate)

    def update(self, gradients: Sequence[Tensor]) -> None:
        """See :class:`suite.frameworks.common.Optimiser`."""
        for variable, gradient in zip(self.parameters, gradients, strict=True):
            variable.assign_sub(self.rate * tf.convert_to_tensor(gradient))

    def reset(self) -> None:
        """No effect: there is no state."""


def global_norm(gradients: Sequence[Tensor]) -> Tensor:
    """The Euclidean norm over all of ``gradients`` (dense)."""
    return tf.sqrt(tf.add_n([tf.reduce_sum(tf.square(gradient)) for gradient in gradients]))


def clip_by_global_norm(gradients: Sequence[Tensor], limit: float) -> tuple[list[Tensor], Tensor]:
    """The gradients times ``limit / max(norm, limit)``, and the norm over all of them before clipping."""
    dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
    norm = global_norm(dense)
    scale = limit / tf.maximum(norm, limit)
    return [gradient * scale for gradient in dense], norm
