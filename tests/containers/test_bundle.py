"""``fetch`` makes a bundle; another checkout with another engine runs from it without a network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import certifi
import pytest

from suite.containers.engines.docker_engine import DockerEngine
from suite.containers.images.bundle import open_bundle
from suite.containers.images.errors import ImageProblem
from tests.containers import daemon
from tests.containers.engine import in_ci
from tests.containers.pairs import ROOT, events, published, result

pytestmark = [pytest.mark.docker, pytest.mark.slow]

SECRET = "marker-of-a-password-7f3a9c"
PAIR = ("ncf", "mxnet")  # the smallest image


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of one pair, fetched with a proxy's password and certificates in the environment."""
    published(*PAIR)
    folder = tmp_path_factory.mktemp("fetch")
    certificates = folder / "company.pem"
    installed = Path(os.environ.get("PIP_CERT") or certifi.where()).read_text()
    certificates.write_text(f"# {SECRET}\n{installed}")
    proxy = f"http://user:{SECRET}@127.0.0.1:9"
    secrets = {f"{name}_proxy": proxy for name in ("http", "https", "all", "HTTP", "HTTPS")}
    secrets |= {"no_proxy": "*", "NO_PROXY": "*", "PIP_CERT": str(certificates)}
    done = fetch(folder / "bundle", {**os.environ, **secrets})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ml-1m: https://files.grouplens.org/" in done.stdout
    return folder / "bundle"


def fetch(target: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "suite", "fetch", "--workload", PAIR[0], "--framework", PAIR[1]]
    command += ["--rules", "practice", "--accelerator", "cpu", "--dest", str(target)]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False
    )


def test_bundle_has_image_wheels_data_and_rules_of_the_pair(bundle: Path) -> None:
    found = open_bundle(bundle)
    image = published(*PAIR)
    assert found.image is not None
    assert (found.image.config_digest, found.image.diff_ids) == (image.config_digest, image.diff_ids)
    manifest = json.loads((bundle / "manifest.json").read_text())
    folders = {name.rpartition("/")[0] for name in manifest["files"]}
    assert folders > {
        "image",
        "wheels/suite",
        "wheels/mxnet-cpu",
        "data/ml-1m-mini",
        "rules/practice/images",
    }
    assert manifest["elsewhere"][0]["name"] == "ml-1m"
    assert list(bundle.parent.glob("*.partial")) == []


def test_bundle_contains_no_secret_of_the_host(bundle: Path) -> None:
    """The layers in the image's archive are not compressed, so that a search for bytes includes them."""
    assert contains(bundle / "image/ncf-mxnet.tar", b"from suite.worker")
    for path in (path for path in bundle.rglob("*") if path.is_file()):
        assert not contains(path, SECRET.encode()), path


def contains(path: Path, wanted: bytes) -> bool:
    before = b""
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            if wanted in before + chunk:
                return True
            before = chunk[-len(wanted) :]
    return False


