"""Facts about MXNet for host and judge. Standard library only."""

from suite.contract.traits import Helpers, Traits

TRAITS = Traits(
    import_name="mxnet",
    precisions={"cpu": ("fp32", "fp64"), "cuda": ("fp32", "fp64")},
    timestamp_kind={"cpu": "host_completion", "cuda": "host_dispatch"},
    storage="recordio",
    storage_files=(".rec", ".idx"),
    reads_storage=("files", "recordio", "tfrecord"),
    native_devices=("cpu",),  # its last wheels are for CUDA 11.2, which supports no current GPU
    image_python="3.10",
    colour="#009E73",
    out_of_memory=("failed to allocate", "alloc_failed"),
    strategies=("parameter_server",),
    # Where gradients are added up before they leave a process: dist_sync, dist_device_sync.
    collectives={"cpu": ("cpu",), "cuda": ("cpu", "device")},
    no_strategy={"allreduce": "that of MXNet works within one process only"},
    helpers=Helpers(
        program="import mxnet",  # the import runs the role until the process is killed
        processes=({"DMLC_ROLE": "scheduler"}, {"DMLC_ROLE": "server"}),
        ranks={
            "DMLC_ROLE": "worker",
            "DMLC_PS_ROOT_URI": "{server}",
            "DMLC_PS_ROOT_PORT": "{port}",
            "DMLC_NODE_HOST": "{address}",
            "DMLC_NUM_SERVER": "1",
            "DMLC_NUM_WORKER": "{world_size}",
        },
    ),
)
