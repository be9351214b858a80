"""Lock every environment with hashes and record the size of its wheels: ``make lock``.

Writes ``requirements/{suite,dev}.txt``, ``containers/<framework>/requirements-*.txt`` from the ``.in``
files beside them, and ``containers/sizes.json``, with which the suite states the size of a download before it
starts. Locks are for CPython 3.11 on Linux x86-64, those of NVIDIA's images (``requirements-image``) for
the Python in them. Needs the network and ``uv``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from suite.contract.traits import traits_of  # noqa: E402 - runs without an installed suite

PYTHON = "3.11"
PLATFORM = ["--python-platform", "x86_64-manylinux_2_28"]
HEADER = "# Written by `make lock` from {source}. CPython {python}, Linux x86-64. Do not edit.\n"


def compile_lock(
    source: str, target: Path, extra: list[str], *, hashes: bool = True, python: str = PYTHON
) -> None:
    """Resolve ``source`` (path from the repository's root) into ``target``."""
    command = [
        "uv",
        "pip",
        "compile",
        source,
        "--python-version",
        python,
        *PLATFORM,
        "--no-header",
        "--quiet",
        "--output-file",
        str(target),
    ]
    command += ["--no-emit-index-url", "--no-emit-find-links", *extra]
    if hashes:
        command.append("--generate-hashes")
    subprocess.run(command, cwd=ROOT, check=True)
    if hashes:
        target.write_text(HEADER.format(source=source, python=python) + target.read_text())


def wheel_bytes(url: str) -> int:
    """The size of the file behind ``url``, by a HEAD request or on disk."""
    if url.startswith("file://"):
        return Path(urllib.request.url2pathname(url.removeprefix("file://"))).stat().st_size
    request = urllib.request.Request(url, method="HEAD")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return int(answer.headers["Content-Length"])


def measure(source: str, extra: list[str]) -> dict[str, Any]:
    """Packages and download size of one lock: the sum over the wheels that its resolution names."""
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch) / "pylock.toml"
        compile_lock(source, target, [*extra, "--format", "pylock.toml"], hashes=False)
        packages = tomllib.loads(target.read_text())["packages"]
    # The first wheel is the best match; several wheels of a package differ by a few kilobytes.
    total = sum(wheel_bytes(package["wheels"][0]["url"]) for package in packages)
    return {"packages": len(packages), "download_bytes": total}


def main() -> int:
    """Lock everything."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--links", help="page that lists wheels missing on PyPI, instead of the traits' pages"
    )
    args = parser.parse_args()
    compile_lock("pyproject.toml", ROOT / "requirements/suite.txt", [])
    compile_lock("requirements/build.in", ROOT / "requirements/build.txt", [])
    compile_lock("requirements/data.in", ROOT / "requirements/data.txt", [])
    compile_lock("requirements/peers.in", ROOT / "requirements/peers.txt", [])
    compile_lock("requirements/dali.in", ROOT / "requirements/dali.txt", [])
    compile_lock("requirements/triton.in", ROOT / "requirements/triton.txt", [])
    torchvision = "requirements/peers-torchvision"  # without its dependencies: PyTorch is the suite's
    compile_lock(f"{torchvision}.in", ROOT / f"{torchvision}.txt", ["--no-deps"])
    compile_lock(
        "pyproject.toml",
        ROOT / "requirements/dev.txt",
        ["--extra", "dev", "--constraint", "requirements/suite.txt"],
    )
    tools = ("data", "peers", "dali", "triton")
    sizes: dict[str, Any] = {name: measure(f"requirements/{name}.in", []) for name in tools}
    for source in sorted(ROOT.glob("containers/*/requirements-*.in")):
        name = f"{source.parent.name}-{source.stem.removeprefix('requirements-')}"
        links = traits_of(source.parent.name).links.get(name.partition("-")[2])
        extra = ["--find-links", args.links or links] if links else []
        relative = source.relative_to(ROOT).as_posix()
        if source.stem == "requirements-image":  # installed in images only: no size
            python = traits_of(source.parent.name).image_python
            # Without dependencies: the image has NumPy, which another one must not replace.
            compile_lock(relative, source.with_suffix(".txt"), ["--no-deps", *extra], python=python)
            continue
        compile_lock(relative, source.with_suffix(".txt"), extra)
        sizes[name] = measure(relative, extra)
        print(name, sizes[name])
    path = ROOT / "containers/sizes.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    for name, entry in sizes.items():
        # Unpacked sizes are measured by hand (du of an environment) and kept.
        entry["unpacked_bytes"] = known.get(name, {}).get("unpacked_bytes")
    path.write_text(json.dumps(sizes, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
