"""The doctor starts real containers: its checks inside them, and its reports about broken images."""

from __future__ import annotations

import json
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from suite.containers.engines.container import RUN_LABEL
from suite.containers.engines.docker_engine import DockerEngine
from suite.containers.engines.native import PROJECT
from suite.containers.images.inside import inside_files
from suite.containers.images.lock import Base
from suite.doctor import engines
from suite.doctor import start as doctor_start
from suite.doctor.examine import Examination, examine
from suite.doctor.model import FAIL, OK, SKIP, DoctorCheck, Subject
from suite.doctor.start import ImageToStart, image_here, start, started
from suite.plan.machine import Machine
from tests.containers.conftest import PairImage

pytestmark = pytest.mark.docker

LABEL = {"workload": "ncf", "framework": "pytorch"}
FAULTS = {  # a script in place of the image's interpreter, and the message that the doctor must report
    "exit 3": "(exit code 3)",
    "read line; echo no JSON": "the probe did not answer (exit code 0)",
    "read line; echo broken >&2; exit 1": "(exit code 1): broken",
    "sleep 600": "started, but did not end in 10 s",
}


@pytest.fixture
def base(docker: DockerEngine, bases: dict[str, Base]) -> str:
    """The id of the stand-in base image, which has Python and nothing of the suite."""
    found = docker.image(bases["pytorch"].reference)
    assert found is not None
    return found.id


@pytest.fixture
def subject(docker: DockerEngine, tmp_path: Path) -> Subject:
    """A machine without a GPU whose docker answers."""
    machine = Subject(cache_dir=tmp_path / "cache", look=lambda: Machine(2, (), None))
    machine.engines["docker"] = docker
    return machine


