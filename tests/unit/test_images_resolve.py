"""Filling and checking the lock: against a server that misbehaves, and a real image registry with skopeo."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from suite.cli import image as command
from suite.containers.images import lock
from suite.containers.images.image_registry import ImageRegistryProblem
from suite.containers.images.lock import Base, PlatformImage
from suite.containers.images.resolve import LockMismatch, check, resolve
from suite.contract.network import unused_ports
from tests.unit.fake_registry import OCI_INDEX, Registry, digest_of, make_image, make_index, serving

TAG = "26.08-py3"
AMD, ARM = make_image("linux/amd64"), make_image("linux/arm64", layers=3)
INDEX = digest_of(make_index(AMD, ARM))
OTHER = "sha256:" + "0" * 64


def _amd64(image: PlatformImage) -> dict[str, object]:
    return {"platforms": {"linux/amd64": image}}


def at() -> datetime:
    return datetime(2026, 11, 3, 4, 5, 6, tzinfo=UTC)


@pytest.fixture
def fake() -> Iterator[Registry]:
    with serving(Registry()) as held:
        held.put(TAG, AMD, ARM)
        yield held


def test_unresolved_entry_gets_all_digests(fake: Registry) -> None:
    found = resolve(fake.base(), now=at)
    assert found.index_digest == INDEX
    assert found.platforms == {"linux/amd64": AMD.locked, "linux/arm64": ARM.locked}
    assert (found.status, found.resolved_at) == ("resolved", "2026-11-03T04:05:06Z")
    assert found.why_not_closed is None
    assert found.reference == f"{fake.host}/nvidia/pytorch:{TAG}@{INDEX}"
    assert lock.faults(json.loads(json.dumps(found.entry()))) == []
    assert check(found) == []


def test_entry_equal_to_the_image_registry_is_unchanged(fake: Registry) -> None:
    found = resolve(fake.base(), now=at)
    assert resolve(found) is found, "not even the time of reading changes"


def test_image_without_index_is_resolved(fake: Registry) -> None:
    fake.put(TAG, AMD, index=False)
    found = resolve(fake.base(), now=at)
    assert (found.index_digest, found.platforms) == (None, {"linux/amd64": AMD.locked})
    assert found.digest == AMD.locked.manifest_digest


def test_attestations_and_other_platforms_are_skipped(fake: Registry) -> None:
    odd = [make_image("linux/riscv64"), make_image("unknown/unknown"), make_image("unknown/unknown")]
    fake.put(TAG, AMD, *odd)
    assert list(resolve(fake.base()).platforms) == ["linux/amd64"]


def test_archived_entry_stays_archived(fake: Registry) -> None:
    found = resolve(fake.base(status="archived", current=False))
    assert (found.status, found.index_digest) == ("archived", INDEX)
    assert found.why_not_closed is not None


@pytest.mark.parametrize(
    "digest", [INDEX, AMD.locked.manifest_digest, ARM.locked.manifest_digest], ids=["index", "amd64", "arm64"]
)
def test_digest_of_unknown_kind_is_replaced_by_the_index_digest(fake: Registry, digest: str) -> None:
    found = resolve(fake.base(status="unverified", digest_of_unknown_kind=digest))
    assert (found.status, found.digest_of_unknown_kind, found.index_digest) == ("resolved", None, INDEX)


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("index_digest", {"index_digest": OTHER}),
        ("digest_of_unknown_kind", {"digest_of_unknown_kind": OTHER}),
        ("linux/amd64 manifest_digest", _amd64(PlatformImage(manifest_digest=OTHER))),
        ("linux/amd64 config_digest", _amd64(PlatformImage(config_digest=OTHER))),
        ("linux/amd64 diff_ids", _amd64(PlatformImage(diff_ids=(OTHER,)))),
        ("linux/amd64 compressed_bytes", _amd64(PlatformImage(compressed_bytes=1))),
    ],
)
def test_different_pinned_value_is_refused_with_both_values(
    fake: Registry, field: str, changes: dict[str, object]
) -> None:
    base = fake.base(status="unverified", **changes)
    with pytest.raises(LockMismatch) as caught:
        resolve(base)
    (difference,) = caught.value.differences
    assert difference.startswith(f"{field}: the lock has "), "the message has both values"
    assert ", the image registry " in difference
    assert difference in check(base)
    assert resolve(base, repin=True).index_digest == INDEX


def test_value_that_the_lock_lacks_is_a_difference(fake: Registry) -> None:
    found = check(fake.base(index_digest=INDEX, status="unverified"))
    assert (
        f"linux/arm64 manifest_digest: the lock has nothing, the image registry {ARM.locked.manifest_digest}"
        in found
    )


def _index(fake: Registry, **changes: object) -> None:
    index = json.loads(make_index(AMD))
    index["manifests"][0] |= changes
    fake.manifests[TAG] = json.dumps(index).encode()


def _edit(fake: Registry, part: str, **changes: object) -> None:
    """Serve an image whose manifest or configuration is changed, all digests fitting."""
    config, manifest = json.loads(AMD.config), json.loads(AMD.manifest)
    (config if part == "config" else manifest).update(changes)
    raw = json.dumps(config).encode()
    if part == "config":
        manifest["config"]["digest"] = digest_of(raw)
        fake.blobs[digest_of(raw)] = raw
    fake.put(TAG, replace(AMD, manifest=json.dumps(manifest).encode()))


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda fake: _index(fake, digest="sha256:../../x"), "expected sha256:<64 hex>"),
        (lambda fake: _index(fake, digest=None), "expected sha256:<64 hex>"),
        (lambda fake: _index(fake, platform={"os": "windows", "architecture": "amd64"}), "found none"),
        (lambda fake: _index(fake, platform="linux/amd64"), "found none"),
        (
            lambda fake: _index(fake, platform={"os": "linux", "architecture": "arm64"}),
            "expected linux/arm64",
        ),
        (lambda fake: _index(fake, digest=_nested(fake)), "an index inside an index"),
        (lambda fake: fake.put(TAG, AMD, make_image(layers=4)), "one manifest for linux/amd64, found two"),
        (lambda fake: fake.manifests.update({TAG: _with(OCI_INDEX, manifests=3)}), "found none"),
        (lambda fake: _edit(fake, "config", rootfs={"diff_ids": []}), "2 diff_ids, one for each layer"),
        (lambda fake: _edit(fake, "config", rootfs=None), "2 diff_ids, one for each layer"),
        (lambda fake: _edit(fake, "config", rootfs={"diff_ids": ["x", "y"]}), "expected sha256:<64 hex>"),
        (lambda fake: _edit(fake, "config", os="\x1b[31m"), "expected linux/amd64"),
        (lambda fake: _edit(fake, "manifest", layers=[{"size": -1}]), "the size of every layer"),
        (lambda fake: _edit(fake, "manifest", layers=[]), "a configuration and layers"),
        (lambda fake: _edit(fake, "manifest", config=[]), "a configuration and layers"),
        (lambda fake: fake.put(TAG, make_image("linux/s390x"), index=False), "found linux/s390x"),
    ],
)
def test_image_that_breaks_the_specification_is_refused(
    fake: Registry, break_it: object, message: str
) -> None:
    break_it(fake)  # type: ignore[operator]
    with pytest.raises(ImageRegistryProblem, match=message):
        resolve(fake.base())


def _with(media_type: str, **fields: object) -> bytes:
    return json.dumps({"schemaVersion": 2, "mediaType": media_type, **fields}).encode()


def _nested(fake: Registry) -> str:
    inner = make_index(ARM)
    fake.manifests[digest_of(inner)] = inner
    return digest_of(inner)


# The commands


def _folder(tmp_path: Path, *bases: Base) -> Path:
    folder = tmp_path / "images"
    for base in bases:
        lock.write(folder, base)
    return folder


def _project(tmp_path: Path, line: str = "ARG BASE=nvcr.io/nvidia/pytorch:26.08-py3") -> Path:
    dockerfile = tmp_path / "containers" / "pytorch" / "Dockerfile"
    dockerfile.parent.mkdir(parents=True)
    dockerfile.write_text(f"# a comment\n{line}\nFROM ${{BASE}}\nARG BASEMENT=1\n")
    return tmp_path


def test_lock_command_writes_entry_and_dockerfile(
    fake: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, root = _folder(tmp_path, fake.base()), _project(tmp_path)
    assert command.write_lock(folder, [], repin=False, root=root) == 0
    found = lock.read_folder(folder)["pytorch-26.08"]
    assert found.status == "resolved"
    text = (root / "containers/pytorch/Dockerfile").read_text()
    assert text == f"# a comment\nARG BASE={found.reference}\nFROM ${{BASE}}\nARG BASEMENT=1\n"
    assert "a patch to propose: git diff" in capsys.readouterr().out
    assert command.check_lock(folder, [], root=root) == 0
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert command.write_lock(folder, [], repin=False, root=root) == 0
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}, "nothing to write"
    assert "unchanged" in capsys.readouterr().out


def test_lock_command_refuses_a_changed_image(
    fake: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _folder(tmp_path, fake.base(index_digest=OTHER, status="unverified"))
    before = (folder / "pytorch-26.08.json").read_bytes()
    assert command.write_lock(folder, [], repin=False, root=None) == 1
    error = capsys.readouterr().err
    assert all(expected_text in error for expected_text in (OTHER, INDEX, "--repin"))
    assert (folder / "pytorch-26.08.json").read_bytes() == before
    assert command.write_lock(folder, [], repin=True, root=None) == 0
    assert lock.read_folder(folder)["pytorch-26.08"].index_digest == INDEX


def test_lock_command_continues_after_a_failing_base(
    fake: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = fake.base(name="a-first", framework="mxnet", tag="absent")
    folder = _folder(tmp_path, absent, fake.base())
    assert command.write_lock(folder, [], repin=False, root=None) == 1
    found = lock.read_folder(folder)
    assert (found["a-first"].status, found["pytorch-26.08"].status) == ("unresolved", "resolved")


def test_lock_check_distinguishes_different_from_unreachable(
    fake: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _folder(tmp_path, resolve(fake.base()))
    root = _project(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert command.check_lock(folder, [], root=None) == 0
    assert command.check_lock(folder, [], root=root) == 1, "the Dockerfile still has the tag alone"
    assert "ARG BASE= has nvcr.io/nvidia/pytorch:26.08-py3" in capsys.readouterr().err
    fake.put(TAG, AMD)
    assert command.check_lock(folder, [], root=None) == 1
    fake.status = 503
    assert command.check_lock(folder, [], root=None) == 2
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_archived_entry_is_resolved_when_named(fake: Registry, tmp_path: Path) -> None:
    folder = _folder(tmp_path, fake.base(name="old", status="archived", current=False))
    assert command.write_lock(folder, [], repin=False, root=None) == 0
    assert lock.read_folder(folder)["old"].resolved_at is None
    assert command.write_lock(folder, ["old"], repin=False, root=None) == 0
    assert lock.read_folder(folder)["old"].resolved_at is not None
    with pytest.raises(lock.LockProblem, match="did you mean old"):
        command.write_lock(folder, ["odl"], repin=False, root=None)


@pytest.mark.parametrize("text", ["FROM x\n", "ARG BASE=a\nARG BASE=b\n"])
def test_dockerfile_without_pin_is_refused(fake: Registry, tmp_path: Path, text: str) -> None:
    folder, root = _folder(tmp_path, fake.base()), _project(tmp_path)
    (root / "containers/pytorch/Dockerfile").write_text(text)
    with pytest.raises(lock.LockProblem, match="expected one line `ARG BASE=…`"):
        command.write_lock(folder, [], repin=False, root=root)


# A real image registry


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Host and port of Debian's docker-registry on this machine."""
    program = shutil.which("docker-registry")
    if program is None or shutil.which("skopeo") is None:
        pytest.skip("docker-registry and skopeo are not installed: apt-get install docker-registry skopeo")
    folder = tmp_path_factory.mktemp("registry")
    (port,) = unused_ports("127.0.0.1", 1)
    host = f"127.0.0.1:{port}"
    settings = {
        "version": "0.1",
        "storage": {"filesystem": {"rootdirectory": str(folder / "storage")}},
        "http": {"addr": host},
    }
    (folder / "config.yml").write_text(json.dumps(settings))
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [program, "serve", str(folder / "config.yml")], stdout=log, stderr=subprocess.STDOUT
        )
    try:
        _wait_for(host, process)
        yield host
    finally:
        process.terminate()
        process.wait(10)


