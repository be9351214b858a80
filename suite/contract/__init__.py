"""Benchmark key, job, protocols and streams, for host, container and judge. Standard library only."""

from suite.contract.key import (
    BENCHMARK,
    CONVERSION,
    INDEPENDENT,
    MEASURED_STEPS,
    STEPS,
    WARMUP_STEPS,
    BadData,
    ConversionJob,
    ConversionKey,
    Job,
    Key,
    LostRank,
    Parameter,
    node_of_rank,
    run_id_parts,
    units_of_window,
)
from suite.contract.network import Network
from suite.contract.protocols import Arrivals, Data, Exchange, Framework, Pair, Specification

__all__ = [
    "BENCHMARK",
    "CONVERSION",
    "INDEPENDENT",
    "MEASURED_STEPS",
    "STEPS",
    "WARMUP_STEPS",
    "Arrivals",
    "BadData",
    "ConversionJob",
    "ConversionKey",
    "Data",
    "Exchange",
    "Framework",
    "Job",
    "Key",
    "LostRank",
    "Network",
    "Pair",
    "Parameter",
    "Specification",
    "node_of_rank",
    "run_id_parts",
    "units_of_window",
]
