"""``launcher=kubernetes``: plan, write the JobSet, print the commands that apply it and copy results."""

from __future__ import annotations

import re
import secrets
import sys
from dataclasses import replace
from datetime import UTC, datetime

from suite.cli.guard import relative
from suite.cli.on_slurm import node_of
from suite.contract import CONVERSION
from suite.launch import kubernetes
from suite.launch.slurm import login_scale, node_command
from suite.plan.errors import BadConfiguration, Unsupported
from suite.plan.kubernetes_options import KubernetesOptions
from suite.plan.machine import detect_machine
from suite.plan.resolve import resolve
from suite.plan.settings import Settings
from suite.plan.slurm_options import SlurmOptions

FOLDER = "kubernetes"  # under results_dir


def write_run(settings: Settings, options: KubernetesOptions) -> int:
    """Write the JobSet of the run of ``settings``; returns 0. Raises a Refusal."""
    if settings.kind == CONVERSION:
        raise Unsupported(
            "launcher: kubernetes runs benchmarks; convert a dataset with LAUNCHER=local or slurm"
        )
    if settings.runtime not in ("auto", "native") or settings.image is not None:
        raise BadConfiguration(
            "runtime: expected native: the pod is the container, of launcher.image; found "
            f"{settings.image or settings.runtime}"
        )
    if settings.division == "closed":
        raise Unsupported(
            "division: closed needs a container that an engine attests; the image of a pod is only declared: "
            "use DIVISION=open"
        )
    machine = detect_machine()
    scale, why = login_scale(settings.scale, options.gpus, len(machine.gpus), "Kubernetes")
    # Whether a dataset is prepared in the claim is not known here.
    data = settings.data if settings.data != "auto" else "real" if scale == "mini" else "synthetic"
    gpus = SlurmOptions(gpus=options.gpus).gpus_for(scale, settings.devices_per_node)
    settings = replace(settings, scale=scale, data=data, runtime="native")
    plan = resolve(settings, node_of(machine, gpus))
    for line in (why, *plan.why):
        print(line, file=sys.stderr)
    # Each pod generates the small dataset of mini; others must be prepared in the claim.
    data_root = f"{kubernetes.CACHE if scale == 'mini' else kubernetes.WORK}/data"
    argv = node_command(
        ("node", *settings.overrides),
        path_options={},
        decided={
            "scale": scale, "data": data, "runtime": "native", "data_root": data_root,
            "results_dir": f"{kubernetes.WORK}/results", "cache_dir": kubernetes.CACHE,
        },
        launcher=[
            # The overrides are in the public log: without the names of image registry and claim.
            "launcher=kubernetes", f"launcher.image=image@{options.digest}", "launcher.claim=claim",
            "launcher.in_pod=true",
        ],
        python=f"{options.directory}/.venv/bin/python",
    )  # fmt: skip
    label = re.sub("[^a-z0-9]+", "-", f"suite-{settings.workload}-{settings.framework}")
    name = f"{label}-{secrets.token_hex(3)}"
    if settings.dry:
        import yaml

        print(yaml.safe_dump(kubernetes.jobset(name, options, settings.nodes, gpus, argv), sort_keys=False))
        return 0
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    folder = settings.results_dir / FOLDER / f"{now}-{name}"
    kubernetes.write(folder, name, options, settings.nodes, gpus, argv)
    print(kubernetes.commands(relative(folder), name))
    return 0
