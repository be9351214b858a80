"""The exposed time of an exchange, from intervals written by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tools.exposed_exchange import common, exposed, length, union


def event(name: str, start: float, duration: float, category: str = "kernel") -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": duration, "args": {"device": 0}}


SUM = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
# Two steps of 100 us. The first sum is hidden for 20 of its 30 us, the second one behind a copy.
EVENTS = [
    event("gemm", 0, 50),
    event(SUM, 30, 30),
    event(SUM, 55, 5),  # on another channel, within the first
    event("update", 60, 40),
    event("gemm", 100, 60),
    event("Memcpy DtoD", 165, 5, "gpu_memcpy"),
    event(SUM, 160, 20),
    event("update", 180, 20),
]
OTHERS = [
    event("cudaGraphLaunch", 0, 500, "cuda_runtime"),  # of the host
    event("nccl:all_reduce", 0, 500, "user_annotation"),
    {"ph": "M", "name": "process_name", "ts": 0.0, "args": {}},
]


def test_exposed_exchange_of_a_trace() -> None:
    found = exposed({"traceEvents": [*OTHERS, *reversed(EVENTS)]}, 2)
    assert found == {"step_us": 100, "exchange_us": 25, "exposed_us": 12.5, "exposed_share": 0.125}


def test_trace_without_exchange_has_no_figure() -> None:
    found = exposed({"traceEvents": OTHERS}, 2)
    assert found.pop("reason") == "expected an exchange, found none among 0 events of the device"
    assert set(found.values()) == {None}


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        ([(0, 10), (20, 30)], [(5, 25)], [(5, 10), (20, 25)]),
        ([(0, 10)], [(10, 20)], []),
        ([(0, 100)], [(1, 2), (3, 4), (99, 101)], [(1, 2), (3, 4), (99, 100)]),
        ([], [(0, 1)], []),
    ],
)
def test_common_time_of_two_lists(first: Any, second: Any, shared: Any) -> None:
    assert common(first, second) == common(second, first) == shared
    assert length(union([*first, *second])) == length(first) + length(second) - length(shared)


def test_union_joins_what_touches() -> None:
    assert union([(5, 6), (0, 2), (1, 3), (3, 4), (0, 1)]) == [(0, 4), (5, 6)]
