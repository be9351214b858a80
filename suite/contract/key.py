"""The benchmark key, jobs and parameters, for host, container and judge. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import prod
from typing import Any

from suite.contract.network import Network

WARMUP_STEPS = 10
MEASURED_STEPS = 100
STEPS = WARMUP_STEPS + MEASURED_STEPS  # of a repeat, unless the run states another length of its window
BENCHMARK, CONVERSION, LOAD = "benchmark", "conversion", "load"  # the kinds of jobs
# The phases of a load, and the phase whose batches each reads.
LOAD_PHASES = {"load": "train", "load_infer": "infer"}
FORWARD_BACKWARD = "forward_backward"  # the scenario of steps that compute the gradient and update nothing
INDEPENDENT = "independent"  # the strategy of ranks that exchange nothing
EXCHANGE_OPTIONS = ("strategy", "collective", "bucket_mib")  # of a run: how its ranks exchange gradients


class BadData(ValueError):
    """A file of the dataset contradicts the dataset's format; nothing is measured on such data.

    The message names the file, within the dataset, and the record.
    """


class LostRank(Exception):
    """Another rank has ended or hangs. The parent process finds it, and ends all ranks."""


@dataclass(frozen=True, slots=True)
class Key:
    """The benchmark key: what is measured."""

    workload: str
    framework: str
    phase: str  # train | infer; load | load_infer of a load
    scenario: str  # offline; single_stream (infer) or forward_backward (train)
    precision: str  # fp32 | tf32 | bf16 | fp16; fp64 in equivalence tests only
    batch: int  # per device and step
    devices: int  # the world size, over all nodes
    scale: str  # reference | mini
    data: str  # real | synthetic
    cache: str  # warm | cold
    variant: str  # the published size of the model, such as f8 and f64 of ncf
    nodes: int = 1  # a divisor of devices
    strategy: str = INDEPENDENT  # allreduce | parameter_server | independent: how ranks exchange gradients

    @property
    def updates(self) -> bool:
        """Whether the steps change the weights."""
        return self.phase == "train" and self.scenario != FORWARD_BACKWARD

    @property
    def work(self) -> str:
        """The phase, with the scenario where it is not offline."""
        return self.phase if self.scenario == "offline" else f"{self.phase} {self.scenario}"

    @property
    def phase_and_scenario(self) -> str:
        """As :attr:`work`, but inference always names its scenario: ``infer offline``."""
        return f"{self.phase} {self.scenario}" if self.phase == "infer" else self.work

    @property
    def exchanges(self) -> bool:
        """Whether the ranks exchange gradients."""
        return self.devices > 1 and self.phase == "train" and self.strategy != INDEPENDENT

    @property
    def loads(self) -> bool:
        """Whether the input pipeline runs alone, without a model."""
        return self.phase in LOAD_PHASES

    @property
    def of_batches(self) -> Key:
        """The key of the benchmark that takes the same batches; itself, but for a load."""
        return replace(self, phase=LOAD_PHASES.get(self.phase, self.phase))


def node_of_rank(rank: int, nodes: int, world_size: int) -> int:
    """The node of ``rank``: every node has the same number of ranks, in order; a conversion has one node."""
    return rank * nodes // world_size


def units_of_window(units: Sequence[int], measured_steps: int) -> tuple[int, ...]:
    """The units of every step of a repeat with ``measured_steps``, from those of the usual 110 ``units``.

    A longer window repeats the units of the measured steps in their order, as the batches do.
    """
    usual = units[WARMUP_STEPS:]
    return (*units[:WARMUP_STEPS], *(usual[at % len(usual)] for at in range(measured_steps)))


@dataclass(frozen=True, slots=True)
class ConversionKey:
    """The key of a conversion of a dataset. It computes no model and is compared with no benchmark."""

    workload: str  # whose dataset is converted
    framework: str  # whose libraries write the storage format
    storage: str  # see suite.contract.traits
    batch: int  # images of a shard, which is a step
    scale: str  # reference | mini
    cache: str  # warm | cold
    encoding: str = "file"  # of the stored images: file, unchanged, or raw-256 and jpeg-256, resized


def key_fields(key: Key | ConversionKey) -> dict[str, Any]:
    """The fields of a key by name, as a log has them: without the encoding of unchanged image files."""
    fields = asdict(key)
    return {name: value for name, value in fields.items() if (name, value) != ("encoding", "file")}


def run_id_parts(key: Key | ConversionKey, mode: str) -> tuple[str, ...]:
    """The parts of a run's id between its time and its random part."""
    if isinstance(key, ConversionKey):
        return (key.workload, key.framework, CONVERSION, key.storage, key.scale)
    return (
        key.workload,
        key.framework,
        "quality" if mode == "quality" else key.phase,
        key.precision,
        key.scale,
    )


