"""An image registry on loopback for the tests: started once, ended by its pid."""

from __future__ import annotations

import os
import shutil
import urllib.error
import urllib.request
from pathlib import Path

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


def stop() -> bool:
    """End the image registry that :func:`start` started; False if it started none."""
    return daemon.stop("docker-registry", FOLDER)
