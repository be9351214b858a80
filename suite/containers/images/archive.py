"""A container image as one tar file: an OCI image layout that ``docker load`` reads as well.

It is written from the stream of ``docker save``, in any of its formats, and has the same bytes for the same
image: sorted names, no times, layers uncompressed, so that a layer's digest is its diff_id. An image has tens
of gigabytes, so this module never holds a layer in memory.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from suite.containers.images.errors import ImageProblem
from suite.log.canonical import sha256_hex

BLOBS = "blobs/sha256/"
_CHUNK = 1 << 20
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_LARGEST_JSON = 16 << 20
_OCI = "application/vnd.oci.image"


@dataclass(frozen=True, slots=True)
class SavedImage:
    """A written archive. Digests are "sha256:<64 hex>"; ``manifest_digest``: of the archive's manifest."""

    config_digest: str
    manifest_digest: str
    diff_ids: tuple[str, ...]


def save(client: str, image: str, diff_ids: Sequence[str], tag: str, target: Path) -> SavedImage:
    """Write the image that the engine behind ``client`` ("docker", "podman") has as ``image`` to ``target``.

    ``diff_ids``: the digests of its uncompressed layers according to the engine. ``tag``: the name that the
    image gets where it is loaded. Needs disk for all layers and, temporarily, for the largest one again.

    Raises:
        ImageProblem: the client fails, or its layers differ from ``diff_ids``.
        OSError: no space, or a folder that cannot be written.
    """
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".blobs-") as name:
        blobs = Path(name)
        with _saved(client, image) as stream:
            found = _spool(stream, blobs)
        config = _config(found, blobs, diff_ids)
        return _write(blobs, config, tuple(diff_ids), tag, target)


@contextmanager
def _saved(client: str, image: str) -> Iterator[IO[bytes]]:
    """The stream of ``docker save``; ImageProblem where it fails."""
    options = ["--format", "docker-archive"] if Path(client).name == "podman" else []
    command = [client, "save", *options, image]
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        assert process.stdout is not None
        problem: Exception | None = None
        try:
            yield process.stdout
            while process.stdout.read(_CHUNK):  # the padding behind the last file
                pass
        except (tarfile.TarError, EOFError) as error:  # the client's error message explains a short stream
            problem = error
        except BaseException:
            process.kill()
            raise
        if process.wait() or problem is not None:
            errors.seek(0)
            last = errors.read().decode(errors="replace").strip()[-300:] or problem or "no message"
            raise ImageProblem(f"{client} save {image} failed ({last}): fix that, then run it again")


def _spool(stream: IO[bytes], blobs: Path) -> dict[str, str]:
    """Put every file of a saved image into ``blobs``, uncompressed, named by SHA-256; name -> digest."""
    found = {}
    with tarfile.open(fileobj=stream, mode="r|") as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isreg() else None
            if content is not None:  # else a folder, or a link to an earlier layer
                found[member.name] = _blob(_plain(content, member.name), blobs)
    return found


def _plain(content: IO[bytes], name: str) -> IO[bytes]:
    """``content`` uncompressed: containerd's image store keeps the layers as they were pulled."""
    buffered = io.BufferedReader(content, _CHUNK)  # type: ignore[type-var]  # as tarfile makes it
    start = buffered.peek(4)[:4]
    if start.startswith(_GZIP):
        return gzip.GzipFile(fileobj=buffered)  # type: ignore[return-value]
    if start == _ZSTD:
        raise ImageProblem(
            f"{name}: expected a layer as tar, with or without gzip, found zstd, which Python cannot read: "
            "save the image with an engine that keeps its layers unpacked (docker's overlay2)"
        )
    return buffered


def _blob(content: IO[bytes], blobs: Path) -> str:
    digest = hashlib.sha256()
    partial = blobs / "partial"
    with partial.open("wb") as file:
        while chunk := content.read(_CHUNK):
            digest.update(chunk)
            file.write(chunk)
    partial.rename(blobs / digest.hexdigest())
    return digest.hexdigest()


def _config(found: dict[str, str], blobs: Path, diff_ids: Sequence[str]) -> str:
    """The configuration's digest (64 hex); ImageProblem where a layer is missing."""
    try:
        manifest = json.loads(_small(blobs / found["manifest.json"]))
        config = found[manifest[0]["Config"]]
        layers = json.loads(_small(blobs / config))["rootfs"]["diff_ids"]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ImageProblem(
            f"expected an image as `docker save` writes it, found {error!r}: save the image with another "
            "version of docker"
        ) from error
    missing = [digest for digest in diff_ids if not (blobs / digest.removeprefix("sha256:")).is_file()]
    if layers != list(diff_ids) or missing:
        found_text = f"{len(missing)} of them missing" if missing else "other layers"
        raise ImageProblem(
            f"expected the {len(diff_ids)} layers that the engine lists, the saved image has {found_text}"
        )
    return config


def _small(path: Path) -> bytes:
    if path.stat().st_size > _LARGEST_JSON:
        raise ValueError(f"{path.stat().st_size} bytes of JSON")
    return path.read_bytes()


def _write(blobs: Path, config: str, diff_ids: tuple[str, ...], tag: str, target: Path) -> SavedImage:
    """Move the blobs into one tar file; each blob is deleted once it is written."""
    layers = [digest.removeprefix("sha256:") for digest in diff_ids]
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": f"{_OCI}.manifest.v1+json",
            "config": _descriptor("config.v1+json", config, blobs),
            "layers": [_descriptor("layer.v1.tar", layer, blobs) for layer in layers],
        }
    )
    names = {"org.opencontainers.image.ref.name": tag.rpartition(":")[2]}
    names["io.containerd.image.name"] = f"docker.io/{tag}"  # containerd gives the image this name
    small = {
        f"{BLOBS}{sha256_hex(manifest)}": manifest,
        "index.json": _json({"schemaVersion": 2, "manifests": [_listed(manifest, names)]}),
        "manifest.json": _json(
            [
                {
                    "Config": BLOBS + config,
                    "Layers": [BLOBS + layer for layer in layers],
                    "RepoTags": [tag],
                }
            ]
        ),
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
    }
    files = {BLOBS + digest: blobs / digest for digest in {config, *layers}}
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted({*small, *files}):
            if name in small:
                tar.addfile(_member(name, len(small[name])), io.BytesIO(small[name]))
                continue
            with files[name].open("rb") as file:
                tar.addfile(_member(name, files[name].stat().st_size), file)
            files[name].unlink()
    return SavedImage(f"sha256:{config}", f"sha256:{sha256_hex(manifest)}", diff_ids)


def _descriptor(kind: str, digest: str, blobs: Path) -> dict[str, Any]:
    size = (blobs / digest).stat().st_size
    return {"mediaType": f"{_OCI}.{kind}", "digest": f"sha256:{digest}", "size": size}


def _listed(manifest: bytes, names: dict[str, str]) -> dict[str, Any]:
    return {
        "mediaType": f"{_OCI}.manifest.v1+json",
        "digest": f"sha256:{sha256_hex(manifest)}",
        "size": len(manifest),
        "annotations": names,
    }


def _member(name: str, size: int) -> tarfile.TarInfo:
    """A member without times and owner, so that the archive depends on the image alone."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o644
    return member


def _json(value: Any) -> bytes:
    return (json.dumps(value, sort_keys=True, separators=(",", ":")) + "\n").encode()
