"""MXNet, as host and judge see it. Standard library only."""

from suite.contract.traits import Traits

TRAITS = Traits(
    import_name="mxnet",
    precisions={"cpu": ("fp32", "fp64"), "cuda": ("fp32", "fp64")},
    timestamp_kind={"cpu": "host_completion", "cuda": "host_dispatch"},
    storage="recordio",
    reads_storage=("files", "recordio", "tfrecord"),
    native_devices=("cpu",),  # its published wheels end at CUDA 11.2 and know no current GPU
    image_python="3.10",
    colour="#009E73",
    out_of_memory=("failed to allocate", "alloc_failed"),
)
