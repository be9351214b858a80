"""An image registry on loopback that can misbehave; it serves images of a few bytes."""

from __future__ import annotations

import gzip
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from suite.containers.images.lock import CONTAINS, Base, PlatformImage

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_IMAGE = "application/vnd.oci.image.manifest.v1+json"
DOCKER_IMAGE = "application/vnd.docker.distribution.manifest.v2+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
TOKEN = "anonymous-token"


def digest_of(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class Image:
    """One platform's image: its bytes, and the lock's values for it."""

    platform: str
    manifest: bytes
    config: bytes
    blobs: dict[str, bytes]
    locked: PlatformImage


def make_image(platform: str = "linux/amd64", layers: int = 2, media_type: str = OCI_IMAGE) -> Image:
    contents = [f"layer {number} of {platform}".encode() for number in range(layers)]
    packed = [gzip.compress(content, mtime=0) for content in contents]
    os, architecture = platform.split("/")
    diff_ids = [digest_of(content) for content in contents]
    config = json.dumps(
        {
            "os": os,
            "architecture": architecture,
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        }
    ).encode()
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": media_type,
            "config": {"mediaType": OCI_CONFIG, "digest": digest_of(config), "size": len(config)},
            "layers": [
                {"mediaType": OCI_LAYER, "digest": digest_of(blob), "size": len(blob)} for blob in packed
            ],
        }
    ).encode()
    locked = PlatformImage(digest_of(manifest), digest_of(config), tuple(diff_ids), sum(map(len, packed)))
    return Image(platform, manifest, config, {digest_of(blob): blob for blob in packed}, locked)


def make_index(*images: Image) -> bytes:
    descriptors = []
    for image in images:
        os, architecture = image.platform.split("/")
        descriptors.append(
            {
                "mediaType": OCI_IMAGE,
                "digest": digest_of(image.manifest),
                "size": len(image.manifest),
                "platform": {"os": os, "architecture": architecture},
            }
        )
    return json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": descriptors}).encode()


@dataclass
class Registry:
    """The server's images, its misbehaviour, and the requests it received (path, Authorization header)."""

    port: int = 0
    manifests: dict[str, bytes] = field(default_factory=dict)  # by tag or digest
    blobs: dict[str, bytes] = field(default_factory=dict)
    stated: dict[str, str] = field(
        default_factory=dict
    )  # reference -> a Docker-Content-Digest that it states
    types: dict[str, str] = field(default_factory=dict)  # reference -> a Content-Type that it states
    authentication: bool = False
    challenge: str | None = None  # instead of the correct one
    token: str = TOKEN
    blobs_elsewhere: str | None = None  # blobs redirect to this address
    status: int | None = None  # every answer
    cut: int | None = None  # bytes of a body that are sent
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    scopes: list[str] = field(default_factory=list)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def put(self, tag: str, *images: Image, index: bool = True) -> None:
        """Serve ``images`` under ``tag``, behind an index by default."""
        for image in images:
            self.manifests[digest_of(image.manifest)] = image.manifest
            self.blobs[digest_of(image.config)] = image.config
        top = make_index(*images) if index else images[0].manifest
        self.manifests[tag] = self.manifests[digest_of(top)] = top

    def base(self, **changes: Any) -> Base:
        """An unresolved entry of the image ``nvidia/pytorch:26.08-py3`` in this image registry."""
        values: dict[str, Any] = dict.fromkeys(Base.__dataclass_fields__)
        values |= {
            "name": "pytorch-26.08",
            "framework": "pytorch",
            "current": True,
            "status": "unresolved",
            "repository": f"{self.host}/nvidia/pytorch",
            "tag": "26.08-py3",
            "platforms": {"linux/amd64": PlatformImage()},
            "provenance": "a test",
            "requirements": "requirements-image.txt",
            "contains": dict.fromkeys(CONTAINS),
        }
        return Base(**(values | changes))


@contextmanager
def serving(registry: Registry) -> Iterator[Registry]:
    """Serve ``registry`` on a free port until the context ends."""

    class Handler(_Handler):
        held = registry

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    registry.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    held: Registry

    def do_GET(self) -> None:
        held, path = self.held, urlsplit(self.path).path
        authorization = self.headers.get("Authorization")
        held.asked.append((path, authorization))
        if held.status is not None:
            return self._send(held.status, b"", {})
        if path == "/token":
            held.scopes += parse_qs(urlsplit(self.path).query).get("scope", [])
            return self._send(200, json.dumps({"token": held.token}).encode(), {})
        if held.authentication and authorization != f"Bearer {TOKEN}":
            challenge = (
                held.challenge or f'Bearer realm="http://{held.host}/token",service="fake",scope="all"'
            )
            return self._send(401, b"{}", {"WWW-Authenticate": challenge})
        kind, reference = path.split("/")[-2:]
        return self._manifest(reference) if kind == "manifests" else self._blob(reference)

    def _manifest(self, reference: str) -> None:
        body = self.held.manifests.get(reference)
        if body is None:
            return self._send(404, b"{}", {})
        headers = {"Docker-Content-Digest": self.held.stated.get(reference, digest_of(body))}
        kind = self.held.types.get(reference)
        if kind is None:
            try:
                kind = json.loads(body).get("mediaType", OCI_IMAGE)
            except ValueError:
                kind = OCI_IMAGE
        return self._send(200, body, {**headers, "Content-Type": kind})

    def _blob(self, reference: str) -> None:
        if self.held.blobs_elsewhere:
            return self._send(307, b"", {"Location": f"{self.held.blobs_elsewhere}/elsewhere/{reference}"})
        body = self.held.blobs.get(reference)
        return self._send(200 if body is not None else 404, body or b"", {})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if self.held.cut is None else body[: self.held.cut])

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        pass
