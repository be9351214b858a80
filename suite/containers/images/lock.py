"""The lock of base images: one file for each entry in ``rules/<version>/images/``, pinned by digest.

An entry states what an image is (repository, tag, digests for each platform), where that knowledge comes from
(``status``, ``provenance``), and what it needs (GPU architectures, driver, disk). The tag is for people; the
digest decides. ``closed`` runs accept only images whose digests were read back from the image registry.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from suite import rules

PLATFORMS = ("linux/amd64", "linux/arm64")
STATUSES = ("resolved", "unverified", "unresolved", "archived")
CONTAINS = ("framework", "python", "os", "cuda", "cudnn", "nccl")

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
# The image reference grammar of the distribution project; the image registry must be named.
_REPOSITORY = re.compile(r"[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+\Z")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z")
_DRIVER = re.compile(r"[0-9]+(\.[0-9]+){0,2}\Z")


class LockProblem(ValueError):
    """An entry that cannot be used; the message names the file or entry, what was expected and found."""


@dataclass(frozen=True, slots=True)
class PlatformImage:
    """One platform's image. Digests are "sha256:<64 hex>"; ``compressed_bytes`` is the sum of its layers."""

    manifest_digest: str | None = None
    config_digest: str | None = None
    diff_ids: tuple[str, ...] | None = None
    compressed_bytes: int | None = None

    @property
    def complete(self) -> bool:
        """Whether manifest, config and layers are all known."""
        return None not in (self.manifest_digest, self.config_digest, self.diff_ids)


_IMAGE_FIELDS = len(fields(PlatformImage))


@dataclass(frozen=True, slots=True)
class Base:
    """One entry of the lock; None is unknown. The fields are those of the file, in its order."""

    name: str
    framework: str
    current: bool
    status: str
    repository: str
    tag: str
    index_digest: str | None
    # A digest whose source did not state whether it is the index's or one platform's manifest.
    digest_of_unknown_kind: str | None
    platforms: Mapping[str, PlatformImage]
    provenance: str
    resolved_at: str | None
    resolver: str | None
    requirements: str | None  # the file in containers/<framework>/ that is installed on top
    contains: Mapping[str, str | None]
    architectures: tuple[str, ...] | None  # compute capabilities that the image has code for
    minimum_driver: str | None  # for any GPU
    compat_driver: str | None  # for data-centre GPUs, through the compatibility package in the image
    unpacked_bytes: int | None
    note: str | None

    @property
    def tagged(self) -> str:
        """Repository and tag ("repository:tag"), for people; a tag pins nothing."""
        return f"{self.repository}:{self.tag}"

    @property
    def reference(self) -> str:
        """The reference to pull: "repository:tag@sha256:…", without the digest where none is known."""
        return f"{self.tagged}@{self.digest}" if self.digest else self.tagged

    @property
    def digest(self) -> str | None:
        """The digest behind :attr:`reference`: of the index, else of the first platform known."""
        manifests = (image.manifest_digest for image in self.platforms.values())
        known = (self.index_digest, *manifests, self.digest_of_unknown_kind)
        return next((digest for digest in known if digest), None)

    def platform(self, name: str) -> PlatformImage:
        """The image for ``name`` ("linux/amd64"); all fields None where the lock does not have it."""
        return self.platforms.get(name, PlatformImage())

    @property
    def why_not_closed(self) -> str | None:
        """Why a closed run may not use this base, with the fix; None where it may."""
        if self.status == "resolved":
            return None
        reason = {
            "archived": "archived, listed for the record only",
            "unverified": "digest never read back from its image registry (`make image-lock`)",
            "unresolved": "no digest known (`make image-lock` reads it from the image registry)",
        }[self.status]
        return f"{self.name}: {reason}"

    def entry(self) -> dict[str, Any]:
        """The entry as in the file."""
        return asdict(self)


def bases(version: str) -> dict[str, Base]:
    """The entries of a version of the rules by name, inherited ones last. LockProblem for an invalid one."""
    found = rules.load(version).bases()
    return {name: parse(entry, f"rules {version}, image {name}") for name, entry in found.items()}


def base_for(version: str, framework: str) -> Base:
    """The current base of ``framework``; LockProblem if the version has none."""
    entry = rules.load(version).base_for(framework)
    if entry is None:
        known = sorted({base.framework for base in bases(version).values() if base.current})
        raise LockProblem(
            f"rules {version}: expected a framework with a current base image, found {framework!r}; known "
            f"are {', '.join(known) or 'none'}. Add an entry to rules/{version}/images/"
        )
    return parse(entry, f"rules {version}, image for {framework}")


