"""What a workload brings to the equivalence test; also imported in the frameworks' interpreters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from suite import workloads
from suite.workloads.contract import Data, Job, Key

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = dict[str, NDArray[Any]]

FRAMEWORKS = ("pytorch", "tensorflow", "mxnet")
LOSSES = 10
UPDATES = 3
RATE_DROP = {"rate_drops": "2:0.5"}  # one change of the rate inside the three updates


@dataclass(frozen=True)
class Case:
    """One model of one workload at mini scale: dropout 0, no warm-up, one change of rate, clipping active.

    ``data`` may give batches of its own making that differ from step to step (else a lazy optimiser would
    pass). ``evaluation`` gives one batch for ``predict``, ``predicted`` the shapes that must come back (-1 is
    any). ``fp32_update`` also bounds the updates in fp32, in norm, where the fused optimisers differ.
    """

    workload: str
    variant: str
    batch: int
    evaluation: Callable[[Any], Arrays]
    predicted: Mapping[str, tuple[int, ...]]
    hyper: Mapping[str, str] = field(default_factory=dict)
    fp32_update: float | None = None
    data: Callable[[Job], Data] = workloads.open_data

    def job(self, framework: str, precision: str, phase: str = "train", **hyper: str) -> Job:
        """The job of one run on the CPU, one thread, the fast path on."""
        spec = workloads.specification(self.workload)
        key = Key(
            self.workload,
            framework,
            phase,
            "offline",
            precision,
            self.batch,
            1,
            "mini",
            "synthetic",
            "warm",
            self.variant,
        )
        settings = spec.hyperparameters("mini", self.variant) | RATE_DROP | dict(self.hyper) | hyper
        return Job(key, "throughput", 7, 0, settings, "cpu", 1, True, 0, 0, "", "")


def names() -> tuple[str, ...]:
    """Every case: the files of ``cases/`` that hold a ``CASE``."""
    return tuple(sorted(path.stem for path in (Path(__file__).parent / "cases").glob("[a-z]*.py")))


def load(name: str) -> Case:
    """The case ``name``."""
    return cast("Case", import_module(f"tests.equivalence.cases.{name}").CASE)
