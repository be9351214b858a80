"""Machines for the tests of the doctor."""

from __future__ import annotations

from typing import Any

from suite.doctor.model import Subject
from suite.plan.machine import Gpu, Machine

NO_GPU = Machine(2, (), None)
H100 = Machine(16, (Gpu("GPU-1", "NVIDIA H100 80GB HBM3", 80 << 30, "9.0"),), None, "580.95.05")


def subject(**fields: Any) -> Subject:
    """A machine without a GPU; ``fields`` replace others of its facts."""
    return Subject(**{"look": lambda: NO_GPU, **fields})


def states(checks: Any) -> dict[str, str]:
    return {check.name: check.state for check in checks}
