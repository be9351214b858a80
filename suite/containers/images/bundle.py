"""A bundle: everything a run needs from a network, in one folder (``make fetch``, ``make run BUNDLE=…``).

It comes from another machine and is untrusted input. A schema validates its manifest, the manifest its files,
and this checkout its rules and the digest of its code. Each content is verified once more where it is used:
layers by the engine, wheels by the lock, data by the rules.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suite import __version__, rules
from suite.containers.engines.attestation import Engine, EngineImage, suite_labels
from suite.containers.engines.native import PROJECT
from suite.containers.images.bundle_manifest import (
    MANIFEST,
    TOOLS,
    BundleProblem,
    mismatch,
    read_manifest,
    verify,
)
from suite.containers.images.bundle_parts import join
from suite.containers.images.errors import ImageProblem
from suite.containers.images.inside import code_digest
from suite.datasets.errors import storage_errors
from suite.datasets.prepare import MANIFEST as DATA_MANIFEST
from suite.datasets.prepare import building
from suite.environments.environments import Progress
from suite.log.canonical import sha256_hex
from suite.log.safe import safe
from suite.rules import SHIPPED

_RULES = PROJECT / "rules"
_MACHINE_MADE = "rules/practice/images/"
_MAX_SHOWN = 5


@dataclass(frozen=True, slots=True)
class BundledImage:
    """``format`` "oci": a pair's image, to load; "sif", "sqsh": the base image alone, as a file to start."""

    format: str
    file: str
    base: str  # the lock's entry
    tag: str
    config_digest: str | None
    diff_ids: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Bundle:
    """A verified bundle. ``files``: the SHA-256 of every file by its name."""

    folder: Path
    workload: str
    framework: str
    accelerator: str
    platform: str
    rules_version: str
    image: BundledImage | None
    files: Mapping[str, str]

    def require(self, workload: str, framework: str) -> None:
        """BundleProblem unless the bundle was made for this pair."""
        if (self.workload, self.framework) != (workload, framework):
            raise BundleProblem(
                f"bundle {self.folder}: this run is of {workload} in {framework}, the bundle was made for "
                f"{self.workload} in {self.framework}: make another one with `make fetch`"
            )

    def require_base(self, base: str) -> None:
        """BundleProblem unless its image was built on ``base``, the entry of the lock that this run uses."""
        if self.image is not None and self.image.base != base:
            raise BundleProblem(
                f"bundle {self.folder}: this run uses {base} of the lock, the image in the bundle was built "
                f"on {self.image.base} (rules {self.rules_version}): make another one with `make fetch`"
            )

    def wheels(self, name: str) -> Path | None:
        """The folder with the wheels ``name`` ("suite", "pytorch-cpu"); None if the bundle lacks them."""
        return self._folder(f"wheels/{name}")

    def dataset(self, name: str) -> Path | None:
        """The folder with the prepared dataset ``name``; None if the bundle lacks it."""
        return self._folder(f"data/{name}")

    def copy_dataset(self, name: str, root: Path) -> None:
        """Copy the dataset ``name`` to ``root`` if the bundle has it and ``root`` does not.

        The copy appears by one rename; ``prepare`` compares it with the rules. Raises StorageError.
        """
        source = self.dataset(name)
        if source is None or (root / name).exists() or not (source / DATA_MANIFEST).is_file():
            return
        with storage_errors(root), building(name, root) as folder:
            shutil.copytree(source, folder, dirs_exist_ok=True, copy_function=shutil.copyfile)

    def load_image(self, engine: Engine, report: Progress) -> str:
        """The id of the pair's image in ``engine``, loaded where the engine lacks it.

        Raises ImageProblem where the bundle has no such image, the engine cannot load it, or the loaded image
        differs from the manifest.
        """
        image = self.image
        if image is None or image.format != "oci" or engine.name in TOOLS.values():
            kind = "no image" if image is None else f"an image as {image.format}"
            raise ImageProblem(
                f"bundle {self.folder}: expected an image that {engine.name} can run, found {kind}: make the "
                f"bundle with IMAGE_FORMAT={_format_for(engine.name)}, or choose another RUNTIME"
            )
        found = self._loaded(engine, image)
        if found is None:
            report(f"loading {image.tag} from the bundle")
            _load(engine.name, self.folder / image.file)
            found = self._loaded(engine, image)
        if found is None:
            raise ImageProblem(
                f"bundle {self.folder}: {engine.name} loaded {image.file}, but has no image with the "
                f"configuration {image.config_digest} and the layers of the manifest: make the bundle again "
                "with `make fetch`"
            )
        self._require_labels(found)
        return found.id

    def copy_image(self, tool: str, target: Path, report: Progress) -> None:
        """Copy the image that ``tool`` (apptainer, enroot) starts, with the record of its import.

        Raises ImageProblem where the bundle lacks it.
        """
        image = self.image
        if image is None or TOOLS.get(image.format) != tool:
            kind = "no image" if image is None else f"an image as {image.format}"
            raise ImageProblem(
                f"bundle {self.folder}: expected an image for {tool}, found {kind}: make the bundle with "
                f"IMAGE_FORMAT={_format_for(tool)}, or choose another RUNTIME"
            )
        report(f"copying {image.file} from the bundle")
        target.parent.mkdir(parents=True, exist_ok=True)
        for suffix in (".import.json", ""):  # the record first, so that no image is without its record
            source = self.folder / (image.file + suffix)
            partial = target.with_name(f".{os.getpid()}.{target.name}{suffix}")
            try:
                shutil.copyfile(source, partial)
                partial.replace(target.with_name(target.name + suffix))
            finally:
                partial.unlink(missing_ok=True)

    def _folder(self, name: str) -> Path | None:
        inside = any(file.startswith(f"{name}/") for file in self.files)
        return self.folder / name if inside else None

    def _require_labels(self, image: EngineImage) -> None:
        """ImageProblem unless the image's labels are those of this run; the checker compares its layers."""
        labels = suite_labels(image.labels)
        wanted = {"workload": self.workload, "framework": self.framework, "code_digest": code_digest()}
        for name, value in wanted.items():
            if labels.get(name) != value:
                raise ImageProblem(
                    f"bundle {self.folder}: expected an image with the label {name} {value}, found "
                    f"{safe(labels.get(name))}: make the bundle again with `make fetch`"
                )
        if not re.fullmatch("[0-9a-f]{64}", labels.get("requirements_digest", "")):
            raise ImageProblem(
                f"bundle {self.folder}: expected an image with the label requirements_digest, found "
                f"{safe(labels.get('requirements_digest'))}: make the bundle again with `make fetch`"
            )

    def _loaded(self, engine: Engine, image: BundledImage) -> EngineImage | None:
        for name in (image.config_digest, image.tag):
            found = engine.image(name) if name else None
            if (
                found is not None
                and found.diff_ids == image.diff_ids
                and found.platform == self.platform
                and found.config_digest in (None, image.config_digest)
            ):
                return found
        return None


