"""The equivalence test's case of a workload; also imported in the frameworks' interpreters."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from suite import workloads
from suite.contract import Data, Job, Key

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = dict[str, NDArray[Any]]

FRAMEWORKS = ("pytorch", "tensorflow", "mxnet", "jax")
LOSSES = 10
UPDATES = 3

# Flags of XLA. It compiles a program faster in one piece than in parts, and loops faster if it unrolls none.
_IN_ONE_PIECE = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
UNOPTIMISED = f"--xla_backend_optimization_level=0 {_IN_ONE_PIECE}"
_ROLLED = "xla_cpu_disable_loop_unrolling,xla_cpu_disable_slp_vectorizer,xla_cpu_optimize_for_size"
SLIGHTLY_OPTIMISED = (
    f"--xla_backend_optimization_level=1 --xla_backend_extra_options={_ROLLED} {_IN_ONE_PIECE}"
)

# Classifiers of the layers of the others, in which XLA optimises these layers in fp32.
LONG_TO_COMPILE = frozenset({"googlenet", "inception_bn_small", "inception_v3", "resnet152"})
RATE_DROP = {"rate_drops": "2:0.5"}  # one change of the rate inside the three updates


@dataclass(frozen=True)
class Case:
    """One model of one workload: dropout 0, no warm-up, one change of rate, clipping active.

    ``data`` may return batches that differ from step to step (otherwise a lazy optimiser would pass).
    ``evaluation`` returns one batch for ``predict``, ``predicted`` the shapes of its result (-1: any).
    ``fp32_update`` bounds the norm of the updates in fp32, by scale, where the fused optimisers differ.
    ``columns`` splits the output of inference into parts that are compared separately, such as boxes and
    scores: one norm over both would hide the smaller numbers. ``reference`` is the batch by variant for the
    comparison at published sizes (``make equivalence SCALE=reference``): as small as normalisation over a
    batch allows. ``optimised``: XLA optimises this case a little in fp64, because without optimisation its
    convolutions take longer than the compilation saves. ``shortened``: ``make test`` compares a network with
    fewer repetitions of the same blocks (:mod:`tests.equivalence.shortened`).
    """

    workload: str
    variant: str
    batch: int
    evaluation: Callable[[Any], Arrays]
    predicted: Mapping[str, tuple[int, ...]]
    hyper: Mapping[str, str] = field(default_factory=dict)
    fp32_update: Mapping[str, float] = field(default_factory=dict)
    data: Callable[[Job], Data] = workloads.open_data
    columns: Mapping[str, Any] = field(default_factory=lambda: {"": ...})  # name: index of the array
    reference: Mapping[str, int] = field(default_factory=dict)
    scale: str = "mini"
    threads: int = 1
    optimised: bool = False
    shortened: bool = False

    @property
    def update_bound(self) -> float | None:
        """The bound for updates in fp32; None where they are not compared."""
        return self.fp32_update.get(self.scale)

    def at(self, scale: str) -> tuple[Case, ...]:
        """The cases at ``scale``: this one at mini, one per variant of ``reference`` at reference."""
        if scale == "mini":
            return (self,)
        return tuple(
            replace(self, scale=scale, variant=variant, batch=batch)
            for variant, batch in self.reference.items()
        )

    def compile_quickly(self, framework: str, precision: str = "fp64") -> None:
        """Compile with little optimisation at mini scale; before the first computation of this process.

        At mini scale compilation takes longer than the steps. Only tests compute in fp64, to compare the
        mathematics; in fp32 frameworks optimise as they do in a run, except for ``LONG_TO_COMPILE``.
        """
        if self.scale != "mini":
            return
        if precision == "fp64":
            limit_optimisation(framework, SLIGHTLY_OPTIMISED if self.optimised else UNOPTIMISED)
        elif self.workload in LONG_TO_COMPILE:
            limit_optimisation(framework)

    def job(self, framework: str, precision: str, phase: str = "train", **hyper: str) -> Job:
        """The job of one run on the CPU with the fast path."""
        spec = workloads.specification(self.workload)
        key = Key(
            self.workload,
            framework,
            phase,
            "offline",
            precision,
            self.batch,
            1,
            self.scale,
            "synthetic",
            "warm",
            self.variant,
        )
        settings = spec.hyperparameters(self.scale, self.variant) | RATE_DROP | dict(self.hyper) | hyper
        return Job(key, "throughput", 7, 0, settings, "cpu", self.threads, True, 0, 0, "", "")


def limit_optimisation(framework: str, flags: str = UNOPTIMISED) -> None:
    """XLA gets ``flags``; TensorFlow rewrites no graph, which takes up to half of its time at mini scale."""
    os.environ["XLA_FLAGS"] = flags
    if framework == "tensorflow":
        import tensorflow as tf

        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})


def names() -> tuple[str, ...]:
    """Every case: the files of ``cases/`` that hold a ``CASE``."""
    return tuple(sorted(path.stem for path in (Path(__file__).parent / "cases").glob("[a-z]*.py")))


def load(name: str) -> Case:
    """The case ``name``."""
    return cast("Case", import_module(f"tests.equivalence.cases.{name}").CASE)


def chosen(name: str, scale: str, variant: str, threads: int = 1) -> Case:
    """The case ``name`` at ``scale`` in ``variant``; StopIteration where it has none."""
    case = next(case for case in load(name).at(scale) if case.variant == variant)
    return replace(case, threads=threads)
