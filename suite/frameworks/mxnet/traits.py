"""Facts about MXNet for host and judge. Standard library only."""

from suite.contract.traits import Traits

TRAITS = Traits(
    import_name="mxnet",
    precisions={"cpu": ("fp32", "fp64"), "cuda": ("fp32", "fp64")},
    timestamp_kind={"cpu": "host_completion", "cuda": "host_dispatch"},
    storage="recordio",
    reads_storage=("files", "recordio", "tfrecord"),
    native_devices=("cpu",),  # its last wheels are for CUDA 11.2, which supports no current GPU
    image_python="3.10",
    colour="#009E73",
    out_of_memory=("failed to allocate", "alloc_failed"),
)
