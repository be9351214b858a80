"""Benchmark key, job, protocols and streams, for host, container and judge. Standard library only."""

from suite.contract.key import (
    BENCHMARK,
    CONVERSION,
    MEASURED_STEPS,
    STEPS,
    WARMUP_STEPS,
    BadData,
    ConversionJob,
    ConversionKey,
    Job,
    Key,
    Parameter,
    run_id_parts,
)
from suite.contract.protocols import Data, Framework, Pair, Specification

__all__ = [
    "BENCHMARK",
    "CONVERSION",
    "MEASURED_STEPS",
    "STEPS",
    "WARMUP_STEPS",
    "BadData",
    "ConversionJob",
    "ConversionKey",
    "Data",
    "Framework",
    "Job",
    "Key",
    "Pair",
    "Parameter",
    "Specification",
    "run_id_parts",
]
