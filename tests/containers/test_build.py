"""Container images of pairs on the stand-in base image: their contents, and that builds are reproducible."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from suite import rules
from suite.containers.engines.attestation import EngineImage
from suite.containers.engines.docker_engine import DockerEngine
from suite.containers.images import build, client
from suite.containers.images.errors import ImageProblem
from suite.containers.images.inside import code_digest
from suite.containers.images.lock import Base
from suite.containers.images.publish import publish
from tests.containers import stand_in
from tests.containers.conftest import PairImage

pytestmark = pytest.mark.docker

PAIR = ("ncf", "mxnet")  # the smallest image
FRAMEWORKS = {"pytorch": "torch", "tensorflow": "tensorflow", "mxnet": "mxnet", "jax": "jax"}
TIMES = {"Created", "LastTagTime", "CreatedAt", "CreatedSince"}
BuildPair = Callable[..., EngineImage]
# Runs in the container and prints facts. Bytecode must be in the image: a read-only root stores none.
PROBE = """
import importlib.util, json, os, sys
import suite.worker.main
framework = __import__(sys.argv[1])
code = [os.path.join(top, name) for top, _, names in os.walk("/opt/suite/code") for name in names]
flags = []
for path in code:
    if path.endswith(".py"):
        with open(importlib.util.cache_from_source(path), "rb") as file:
            flags.append(file.read(8)[4])
folders = ("/", "/etc", "/opt/suite/code", "/data", "/scratch")
writable = [path for path in folders if os.access(path, os.W_OK)]
with open("/etc/suite-image.json") as file:
    label = json.load(file)
print(json.dumps({
    "worker": suite.worker.main.__file__, "framework": framework.__version__, "from": framework.__file__,
    "flags": sorted(set(flags)), "writable": writable, "label": label, "user": os.getuid(),
}))
"""


def docker_output(*command: str) -> str:
    done = subprocess.run(["docker", *command], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


@pytest.fixture
def build_pair(docker: DockerEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[BuildPair]:
    """Builds the pair again, even if its image exists, with a tag that no other test uses."""
    names: list[str] = []

    def build_again(base: Base, cache: Path = build.CACHE) -> EngineImage:
        names.append(f"suite/test-fresh:{os.getpid()}-{len(names)}")
        monkeypatch.setattr(build, "tag_of", lambda workload, framework: names[-1])
        made = build.build(*PAIR, base, rules_version="practice", cache=cache, fresh=True, report=print)
        found = docker.image(made)
        assert found is not None
        return found

    yield build_again
    for name in names:
        subprocess.run(["docker", "image", "rm", "--force", name], capture_output=True, check=False)


def saved(image: str) -> Iterator[tuple[str, bytes]]:
    """The files of an image's archive by name; a layer is one tar file."""
    with tempfile.TemporaryFile() as file:
        subprocess.run(["docker", "save", image], stdout=file, check=True)
        file.seek(0)
        with tarfile.open(fileobj=file) as archive:
            for member in archive:
                content = archive.extractfile(member)
                if content is not None:
                    yield member.name, content.read()


