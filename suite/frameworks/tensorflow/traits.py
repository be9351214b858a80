"""Facts about TensorFlow for host and judge. Standard library only."""

from suite.contract.traits import Traits

TRAITS = Traits(
    import_name="tensorflow",
    precisions={"cpu": ("fp32", "bf16", "fp64"), "cuda": ("fp32", "tf32", "bf16", "fp16", "fp64")},
    timestamp_kind={"cpu": "host_completion", "cuda": "host_dispatch"},
    storage="tfrecord",
    storage_files=(".tfrecord", ".tfrecord.idx"),
    reads_storage=("files", "recordio", "tfrecord"),
    native_devices=("cpu", "cuda"),
    image_python="3.12",
    colour="#56B4E9",
    out_of_memory=("resourceexhausted", "oom when", "failed to allocate", "alloc_failed"),
    other_imports=("keras",),
    libraries={"cuda": ("nvrtc",)},
    strategies=("allreduce",),
    collectives={"cpu": ("ring",), "cuda": ("nccl", "ring")},
    no_strategy={"parameter_server": "that of TensorFlow 2 updates asynchronously"},
)
