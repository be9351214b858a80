"""``launcher=kubernetes``: a JobSet with one pod per node, written to files. Nothing is applied.

The pods run ``python -m suite node``: the Job's controller sets JOB_COMPLETION_INDEX, the number of the node,
and JobSet's service gives pod 0 its name. A measured pod is never restarted or replaced.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from suite.launch.placement import NODE_0, TOKEN
from suite.plan.errors import StorageProblem
from suite.plan.kubernetes_options import KubernetesOptions

PORT = 29400  # of node 0, in its pod
WORK, CACHE, SHM = "/work", "/cache", "/dev/shm"  # in the pods  # noqa: S108
JOBSET, COPY = "jobset.yaml", "copy.yaml"
_WORKERS = "workers"
_GPU = "nvidia.com/gpu"
_GRACE_S = 60  # after SIGTERM, in which node 0 ends the log
_Object = dict[str, Any]


def write(
    folder: Path, name: str, options: KubernetesOptions, nodes: int, gpus: int, argv: Sequence[str]
) -> None:
    """Write the JobSet ``name``, which runs ``argv`` on ``nodes`` nodes with ``gpus`` GPUs each, and a pod.

    The pod is for copying the results. The first file holds the token of the run. StorageProblem if they
    cannot be written.
    """
    objects = [secret(name, secrets.token_hex(32)), jobset(name, options, nodes, gpus, argv)]
    try:
        folder.mkdir(parents=True)
        (folder / JOBSET).touch(mode=0o600)
        (folder / JOBSET).write_text(yaml.safe_dump_all(objects, sort_keys=False))
        (folder / COPY).write_text(yaml.safe_dump(copying_pod(name, options), sort_keys=False))
    except OSError as error:
        raise StorageProblem(
            f"launcher: the JobSet cannot be written in {folder}: {error.strerror}; set RESULTS_DIR to a "
            "folder that can be written"
        ) from error


def commands(folder: Path, name: str) -> str:
    """The commands that run the JobSet, show its output, copy the results and remove everything."""
    label = f"jobset.sigs.k8s.io/jobset-name={name},batch.kubernetes.io/job-completion-index=0"
    return "\n".join(
        (
            f"kubectl apply -f {folder / JOBSET}",
            f"kubectl wait jobset/{name} --for=jsonpath='{{.status.terminalState}}' --timeout=24h",
            f"kubectl logs -l {label} --tail=-1",
            f"kubectl apply -f {folder / COPY} && kubectl wait pod/{name}-copy --for=condition=Ready",
            f"kubectl cp {name}-copy:{WORK}/results/. results",
            f"kubectl delete -f {folder / COPY} -f {folder / JOBSET}",
        )
    )


def secret(name: str, token: str) -> _Object:
    """The Secret with the token of the run."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "type": "Opaque",
        "stringData": {"token": token},
    }


def jobset(name: str, options: KubernetesOptions, nodes: int, gpus: int, argv: Sequence[str]) -> _Object:
    """The JobSet: no restart of a pod, a Job or the set, and no two pods on one machine."""
    pod = _pod(options, argv)
    container = pod["containers"][0]
    container["env"] = [
        {"name": NODE_0, "value": f"{name}-{_WORKERS}-0-0.{name}:{PORT}"},
        {"name": TOKEN, "valueFrom": {"secretKeyRef": {"name": name, "key": "token"}}},
    ]
    wanted: dict[str, str] = {_GPU: str(gpus)} if gpus else {}
    wanted |= {} if options.cpus is None else {"cpu": str(options.cpus)}
    wanted |= {} if options.memory is None else {"memory": options.memory}
    container["resources"] = {"limits": wanted, "requests": dict(wanted)}
    others = {"labelSelector": {"matchLabels": {"jobset.sigs.k8s.io/jobset-name": name}}}
    apart = [{**others, "topologyKey": "kubernetes.io/hostname"}]
    pod |= {
        "terminationGracePeriodSeconds": _GRACE_S,
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}},
    }
    job = {
        "parallelism": nodes,
        "completions": nodes,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {"spec": pod},
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "failurePolicy": {"maxRestarts": 0},
            "replicatedJobs": [{"name": _WORKERS, "replicas": 1, "template": {"spec": job}}],
        },
    }


def copying_pod(name: str, options: KubernetesOptions) -> _Object:
    """A pod that has the claim, so that ``kubectl cp`` can read it after the run."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{name}-copy"},
        "spec": _pod(options, ["sleep", "3600"]),
    }


def _pod(options: KubernetesOptions, argv: Sequence[str]) -> _Object:
    mounts: Mapping[str, _Object] = {
        WORK: {"name": "work", "persistentVolumeClaim": {"claimName": options.claim}},
        CACHE: {"name": "cache", "emptyDir": {}},
        SHM: {"name": "shm", "emptyDir": {"medium": "Memory"}},
    }
    container = {
        "name": "node",
        "image": options.image,
        "command": list(argv),
        "workingDir": options.directory,
        "volumeMounts": [{"name": volume["name"], "mountPath": path} for path, volume in mounts.items()],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "containers": [container],
        "volumes": list(mounts.values()),
    }
