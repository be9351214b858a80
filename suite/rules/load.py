"""Loading one version of the rules from ``rules/<version>/`` and the versions that it is based on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from suite.contract import Key
from suite.rules.images import Lock, LockFolder
from suite.rules.lookalikes import folded
from suite.rules.root import FROZEN, SHIPPED, RulesRoot
from suite.rules.schemas import Schemas, schemas_for


@dataclass(frozen=True, slots=True)
class Check:
    """The text of a rule: its id, severity, title, and how to fix a breach."""

    id: str
    severity: str  # reject | flag | info
    title: str
    fix: str


@dataclass(frozen=True)
class Rules:
    """One version of the rules. Fractions in the files are decimal strings; :meth:`limit` returns floats.

    ``images_folder`` contains the version's entries of the lock; those of its lineage follow them.
    ``releases_folder`` contains the releases of the suite for the version; None: no release is known.
    """

    version: str
    limits: Mapping[str, Any]
    images_folder: Path
    releases_folder: Path | None = None
    root: RulesRoot = SHIPPED

    @cached_property
    def checks(self) -> Mapping[str, Check]:
        """Every rule by id; a version adds rules to those of its base, and may turn some into information."""
        information = self.limits.get("information", ())
        table: dict[str, Any] = {}
        for path in reversed(self._checks_files()):
            table |= _read(path)
        return {
            name: Check(name, "info" if name in information else row["severity"], row["title"], row["fix"])
            for name, row in table.items()
        }

    @cached_property
    def releases(self) -> Mapping[str, str]:
        """The suite's releases: digest of the code -> version."""
        return {found["code_digest"]: found["version"] for found in self._released}

    @cached_property
    def image_codes(self) -> Mapping[str, str]:
        """Of each release: digest of the whole code -> digest of the code in its container images."""
        return {found["code_digest"]: found["image_code_digest"] for found in self._released}

    @cached_property
    def _released(self) -> tuple[Mapping[str, str], ...]:
        paths = [] if self.releases_folder is None else sorted(self.releases_folder.glob("*.json"))
        return tuple(map(_read, paths))

    @property
    def lineage(self) -> tuple[str, ...]:
        """The version and what it is based on, nearest first."""
        return self.root.lineage(self.version)

    @property
    def schemas(self) -> Schemas:
        """The schemas of events, of system.json and of the lock's files."""
        return schemas_for(self.version, self.root)

    @property
    def options(self) -> Mapping[str, Any]:
        """The values that each option may have."""
        options: Mapping[str, Any] = self.limits["options"]
        return options

    def limit(self, name: str) -> float:
        """The tolerance or gate ``name`` as a float."""
        return float(self.limits["gates"][name])

    @property
    def tail_ns(self) -> int:
        """The length of the telemetry tail: what the soaks of all repeats lack of ``telemetry_ns``."""
        soaks = int(self.limits["modes"]["throughput"]["repeats"] * self.limits["soak_ns"])
        return max(0, int(self.limits["telemetry_ns"]) - soaks)

    def has(self, folder: str, name: str) -> bool:
        """Whether this version has an entry ``name`` in ``folder`` (workloads, datasets)."""
        return name in self.root.files(self.version, folder)

    def workload(self, name: str) -> Mapping[str, Any]:
        """The rules of one workload; ValueError if this version has none of that name."""
        return _mapping(self._known("workloads", name))

    def dataset(self, name: str) -> Mapping[str, Any]:
        """Digest, size and generator of one dataset; ValueError if this version has none of that name."""
        return _mapping(self._known("datasets", name))

    def holds_images(self, name: str) -> bool:
        """Whether dataset ``name`` is images in a folder per class, which other storage formats can hold."""
        lists = {"train.txt", "val.txt"}
        return self.has("datasets", name) and set(self.dataset(name)["files"]) == lists

    def initial_parameters(self, key: Key, mode: str) -> str | None:
        """The digest of the initial weights of the key's variant; None where the rules do not define it yet.

        The weights follow from the frozen stream, unless quality runs start from published weights.
        """
        rules = self.workload(key.workload)
        quality = rules["quality"].get(key.variant, {}) if mode == "quality" else {}
        digest: str | None = quality.get("initial_parameters", rules["initial_parameters"].get(key.variant))
        return digest

    @property
    def lock(self) -> Lock:
        """The image entries of this version and its lineage, read again at each use."""
        inherited = [LockFolder(name, self.root.folder(name) / "images") for name in self.lineage[1:]]
        return Lock((LockFolder(self.version, self.images_folder), *inherited), self.schemas)

    def bases(self) -> Mapping[str, Mapping[str, Any]]:
        """The base images by name, those of this version first; MalformedRules for an unusable file."""
        return {name: one.entry for name, one in self.lock.bases().items()}

    def base_for(self, framework: str) -> Mapping[str, Any] | None:
        """The current base image of ``framework``; None if there is none."""
        return self.lock.base_for(framework)

    def published(
        self, workload: str, framework: str, code_digest: str, platform: str, base: str | None = None
    ) -> tuple[str, ...] | None:
        """The diff_ids of a pair's layers above its base image ``base``; None if none were published."""
        found = self.lock.published(workload, framework, code_digest, platform, base)
        return None if found is None else tuple(found.entry["layers"])

    def stamp(
        self,
        workload: str | None = None,
        dataset: str | None = None,
        *,
        framework: str = "",
        image: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The header's ``rules``: version and digests of the files used (of all, without ``workload``)."""
        if workload is None:
            files = self._all_files | self.lock.files()
        else:
            files = self.files_for(workload, dataset, framework=framework, image=image)
        return {"version": self.version, "digest": digest_of(files), "files": files}

    def device(self, identifier: str) -> Mapping[str, Any] | None:
        """The table's entry of the device with this name or PCI id; None if there is none.

        Names are compared as a reader would: see :func:`suite.rules.lookalikes.folded`.
        """
        found = self._devices.get(folded(identifier))
        return None if found is None else _mapping(found)

    def devices(self, identifiers: Set[str]) -> tuple[Mapping[str, Any], ...]:
        """The table's entries of the devices whose name or PCI id is among ``identifiers``."""
        known = self._devices.keys() & set(map(folded, identifiers))
        return tuple(map(_mapping, sorted({self._devices[name] for name in known})))

    @cached_property
    def unlisted_device(self) -> Mapping[str, Any]:
        """Limits of a device that the table lacks: the highest in the table times ``unlisted_device``."""
        entries = [_read(path) for path in self.root.files(self.version, "devices").values()]
        factor = self.limit("unlisted_device")
        precisions = {name for entry in entries for name in entry["flops"]}
        peaks = {name: max(float(one["flops"].get(name, 0)) for one in entries) for name in precisions}
        bandwidth = max(float(entry["memory_bytes_per_s"]) for entry in entries)
        flops = {name: repr(peak * factor) for name, peak in sorted(peaks.items())}
        return {"names": [], "flops": flops, "memory_bytes_per_s": repr(bandwidth * factor)}

    def files_for(
        self,
        workload: str,
        dataset: str | None = None,
        *,
        framework: str = "",
        image: Mapping[str, Any] | None = None,
    ) -> dict[str, str]:
        """The rule files that a run uses, name -> SHA-256: the header's ``rules.files``.

        ``dataset`` is None for synthetic data; ``image`` is the header's, None without a container. Container
        images that are not in the rules have no file. Raises ValueError for a workload or
        dataset that this version does not have.
        """
        paths = [self._known("workloads", workload)]
        if dataset is not None:
            paths.append(self._known("datasets", dataset))
        found = self._always | {name: self._all_files[name] for name in map(self.root.name, paths)}
        if image is not None:
            found |= self._files_of_image(workload, framework, image)
        return dict(sorted(found.items()))

    def _files_of_image(self, workload: str, framework: str, image: Mapping[str, Any]) -> dict[str, str]:
        base = self.lock.bases().get(image["lock"])
        if base is None:
            return {}
        layers = self.lock.published(
            workload, framework, image["code_digest"], image["platform"], image["lock"]
        )
        return {one.file: one.digest for one in (base, layers) if one is not None}

    def may_change(self, name: str) -> bool:
        """Whether ``name`` is a file of a version that is not frozen yet; files of the lock never may."""
        return name in self._all_files and not (self.root.folder(name.partition("/")[0]) / FROZEN).exists()

    def shipped(self, name: str) -> str | None:
        """SHA-256 of the rule file ``name`` ("1.0/limits.json"); None if this version uses no such file."""
        return self._all_files.get(name) or self.lock.files().get(name)

    @cached_property
    def _all_files(self) -> dict[str, str]:
        found = {}
        for version in self.lineage:
            folder = self.root.folder(version)
            for path in folder.glob("**/*.json"):
                if path.relative_to(folder).parts[0] not in ("images", FROZEN):  # :attr:`lock` reads images
                    found[self.root.name(path)] = sha256(path.read_bytes()).hexdigest()
        return found

    @cached_property
    def _always(self) -> dict[str, str]:
        """The files that every run uses."""
        paths = [self.root.files(self.version)["limits"], *self._checks_files()]
        paths += self.root.files(self.version, "schemas").values()
        return {name: self._all_files[name] for name in map(self.root.name, paths)}

    def _checks_files(self) -> list[Path]:
        """The tables of rules in the lineage, nearest first."""
        paths = (self.root.folder(version) / "checks.json" for version in self.lineage)
        return [path for path in paths if path.exists()]

    def _known(self, folder: str, name: str) -> Path:
        paths = self.root.files(self.version, folder)
        if name not in paths:
            raise ValueError(
                f"rules {self.version}, {folder}: expected one of {', '.join(paths)}, found {name!r}"
            )
        return paths[name]

    @cached_property
    def _devices(self) -> dict[str, Path]:
        """The files of the device table, by the folded names and the PCI ids of the devices."""
        found: dict[str, Path] = {}
        for path in self.root.files(self.version, "devices").values():
            entry = _read(path)
            found |= dict.fromkeys(map(folded, (*entry["names"], *entry["pci_devices"])), path)
        return found


def synthetic_digest(key: Key) -> str:
    """The digest that a header states as the dataset's for synthetic data: that of the stream's name."""
    return sha256(f"synthetic/1 {key.workload} {key.scale} {key.variant}".encode()).hexdigest()


def digest_of(files: Mapping[str, str]) -> str:
    """One digest of files and their digests: SHA-256 over lines "<sha256>  <name>" in name order."""
    return sha256("".join(f"{files[name]}  {name}\n" for name in sorted(files)).encode()).hexdigest()


@cache
def load(version: str, root: RulesRoot = SHIPPED) -> Rules:
    """One version of the rules in ``root`` ("1.0", "practice"); ValueError where it has no such version."""
    folder = root.folder(version)
    return Rules(version, root.limits(version), folder / "images", folder / "releases", root)


def _mapping(path: Path) -> Mapping[str, Any]:
    found: Mapping[str, Any] = _read(path)
    return found


@cache
def _read(path: Path) -> Any:
    return json.loads(path.read_text())
