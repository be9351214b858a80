"""An image gives one archive in every format that an engine saves; deviations are refused."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from suite.containers.images.archive import save
from suite.containers.images.errors import ImageProblem

TAG = "suite/ncf-pytorch:0123456789ab"


def layer(name: str) -> bytes:
    """A layer with one file."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        member = tarfile.TarInfo(name)
        member.size = len(name)
        tar.addfile(member, io.BytesIO(name.encode()))
    return buffer.getvalue()


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


LAYERS = [layer("base"), layer("requirements"), layer("code")]
DIFF_IDS = tuple(f"sha256:{sha(data)}" for data in LAYERS)
CONFIG = json.dumps({"os": "linux", "rootfs": {"type": "layers", "diff_ids": list(DIFF_IDS)}}).encode()
BLOB = "blobs/sha256/"


def legacy(layers: list[bytes]) -> dict[str, bytes | str]:
    """As docker up to 24 saves: one folder for each layer; a repeated layer is a link."""
    names = [f"{number:064x}/layer.tar" for number, _ in enumerate(layers)]
    files: dict[str, bytes | str] = dict(zip(names, layers, strict=True))
    files |= {f"{number:064x}/VERSION": b"1.0" for number, _ in enumerate(layers)}
    files["f" * 64 + "/layer.tar"] = f"../{names[0]}"  # a link
    files[f"{sha(CONFIG)}.json"] = CONFIG
    files["manifest.json"] = manifest(f"{sha(CONFIG)}.json", names)
    return files


def layout(layers: list[bytes], pack: Callable[[bytes], bytes] = bytes) -> dict[str, bytes | str]:
    """As docker from 25 on saves, and with containerd's image store packed: an OCI layout."""
    packed = [pack(data) for data in layers]
    files: dict[str, bytes | str] = {BLOB + sha(data): data for data in packed}
    files[BLOB + sha(CONFIG)] = CONFIG
    files |= {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": b"{}"}
    files["manifest.json"] = manifest(BLOB + sha(CONFIG), [BLOB + sha(data) for data in packed])
    return files


def manifest(config: str, layers: list[str]) -> bytes:
    return json.dumps([{"Config": config, "RepoTags": None, "Layers": layers}]).encode()


def pack(data: bytes) -> bytes:
    return gzip.compress(data, mtime=1)


def client(folder: Path, files: dict[str, bytes | str], after: str = "") -> str:
    """A client whose ``save`` streams these files."""
    with tarfile.open(folder / "saved.tar", "w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.mtime = 1_700_000_000
            if isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
                tar.addfile(member)
            else:
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    script = folder / "docker"
    script.write_text(f"#!/bin/sh\ncat '{folder}/saved.tar'\n{after}\n")
    script.chmod(0o755)
    return str(script)


def archive(folder: Path, files: dict[str, bytes | str]) -> bytes:
    folder.mkdir()
    target = folder / "image.tar"
    saved = save(client(folder, files), "sha256:1", DIFF_IDS, TAG, target)
    assert saved.config_digest == f"sha256:{sha(CONFIG)}"
    assert saved.diff_ids == DIFF_IDS
    assert sorted(path.name for path in folder.iterdir()) == ["docker", "image.tar", "saved.tar"]
    return target.read_bytes()


def test_every_save_format_gives_the_same_archive(tmp_path: Path) -> None:
    found = archive(tmp_path / "legacy", legacy(LAYERS))
    assert archive(tmp_path / "layout", layout(LAYERS)) == found
    assert archive(tmp_path / "packed", layout(LAYERS, pack)) == found


def test_archive_is_an_oci_layout_that_docker_loads(tmp_path: Path) -> None:
    data = archive(tmp_path / "one", legacy(LAYERS))
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        members = tar.getmembers()
        content = {member.name: (tar.extractfile(member) or io.BytesIO()).read() for member in members}
    assert [member.name for member in members] == sorted(content)
    assert {(member.mtime, member.uid, member.gid, member.uname) for member in members} == {(0, 0, 0, "")}
    for name, blob in content.items():
        if name.startswith(BLOB):
            assert name == BLOB + sha(blob)
    assert json.loads(content["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (listed,) = json.loads(content["index.json"])["manifests"]
    described = json.loads(content[BLOB + listed["digest"].removeprefix("sha256:")])
    assert described["config"]["digest"] == f"sha256:{sha(CONFIG)}"
    assert [one["digest"] for one in described["layers"]] == list(DIFF_IDS)
    assert [one["size"] for one in described["layers"]] == [len(data) for data in LAYERS]
    (loaded,) = json.loads(content["manifest.json"])
    assert loaded["RepoTags"] == [TAG]
    assert loaded["Config"] == BLOB + sha(CONFIG)
    assert [content[name] for name in loaded["Layers"]] == LAYERS


def refused(folder: Path, files: dict[str, bytes | str], match: str, **options: Any) -> None:
    with pytest.raises(ImageProblem, match=match):
        save(client(folder, files, **options), "sha256:1", DIFF_IDS, TAG, folder / "image.tar")
    assert not (folder / "image.tar").exists()
    assert list(folder.glob(".blobs-*")) == []


def test_missing_layer_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, legacy(LAYERS[:2]), "saved image has 1 of them missing")


def test_layer_with_other_bytes_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, layout([*LAYERS[:2], layer("another")]), "saved image has 1 of them missing")


def test_configuration_with_other_layers_is_refused(tmp_path: Path) -> None:
    files = layout(LAYERS)
    other = CONFIG.replace(DIFF_IDS[2].encode(), DIFF_IDS[1].encode())
    files[BLOB + sha(CONFIG)] = other  # under the name of the right one
    refused(tmp_path, files, "saved image has other layers")


def test_unknown_save_format_is_refused(tmp_path: Path) -> None:
    files = legacy(LAYERS)
    del files["manifest.json"]
    refused(tmp_path, files, "another version of docker")


def test_layer_in_zstd_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, layout(LAYERS, lambda data: b"\x28\xb5\x2f\xfd" + data), "zstd")


def test_failing_client_is_reported(tmp_path: Path) -> None:
    refused(tmp_path, legacy(LAYERS), "no such image: 1", after="echo 'no such image: 1' >&2; exit 1")


def test_truncated_stream_is_refused(tmp_path: Path) -> None:
    name = client(tmp_path, legacy(LAYERS))
    saved = tmp_path / "saved.tar"
    saved.write_bytes(saved.read_bytes()[: 2 * len(LAYERS[0])])
    with pytest.raises(ImageProblem):
        save(name, "sha256:1", DIFF_IDS, TAG, tmp_path / "image.tar")
