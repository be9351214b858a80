"""Making a bundle: image, wheels, data and rules of one pair, for a machine without network.

Whatever this machine needs to get out, proxies with their passwords and a company's certificates, is used by
its own pip and engine and is part of nothing that is fetched. What may not be passed on, or is not ours to
fetch, is named in the manifest under ``elsewhere`` with its official address.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from suite import __version__
from suite.containers.engines.docker_engine import DockerEngine
from suite.containers.engines.file_engine import FileEngine
from suite.containers.engines.file_image import import_image
from suite.containers.engines.native import PROJECT
from suite.containers.images import archive, build, lock
from suite.containers.images.bundle import BundledImage, rule_files
from suite.containers.images.bundle_manifest import FORMAT, MANIFEST, TOOLS, BundleProblem, read_manifest
from suite.containers.images.errors import ImageProblem
from suite.containers.images.inside import code_digest
from suite.containers.images.wheels import fetch as fetch_wheels
from suite.datasets import catalogue as registry
from suite.datasets.prepare import STAMP
from suite.datasets.prepare import prepare as prepare_dataset
from suite.environments import environments
from suite.environments.environments import ASSUMED_BYTES_PER_S, LARGE_BYTES, PYTHON, Progress
from suite.environments.errors import LargeDownload, explain
from suite.workloads import specification

FORMATS = ("oci", *TOOLS, "none")
PARTIAL = ".partial"
SOURCES = ("antlr4-python3-runtime",)  # published without a wheel; pure Python
_SUITE_LOCKS = ("build.txt", "suite.txt")  # in requirements/; build.txt makes the wheel of SOURCES


@dataclass(frozen=True, slots=True)
class Order:
    """What a bundle is to hold. ``image_format``: of FORMATS; "none" for runs without a container."""

    workload: str
    framework: str
    rules_version: str
    accelerator: str  # cpu | cuda, of the wheels for runs without a container
    platform: str = "linux/amd64"
    image_format: str = "oci"
    fetch: bool = False  # allow downloads over 1 GB


def make(order: Order, target: Path, cache: Path, say: Progress) -> Path:
    """Make the bundle in the new folder ``target``, which appears whole or not at all.

    Raises:
        BundleProblem: the folder is there already.
        LockProblem, ImageProblem, EngineProblem: no image to be had; see
        :mod:`suite.containers.images.build`.
        EnvironmentMissing: a wheel that cannot be fetched, or no lock for the accelerator.
        LargeDownload: over 1 GB and ``order.fetch`` is false.
        DatasetError: data that cannot be made.
        OSError: no space, or a place that cannot be written.
    """
    _possible(order)
    partial = target.with_name(target.name + PARTIAL)
    _new(target, partial)
    try:
        _rules(order, partial)
        data = _data(order, partial)
        _wheels(order, partial, cache, say)
        image = _image(order, partial, cache, say)
        _manifest(order, partial, image, [*data, *_prerequisites(order)])
        read_manifest(partial)  # what was written is what will be read
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def _possible(order: Order) -> None:
    """Raise what is sure to be raised later, before anything is fetched."""
    environments.plan(order.framework, order.accelerator)
    if order.image_format in TOOLS:
        FileEngine(TOOLS[order.image_format])
    elif order.image_format != "none":
        DockerEngine()


def _new(target: Path, partial: Path) -> None:
    if target.exists() or target.is_symlink():
        raise BundleProblem(
            f"{target} is there already and is not written over: choose another DEST, or remove it"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        partial.mkdir()
    except FileExistsError:
        raise BundleProblem(
            f"{partial} is there already: another fetch is writing it, or was cut off; then remove it"
        ) from None


def _rules(order: Order, folder: Path) -> None:
    base = None
    if order.image_format != "none":
        base = lock.base_for(order.rules_version, order.framework).name
    files = rule_files(order.rules_version, order.workload, order.framework, order.platform, base)
    for name, path in files.items():
        _copy(path, folder / name)


def _data(order: Order, folder: Path) -> list[dict[str, Any]]:
    """Put the generated dataset into the bundle; what of the published one has to come from elsewhere."""
    datasets = specification(order.workload).DATASETS
    ready = prepare_dataset(datasets["mini"], folder / "data")
    (ready.path / STAMP).unlink(missing_ok=True)  # it is about the files of this machine
    published = registry.entry(datasets["reference"])
    address = None if published.source is None else published.source.url
    how = published.unavailable or f"`make data WORKLOAD={order.workload} FROM=path` takes a copy"
    return [_row(published.name, address, f"{published.licence} ({how})")]


def _prerequisites(order: Order) -> list[dict[str, Any]]:
    found = [
        _row(
            f"dl-benchmark-suite {__version__}", None, "the checkout that made this bundle, or an equal one"
        ),
        _row(f"Python {PYTHON[0]}.{PYTHON[1]} with venv, and make", None, "the operating system's"),
    ]
    if order.image_format != "none":
        engine = TOOLS.get(order.image_format, "docker or podman")
        found.append(_row(engine, None, "runs the image; the operating system's"))
    return found


def _row(name: str, address: str | None, reason: str) -> dict[str, Any]:
    return {"name": name, "address": address, "reason": reason}


def _wheels(order: Order, folder: Path, cache: Path, say: Progress) -> None:
    """The wheels of the suite's own environment, and of the framework's for runs without a container."""
    environment = environments.plan(order.framework, order.accelerator)
    python = f"{PYTHON[0]}.{PYTHON[1]}"
    found = fetch_wheels(
        environment.lock, python, platform=order.platform, cache=cache, allow_large=order.fetch, say=say
    )
    for wheel in sorted(found.iterdir()):
        _copy(wheel, folder / "wheels" / environment.name / wheel.name)
    say("fetching the wheels of the suite's own environment")
    target = folder / "wheels" / "suite"
    target.mkdir(parents=True)
    for name in _SUITE_LOCKS:
        _download(PROJECT / "requirements" / name, target)


def _download(lock_file: Path, target: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--require-hashes", "--no-deps"]
    command += ["--only-binary=:all:", *(f"--no-binary={name}" for name in SOURCES)]
    command += ["--disable-pip-version-check", "--no-input", "--progress-bar=off"]
    command += ["--dest", str(target), "-r", str(lock_file)]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env={**os.environ, "PIP_CONSTRAINT": ""},
    )
    if done.returncode:
        raise explain(f"requirements/{lock_file.name}", done.stdout.splitlines()[-200:])


def _image(order: Order, folder: Path, cache: Path, say: Progress) -> BundledImage | None:
    if order.image_format == "none":
        return None
    (folder / "image").mkdir()
    base = lock.base_for(order.rules_version, order.framework)
    if order.image_format in TOOLS:
        return _file_image(order, base, folder, say)
    return _pair_image(order, base, folder, cache, say)


def _pair_image(order: Order, base: lock.Base, folder: Path, cache: Path, say: Progress) -> BundledImage:
    """The pair's image, built here and saved: of the base it has the layers, and no digest of a registry."""
    built = build.build(
        order.workload,
        order.framework,
        base,
        platform=order.platform,
        rules_version=order.rules_version,
        cache=cache,
        fetch=order.fetch,
        say=say,
    )
    image = DockerEngine().image(built)
    if image is None:
        raise ImageProblem(f"{built} was built and is gone: somebody removes images here; run this again")
    _room(folder, 2 * image.size)
    tag = build.tag_of(order.workload, order.framework)
    name = f"image/{order.workload}-{order.framework}.tar"
    say(f"saving {tag} ({image.size / 1e9:.1f} GB)")
    saved = archive.save("docker", image.id, image.diff_ids, tag, folder / name)
    return BundledImage("oci", name, base.name, tag, saved.config_digest, saved.diff_ids)


