"""Make a bundle: container image, wheels, data and rules of one pair, for a machine without network.

pip and the engine of this machine use its proxies, passwords and certificates; the bundle contains none of
them. The manifest lists under ``elsewhere``, with the official address, what the suite may not redistribute.
"""

from __future__ import annotations

import hashlib
import json
import shutil
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
from suite.containers.images.bundle_parts import split
from suite.containers.images.errors import ImageProblem
from suite.containers.images.inside import code_digest
from suite.containers.images.wheels import fetch as fetch_wheels
from suite.containers.images.wheels import pip_download
from suite.datasets import catalogue
from suite.datasets.prepare import STAMP
from suite.datasets.prepare import prepare as prepare_dataset
from suite.environments import environments
from suite.environments.environments import LARGE_BYTES, PYTHON, Progress
from suite.environments.errors import LargeDownload
from suite.workloads import specification

FORMATS = ("oci", *TOOLS, "none")
PARTIAL = ".partial"
SOURCES = ("antlr4-python3-runtime",)  # published without a wheel; pure Python
_SUITE_LOCKS = ("build.txt", "suite.txt")  # in requirements/; build.txt builds the wheel of SOURCES


@dataclass(frozen=True, slots=True)
class BundleRequest:
    """The contents of a bundle to make. ``image_format``: of FORMATS; "none" for runs without a container."""

    workload: str
    framework: str
    rules_version: str
    accelerator: str  # cpu | cuda, of the wheels for runs without a container
    platform: str = "linux/amd64"
    image_format: str = "oci"
    fetch: bool = False  # allow downloads over 1 GB
    part_bytes: int | None = None  # larger files are split into parts of this size


def make(request: BundleRequest, target: Path, cache: Path, report: Progress) -> Path:
    """Make the bundle in the new folder ``target``, which appears by one rename.

    Raises:
        BundleProblem: the folder exists already, or a file would have too many parts.
        LockProblem, ImageProblem, EngineProblem: there is no image; see :mod:`suite.containers.images.build`.
        EnvironmentMissing: a wheel that cannot be fetched, or no lock for the accelerator.
        LargeDownload: over 1 GB and ``request.fetch`` is false.
        DatasetError: data that cannot be generated.
        OSError: no space, or a folder that cannot be written.
    """
    _require_possible(request)
    partial = target.with_name(target.name + PARTIAL)
    _new(target, partial)
    try:
        _rules(request, partial)
        data = _data(request, partial)
        _wheels(request, partial, cache, report)
        image = _image(request, partial, cache, report)
        _manifest(request, partial, image, [*data, *_prerequisites(request)])
        files = read_manifest(partial)["files"]  # raises here rather than where the bundle is read
        if request.part_bytes is not None:
            split(partial, files, request.part_bytes)
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def _require_possible(request: BundleRequest) -> None:
    """Raise, before anything is fetched, the errors that the machine's engine or locks would cause later."""
    environments.plan(request.framework, request.accelerator)
    if request.image_format in TOOLS:
        FileEngine(TOOLS[request.image_format])
    elif request.image_format != "none":
        DockerEngine()