def described(image: str) -> dict[str, Any]:
    """The configuration, layers and history of the image, without its names and those of its copies."""
    found: dict[str, Any]
    (found,) = json.loads(docker_output("image", "inspect", image))
    lines = docker_output("history", "--no-trunc", "--format", "{{json .}}", image).splitlines()
    found["History"] = {str(number): json.loads(line) for number, line in enumerate(lines)}
    for name in ("Id", "RepoTags", "RepoDigests"):
        found.pop(name, None)
    del found["History"]["0"]["ID"]
    return found


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Every leaf of a JSON value by its dotted path."""
    if isinstance(value, dict):
        return {k: v for name, item in value.items() for k, v in leaves(item, f"{path}.{name}").items()}
    if isinstance(value, list):
        return {k: v for i, item in enumerate(value) for k, v in leaves(item, f"{path}.{i}").items()}
    return {path.removeprefix("."): value}


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("workload", ["gnmt", "ncf"])
def test_image_has_framework_code_label_and_layers_of_its_pair(
    docker: DockerEngine, bases: dict[str, Base], pair_image: PairImage, workload: str, framework: str
) -> None:
    image = pair_image(workload, framework)
    confined = ["--network=none", "--read-only", "--tmpfs=/tmp", "--user=65534:65534", "--cap-drop=ALL"]
    script = ["python3", "-s", "-c", PROBE, FRAMEWORKS[framework]]
    facts = json.loads(docker_output("run", "--rm", *confined, image.id, *script).splitlines()[-1])
    assert facts["worker"] == "/opt/suite/code/suite/worker/main.py"
    assert facts["from"].startswith("/opt/suite/site/")
    assert facts["framework"] == bases[framework].contains["framework"]
    assert facts["flags"] == [1], "expected bytecode with unchecked hashes"
    assert facts["writable"] == []
    assert facts["user"] == 65534
    expected = build.label_of(workload, framework, bases[framework], rules_version="practice")
    assert facts["label"] == expected
    assert {f"suite.{name}": value for name, value in expected.items()}.items() <= image.labels.items()
    assert image.labels["org.opencontainers.image.base.digest"] == expected["base_digest"]
    assert image.labels["org.opencontainers.image.base.name"] == bases[framework].tagged
    assert len(image.diff_ids) == len(bases[framework].platform(stand_in.PLATFORM).diff_ids or ()) + 2


def test_image_starts_the_worker_as_unprivileged_user(pair_image: PairImage) -> None:
    settings = json.loads(
        docker_output("image", "inspect", "--format", "{{json .Config}}", pair_image(*PAIR).id)
    )
    assert settings["User"] == "1000:1000"
    assert not settings.get("Entrypoint")
    assert settings["Cmd"] == ["python3", "-s", "-m", "suite.worker"]
    assert "PYTHONPATH=/opt/suite/code:/opt/suite/site" in settings["Env"]


def assert_differ_only_in_times(first: EngineImage, second: EngineImage) -> None:
    assert first.diff_ids == second.diff_ids
    one, two = leaves(described(first.id)), leaves(described(second.id))
    differ = sorted(path for path in one.keys() | two.keys() if one.get(path) != two.get(path))
    assert {path.rpartition(".")[2] for path in differ} <= TIMES, differ


def test_image_is_reused_until_its_inputs_change(
    docker: DockerEngine, bases: dict[str, Base], pair_image: PairImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = pair_image(*PAIR)
    reported: list[str] = []
    again = build.build(*PAIR, bases["mxnet"], rules_version="practice", report=reported.append)
    assert (again, reported) == (docker.image(build.tag_of(*PAIR)).id, [])  # type: ignore[union-attr]
    label = build.label_of(*PAIR, bases["mxnet"], rules_version="practice")
    local = build.local_base(docker, bases["mxnet"])
    assert local is not None
    assert build.find(docker, *PAIR, label, local) is not None
    assert build.find(docker, *PAIR, {**label, "requirements_digest": "0" * 64}, local) is None
    other = replace(local, diff_ids=("sha256:" + "0" * 64,))
    assert build.find(docker, *PAIR, label, other) is None, "the labels are equal, the base image differs"
    monkeypatch.setattr(build, "recipe_digest", lambda dockerfile: "0" * 64)
    assert build.find(docker, *PAIR, label, local) is None
    assert image.diff_ids[:1] == local.diff_ids


def test_rules_find_the_published_layers(
    docker: DockerEngine, bases: dict[str, Base], pair_image: PairImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    image, base = pair_image(*PAIR), bases["mxnet"]
    practice = rules.load("practice")
    added = image.diff_ids[1:]
    assert practice.published(*PAIR, code_digest(), stand_in.PLATFORM, base.name) == added
    with pytest.raises(ImageProblem, match="begins with the 1 layers of mxnet-stand-in"):
        publish("practice", *PAIR, base, replace(image, diff_ids=added))
    with pytest.raises(ImageProblem, match=r"label suite.workload: expected gnmt, found ncf"):
        publish("practice", "gnmt", "mxnet", base, image)
    platform = replace(base.platform(stand_in.PLATFORM), diff_ids=None)
    with pytest.raises(ImageProblem, match="image lock mxnet-stand-in"):
        publish("practice", *PAIR, replace(base, platforms={stand_in.PLATFORM: platform}), image)


@pytest.fixture
def archived(docker: DockerEngine, bases: dict[str, Base], tmp_path: Path) -> Iterator[Base]:
    """A base image loaded from an archive: without a repository, locked by its config digest and layers."""
    source = bases["mxnet"].reference
    made = docker_output("create", source)
    try:
        image = docker_output("commit", "--change", "ENV FROM_ARCHIVE=1", made)
    finally:
        docker_output("rm", made)
    archive = tmp_path / "base.tar"
    docker_output("save", "--output", str(archive), image)
    docker_output("image", "rm", image)
    assert docker.image(image) is None
    docker_output("load", "--input", str(archive))
    found = docker.image(image)
    assert found is not None
    assert found.repo_digests == ()
    locked = replace(
        bases["mxnet"].platform(stand_in.PLATFORM),
        manifest_digest="sha256:" + "0" * 64,  # an archive has no manifest digest
        config_digest=image,
        diff_ids=found.diff_ids,
    )
    yield replace(bases["mxnet"], name="mxnet-archived", platforms={stand_in.PLATFORM: locked})
    for name in docker_output("image", "ls", "--quiet", "--no-trunc", "suite/base-mxnet-archived").split():
        docker_output("image", "rm", "--force", name)


def test_pair_is_built_on_base_image_from_archive(
    docker: DockerEngine, build_pair: BuildPair, archived: Base
) -> None:
    base = build.local_base(docker, archived)
    assert base is not None
    built = build_pair(archived)
    assert built.diff_ids[: len(base.diff_ids)] == base.diff_ids
    assert built.labels["suite.base_digest"] == "sha256:" + "0" * 64
    settings = json.loads(docker_output("image", "inspect", "--format", "{{json .Config.Env}}", built.id))
    assert "FROM_ARCHIVE=1" in settings, "the build did not start from the image of the archive"


def test_local_base_with_other_digest_or_layers_is_not_used(
    docker: DockerEngine, bases: dict[str, Base]
) -> None:
    base, platform = bases["mxnet"], bases["mxnet"].platform(stand_in.PLATFORM)
    unknown = "sha256:" + "0" * 64
    other = replace(platform, manifest_digest=unknown, config_digest=unknown)
    assert docker.image(base.tagged) is not None, "the tag exists, on another image"
    assert build.local_base(docker, replace(base, platforms={stand_in.PLATFORM: other})) is None
    other_layers = replace(platform, diff_ids=(unknown,))
    with pytest.raises(
        ImageProblem, match=r"expected the 1 layers of the lock, found 1 other layers in .*; remove it"
    ):
        build.local_base(docker, replace(base, platforms={stand_in.PLATFORM: other_layers}))


def test_failed_build_reports_output_of_the_builder(
    build_pair: BuildPair, bases: dict[str, Base], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "wheels"
    empty.mkdir()
    monkeypatch.setattr(build, "fetch_wheels", lambda *_, **__: empty)
    with pytest.raises(ImageProblem, match=r"(?s)No matching distribution.*") as problem:
        build_pair(bases["mxnet"], cache=tmp_path)
    (log,) = tmp_path.glob("images/*.log")
    assert str(log) in str(problem.value)
    assert "No matching distribution" in log.read_text()
    assert not list(tmp_path.glob("images/context-*")), "the staged build context was not removed"


def test_second_build_differs_only_in_its_times_and_contains_no_secret_of_the_host(
    build_pair: BuildPair,
    bases: dict[str, Base],
    pair_image: PairImage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only pip on the host uses proxies with passwords and a company's certificates; the build gets none.

    The control image shows that the docker client does pass its proxies to a build, and that the search of
    this test finds them.
    """
    first = pair_image(*PAIR)  # fetches the wheels
    marker, certificate = f"marker-{os.urandom(8).hex()}", f"authority-{os.urandom(8).hex()}"
    proxy = f"http://user:{marker}@127.0.0.1:9"
    settings = tmp_path / "docker"
    settings.mkdir()
    for name in (".docker/contexts", ".docker/cli-plugins"):
        if (Path.home() / name).is_dir():
            (settings / Path(name).name).symlink_to(Path.home() / name)
    proxies = {"httpProxy": proxy, "httpsProxy": proxy, "ftpProxy": proxy, "noProxy": marker}
    (settings / "config.json").write_text(json.dumps({"proxies": {"default": proxies}}))
    bundle = tmp_path / "authority.pem"
    bundle.write_text(f"-----BEGIN CERTIFICATE-----\n{certificate}\n-----END CERTIFICATE-----\n")
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, proxy)
    for name in ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.setenv(name, str(bundle))
    monkeypatch.setenv("DOCKER_CONFIG", str(settings))

    before = os.umask(0o077)  # the mode of files must not depend on the user's umask
    try:
        built = build_pair(bases["mxnet"])
    finally:
        os.umask(before)
    assert_differ_only_in_times(first, built)
    control = build_with_leaked_proxy(bases["mxnet"], tmp_path)
    secrets, present = (
        [marker.encode(), certificate.encode(), str(bundle).encode()],
        b"suite.frameworks.common",
    )
    try:
        assert contained(control, secrets) == {marker.encode()}, (
            "the search did not find the proxy in the control image"
        )
        assert contained(built.id, [*secrets, present]) == {present}, (
            "expected the suite's code and no secret in the layers"
        )
        history = docker_output("history", "--no-trunc", "--format", "{{.CreatedBy}}", built.id)
        assert marker not in history
        assert certificate not in history
    finally:
        docker_output("image", "rm", "--force", control)