@dataclass(frozen=True, slots=True)
class Job:
    """One repeat, as the harness passes it to a worker: every setting that changes the computation."""

    key: Key
    mode: str  # throughput | quality | fingerprint
    seed: int
    repeat: int
    hyper: Mapping[str, str]  # decimal strings and names, from the specification unless overridden
    device: str  # cpu | cuda:0
    threads: int
    fast: bool  # compile, capture or hybridize the step; False is for debugging
    soak_ns: int
    tail_ns: int
    data_dir: str
    scratch_dir: str
    quality: Mapping[str, int] = field(default_factory=dict)  # max_epochs
    pair_file: str = ""  # path of a custom pair inside the worker; empty: the suite's pair
    probe_steps: int = 0  # above 0: no repeat, only so many steps, to test whether the batch fits
    loader: str = "native"  # native | dali | pillow: the image reader
    deterministic: bool = False  # bitwise repeatable on one machine; slower
    salt: Sequence[str] = ()  # further parts of the stream key of synthetic batches
    passes: Sequence[Mapping[str, Any]] = ()  # of mode fingerprint
    rank: int = 0  # of world_size; computes rows [rank * batch, (rank + 1) * batch)
    world_size: int = 1
    local_rank: int = 0  # among the ranks of its node; selects the device
    node: int = 0
    network: Network | None = None  # None: one node, whose ranks use the loopback interface
    collective: str = ""  # what moves the gradients: as the framework's traits name it; empty: no exchange
    bucket_mib: int = 0  # of gradients that are exchanged together; 0: as many as the framework does
    measured_steps: int = MEASURED_STEPS  # of the window; a multiple of 100

    @property
    def steps(self) -> int:
        """The steps of a repeat: warm-up and window."""
        return WARMUP_STEPS + self.measured_steps

    def number(self, name: str) -> float:
        """The hyperparameter ``name`` as a float."""
        return float(self.hyper[name])

    @property
    def exchanges(self) -> bool:
        """Whether the ranks exchange gradients."""
        return self.world_size > 1 and self.key.exchanges

    @property
    def device_index(self) -> int:
        """The index of the rank's GPU among the visible ones; 0 on a CPU."""
        return int(self.device.partition(":")[2] or 0)

    @property
    def replicas(self) -> int:
        """Models that are computed side by side: 1 if the ranks exchange gradients."""
        return 1 if self.exchanges else self.world_size

    @property
    def global_batch(self) -> int:
        """Rows that all ranks together compute in a step."""
        return self.key.batch * self.world_size

    @property
    def rows(self) -> slice:
        """The rank's rows of the global batch."""
        return slice(self.rank * self.key.batch, (self.rank + 1) * self.key.batch)


@dataclass(frozen=True, slots=True)
class ConversionJob:
    """One repeat of a conversion for a worker, or (``whole``) all of its shards without measurement."""

    key: ConversionKey
    threads: int
    soak_ns: int
    data_dir: str  # the dataset's images in folders
    scratch_dir: str  # the shards go below it
    whole: bool = False

    @property
    def measured_steps(self) -> int:
        """The shards of the window."""
        return MEASURED_STEPS

    @property
    def steps(self) -> int:
        """The shards of a repeat: warm-up and window."""
        return STEPS

    @property
    def framework_job(self) -> Job:
        """The job that sets up the framework whose libraries write the shards, on the CPU."""
        key, names = self.key, ("infer", "offline", "fp32")
        benchmark = Key(key.workload, key.framework, *names, key.batch, 1, key.scale, "real", key.cache, "")
        folders = (self.data_dir, self.scratch_dir)
        return Job(benchmark, "throughput", 0, 0, {}, "cpu", self.threads, True, self.soak_ns, 0, *folders)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One trainable tensor under its canonical name and layout; every pair converts from and to it."""

    name: str
    shape: tuple[int, ...]
    init: str  # uniform | normal | constant
    scale: str  # decimal: half-width, standard deviation, or the constant

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)
