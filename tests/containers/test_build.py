"""Container images of pairs, built on the stand-in: their contents, and that builds are reproducible."""

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

PAIR = ("ncf", "mxnet")  # the smallest
FRAMEWORKS = {"pytorch": "torch", "tensorflow": "tensorflow", "mxnet": "mxnet"}
TIMES = {"created"}
Fresh = Callable[..., EngineImage]
# The worker must import from what was built, quickly: nothing is compiled under a read-only root.
LOOK = """
import importlib.util, json, os, sys
import suite.worker.main
framework = __import__(sys.argv[1])
code = [os.path.join(top, name) for top, _, names in os.walk("/opt/suite/code") for name in names]
flags = []
for path in code:
    if path.endswith(".py"):
        with open(importlib.util.cache_from_source(path), "rb") as file:
            flags.append(file.read(8)[4])
places = ("/", "/etc", "/opt/suite/code", "/data", "/scratch")
writable = [path for path in places if os.access(path, os.W_OK)]
with open("/etc/suite-image.json") as file:
    label = json.load(file)
print(json.dumps({
    "worker": suite.worker.main.__file__, "framework": framework.__version__, "from": framework.__file__,
    "flags": sorted(set(flags)), "writable": writable, "label": label, "user": os.getuid(),
}))
"""