@pytest.fixture
def build(base: str, tmp_path: Path) -> Iterator[Any]:
    """Builds an image on the stand-in from Dockerfile lines, with the worker's code in the build context."""
    made: list[str] = []

    def make(*lines: str, files: dict[str, str] | None = None) -> str:
        context = tmp_path / f"context-{len(made)}"
        for path in inside_files():
            target = context / path.relative_to(PROJECT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
        for name, text in (files or {}).items():
            (context / name).write_text(text)
            (context / name).chmod(0o755)
        tag = f"suite-doctor-test-{secrets.token_hex(4)}:local"
        base_tag = f"suite-doctor-base-{secrets.token_hex(4)}:local"  # some builders refuse FROM with an id
        run("docker", "tag", base, base_tag)
        (context / "Dockerfile").write_text("\n".join([f"FROM {base_tag}", *lines]) + "\n")
        try:
            run("docker", "build", "--quiet", "--tag", tag, str(context))
        finally:
            run("docker", "rmi", base_tag)
        made.append(tag)
        return tag

    yield make
    for tag in made:
        run("docker", "rmi", "--force", tag)


def run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def states(checks: list[DoctorCheck]) -> dict[str, str]:
    return {check.name: check.state for check in checks}


def assert_cleaned_up(subject: Subject) -> None:
    left = run("docker", "ps", "--all", "--format", f'{{{{.Label "{RUN_LABEL}"}}}}')
    assert "doctor-" not in left
    assert not list(subject.cache_dir.glob("*"))


def test_base_image_with_mounted_code_passes_all_checks(
    docker: DockerEngine, subject: Subject, base: str
) -> None:
    found = list(started(subject, docker, ImageToStart("stand-in", base, PROJECT)))
    assert set(states(found).values()) == {OK}, [(check.name, check.found) for check in found]
    reports = {check.name: check.found for check in found}
    assert "stand-in in docker without a GPU" in reports["start"]
    assert reports["start limits"] == "1 processor and 1 GiB enforced by the kernel"
    assert reports["start shm"] == "256 MiB, as requested"
    assert reports["start Python"].startswith("3.11")
    assert reports["start label"] == "none: a base image, with the worker's code mounted"
    assert len(reports) == 12
    assert_cleaned_up(subject)


def test_pair_image_passes_all_checks(docker: DockerEngine, subject: Subject, pair_image: PairImage) -> None:
    image = pair_image("ncf", "mxnet")
    subject.workload, subject.frameworks = "ncf", ("mxnet",)
    present = image_here(docker, subject)
    assert present is not None
    assert (present.start, present.code) == (image.id, None)
    found = list(started(subject, docker, present))
    assert set(states(found).values()) == {OK}, [(check.name, check.found) for check in found]
    assert found[-1].found == "ncf-mxnet, equal to the image's labels"


@pytest.mark.parametrize(("label", "state"), [(LABEL, OK), ({**LABEL, "workload": "gnmt"}, FAIL)])
def test_label_file_must_equal_the_image_labels(
    label: dict[str, str], state: str, docker: DockerEngine, subject: Subject, build: Any
) -> None:
    labels = " ".join(f"suite.{name}={value}" for name, value in LABEL.items())
    image = build(
        "COPY suite /opt/suite/code/suite",
        "COPY label.json /etc/suite-image.json",
        f"LABEL {labels}",
        files={"label.json": json.dumps(label)},
    )
    found = list(started(subject, docker, ImageToStart(image, image, None)))
    assert {check.name: check.state for check in found if check.state != OK} == (
        {} if state == OK else {"start label": FAIL}
    )


@pytest.mark.parametrize("script", FAULTS)
def test_image_whose_probe_fails_is_reported(
    script: str, docker: DockerEngine, subject: Subject, build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "sleep" in script:
        monkeypatch.setattr(doctor_start, "_EACH_S", 10.0)  # a loaded machine starts a container in seconds
    image = build("COPY python3 /usr/bin/python3", files={"python3": f"#!/bin/sh\n{script}\n"})
    (check,) = started(subject, docker, ImageToStart("broken", image, None))
    assert (check.name, check.state) == ("start", FAIL)
    assert FAULTS[script] in check.found
    assert_cleaned_up(subject)


def test_image_without_interpreter_is_reported_with_dockers_message(
    docker: DockerEngine, subject: Subject, build: Any
) -> None:
    image = build("RUN rm /usr/bin/python3")
    (check,) = started(subject, docker, ImageToStart("bare", image, None))
    assert check.state == FAIL
    assert "python3" in check.found
    assert "--help" not in check.found
    assert_cleaned_up(subject)


def test_start_that_times_out_leaves_no_container(docker: DockerEngine, subject: Subject, build: Any) -> None:
    image = build("COPY python3 /usr/bin/python3", files={"python3": "#!/bin/sh\nsleep 600\n"})

    def look(one: Subject) -> Iterator[DoctorCheck]:
        yield from started(one, docker, ImageToStart("slow", image, None))

    found = [outcome.check for outcome in examine(subject, [Examination("start", look, 15.0)])]
    assert states(found) == {"start": FAIL}
    assert found[0].found == "no answer in 15 s"
    assert_cleaned_up(subject)


def test_doctor_selects_an_image_that_the_engine_has(
    docker: DockerEngine, subject: Subject, base: str
) -> None:
    image = image_here(docker, subject)
    assert image is not None
    assert docker.image(image.start) is not None


def test_start_check_is_skipped_without_a_local_image(
    docker: DockerEngine, subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_start, "image_here", lambda *_: None)
    (check,) = start(subject)
    assert check.state == SKIP
    assert re.fullmatch(r"make image WORKLOAD=\w+ FRAMEWORK=\w+ FETCH=1", check.fix)
    subject.start = False
    (check,) = start(subject)
    assert (check.state, check.found) == (SKIP, "--no-start")


def test_engine_check_passes_and_storage_check_compares_free_space(
    docker: DockerEngine, tmp_path: Path
) -> None:
    machine = Subject(runtime="docker", frameworks=("pytorch",), look=lambda: Machine(2, (), None))
    found = [check for _, look in engines.check_functions("docker") for check in look(machine)]
    assert states(found)["engine docker"] == OK
    root = json.loads(run("docker", "info", "--format", "{{json .DockerRootDir}}"))
    assert engines.storage_folder(docker, tmp_path) == Path(root)
    machine.free_bytes = lambda folder: 10**9 if folder == Path(root) else 0
    (check,) = engines.storage(machine)
    # An image that the engine already has needs no free space.
    present = engines.present_image(docker, engines._bases(machine)[0], tmp_path) is not None
    assert check.state == (OK if present else FAIL)
    assert f"1.0 GB free in {root}" in check.found