def _new(target: Path, partial: Path) -> None:
    if target.exists() or target.is_symlink():
        raise BundleProblem(
            f"{target} exists already and is not overwritten: choose another DEST, or remove it"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        partial.mkdir()
    except FileExistsError:
        raise BundleProblem(
            f"{partial} exists already: wait for the fetch that writes it, or remove it if none runs"
        ) from None


def _rules(request: BundleRequest, folder: Path) -> None:
    base = None
    if request.image_format != "none":
        base = lock.base_for(request.rules_version, request.framework).name
    files = rule_files(request.rules_version, request.workload, request.framework, request.platform, base)
    for name, path in files.items():
        _copy(path, folder / name)


def _data(request: BundleRequest, folder: Path) -> list[dict[str, Any]]:
    """Generate the mini dataset into the bundle; returns the row of ``elsewhere`` for the published one."""
    datasets = specification(request.workload).DATASETS
    ready = prepare_dataset(datasets["mini"], folder / "data")
    (ready.path / STAMP).unlink(missing_ok=True)  # it records file times of this machine
    published = catalogue.entry(datasets["reference"])
    address = None if published.source is None else published.source.url
    how = published.unavailable or f"`make data WORKLOAD={request.workload} FROM=path` takes a copy"
    return [_row(published.name, address, f"{published.licence} ({how})")]


def _prerequisites(request: BundleRequest) -> list[dict[str, Any]]:
    found = [
        _row(
            f"dl-benchmark-suite {__version__}", None, "the checkout that made this bundle, or an equal one"
        ),
        _row(f"Python {PYTHON[0]}.{PYTHON[1]} with venv, and make", None, "the operating system's"),
    ]
    if request.image_format != "none":
        engine = TOOLS.get(request.image_format, "docker or podman")
        found.append(_row(engine, None, "runs the image; the operating system's"))
    return found


def _row(name: str, address: str | None, reason: str) -> dict[str, Any]:
    return {"name": name, "address": address, "reason": reason}


def _wheels(request: BundleRequest, folder: Path, cache: Path, report: Progress) -> None:
    """The wheels of the suite's environment, and of the framework's for runs without a container."""
    environment = environments.plan(request.framework, request.accelerator)
    python = f"{PYTHON[0]}.{PYTHON[1]}"
    found = fetch_wheels(
        environment.lock,
        python,
        platform=request.platform,
        cache=cache,
        allow_large=request.fetch,
        report=report,
    )
    for wheel in sorted(found.iterdir()):
        _copy(wheel, folder / "wheels" / environment.name / wheel.name)
    report("fetching the wheels of the suite's environment")
    target = folder / "wheels" / "suite"
    target.mkdir(parents=True)
    for name in _SUITE_LOCKS:
        from_source = [f"--no-binary={package}" for package in SOURCES]
        pip_download(PROJECT / "requirements" / name, f"requirements/{name}", target, *from_source)


def _image(request: BundleRequest, folder: Path, cache: Path, report: Progress) -> BundledImage | None:
    if request.image_format == "none":
        return None
    (folder / "image").mkdir()
    base = lock.base_for(request.rules_version, request.framework)
    if request.image_format in TOOLS:
        return _file_image(request, base, folder, report)
    return _pair_image(request, base, folder, cache, report)


def _pair_image(
    request: BundleRequest, base: lock.Base, folder: Path, cache: Path, report: Progress
) -> BundledImage:
    """The pair's image, built and saved: it has the base's layers, but no digest of an image registry."""
    built = build.build(
        request.workload,
        request.framework,
        base,
        platform=request.platform,
        rules_version=request.rules_version,
        cache=cache,
        fetch=request.fetch,
        report=report,
    )
    image = DockerEngine().image(built)
    if image is None:
        raise ImageProblem(f"{built} was removed after it was built: run the same command again")
    _require_space(folder, 2 * image.size)
    tag = build.tag_of(request.workload, request.framework)
    name = f"image/{request.workload}-{request.framework}.tar"
    report(f"saving {tag} ({image.size / 1e9:.1f} GB)")
    saved = archive.save("docker", image.id, image.diff_ids, tag, folder / name)
    return BundledImage("oci", name, base.name, tag, saved.config_digest, saved.diff_ids)


def _require_space(folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < size:
        raise BundleProblem(
            f"{folder.parent}: writing the image's archive needs up to {size / 1e9:.1f} GB, and "
            f"{free / 1e9:.1f} GB are free: free some space, or choose a DEST on another disk"
        )


def _file_image(request: BundleRequest, base: lock.Base, folder: Path, report: Progress) -> BundledImage:
    """The unmodified base, imported by its digest, with the record of the import beside it."""
    tool = TOOLS[request.image_format]
    version = FileEngine(tool).version
    locked = base.platform(request.platform)
    digest = locked.manifest_digest or base.digest
    if digest is None:
        raise ImageProblem(
            f"{base.tagged}: expected a digest in the lock, found none: `make image-lock` reads it"
        )
    _require_consent(base, locked.compressed_bytes, request.fetch)
    name = f"image/{base.name}.{request.image_format}"
    report(f"importing {base.tagged} with {tool}")
    import_image(tool, version, f"{base.repository}@{digest}", folder / name)
    (folder / f"{name}.sha256.json").unlink(missing_ok=True)  # it records inode and times of this machine
    digests = (locked.config_digest, locked.diff_ids)
    return BundledImage(request.image_format, name, base.name, base.tagged, *digests)


def _require_consent(base: lock.Base, size: int | None, fetch: bool) -> None:
    if fetch or (size is not None and size <= LARGE_BYTES):
        return
    if size is None:
        raise ImageProblem(
            f"{base.tagged} is a download of unknown size, and downloads over 1 GB need consent: run the "
            "same command with FETCH=1"
        )
    raise LargeDownload(base.tagged, size, size)


def _manifest(
    request: BundleRequest, folder: Path, image: BundledImage | None, elsewhere: Iterable[dict[str, Any]]
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
        "workload": request.workload,
        "framework": request.framework,
        "accelerator": request.accelerator,
        "platform": request.platform,
        "rules": request.rules_version,
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