def run(*command: str) -> str:
    done = subprocess.run(["docker", *command], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


@pytest.fixture
def fresh(docker: DockerEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fresh]:
    """The pair, built again whatever there is, under a name of its own: others run the one that was found."""
    names: list[str] = []

    def build_fresh(base: Base, cache: Path = build.CACHE) -> EngineImage:
        names.append(f"suite/test-fresh:{os.getpid()}-{len(names)}")
        monkeypatch.setattr(build, "tag_of", lambda workload, framework: names[-1])
        made = build.build(*PAIR, base, rules_version="practice", cache=cache, fresh=True, report=print)
        found = docker.image(made)
        assert found is not None
        return found

    yield build_fresh
    for name in names:
        subprocess.run(["docker", "image", "rm", "--force", name], capture_output=True, check=False)


def saved(image: str) -> Iterator[tuple[str, bytes]]:
    """Every file of an image's archive, the layers' tar files whole."""
    with tempfile.TemporaryFile() as file:
        subprocess.run(["docker", "save", image], stdout=file, check=True)
        file.seek(0)
        with tarfile.open(fileobj=file) as archive:
            for member in archive:
                content = archive.extractfile(member)
                if content is not None:
                    yield member.name, content.read()


def config(image: str) -> dict[str, Any]:
    """The configuration of the image."""
    files = {name: content for name, content in saved(image) if not name.endswith("layer.tar")}
    name = json.loads(files["manifest.json"])[0]["Config"]
    found: dict[str, Any] = json.loads(files[name])
    return found


def leaves(value: Any, place: str = "") -> dict[str, Any]:
    """Every leaf by its dotted path."""
    if isinstance(value, dict):
        return {k: v for name, item in value.items() for k, v in leaves(item, f"{place}.{name}").items()}
    if isinstance(value, list):
        return {k: v for i, item in enumerate(value) for k, v in leaves(item, f"{place}.{i}").items()}
    return {place.removeprefix("."): value}


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("workload", ["gnmt", "ncf"])
def test_pair_runs_confined(
    docker: DockerEngine, bases: dict[str, Base], pair_image: PairImage, workload: str, framework: str
) -> None:
    image = pair_image(workload, framework)
    confined = ["--network=none", "--read-only", "--tmpfs=/tmp", "--user=65534:65534", "--cap-drop=ALL"]
    script = ["python3", "-s", "-c", LOOK, FRAMEWORKS[framework]]
    said = json.loads(run("run", "--rm", *confined, image.id, *script).splitlines()[-1])
    assert said["worker"] == "/opt/suite/code/suite/worker/main.py"
    assert said["from"].startswith("/opt/suite/site/")
    assert said["framework"] == bases[framework].contains["framework"]
    assert said["flags"] == [1], "bytecode by hash, unchecked"
    assert said["writable"] == []
    assert said["user"] == 65534
    expected = build.label_of(workload, framework, bases[framework], rules_version="practice")
    assert said["label"] == expected
    assert {f"suite.{name}": value for name, value in expected.items()}.items() <= image.labels.items()
    assert image.labels["org.opencontainers.image.base.digest"] == expected["base_digest"]
    assert image.labels["org.opencontainers.image.base.name"] == bases[framework].tagged
    assert len(image.diff_ids) == len(bases[framework].platform(stand_in.PLATFORM).diff_ids or ()) + 2


def test_image_starts_the_worker_as_unprivileged_user(pair_image: PairImage) -> None:
    settings = json.loads(run("image", "inspect", "--format", "{{json .Config}}", pair_image(*PAIR).id))
    assert settings["User"] == "1000:1000"
    assert not settings.get("Entrypoint")
    assert settings["Cmd"] == ["python3", "-s", "-m", "suite.worker"]
    assert "PYTHONPATH=/opt/suite/code:/opt/suite/site" in settings["Env"]


def test_two_builds_differ_only_in_their_times(fresh: Fresh, bases: dict[str, Base]) -> None:
    first = fresh(bases["mxnet"])
    before = os.umask(0o077)  # somebody else's habits
    try:
        second = fresh(bases["mxnet"])
    finally:
        os.umask(before)
    assert first.diff_ids == second.diff_ids
    one, two = leaves(config(first.id)), leaves(config(second.id))
    differ = sorted(place for place in one.keys() | two.keys() if one.get(place) != two.get(place))
    print(f"two builds differ in: {', '.join(differ) or 'nothing'}")
    assert {place.rpartition(".")[2] for place in differ} <= TIMES


def test_image_is_reused_until_its_inputs_change(
    docker: DockerEngine, bases: dict[str, Base], pair_image: PairImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = pair_image(*PAIR)
    said: list[str] = []
    again = build.build(*PAIR, bases["mxnet"], rules_version="practice", report=said.append)
    assert (again, said) == (docker.image(build.tag_of(*PAIR)).id, [])  # type: ignore[union-attr]
    label = build.label_of(*PAIR, bases["mxnet"], rules_version="practice")
    under = build.local_base(docker, bases["mxnet"])
    assert under is not None
    assert build.find(docker, *PAIR, label, under) is not None
    assert build.find(docker, *PAIR, {**label, "requirements_digest": "0" * 64}, under) is None
    other = replace(under, diff_ids=("sha256:" + "0" * 64,))
    assert build.find(docker, *PAIR, label, other) is None, "the same labels on another base"
    monkeypatch.setattr(build, "recipe_digest", lambda dockerfile: "0" * 64)
    assert build.find(docker, *PAIR, label, under) is None
    assert image.diff_ids[:1] == under.diff_ids


def test_rules_find_the_published_layers(
    docker: DockerEngine, bases: dict[str, Base], pair_image: PairImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    image, base = pair_image(*PAIR), bases["mxnet"]
    judge = rules.load("practice")
    added = image.diff_ids[1:]
    assert judge.published(*PAIR, code_digest(), stand_in.PLATFORM, base.name) == added
    with pytest.raises(ImageProblem, match="begins with the 1 layers of mxnet-stand-in"):
        publish("practice", *PAIR, base, replace(image, diff_ids=added))
    with pytest.raises(ImageProblem, match=r"label suite.workload: expected gnmt, found ncf"):
        publish("practice", "gnmt", "mxnet", base, image)
    platform = replace(base.platform(stand_in.PLATFORM), diff_ids=None)
    with pytest.raises(ImageProblem, match="image lock mxnet-stand-in"):
        publish("practice", *PAIR, replace(base, platforms={stand_in.PLATFORM: platform}), image)


@pytest.fixture
def archived(docker: DockerEngine, bases: dict[str, Base], tmp_path: Path) -> Iterator[Base]:
    """A base that came from an archive: no repository knows it, its config digest and layers are locked."""
    source = bases["mxnet"].reference
    made = run("create", source)
    try:
        image = run("commit", "--change", "ENV FROM_ARCHIVE=1", made)
    finally:
        run("rm", made)
    archive = tmp_path / "base.tar"
    run("save", "--output", str(archive), image)
    run("image", "rm", image)
    assert docker.image(image) is None
    run("load", "--input", str(archive))
    found = docker.image(image)
    assert found is not None
    assert found.repo_digests == ()
    locked = replace(
        bases["mxnet"].platform(stand_in.PLATFORM),
        manifest_digest="sha256:" + "0" * 64,  # what the engine cannot know of an archive
        config_digest=image,
        diff_ids=found.diff_ids,
    )
    yield replace(bases["mxnet"], name="mxnet-archived", platforms={stand_in.PLATFORM: locked})
    for name in run("image", "ls", "--quiet", "--no-trunc", "suite/base-mxnet-archived").split():
        run("image", "rm", "--force", name)


def test_pair_is_built_on_a_base_from_an_archive(docker: DockerEngine, fresh: Fresh, archived: Base) -> None:
    base = build.local_base(docker, archived)
    assert base is not None
    built = fresh(archived)
    assert built.diff_ids[: len(base.diff_ids)] == base.diff_ids
    assert built.labels["suite.base_digest"] == "sha256:" + "0" * 64
    settings = json.loads(run("image", "inspect", "--format", "{{json .Config.Env}}", built.id))
    assert "FROM_ARCHIVE=1" in settings, "FROM named the image of the archive and no other"


def test_other_image_under_the_name_is_refused(docker: DockerEngine, bases: dict[str, Base]) -> None:
    base, platform = bases["mxnet"], bases["mxnet"].platform(stand_in.PLATFORM)
    elsewhere = "sha256:" + "0" * 64
    other = replace(platform, manifest_digest=elsewhere, config_digest=elsewhere)
    assert docker.image(base.tagged) is not None, "the tag is here, on another image"
    assert build.local_base(docker, replace(base, platforms={stand_in.PLATFORM: other})) is None
    lying = replace(platform, diff_ids=(elsewhere,))
    with pytest.raises(ImageProblem, match=r"1 layers that are not the 1 of the lock; remove it"):
        build.local_base(docker, replace(base, platforms={stand_in.PLATFORM: lying}))


def test_failed_build_quotes_the_builder(
    fresh: Fresh, bases: dict[str, Base], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "wheels"
    empty.mkdir()
    monkeypatch.setattr(build, "fetch_wheels", lambda *_, **__: empty)
    with pytest.raises(ImageProblem, match=r"(?s)No matching distribution.*") as problem:
        fresh(bases["mxnet"], cache=tmp_path)
    (log,) = tmp_path.glob("images/*.log")
    assert str(log) in str(problem.value)
    assert "No matching distribution" in log.read_text()
    assert not list(tmp_path.glob("images/context-*")), "the staged context is gone"


def test_no_secret_of_the_host_reaches_the_image(
    fresh: Fresh,
    bases: dict[str, Base],
    pair_image: PairImage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Proxies with passwords and a company's certificates serve the host's pip alone.

    That is why the build takes no secret: it is given nothing to keep. The control shows that the docker
    client does hand its proxies to a build, and that the search finds them.
    """
    pair_image(*PAIR)  # so that the wheels are here
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

    built = fresh(bases["mxnet"])
    control = leaky(bases["mxnet"], tmp_path)
    secrets, present = (
        [marker.encode(), certificate.encode(), str(bundle).encode()],
        b"suite.frameworks.common",
    )
    try:
        assert holds(control, secrets) == {marker.encode()}, "the search must be able to find"
        assert holds(built.id, [*secrets, present]) == {present}, "the layers are read, and hold none"
        history = run("history", "--no-trunc", "--format", "{{.CreatedBy}}", built.id)
        assert marker not in history
        assert certificate not in history
    finally:
        run("image", "rm", "--force", control)


def test_a_build_has_neither_network_nor_proxy(
    docker: DockerEngine, bases: dict[str, Base], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "docker"
    settings.mkdir()
    proxies = {"httpProxy": "http://proxy:9", "httpsProxy": "http://proxy:9", "noProxy": "somewhere"}
    (settings / "config.json").write_text(json.dumps({"proxies": {"default": proxies}}))
    monkeypatch.setenv("DOCKER_CONFIG", str(settings))
    look = "import os, socket; print([n for _, n in socket.if_nameindex()], [os.environ.get(n, '') for n in "
    look += "('HTTP_PROXY', 'https_proxy', 'NO_PROXY')])"
    context = tmp_path / "context"
    context.mkdir()
    (context / "look.py").write_text(look)
    file = context / "Dockerfile"
    file.write_text(f"FROM {bases['mxnet'].reference}\nCOPY look.py /\nRUN python3 /look.py >/seen\n")
    name = f"suite/test-look:{os.getpid()}"
    client.build(file, context, name, stand_in.PLATFORM, {}, tmp_path / "log", no_cache=True)
    try:
        assert run("run", "--rm", "--network=none", name, "cat", "/seen") == "['lo'] ['', '', '']"
    finally:
        run("image", "rm", "--force", name)


def leaky(base: Base, folder: Path) -> str:
    """An image whose build kept the proxy it was handed."""
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


def holds(image: str, wanted: list[bytes]) -> set[bytes]:
    """Which of ``wanted`` are in the image: in its description, or in a layer, packed or not."""
    found: set[bytes] = set()
    for _, content in saved(image):
        found |= {one for one in wanted if one in content}
        for inner in members(content):
            found |= {one for one in wanted if one in inner}
    return found


def members(content: bytes) -> Iterator[bytes]:
    """The files of a layer; nothing where ``content`` is none."""
    with contextlib.suppress(tarfile.ReadError), tarfile.open(fileobj=io.BytesIO(content)) as layer:
        for member in layer:
            file = layer.extractfile(member) if member.isfile() else None
            if file is not None:
                yield file.read()