def _wait_for(host: str, process: subprocess.Popen[bytes]) -> None:
    name, port = host.split(":")
    for _ in range(100):
        assert process.poll() is None, "the image registry ended"
        with socket.socket() as probe:
            if probe.connect_ex((name, int(port))) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("the image registry does not answer")


def _layout(folder: Path) -> Path:
    """AMD and ARM as an OCI layout, which skopeo copies into an image registry."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    index = make_index(AMD, ARM)
    contents = [index]
    for image in (AMD, ARM):
        contents += [image.manifest, image.config, *image.blobs.values()]
    for content in contents:
        (blobs / digest_of(content).removeprefix("sha256:")).write_bytes(content)
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    top = {"mediaType": OCI_INDEX, "digest": digest_of(index), "size": len(index)}
    top["annotations"] = {"org.opencontainers.image.ref.name": "all"}
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [top]}))
    return folder


def _skopeo(*arguments: str) -> bytes:
    answer = subprocess.run(["skopeo", *arguments], capture_output=True, check=False, timeout=60)
    assert answer.returncode == 0, answer.stderr.decode()
    return answer.stdout


def test_digests_equal_those_of_skopeo_and_a_real_image_registry(registry: str, tmp_path: Path) -> None:
    layout = _layout(tmp_path / "layout")
    target = f"docker://{registry}/nvidia/pytorch:{TAG}"
    _skopeo("copy", "--all", "--dest-tls-verify=false", f"oci:{layout}:all", target)
    base = Registry(port=int(registry.split(":")[1])).base()
    found = resolve(base)
    raw = _skopeo("inspect", "--raw", "--tls-verify=false", target)
    assert found.index_digest == digest_of(raw)
    for architecture in ("amd64", "arm64"):
        config = _skopeo(
            "inspect", "--config", "--raw", "--tls-verify=false", f"--override-arch={architecture}", target
        )
        platform = found.platform(f"linux/{architecture}")
        assert platform.config_digest == digest_of(config)
        assert list(platform.diff_ids or ()) == json.loads(config)["rootfs"]["diff_ids"]
    assert found.platforms == {"linux/amd64": AMD.locked, "linux/arm64": ARM.locked}
    assert check(found) == []
    # Another image is pushed under the pinned tag.
    _skopeo("copy", "--dest-tls-verify=false", "--override-arch=arm64", f"oci:{layout}:all", target)
    with pytest.raises(LockMismatch, match="index_digest"):
        resolve(found)
    assert check(found)
