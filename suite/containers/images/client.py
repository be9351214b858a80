"""The docker client: builds with BuildKit, which the SDK cannot do, and pulls with the user's logins."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from suite.containers.images.errors import ImageProblem

_TAIL = 12
_FAILED_STEP = re.compile(r"(#\d+) ERROR: ")  # in BuildKit's plain output, where every line names its step
# The client's settings may hand proxies, with passwords, to every build; this build has no network.
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY")
_BUILTIN_UNTIL = 23  # from version 23 on, BuildKit is the plugin buildx


def builder() -> str:
    """The first docker client on PATH that can build with BuildKit; ImageProblem where there is none."""
    tried = []
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        path = Path(folder or ".") / "docker"
        if not (path.is_file() and os.access(path, os.X_OK)) or str(path) in tried:
            continue
        tried.append(str(path))
        version = _first_line([str(path), "version", "--format", "{{.Client.Version}}"])
        major = version.split(".")[0]
        if major.isdecimal() and int(major) < _BUILTIN_UNTIL:
            return str(path)
        if _first_line([str(path), "buildx", "version"]):
            return str(path)
    found = f"{len(tried)} docker client(s) without it" if tried else "no docker client on PATH"
    raise ImageProblem(
        f"building an image needs a docker client with BuildKit, found {found}: install the package "
        "docker-buildx-plugin (docker-buildx in some distributions), or load a built image with `docker load`"
    )


def build(
    dockerfile: Path,
    context: Path,
    tag: str,
    platform: str,
    arguments: dict[str, str],
    log: Path,
    *,
    no_cache: bool = False,
) -> None:
    """``docker build`` without network, its output in ``log``; ImageProblem quotes the last lines."""
    settings = {name: "" for proxy in _PROXIES for name in (proxy, proxy.lower())} | arguments
    command = [builder(), "build", "--network", "none", "--progress", "plain", "--platform", platform]
    command += ["--file", str(dockerfile), "--tag", tag]
    for name, value in settings.items():
        command += ["--build-arg", f"{name}={value}"]
    # BuildKit's attestation contains times, and would turn the image into an index.
    environment = {**os.environ, "DOCKER_BUILDKIT": "1", "BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}
    command += ["--no-cache"] if no_cache else []
    _logged([*command, str(context)], environment, log, f"building {tag}")


def pull(reference: str, platform: str, log: Path) -> None:
    """``docker pull``; ImageProblem quotes the last lines."""
    command = ["docker", "pull", "--quiet", "--platform", platform, reference]
    _logged(command, dict(os.environ), log, f"pulling {reference}")


def tag(image: str, name: str) -> None:
    """Give the local ``image`` another name."""
    done = subprocess.run(["docker", "tag", image, name], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ImageProblem(f"docker tag {image} {name}: {done.stderr.strip()[-300:]}")


def _first_line(command: list[str]) -> str:
    """The first line that ``command`` prints; empty where it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    # `docker version` exits with an error where there is no engine, but prints the client's version first.
    return (done.stdout.strip().splitlines() or [""])[0]


def _logged(command: list[str], environment: dict[str, str], log: Path, task: str) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as output:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, check=False
        )
    if done.returncode:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        raise ImageProblem(
            f"{task} failed; fix the error in its last lines and run it again (full output: {log}):\n  "
            + "\n  ".join(_of_failed_step(lines)[-_TAIL:])
        )


def _of_failed_step(lines: list[str]) -> list[str]:
    """The lines of the step that failed, or all: BuildKit mixes the lines of steps that run together."""
    failed = next((match[1] for line in lines if (match := _FAILED_STEP.match(line))), None)
    return [line for line in lines if line.startswith(f"{failed} ")] if failed else lines