def open_bundle(path: Path) -> Bundle:
    """The bundle in the folder ``path``; joins files that are in parts, and reads and verifies every file.

    Raises BundleProblem where a file or part differs from the manifest, and as :func:`described_bundle`.
    """
    manifest = read_manifest(path)
    try:
        join(path, manifest["files"])
    except OSError as error:
        raise BundleProblem(
            f"bundle {path}: expected a folder in which its parts can be joined, found "
            f"{safe(error.filename)}: {error.strerror}: copy the bundle to a disk that can be written and "
            "has room for it"
        ) from error
    try:
        verify(path, manifest["files"])
    except OSError as error:
        raise mismatch(path, str(error.filename), "a file that can be read", str(error.strerror)) from error
    return _of_manifest(path, manifest)


def described_bundle(path: Path) -> Bundle:
    """The bundle in ``path`` as its manifest describes it, for a dry run: no other file is read.

    Raises BundleProblem where it was made for another version of the suite, its worker's code or its rules.
    """
    return _of_manifest(path, read_manifest(path))


def _of_manifest(path: Path, manifest: Mapping[str, Any]) -> Bundle:
    digests = {name: file["sha256"] for name, file in manifest["files"].items()}
    _same_checkout(path, manifest, digests)
    image = manifest["image"]
    if image is not None:
        image = BundledImage(**{**image, "diff_ids": image["diff_ids"] and tuple(image["diff_ids"])})
        _require_whole_image(path, image, digests)
    return Bundle(
        path,
        manifest["workload"],
        manifest["framework"],
        manifest["accelerator"],
        manifest["platform"],
        manifest["rules"],
        image,
        digests,
    )


