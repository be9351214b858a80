"""An image registry on loopback for the tests: started once, ended by its pid."""

from __future__ import annotations

import json
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import requests

from suite.log.canonical import sha256_hex
from tests.containers import daemon

ADDRESS = "localhost:5000"
OCI = "application/vnd.oci.image"
FOLDER = Path(os.environ.get("SUITE_STAND_IN", "/var/tmp/suite-stand-in"))
CONFIG = f"""version: 0.1
storage:
  filesystem:
    rootdirectory: {FOLDER}/registry
http:
  addr: 127.0.0.1:5000
"""


def start() -> None:
    """Start the image registry unless one answers; RuntimeError if it does not start."""
    if answers():
        return
    program = shutil.which("docker-registry")
    if program is None:
        raise RuntimeError("docker-registry was not found: apt-get install docker-registry")
    FOLDER.mkdir(parents=True, exist_ok=True)
    config = FOLDER / "registry.yml"
    config.write_text(CONFIG)
    problem = daemon.start("docker-registry", [program, "serve", str(config)], FOLDER, answers, 20.0)
    if problem:
        raise RuntimeError(problem)


def answers() -> bool:
    """Whether an image registry answers at the address."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f"http://{ADDRESS}/v2/", timeout=3) as answer:
            return "registry" in answer.headers.get("Docker-Distribution-Api-Version", "")
    except (OSError, urllib.error.URLError):
        return False


def push(name: str, tag: str, layers: Sequence[Path], config: dict[str, Any]) -> str:
    """Store an image whose layers are tar files, and return its digest.

    The layers are stored as they are: `docker push` compresses, which takes 6 processor seconds for 100 MB.
    """
    with requests.Session() as session:
        session.trust_env = False  # no proxy
        stored = [_upload(session, name, "layer.v1.tar", layer.read_bytes()) for layer in layers]
        rootfs = {"type": "layers", "diff_ids": [layer["digest"] for layer in stored]}
        described = json.dumps({"created": "1980-01-01T00:00:00Z", **config, "rootfs": rootfs}).encode()
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{OCI}.manifest.v1+json",
            "config": _upload(session, name, "config.v1+json", described),
            "layers": stored,
        }
        answer = session.put(
            f"http://{ADDRESS}/v2/{name}/manifests/{tag}",
            data=json.dumps(manifest),
            headers={"Content-Type": f"{OCI}.manifest.v1+json"},
            timeout=60,
        )
        answer.raise_for_status()
        return answer.headers["Docker-Content-Digest"]


def _upload(session: requests.Session, name: str, kind: str, content: bytes) -> dict[str, Any]:
    """Store ``content``; its descriptor."""
    digest = f"sha256:{sha256_hex(content)}"
    started = session.post(f"http://{ADDRESS}/v2/{name}/blobs/uploads/", timeout=60)
    started.raise_for_status()
    done = session.put(started.headers["Location"], params={"digest": digest}, data=content, timeout=600)
    done.raise_for_status()
    return {"mediaType": f"{OCI}.{kind}", "digest": digest, "size": len(content)}


def stop() -> bool:
    """End the image registry that :func:`start` started; False if it started none."""
    return daemon.stop("docker-registry", FOLDER)
