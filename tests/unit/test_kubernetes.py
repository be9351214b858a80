"""launcher=kubernetes without a cluster: the written objects are valid, and no pod is ever restarted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from omegaconf import OmegaConf

from suite.launch import kubernetes
from suite.launch.placement import placement
from suite.plan.errors import BadConfiguration
from suite.plan.kubernetes_options import FIELDS, KubernetesOptions, parse
from tests.fixtures.jobset import SCHEMA

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "registry.example/team/suite@sha256:" + "5e" * 32
OPTIONS = KubernetesOptions(IMAGE, "/opt/suite", "bench", cpus=8, memory="64Gi")
ARGV = ("/opt/suite/.venv/bin/python", "-m", "suite", "node", "workload=ncf")
SECTION: dict[str, Any] = {
    "name": "kubernetes",
    "image": IMAGE,
    "directory": "/opt/suite",
    "claim": "bench",
    "gpus": "auto",
    "cpus": "auto",
    "memory": None,
    "in_pod": False,
}


@pytest.fixture
def written(tmp_path: Path) -> dict[str, dict[str, Any]]:
    """The objects by kind, as YAML holds them."""
    kubernetes.write(tmp_path / "k", "suite-ncf", OPTIONS, nodes=2, gpus=4, argv=ARGV)
    assert (tmp_path / "k" / kubernetes.JOBSET).stat().st_mode & 0o777 == 0o600  # it holds the token
    texts = [(tmp_path / "k" / name).read_text() for name in (kubernetes.JOBSET, kubernetes.COPY)]
    return {one["kind"]: one for text in texts for one in yaml.safe_load_all(text)}


def job_of(jobset: dict[str, Any]) -> dict[str, Any]:
    """The Job that JobSet's controller makes of the only replicated job."""
    (one,) = jobset["spec"]["replicatedJobs"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "suite-ncf-workers-0"},
        **one["template"],
    }


def validate(jobset: dict[str, Any]) -> None:
    """Raise an error for a JobSet that the API server would refuse."""
    jsonschema.validate(jobset, SCHEMA)
    kubernetes_validate.validate(job_of(jobset), "1.37", strict=True)


def test_written_objects_are_valid(written: dict[str, dict[str, Any]]) -> None:
    validate(written["JobSet"])
    for one in (written["Secret"], written["Pod"]):
        kubernetes_validate.validate(one, "1.37", strict=True)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("spec", "replicatedJob"),
        ("spec.failurePolicy", "maxRestart"),
        ("spec.replicatedJobs.0.template.spec", "backofLimit"),
        ("spec.replicatedJobs.0.template.spec.template.spec", "restartpolicy"),
    ],
)
def test_misspelt_field_is_found(path: str, name: str, written: dict[str, dict[str, Any]]) -> None:
    jobset: Any = written["JobSet"]
    inner = jobset
    for part in path.split("."):
        inner = inner[int(part) if part.isdigit() else part]
    inner[name] = 0
    with pytest.raises((jsonschema.ValidationError, kubernetes_validate.ValidationError)):
        validate(jobset)


def test_nothing_is_restarted_or_shared(written: dict[str, dict[str, Any]]) -> None:
    assert written["JobSet"]["spec"]["failurePolicy"] == {"maxRestarts": 0}
    job = job_of(written["JobSet"])["spec"]
    pod = job["template"]["spec"]
    assert (job["completionMode"], job["completions"], job["parallelism"]) == ("Indexed", 2, 2)
    assert (job["backoffLimit"], pod["restartPolicy"]) == (0, "Never")
    (container,) = pod["containers"]
    assert container["image"] == IMAGE
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "4", "cpu": "8", "memory": "64Gi"}
    (apart,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["topologyKey"] == "kubernetes.io/hostname"


def test_pod_finds_its_number_and_node_0(written: dict[str, dict[str, Any]]) -> None:
    (container,) = job_of(written["JobSet"])["spec"]["template"]["spec"]["containers"]
    environment = {row["name"]: row.get("value", "") for row in container["env"]}
    environment |= {"SUITE_TOKEN": written["Secret"]["stringData"]["token"], "JOB_COMPLETION_INDEX": "1"}
    here = placement(environment)
    assert (here.node, here.host, here.port) == (1, "suite-ncf-workers-0-0.suite-ncf", kubernetes.PORT)


def test_shipped_section_names_every_field() -> None:
    section = OmegaConf.to_container(OmegaConf.load(ROOT / "conf/launcher/kubernetes.yaml"))
    assert isinstance(section, dict)
    assert set(section) == FIELDS
    with pytest.raises(BadConfiguration, match=r"^launcher\.image: "):
        parse({str(name): value for name, value in section.items()})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("image", "registry.example/team/suite:latest"),
        ("claim", None),
        ("claim", "a b"),
        ("directory", "opt"),
        ("gpus", -1),
        ("cpus", 0),
        ("cpus", True),
        ("memory", "64"),
        ("namespace", "x"),
    ],
)
def test_invalid_options_are_refused(name: str, value: object) -> None:
    assert parse(SECTION) == KubernetesOptions(IMAGE, "/opt/suite", "bench")
    with pytest.raises(BadConfiguration, match=rf"^launcher(\.{name}: |: unknown field)"):
        parse(SECTION | {name: value})


@pytest.mark.parametrize("lacking", ["SUITE_NODE", "SUITE_NODE_0", "SUITE_TOKEN"])
def test_missing_variable_is_named(lacking: str) -> None:
    environment = {"SUITE_NODE": "0", "SUITE_NODE_0": "10.0.0.1:29400", "SUITE_TOKEN": "5e" * 32}
    assert placement(environment).port == 29400
    with pytest.raises(BadConfiguration, match=rf"^{lacking}: "):
        placement({name: value for name, value in environment.items() if name != lacking})


@pytest.mark.parametrize(
    ("name", "value"), [("SUITE_NODE_0", "10.0.0.1:99999"), ("SUITE_NODE_0", "a:0"), ("SUITE_NODE", "²")]
)
def test_impossible_variable_is_named(name: str, value: str) -> None:
    environment = {"SUITE_NODE": "0", "SUITE_NODE_0": "10.0.0.1:29400", "SUITE_TOKEN": "5e" * 32}
    with pytest.raises(BadConfiguration, match=rf"^{name}: "):
        placement(environment | {name: value})