def parse(entry: Mapping[str, Any], where: str) -> Base:
    """``entry`` as a :class:`Base`; LockProblem naming ``where`` and every fault."""
    found = faults(entry)
    if found:
        raise LockProblem(f"{where}: {'; '.join(found)}. Fix the file, or write it again with `image lock`")
    values = {**dict.fromkeys(("digest_of_unknown_kind", "compat_driver")), **entry}
    values["platforms"] = {
        name: PlatformImage(**{**image, "diff_ids": _tuple(image["diff_ids"])})
        for name, image in entry["platforms"].items()
    }
    values["contains"] = {**dict.fromkeys(CONTAINS), **entry["contains"]}
    values["architectures"] = _tuple(entry["architectures"])
    return Base(**values)


def read_folder(folder: Path) -> dict[str, Base]:
    """The entries in ``folder`` itself, by name, as they are on disk now."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        try:
            entry = json.loads(path.read_bytes())
        except ValueError as error:
            raise LockProblem(f"{path}: expected JSON, found {error}") from error
        base = parse(entry, str(path))
        if base.name != path.stem:
            raise LockProblem(f"{path}: expected name {path.stem!r}, found {base.name!r}; rename the file")
        found[base.name] = base
    return found


def write(folder: Path, base: Base) -> Path:
    """Write ``base`` to its file in ``folder`` by rename; LockProblem for an invalid entry."""
    parse(json.loads(json.dumps(base.entry())), base.name)
    text = json.dumps(base.entry(), indent=2, ensure_ascii=True) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{base.name}.json"
    replace_text(target, text)
    return target


def replace_text(target: Path, text: str) -> None:
    """Write ``text`` to ``target`` by rename: a reader sees the old file or the new one."""
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=".", suffix=".tmp")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        temporary.chmod(0o644)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


# Conditions of an entry beyond the schema of the rules


def faults(entry: Any) -> list[str]:
    """The defects of ``entry``, one text each; none where it can be used."""
    schemas = rules.load(rules.LATEST).schemas
    if not schemas.valid("image", entry):
        return [f"{where or 'entry'}: {message}" for where, message in schemas.explain("image", entry)]
    return [*_texts(entry), *_status(entry)]


def _texts(entry: Mapping[str, Any]) -> list[str]:
    names = {field.name for field in fields(Base)}
    found = [f"unknown field {name!r}" for name in entry if name not in names]
    patterns = {"repository": _REPOSITORY, "tag": _TAG, "minimum_driver": _DRIVER, "compat_driver": _DRIVER}
    patterns["digest_of_unknown_kind"] = _DIGEST
    for name, pattern in patterns.items():
        value = entry.get(name)
        unknown = value is None and name not in ("repository", "tag")
        if not unknown and not (isinstance(value, str) and pattern.match(value)):
            found.append(f"{name}: expected {pattern.pattern}, found {value!a:.80}")
    strange = [name for name in entry["contains"] if name not in CONTAINS]
    if strange:
        found.append(f"contains: expected {', '.join(CONTAINS)}, found {', '.join(strange)}")
    others = [name for name in entry["platforms"] if name not in PLATFORMS]
    if others:
        found.append(f"platforms: expected {', '.join(PLATFORMS)}, found {', '.join(others)}")
    extra = {"platforms." + name for name, image in entry["platforms"].items() if len(image) != _IMAGE_FIELDS}
    return found + [f"{where}: unknown field" for where in sorted(extra)]


def _status(entry: Mapping[str, Any]) -> list[str]:
    """The contradictions between the status and the other fields, one text each."""
    images = [
        PlatformImage(**{**image, "diff_ids": _tuple(image["diff_ids"])})
        for image in entry["platforms"].values()
    ]
    loose = entry.get("digest_of_unknown_kind")
    any_digest = bool(loose or entry["index_digest"] or any(i.manifest_digest for i in images))
    read_back = None not in (entry["resolved_at"], entry["resolver"])
    status = entry["status"]
    found = []
    if status == "resolved":
        if not images or not all(image.complete for image in images):
            found.append("resolved: expected manifest, config and diff_ids of every platform listed")
        if entry["index_digest"] is None and len(images) > 1:
            found.append("resolved: expected the index digest of an image with several platforms")
        if not read_back or loose:
            found.append("resolved: expected resolved_at and resolver, and no digest of unknown kind")
    elif status == "unverified" and (not any_digest or read_back):
        found.append("unverified: expected a digest, and neither resolved_at nor resolver")
    elif status == "unresolved" and (any_digest or read_back):
        found.append("unresolved: expected no digest; an entry with a digest is `unverified`")
    if entry["current"] and (status == "archived" or not entry["requirements"]):
        found.append("current: expected a status other than archived, and a file of requirements")
    return found


def _tuple(values: Any) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)