def rule_files(
    version: str, workload: str, framework: str, platform: str, base: str | None
) -> dict[str, Path]:
    """The files of the rules in a bundle, by name: those of ``version``, of practice, and inherited ones.

    Of the lock of images these are only the entry ``base`` and the pair's published layers above it: the
    other entries do not concern the run, and some are generated on every machine.
    """
    found = []
    for one in dict.fromkeys((*SHIPPED.lineage(version), *SHIPPED.lineage("practice"))):
        folder = SHIPPED.folder(one)
        files = (path for path in folder.rglob("*") if path.is_file())
        found += [path for path in files if path.relative_to(folder).parts[0] != "images"]
    lock = rules.load(version).lock
    entry = lock.bases().get(base) if base is not None else None
    layers = lock.published(workload, framework, code_digest(), platform, base) if entry else None
    found += [_RULES / one.file for one in (entry, layers) if one is not None]
    return {path.relative_to(PROJECT).as_posix(): path for path in sorted(found)}


def _same_checkout(path: Path, manifest: Mapping[str, Any], files: Mapping[str, str]) -> None:
    """BundleProblem unless version, worker's code and rules are those of this checkout."""
    checkout = {"suite_version": __version__, "code_digest": code_digest()}
    for name, value in checkout.items():
        if manifest[name] != value:
            raise BundleProblem(
                f"bundle {path}: {name}: this checkout has {value}, the bundle was made for "
                f"{safe(manifest[name])}: use the checkout that made it, or make another one (`make fetch`)"
            )
    version = manifest["rules"]
    if version not in rules.VERSIONS:
        raise mismatch(path, "rules", f"one of {', '.join(rules.VERSIONS)}", version)
    wanted = rule_files(version, manifest["workload"], manifest["framework"], manifest["platform"], None)
    found = {name: sha256 for name, sha256 in files.items() if name.startswith("rules/")}
    different = sorted(
        name
        for name in {*wanted, *found}
        if name not in found or not (PROJECT / name).is_file() or found[name] != _project_digest(name)
    )
    if not different:
        return
    shown = ", ".join(different[:_MAX_SHOWN]) + (" …" if len(different) > _MAX_SHOWN else "")
    raise BundleProblem(
        f"bundle {path}: expected the rules of this checkout, found others: {shown}. {_fix(path, different)}"
    )


def _fix(path: Path, different: list[str]) -> str:
    if not all(name.startswith(_MACHINE_MADE) for name in different):
        return "Use the checkout that made the bundle, or make another one with `make fetch`"
    return (
        "These entries are generated on each machine; to trust the bundle's: "
        f"cp -r {path / _MACHINE_MADE} {PROJECT / 'rules/practice'}"
    )


def _project_digest(name: str) -> str:
    return sha256_hex((PROJECT / name).read_bytes())


def _require_whole_image(path: Path, image: BundledImage, files: Mapping[str, str]) -> None:
    """BundleProblem where files or digests of the manifest's image are missing."""
    needed = [image.file] if image.format == "oci" else [image.file, f"{image.file}.import.json"]
    for name in needed:
        if name not in files:
            raise mismatch(path, MANIFEST, f"the image's {name} among the files", "no such entry")
    if image.format == "oci" and None in (image.config_digest, image.diff_ids):
        raise mismatch(path, MANIFEST, "config_digest and diff_ids of the image", "null")


def _load(client: str, archive: Path) -> None:
    done = subprocess.run(
        [client, "load", "--quiet", "--input", str(archive)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1][:300]
        raise ImageProblem(
            f"{client} cannot load {archive} ({last}): check the free space of its image store"
        )


def _format_for(engine: str) -> str:
    return next((image_format for image_format, tool in TOOLS.items() if tool == engine), "oci")
