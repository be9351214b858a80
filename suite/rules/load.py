"""Loading one version of the rules from ``rules/<version>/``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from suite.record.canonical import sha256_hex
from suite.rules.places import base_of, folder_of
from suite.rules.schemas import Schemas, schemas_for
from suite.workloads.contract import Key


@dataclass(frozen=True, slots=True)
class Check:
    """What people read about a rule: its id, severity, title, and how to mend a breach."""

    id: str
    severity: str  # reject | flag | info
    title: str
    mend: str


@dataclass(frozen=True)
class Rules:
    """One version. Fractions in the files are decimal strings; :meth:`limit` gives them as floats."""

    version: str
    base: str  # whose checks, schemas and devices are used
    limits: Mapping[str, Any]

    @cached_property
    def checks(self) -> Mapping[str, Check]:
        """Every rule by id; a version may turn some of them into information."""
        information = self.limits.get("information", ())
        table = _read(folder_of(self.base) / "checks.json")
        return {
            name: Check(name, "info" if name in information else row["severity"], row["title"], row["mend"])
            for name, row in table.items()
        }

    @property
    def schemas(self) -> Schemas:
        """The schemas of events and of system.json."""
        return schemas_for(self.version)

    @property
    def words(self) -> Mapping[str, Any]:
        """The values that each word of the key may have."""
        words: Mapping[str, Any] = self.limits["words"]
        return words

    def limit(self, name: str) -> float:
        """The tolerance or gate ``name`` as a float."""
        return float(self.limits["gates"][name])

    def has(self, folder: str, name: str) -> bool:
        """Whether this version has an entry ``name`` in ``folder`` (workloads, datasets)."""
        return name in _names(self.version, folder)

    def workload(self, name: str) -> Mapping[str, Any]:
        """The rules of one workload; ValueError if this version has none of that name."""
        return _mapping(self._known("workloads", name))

    def dataset(self, name: str) -> Mapping[str, Any]:
        """Digest, size and generator of one dataset; ValueError if this version has none of that name."""
        return _mapping(self._known("datasets", name))

    def initial_parameters(self, key: Key) -> str | None:
        """The digest of the frozen initial weights of the key's variant; None where it is not settled yet."""
        digest: str | None = self.workload(key.workload)["initial_parameters"].get(key.variant)
        return digest

    def stamp(self, workload: str | None = None, dataset: str | None = None) -> dict[str, Any]:
        """The header's ``rules``: version and digests of the files used (of all, without ``workload``)."""
        files = dict(self._all_files) if workload is None else self.files_for(workload, dataset)
        return {"version": self.version, "digest": digest_of(files), "files": files}

    def images(self) -> list[Mapping[str, Any]]:
        """The closed list of images: the lock."""
        lock: list[Mapping[str, Any]] = _read(folder_of(self.version) / "images" / "lock.json")["images"]
        return lock

    def device(self, name: str) -> Mapping[str, Any] | None:
        """The table's entry of the device that calls itself ``name``; None if it is not in the table."""
        found = self._device_file(name)
        return None if found is None else _mapping(found)

    def device_names(self) -> tuple[str, ...]:
        """The devices in the table, as they call themselves."""
        return tuple(name for path in self._device_files() for name in _read(path)["names"])

    def files_for(
        self, workload: str, dataset: str | None = None, devices: Iterable[str] = ()
    ) -> dict[str, str]:
        """The rule files that a run of these uses, name -> SHA-256: the header's ``rules.files``.

        ``dataset`` is None for synthetic data. Devices that are not in the table use no file. ValueError for
        a workload or dataset that this version does not have.
        """
        base = folder_of(self.base)
        paths = [
            folder_of(self.version) / "limits.json",
            base / "checks.json",
            *sorted(base.glob("schemas/*.json")),
        ]
        paths.append(self._known("workloads", workload))
        if dataset is not None:
            paths.append(self._known("datasets", dataset))
        paths += sorted({path for name in devices if (path := self._device_file(name)) is not None})
        return {f"{p.relative_to(base.parent)}": sha256_hex(p.read_bytes()) for p in sorted(paths)}

    def shipped(self, name: str) -> str | None:
        """SHA-256 of the rule file ``name`` ("0.1/limits.json"); None if this version uses no such file."""
        return self._all_files.get(name)

    @cached_property
    def _all_files(self) -> dict[str, str]:
        root = folder_of(self.version).parent
        folders = {folder_of(self.version), folder_of(self.base)}
        paths = [path for folder in folders for path in folder.glob("**/*.json")]
        return {str(path.relative_to(root)): sha256_hex(path.read_bytes()) for path in paths}

    def _known(self, folder: str, name: str) -> Path:
        paths = _names(self.version, folder)
        if name not in paths:
            raise ValueError(
                f"rules {self.version}, {folder}: expected one of {', '.join(paths)}, found {name!r}"
            )
        return paths[name]

    def _device_files(self) -> list[Path]:
        return sorted(_names(self.base, "devices").values())

    def _device_file(self, name: str) -> Path | None:
        return next((path for path in self._device_files() if name in _read(path)["names"]), None)


def synthetic_digest(key: Key) -> str:
    """What stands for a dataset's digest where batches are synthetic: it names their stream."""
    return sha256_hex(f"synthetic/1 {key.workload} {key.scale} {key.variant}".encode())


def digest_of(files: Mapping[str, str]) -> str:
    """One digest of files and their digests: SHA-256 over lines "<sha256>  <name>" in name order."""
    return sha256_hex("".join(f"{files[name]}  {name}\n" for name in sorted(files)).encode())


@cache
def load(version: str) -> Rules:
    """The rules of a shipped version ("0.1", "practice"); ValueError for any other."""
    return Rules(version, base_of(version), _read(folder_of(version) / "limits.json"))


@cache
def _names(version: str, folder: str) -> dict[str, Path]:
    """The files of one folder by stem: names from a log are only ever looked up here."""
    return {path.stem: path for path in sorted((folder_of(version) / folder).glob("*.json"))}


def _mapping(path: Path) -> Mapping[str, Any]:
    found: Mapping[str, Any] = _read(path)
    return found


@cache
def _read(path: Path) -> Any:
    return json.loads(path.read_text())
