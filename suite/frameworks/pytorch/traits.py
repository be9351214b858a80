"""Facts about PyTorch for host and judge. Standard library only."""

from suite.contract.traits import Traits

TRAITS = Traits(
    import_name="torch",
    precisions={"cpu": ("fp32", "bf16", "fp64"), "cuda": ("fp32", "tf32", "bf16", "fp16", "fp64")},
    timestamp_kind={"cpu": "host_completion", "cuda": "device"},
    storage="lmdb",
    storage_files=(".lmdb/data.mdb",),
    reads_storage=("files", "recordio", "tfrecord", "lmdb"),
    native_devices=("cpu", "cuda"),
    image_python="3.12",
    colour="#E69F00",
    out_of_memory=("outofmemory", "failed to allocate", "alloc_failed"),  # CUDA, cuBLAS, cuDNN
    other_imports=("triton", "lmdb", "torchvision"),
    # PyTorch publishes its CPU build for Linux only on its index; the lock pins the file by hash. pip reads
    # the page only if its other sources lack the wheel.
    links={"cpu": "https://download.pytorch.org/whl/cpu/torch/"},
    # glibc keeps the memory of freed tensors. Otherwise it returns large ones to the kernel, and the first
    # writes to the next ones fault once a page: up to a fifth of a step.
    variables={"cpu": {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}},
    strategies=("allreduce",),
    collectives={"cpu": ("gloo",), "cuda": ("nccl", "copy_engine")},
    buckets=True,
    one_machine=("copy_engine",),
    no_strategy={"parameter_server": "PyTorch has none"},
    gpu_decoder="torchvision",
    reference=True,
)
