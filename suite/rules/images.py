"""The lock of container images: base images by digest, and the layers that the suite publishes above them.

One file describes one base image or the layers of one pair. Tests write files of ``rules/practice`` on each
machine; every file is therefore checked against its schema, and read again at each call.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from suite.rules.schemas import Schemas

Entry = Mapping[str, Any]
_IMAGE, _LAYERS = "image", "layers"  # the schemas of both kinds of file


class MalformedRules(Exception):
    """A rule file that cannot be used; the message names file, expected, found and fix."""


@dataclass(frozen=True, slots=True)
class LockFolder:
    """One version's folder of entries."""

    version: str
    folder: Path


@dataclass(frozen=True, slots=True)
class Locked:
    """One entry with the name and the SHA-256 of its file, as in the header of a log."""

    file: str
    digest: str
    entry: Entry


@dataclass(frozen=True, slots=True)
class Lock:
    """The entries of a version, followed by those of the versions that it is based on."""

    sources: tuple[LockFolder, ...]
    schemas: Schemas

    def bases(self) -> dict[str, Locked]:
        """Every base image by name; MalformedRules for a file that cannot be used."""
        found: dict[str, Locked] = {}
        for source in self.sources:
            images = self._images(source)
            _check_one_current(images.values())
            found |= {name: one for name, one in images.items() if name not in found}
        return found

    def base_for(self, framework: str) -> Entry | None:
        """The current base image of ``framework``; None if the lock has none."""
        entries = (one.entry for one in self.bases().values())
        return next((e for e in entries if e["framework"] == framework and e["current"]), None)

    def published(
        self, workload: str, framework: str, code_digest: str, platform: str, base: str | None = None
    ) -> Locked | None:
        """The layers of one pair above ``base`` (above any base by default), nearest version first."""
        wanted = {
            "workload": workload,
            "framework": framework,
            "code_digest": code_digest,
            "platform": platform,
        }
        if base is not None:
            wanted["base"] = base
        return next((one for one in self._layers() if wanted.items() <= one.entry.items()), None)

    def files(self) -> dict[str, str]:
        """Every file of the lock, name -> SHA-256."""
        found = {one.file: one.digest for source in self.sources for one in self._images(source).values()}
        return found | {one.file: one.digest for one in self._layers()}

    def _images(self, source: LockFolder) -> dict[str, Locked]:
        found = {}
        for path in sorted(source.folder.glob("*.json")):
            one = self._read(path, f"{source.version}/images/{path.name}", _IMAGE)
            if one.entry["name"] != path.stem:
                raise _malformed(one.file, f"the name {path.stem!r} as in its file name", one.entry["name"])
            if one.entry["status"] == "resolved" and not _resolved(one.entry):
                wanted = "a digest, and a platform with manifest digest, config digest and diff_ids"
                raise _malformed(one.file, wanted, "status resolved without them")
            found[path.stem] = one
        return found

    def _layers(self) -> Iterator[Locked]:
        for source in self.sources:
            for path in sorted((source.folder / "pairs").glob("*.json")):
                yield self._read(path, f"{source.version}/images/pairs/{path.name}", _LAYERS)

    def _read(self, path: Path, file: str, schema: str) -> Locked:
        data = path.read_bytes()
        try:
            entry = json.loads(data)
        except ValueError as error:
            raise _malformed(file, "JSON", str(error)) from error
        if not self.schemas.valid(schema, entry):
            location, message = self.schemas.explain(schema, entry, 1)[0]
            raise _malformed(file, f"what schemas/{schema}.json allows", f"{location}: {message}")
        return Locked(file, sha256(data).hexdigest(), entry)


def _check_one_current(entries: Iterable[Locked]) -> None:
    seen: dict[str, str] = {}
    for one in entries:
        if one.entry["current"]:
            framework = one.entry["framework"]
            if framework in seen:
                raise _malformed(one.file, f"one current image of {framework}", f"also {seen[framework]}")
            seen[framework] = one.file


def _resolved(entry: Entry) -> bool:
    fields = ("manifest_digest", "config_digest", "diff_ids")
    return any(all(platform[name] for name in fields) for platform in entry["platforms"].values())


def _malformed(file: str, expected: str, found: str) -> MalformedRules:
    fix = "restore the file, or remove it and generate it again if a tool wrote it"
    return MalformedRules(f"rules/{file}: expected {expected}, found {found}; {fix}")
