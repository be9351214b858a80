"""A bundle: all that a run needs from a network, in one folder (``make fetch``, ``make run BUNDLE=…``).

It comes from another machine, so nothing in it is believed. Its manifest is held to a schema, its files to
the manifest, its rules and the digest of its code to this checkout; and what is taken out of it is checked
once more by whoever takes it: layers by the engine, wheels by the lock, data by the rules.
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
    read_manifest,
    unlike,
    verify,
)
from suite.containers.images.errors import ImageProblem
from suite.containers.images.inside import code_digest
from suite.datasets.errors import storage
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
    """``format`` "oci": a pair's image, to be loaded; "sif", "sqsh": the base alone, as a file to start."""

    format: str
    file: str
    base: str  # the lock's entry
    tag: str
    config_digest: str | None
    diff_ids: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle that was verified whole. ``files``: its files by name, with their SHA-256."""

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
        """BundleProblem unless its image is made of ``base``, the entry of the lock that this run goes by."""
        if self.image is not None and self.image.base != base:
            raise BundleProblem(
                f"bundle {self.folder}: this run goes by {base} of the lock, the image in the bundle is made "
                f"of {self.image.base} (rules {self.rules_version}): make another one with `make fetch`"
            )

    def wheels(self, name: str) -> Path | None:
        """The folder with the wheels ``name`` ("suite", "pytorch-cpu"); None if they are not in it."""
        return self._folder(f"wheels/{name}")

    def dataset(self, name: str) -> Path | None:
        """The folder with the prepared dataset ``name``; None if it is not in the bundle."""
        return self._folder(f"data/{name}")

    def place_dataset(self, name: str, root: Path) -> None:
        """Copy the dataset ``name`` to ``root`` where it is in the bundle and not yet there.

        The copy appears whole or not at all; whether it is what the rules say is for whoever prepares it.
        Raises StorageError.
        """
        source = self.dataset(name)
        if source is None or (root / name).exists() or not (source / DATA_MANIFEST).is_file():
            return
        with storage(root), building(name, root) as folder:
            shutil.copytree(source, folder, dirs_exist_ok=True, copy_function=shutil.copyfile)

    def load_image(self, engine: Engine, say: Progress) -> str:
        """The id of the pair's image in ``engine``, loaded where it is not there yet.

        Raises ImageProblem where the bundle has no such image, the engine cannot load it, or has another
        one under its name then.
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
            say(f"loading {image.tag} from the bundle")
            _load(engine.name, self.folder / image.file)
            found = self._loaded(engine, image)
        if found is None:
            raise ImageProblem(
                f"bundle {self.folder}: {engine.name} loaded {image.file} and has no image with the "
                f"configuration {image.config_digest} and the layers that the manifest names: make it anew"
            )
        self._require_labels(found)
        return found.id

    def place_image(self, tool: str, target: Path, say: Progress) -> None:
        """Copy the image that ``tool`` (apptainer, enroot) starts, with the record of its import.

        Raises ImageProblem where it is not in the bundle.
        """
        image = self.image
        if image is None or TOOLS.get(image.format) != tool:
            kind = "no image" if image is None else f"an image as {image.format}"
            raise ImageProblem(
                f"bundle {self.folder}: expected an image for {tool}, found {kind}: make the bundle with "
                f"IMAGE_FORMAT={_format_for(tool)}, or choose another RUNTIME"
            )
        say(f"copying {image.file} from the bundle")
        target.parent.mkdir(parents=True, exist_ok=True)
        for suffix in (".import.json", ""):  # the image last: where it is, its record is
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
        """That the image says of itself what this run asks for; its layers are the checker's to judge."""
        labels = suite_labels(image.labels)
        wanted = {"workload": self.workload, "framework": self.framework, "code_digest": code_digest()}
        for name, value in wanted.items():
            if labels.get(name) != value:
                raise ImageProblem(
                    f"bundle {self.folder}: expected an image with the label {name} {value}, found "
                    f"{safe(labels.get(name))}: make the bundle anew with `make fetch`"
                )
        if not re.fullmatch("[0-9a-f]{64}", labels.get("requirements_digest", "")):
            raise ImageProblem(
                f"bundle {self.folder}: expected an image with the label requirements_digest, found "
                f"{safe(labels.get('requirements_digest'))}: make the bundle anew with `make fetch`"
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
    """The bundle in the folder ``path``, every file of it verified, which takes a while for an image.

    Raises BundleProblem for anything that is not as its manifest says, or that was made for another version
    of the suite, its worker's code or its rules.
    """
    manifest = read_manifest(path)
    try:
        verify(path, manifest["files"])
    except OSError as error:
        raise unlike(path, str(error.filename), "a file that can be read", str(error.strerror)) from error
    digests = {name: file["sha256"] for name, file in manifest["files"].items()}
    _same_checkout(path, manifest, digests)
    image = manifest["image"]
    if image is not None:
        image = BundledImage(**{**image, "diff_ids": image["diff_ids"] and tuple(image["diff_ids"])})
        _complete(path, image, digests)
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
    """What a bundle has of the rules, by name in it: those of ``version``, of practice, and their bases.

    Of the lock of images only the entry ``base`` and the pair's published layers above it: the other entries
    say nothing about this run, and some are made anew on every machine.
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
    here = {"suite_version": __version__, "code_digest": code_digest()}
    for name, value in here.items():
        if manifest[name] != value:
            raise BundleProblem(
                f"bundle {path}: {name}: this checkout has {value}, the bundle was made for "
                f"{safe(manifest[name])}: bring the checkout that made it, or make another one (`make fetch`)"
            )
    version = manifest["rules"]
    if version not in rules.VERSIONS:
        raise unlike(path, "rules", f"one of {', '.join(rules.VERSIONS)}", version)
    wanted = rule_files(version, manifest["workload"], manifest["framework"], manifest["platform"], None)
    found = {name: sha256 for name, sha256 in files.items() if name.startswith("rules/")}
    different = sorted(
        name
        for name in {*wanted, *found}
        if name not in found or not (PROJECT / name).is_file() or found[name] != _digest_here(name)
    )
    if not different:
        return
    shown = ", ".join(different[:_MAX_SHOWN]) + (" …" if len(different) > _MAX_SHOWN else "")
    raise BundleProblem(
        f"bundle {path}: expected the rules of this checkout, found others: {shown}. {_fix(path, different)}"
    )


def _fix(path: Path, different: list[str]) -> str:
    if not all(name.startswith(_MACHINE_MADE) for name in different):
        return "Bring the checkout that made the bundle, or make another one with `make fetch`"
    return (
        "These entries are made anew on each machine; to trust the bundle's: "
        f"cp -r {path / _MACHINE_MADE} {PROJECT / 'rules/practice'}"
    )


def _digest_here(name: str) -> str:
    return sha256_hex((PROJECT / name).read_bytes())


def _complete(path: Path, image: BundledImage, files: Mapping[str, str]) -> None:
    """BundleProblem where the manifest names an image that is not whole."""
    needed = [image.file] if image.format == "oci" else [image.file, f"{image.file}.import.json"]
    for name in needed:
        if name not in files:
            raise unlike(path, MANIFEST, f"the image's {name} among the files", "nothing of it")
    if image.format == "oci" and None in (image.config_digest, image.diff_ids):
        raise unlike(path, MANIFEST, "config_digest and diff_ids of the image", "null")


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
        told = (done.stderr.strip().splitlines() or ["no message"])[-1][:300]
        raise ImageProblem(f"{client} cannot load {archive} ({told}): is there room where it keeps images?")


def _format_for(engine: str) -> str:
    return next((form for form, tool in TOOLS.items() if tool == engine), "oci")