def test_skopeo_reads_the_image_archive(bundle: Path) -> None:
    if shutil.which("skopeo") is None:
        pytest.skip("skopeo is not installed")
    archive = bundle / "image/ncf-mxnet.tar"
    image = published(*PAIR)
    for transport in ("oci-archive", "docker-archive"):
        done = subprocess.run(
            ["skopeo", "inspect", f"{transport}:{archive}"],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        assert tuple(json.loads(done.stdout)["Layers"]) == image.diff_ids


def test_existing_bundle_is_not_overwritten(bundle: Path) -> None:
    before = (bundle / "manifest.json").stat()
    done = fetch(bundle, dict(os.environ))
    assert done.returncode == 2
    assert "exists already and is not overwritten" in done.stderr
    assert (bundle / "manifest.json").stat() == before


def test_bundle_whose_manifest_names_another_image_is_refused(bundle: Path, tmp_path: Path) -> None:
    """The loaded image differs from the manifest, which the engine reports after loading it."""
    copy = tmp_path / "copy"
    shutil.copytree(bundle, copy, copy_function=os.link)
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["image"]["config_digest"] = "sha256:" + "0" * 64
    (copy / "manifest.json").unlink()
    (copy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ImageProblem, match="has no image with the configuration sha256:0000"):
        open_bundle(copy).load_image(DockerEngine(), print)


# Another machine: no network, an engine without images, a checkout without environments


@dataclass(frozen=True)
class Island:
    """A machine without network that uses the bundle."""

    checkout: Path
    environment: dict[str, str]

    def call(self, *command: str) -> subprocess.CompletedProcess[str]:
        """The finished command, in the checkout; its only network is loopback, which is down."""
        return subprocess.run(
            ["unshare", "--net", *command],
            cwd=self.checkout,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )


@pytest.fixture
def island(tmp_path: Path) -> Iterator[Island]:
    if os.geteuid() != 0 or shutil.which("dockerd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
        assert not in_ci(), "CI runs this as root, with dockerd"
        pytest.skip("a second engine without network needs root and dockerd")
    checkout = tmp_path / "checkout"
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, tracked.stdout.split("\0")):
        if (ROOT / name).is_file():
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, checkout / name)
    folder = Path(
        tempfile.mkdtemp(prefix="suite-", dir="/var/tmp")
    )  # a socket's path has at most 107 characters
    socket = f"unix://{folder}/s"
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "DOCKER_HOST": socket}
    environment["PIP_CONFIG_FILE"] = os.devnull  # no package index of this machine
    if "PIP_COMPILE" in os.environ:  # .ci/run sets it
        environment["PIP_COMPILE"] = os.environ["PIP_COMPILE"]
    try:
        command = dockerd(folder, socket)
        problem = daemon.start("dockerd", command, folder, lambda: answers(environment), 60.0)
        assert problem is None, problem
        yield Island(checkout, environment)
    finally:
        daemon.stop("dockerd", folder)
        shutil.rmtree(folder, ignore_errors=True)


def dockerd(folder: Path, socket: str) -> list[str]:
    program = shutil.which("dockerd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    command = ["unshare", "--net", str(program), f"--data-root={folder}/data", f"--exec-root={folder}/exec"]
    command += [f"--pidfile={folder}/inner.pid", f"--host={socket}", "--bridge=none", "--iptables=false"]
    command += ["--ip-forward=false", "--ip-masq=false"]
    # If one containerd serves the whole machine, these namespaces separate the two engines.
    name = f"suite-test-{os.getpid()}"
    return [*command, f"--containerd-namespace={name}", f"--containerd-plugins-namespace={name}-plugins"]


def answers(environment: dict[str, str]) -> bool:
    done = subprocess.run(["docker", "info"], env=environment, capture_output=True, timeout=20, check=False)
    return done.returncode == 0


def test_run_from_bundle_without_network_is_accepted(bundle: Path, island: Island, tmp_path: Path) -> None:
    image = published(*PAIR)
    wheels = str(bundle / "wheels/suite")
    made = island.call("tools/venv.sh", "", "requirements/suite.txt", ".venv/suite.stamp", wheels)
    assert made.returncode == 0, made.stderr
    arguments = ["suite", "run", "workload=ncf", "framework=mxnet", f"bundle={bundle}"]
    arguments += [f"results_dir={tmp_path}/results"]
    start = (str(island.checkout / ".venv/bin/python"), "-m", *arguments, "runtime=docker")

    refused = island.call(*start)  # this checkout lacks the image lock of practice
    assert refused.returncode == 13, refused.stderr
    fix = f"cp -r {bundle}/rules/practice/images {island.checkout}/rules/practice"
    assert fix in refused.stderr
    assert island.call(*fix.split()).returncode == 0

    done = island.call(*start)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "loading suite/ncf-mxnet:" in done.stderr
    assert "accepted" in done.stdout
    (header,) = events(result(tmp_path / "results"), "header")
    assert header["image"]["config_digest"] == image.config_digest
    attested = [e["facts"] for e in events(result(tmp_path / "results"), "env") if e["side"] == "outside"]
    assert [one["container"]["image"]["repo_digests"] for one in attested] == [[]] * 5
    assert [tuple(one["container"]["image"]["diff_ids"]) for one in attested] == [image.diff_ids] * 5
