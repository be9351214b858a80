"""A bundle: all that a run needs from a network, in one folder with a manifest (``make fetch``, ``BUNDLE=``).

It comes from another machine, so nothing in it is believed. Its manifest is held to a schema, its files to the
manifest, its rules and the digest of its code to this checkout; and what is taken out of it is checked once
more by whoever takes it: layers by the engine, wheels by the lock, data by the rules.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema_rs

from suite import __version__, rules
from suite.datasets.prepare import MANIFEST as DATA_MANIFEST
from suite.datasets.prepare import building
from suite.images.errors import ImageProblem
from suite.images.inside import code_digest
from suite.record.canonical import sha256_hex
from suite.record.files import read_file
from suite.record.finding import RecordError
from suite.record.safe import safe
from suite.rules.places import folder_of, lineage
from suite.runtime.attestation import Engine, EngineImage, suite_labels
from suite.runtime.environments import Progress
from suite.runtime.native import PROJECT

FORMAT = "suite-bundle/1"
MANIFEST = "manifest.json"
TOOLS = {"sif": "apptainer", "sqsh": "enroot"}  # what reads an image that is a file
_MAX_MANIFEST = 4 << 20
_MAX_SHOWN = 5

_HEX = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_DIGEST = {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"}
_TEXT = {"type": "string", "maxLength": 1000}
_WORD = {"type": "string", "pattern": "^[a-z0-9][a-z0-9._-]{0,63}$"}
# Every part of a path begins with a letter or digit: no "..", nothing hidden, nothing absolute.
_SEGMENT = r"[A-Za-z0-9][A-Za-z0-9._+!%-]{0,200}"
_PATH = rf"^(image|wheels|data|rules)(/{_SEGMENT}){{1,5}}$"


def _closed(**fields: Any) -> dict[str, Any]:
    """The schema of an object with exactly these fields."""
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


def _or_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


_IMAGE = _closed(
    format={"enum": ["oci", *TOOLS]},
    file={"type": "string", "pattern": _PATH},
    base=_WORD,
    tag={"type": "string", "pattern": "^[a-z0-9][a-z0-9._/-]{0,200}:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$"},
    config_digest=_or_null(_DIGEST),
    diff_ids=_or_null({"type": "array", "items": _DIGEST, "minItems": 1, "maxItems": 500}),
)
SCHEMA = _closed(
    format={"const": FORMAT},
    suite_version=_TEXT,
    code_digest=_HEX,
    workload=_WORD,
    framework=_WORD,
    accelerator=_WORD,
    platform={"enum": ["linux/amd64", "linux/arm64"]},
    rules=_WORD,
    image=_or_null(_IMAGE),
    files={
        "type": "object",
        "propertyNames": {"pattern": _PATH},
        "additionalProperties": _closed(bytes={"type": "integer", "minimum": 0}, sha256=_HEX),
        "maxProperties": 5000,
    },
    elsewhere={
        "type": "array",
        "items": _closed(name=_TEXT, address=_or_null(_TEXT), reason=_TEXT),
        "maxItems": 100,
    },
)


class BundleProblem(Exception):
    """A bundle that cannot be used: the message says what was expected, found and where, and the mend."""


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

    def require(self, workload: str, framework: str, rules_version: str) -> None:
        """BundleProblem unless the bundle was made for this pair and these rules."""
        wanted = {"workload": workload, "framework": framework, "rules": rules_version}
        found = {"workload": self.workload, "framework": self.framework, "rules": self.rules_version}
        for name, value in wanted.items():
            if found[name] != value:
                raise BundleProblem(
                    f"bundle {self.folder}: this run is of {name} {value}, the bundle was made for "
                    f"{found[name]}: make another one with `make fetch`"
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
        """
        source = self.dataset(name)
        if source is None or (root / name).exists() or not (source / DATA_MANIFEST).is_file():
            return
        with building(name, root) as folder:
            for path in sorted(source.iterdir()):
                shutil.copyfile(path, folder / path.name)

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
        """What the image says of itself is what this run asks for; the layers are for the checker to judge."""
        labels = suite_labels(image.labels)
        wanted = {"workload": self.workload, "framework": self.framework, "code_digest": code_digest()}
        for name, value in wanted.items():
            if labels.get(name) != value:
                raise ImageProblem(
                    f"bundle {self.folder}: expected an image with the label {name} {value}, found "
                    f"{safe(labels.get(name))}: make the bundle anew with `make fetch`"
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
    files = {name: (file["bytes"], file["sha256"]) for name, file in manifest["files"].items()}
    _verify(path, files)
    digests = {name: sha256 for name, (_, sha256) in files.items()}
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


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of the bundle in ``path``, as its schema allows it; BundleProblem otherwise."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise BundleProblem(
            f"bundle {path}: expected a folder that `make fetch` made ({os.strerror(error.errno or 0)})"
        ) from error
    try:
        manifest = json.loads(read_file(descriptor, MANIFEST, _MAX_MANIFEST))
    except RecordError as error:
        defect = error.defects[0]
        raise _unlike(path, MANIFEST, defect.expected, defect.actual) from error
    except (ValueError, RecursionError) as error:
        raise _unlike(path, MANIFEST, "JSON", str(error)) from error
    finally:
        os.close(descriptor)
    for fault in jsonschema_rs.validator_for(SCHEMA).iter_errors(manifest):
        place = ".".join(map(str, fault.instance_path)) or "the whole"
        raise _unlike(path, MANIFEST, "what the format suite-bundle/1 allows", f"{place}: {fault.message}")
    checked: dict[str, Any] = manifest
    return checked