def test_build_has_neither_network_nor_proxy(
    docker: DockerEngine, bases: dict[str, Base], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "docker"
    settings.mkdir()
    proxies = {"httpProxy": "http://proxy:9", "httpsProxy": "http://proxy:9", "noProxy": "somewhere"}
    (settings / "config.json").write_text(json.dumps({"proxies": {"default": proxies}}))
    monkeypatch.setenv("DOCKER_CONFIG", str(settings))
    probe = "import os, socket; print([n for _, n in socket.if_nameindex()], [os.environ.get(n, '') for n in "
    probe += "('HTTP_PROXY', 'https_proxy', 'NO_PROXY')])"
    context = tmp_path / "context"
    context.mkdir()
    (context / "probe.py").write_text(probe)
    file = context / "Dockerfile"
    file.write_text(f"FROM {bases['mxnet'].reference}\nCOPY probe.py /\nRUN python3 /probe.py >/facts\n")
    name = f"suite/test-probe:{os.getpid()}"
    client.build(file, context, name, stand_in.PLATFORM, {}, tmp_path / "log", no_cache=True)
    try:
        assert docker_output("run", "--rm", "--network=none", name, "cat", "/facts") == "['lo'] ['', '', '']"
    finally:
        docker_output("image", "rm", "--force", name)


def build_with_leaked_proxy(base: Base, folder: Path) -> str:
    """The name of an image whose build stored the proxy that it got."""
    context = folder / "leaky"
    context.mkdir()
    text = f"FROM {base.reference}\nARG HTTP_PROXY\nRUN echo ${{HTTP_PROXY}} >/leak\n"
    (context / "Dockerfile").write_text(text)
    name = "suite/test-leaky:latest"
    environment = {**os.environ, "DOCKER_BUILDKIT": "1"}
    command = [
        client.builder(),
        "build",
        "--network",
        "none",
        "--no-cache",
        "--quiet",
        "--tag",
        name,
        str(context),
    ]
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=120)
    return name


def contained(image: str, wanted: list[bytes]) -> set[bytes]:
    """The members of ``wanted`` that the image contains: in its configuration, or in a file of a layer."""
    found: set[bytes] = set()
    for _, content in saved(image):
        found |= {one for one in wanted if one in content}
        for inner in members(content):
            found |= {one for one in wanted if one in inner}
    return found


def members(content: bytes) -> Iterator[bytes]:
    """The contents of the files of a layer; empty if ``content`` is not a tar file."""
    with contextlib.suppress(tarfile.ReadError), tarfile.open(fileobj=io.BytesIO(content)) as layer:
        for member in layer:
            file = layer.extractfile(member) if member.isfile() else None
            if file is not None:
                yield file.read()
