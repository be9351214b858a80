"""Facts about JAX for host and judge. Standard library only.

The suite finds a framework by its ``traits.py``. This file gets that name when the pairs of gnmt and lstm_ptb, the
locked environment and the image reader exist; until then the suite does not offer JAX.
"""

from suite.contract.traits import Traits

TRAITS = Traits(
    import_name="jax",
    precisions={"cpu": ("fp32", "bf16", "fp64"), "cuda": ("fp32", "tf32", "bf16", "fp16", "fp64")},
    timestamp_kind={"cpu": "host_completion", "cuda": "host_dispatch"},
    storage="arrayrecord",
    reads_storage=("files", "recordio", "tfrecord", "arrayrecord"),
    native_devices=("cpu", "cuda"),
    image_python="3.12",
    colour="#CC79A7",
    out_of_memory=("resource_exhausted", "out of memory while", "failed to allocate"),
    other_imports=("jaxlib", "grain", "array_record"),
    strategies=("allreduce",),
    collectives={"cpu": ("gloo",), "cuda": ("nccl",)},
    no_strategy={"parameter_server": "JAX has none"},
)
