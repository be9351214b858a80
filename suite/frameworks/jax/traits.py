"""Facts about JAX for host and judge. Standard library only."""

from suite.contract.traits import Traits

TRAITS = Traits(
    import_name="jax",
    precisions={"cpu": ("fp32", "bf16", "fp64"), "cuda": ("fp32", "tf32", "bf16", "fp16", "fp64")},
    timestamp_kind={"cpu": "host_completion", "cuda": "host_dispatch"},
    storage="arrayrecord",
    storage_files=(".array_record",),
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
