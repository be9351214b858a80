"""What all three tenants share: benchmark key, job, protocols, streams. Standard library only."""

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
    words_of_run,
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
    "words_of_run",
]