def rule_files(
    version: str, workload: str, framework: str, platform: str, base: str | None
) -> dict[str, Path]:
    """What a bundle has of the rules, by name in it: all of the version and what it is based on.

    Of the lock of images only the entry ``base`` and the pair's published layers above it: the other entries
    say nothing about this run, and some are made anew on every machine.
    """
    found = []
    for one in lineage(version):
        folder = folder_of(one)
        files = (path for path in folder.rglob("*") if path.is_file())
        found += [path for path in files if path.relative_to(folder).parts[0] != "images"]
    lock = rules.load(version).lock
    entry = lock.bases().get(base) if base is not None else None
    layers = lock.published(workload, framework, code_digest(), platform, base) if entry else None
    found += [_RULES / one.file for one in (entry, layers) if one is not None]
    return {path.relative_to(PROJECT).as_posix(): path for path in sorted(found)}


_RULES = PROJECT / "rules"


def _verify(path: Path, files: Mapping[str, tuple[int, str]]) -> None:
    """Every file that is there is listed, every listed file is there, is a file, and has its bytes."""
    present = set(_present(path, ""))
    for names, expected, found in (
        (present - {*files, MANIFEST}, "only files that the manifest lists", "a file more"),
        (set(files) - present, "what the manifest lists", "no such file"),
    ):
        if names:
            raise _unlike(path, min(names), expected, f"{found} ({len(names)} in all)")
    for name, (size, sha256) in sorted(files.items()):
        descriptor = os.open(path / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            length = os.fstat(file.fileno()).st_size
            if length != size:
                raise _unlike(path, name, f"{size} bytes", f"{length}")
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != sha256:
            raise _unlike(path, name, f"SHA-256 {sha256}", digest)


def _present(root: Path, inside: str) -> Iterator[str]:
    """The files under ``root``, none of them followed anywhere."""
    with os.scandir(root / inside) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            name = f"{inside}{entry.name}"
            mode = entry.stat(follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                yield from _present(root, f"{name}/")
            elif stat.S_ISREG(mode):
                yield name
            else:
                raise _unlike(root, name, "a file or folder", "a link, pipe or device")


def _same_checkout(path: Path, manifest: Mapping[str, Any], files: Mapping[str, str]) -> None:
    """BundleProblem unless version, worker's code and rules are those of this checkout."""
    here = {"suite_version": __version__, "code_digest": code_digest()}
    for name, value in here.items():
        if manifest[name] != value:
            raise BundleProblem(
                f"bundle {path}: {name}: this checkout has {value}, the bundle was made for "
                f"{safe(manifest[name])}: bring the checkout that made it, or make another one with `make fetch`"
            )
    version = manifest["rules"]
    if version not in rules.VERSIONS:
        raise _unlike(path, "rules", f"one of {', '.join(rules.VERSIONS)}", version)
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
        f"bundle {path}: expected the rules of this checkout, found others: {shown}. {_mend(path, different)}"
    )


def _mend(path: Path, different: list[str]) -> str:
    machine_made = "rules/practice/images/"
    if not all(name.startswith(machine_made) for name in different):
        return "Bring the checkout that made the bundle, or make another one with `make fetch`"
    return (
        "These entries are made anew on each machine; to trust the bundle's: "
        f"cp -r {path / machine_made} {PROJECT / 'rules/practice'}"
    )


def _digest_here(name: str) -> str:
    return sha256_hex((PROJECT / name).read_bytes())


def _complete(path: Path, image: BundledImage, files: Mapping[str, str]) -> None:
    """BundleProblem where the manifest names an image that is not whole."""
    needed = [image.file] if image.format == "oci" else [image.file, f"{image.file}.import.json"]
    for name in needed:
        if name not in files:
            raise _unlike(path, MANIFEST, f"the image's {name} among the files", "nothing of it")
    if image.format == "oci" and None in (image.config_digest, image.diff_ids):
        raise _unlike(path, MANIFEST, "config_digest and diff_ids of the image", "null")


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


def _unlike(path: Path, place: str, expected: str, found: str) -> BundleProblem:
    return BundleProblem(
        f"bundle {path}: {safe(place)}: expected {expected}, found {safe(found, 200)}: copy the bundle again, "
        "or make another one with `make fetch`"
    )
