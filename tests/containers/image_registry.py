"""An image registry on loopback for the tests: started once, ended by its pid."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import requests

from tests.containers import daemon

ADDRESS = "localhost:5000"
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


def push(name: str, tag: str, layer: Path, config: dict[str, Any]) -> None:
    """Store an image of one layer, the tar file ``layer``, as it is: `docker push` compresses for seconds."""
    with requests.Session() as session, layer.open("rb") as file:
        session.trust_env = False  # no proxy
        digest = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
        file.seek(0)
        _upload(session, name, digest, file)
        content = json.dumps({**config, "rootfs": {"type": "layers", "diff_ids": [digest]}}).encode()
        config_digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        _upload(session, name, config_digest, content)
        kind = "application/vnd.oci.image"
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{kind}.manifest.v1+json",
            "config": {
                "mediaType": f"{kind}.config.v1+json",
                "digest": config_digest,
                "size": len(content),
            },
            "layers": [{"mediaType": f"{kind}.layer.v1.tar", "digest": digest, "size": layer.stat().st_size}],
        }
        answer = session.put(
            f"http://{ADDRESS}/v2/{name}/manifests/{tag}",
            data=json.dumps(manifest),
            headers={"Content-Type": manifest["mediaType"]},
            timeout=60,
        )
        answer.raise_for_status()


def _upload(session: requests.Session, name: str, digest: str, content: Any) -> None:
    started = session.post(f"http://{ADDRESS}/v2/{name}/blobs/uploads/", timeout=60)
    started.raise_for_status()
    done = session.put(started.headers["Location"], params={"digest": digest}, data=content, timeout=600)
    done.raise_for_status()


def stop() -> bool:
    """End the image registry that :func:`start` started; False if it started none."""
    return daemon.stop("docker-registry", FOLDER)