def _room(folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < size:
        raise BundleProblem(
            f"{folder.parent}: the image's archive needs up to {size / 1e9:.1f} GB while it is made, and "
            f"{free / 1e9:.1f} GB are free: make room, or choose a DEST on another disk"
        )


def _file_image(order: Order, base: lock.Base, folder: Path, say: Progress) -> BundledImage:
    """The unmodified base, imported by its digest, with the record of that beside it."""
    tool = TOOLS[order.image_format]
    version = FileEngine(tool).version
    here = base.platform(order.platform)
    digest = here.manifest_digest or base.digest
    if digest is None:
        raise ImageProblem(
            f"{base.tagged}: expected a digest to import it by, found none in the lock: `make image-lock`"
        )
    _consent(base, here.compressed_bytes, order.fetch)
    name = f"image/{base.name}.{order.image_format}"
    say(f"importing {base.tagged} with {tool}")
    import_image(tool, version, f"{base.repository}@{digest}", folder / name)
    (folder / f"{name}.sha256.json").unlink(missing_ok=True)  # it is about the file's place on this machine
    layers = here.diff_ids
    return BundledImage(order.image_format, name, base.name, base.tagged, here.config_digest, layers)


def _consent(base: lock.Base, size: int | None, fetch: bool) -> None:
    if fetch or (size is not None and size <= LARGE_BYTES):
        return
    if size is None:
        raise ImageProblem(
            f"{base.tagged} is a download of unknown size, and nothing large is fetched unasked; to go on: "
            "the same command with FETCH=1"
        )
    seconds = round(size / ASSUMED_BYTES_PER_S)
    raise LargeDownload(base.tagged, size, size, seconds, "the same command with FETCH=1")


def _manifest(
    order: Order, folder: Path, image: BundledImage | None, elsewhere: Iterable[dict[str, Any]]
) -> None:
    files = {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": _sha256(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    manifest = {
        "format": FORMAT,
        "suite_version": __version__,
        "code_digest": code_digest(),
        "workload": order.workload,
        "framework": order.framework,
        "accelerator": order.accelerator,
        "platform": order.platform,
        "rules": order.rules_version,
        "image": None if image is None else asdict(image),
        "files": files,
        "elsewhere": list(elsewhere),
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", "utf-8")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
