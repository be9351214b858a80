"""The profile of a step by kinds of kernels, from events written by hand."""

from __future__ import annotations

import pytest

from tests.unit.test_exposed_exchange import OTHERS, event
from tools.step_profile import kind_of, profiled

# Two steps of 100 us; the device is idle for 20 us of them.
EVENTS = [
    event("sm90_xmma_gemm_bf16", 0, 50),
    event("triton_poi_fused_convolution_relu_0", 50, 40),
    event("Memcpy DtoH", 80, 10, "gpu_memcpy"),  # beside another kernel
    event("sm90_xmma_gemm_bf16", 100, 60),
    event("void (anonymous namespace)::something", 170, 30),
]


def test_time_of_a_step_by_kind() -> None:
    found, times, calls = profiled({"traceEvents": [*OTHERS, *EVENTS]}, 2)
    assert (found["step_ms"], found["busy_share"]) == (0.1, 0.9)
    assert found["kinds"] == {
        "convolutions and products": {"ms": 0.055, "kernels": 1.0},
        "pointwise and reductions": {"ms": 0.02, "kernels": 0.5},
        "other": {"ms": 0.015, "kernels": 0.5},
        "copies": {"ms": 0.005, "kernels": 0.5},
    }
    assert times["sm90_xmma_gemm_bf16"] == 110
    assert calls["sm90_xmma_gemm_bf16"] == 2


def test_kernels_of_recurrent_layers_have_their_kind() -> None:
    assert kind_of(event("RNN_blockPersist_fp_LSTM", 0, 1)) == "recurrence"
    assert kind_of(event("void elemWiseRNNcell<__nv_bfloat16, (cudnnRNNMode_t)2>", 0, 1)) == "recurrence"


def test_trace_without_a_gpu_is_refused() -> None:
    with pytest.raises(SystemExit, match="expected kernels in the trace, found none"):
        profiled({"traceEvents": OTHERS}, 2)
