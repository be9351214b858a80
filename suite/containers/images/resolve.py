"""Filling and checking entries of the lock against their registry."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from suite.containers.images.image_registry import ImageRegistry, Manifest, RegistryProblem
from suite.containers.images.lock import PLATFORMS, Base, PlatformImage

RESOLVER = "python -m suite image lock, registry v2"
PROVENANCE = "read back from the registry"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
_MEND = "The registry serves an image that breaks the specification: take another tag."


class Moved(Exception):
    """The registry has something else than the lock; ``differences`` says what, both values each."""

    def __init__(self, name: str, differences: list[str]) -> None:
        super().__init__(f"{name}: the registry has another image than the lock: {'; '.join(differences)}")
        self.name, self.differences = name, differences


@dataclass(frozen=True, slots=True)
class ResolvedBase:
    """What the registry has under a tag: the index, where there is one, and the platforms of the suite."""

    index_digest: str | None
    platforms: Mapping[str, PlatformImage]


def resolve(base: Base, *, repin: bool = False, now: Callable[[], datetime] | None = None) -> Base:
    """``base`` with every digest as its registry has it, each computed here from the bytes received.

    Raises Moved where a pinned value differs and ``repin`` is false: nothing pinned is replaced silently.
    Raises RegistryProblem, Unreachable. An entry that is already as the registry has it comes back unchanged.
    """
    found = read_back(base)
    pinned = _contradictions(base, found)
    if pinned and not repin:
        raise Moved(base.name, pinned)
    if base.resolved_at and not _differences(base, found):
        return base
    moment = (now or _now)()
    return replace(
        base,
        status="archived" if base.status == "archived" else "resolved",
        index_digest=found.index_digest,
        digest_of_unknown_kind=None,
        platforms=found.platforms,
        provenance=PROVENANCE,
        resolved_at=moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
        resolver=RESOLVER,
    )


def check(base: Base) -> list[str]:
    """How the lock's entry and the registry differ, in words; nothing where they agree. Writes nothing.

    Raises RegistryProblem, Unreachable.
    """
    return _differences(base, read_back(base))


def read_back(base: Base) -> ResolvedBase:
    """What the registry of ``base`` has under its tag: index, manifests and configurations, all hashed."""
    registry = ImageRegistry(base.repository)
    top = registry.manifest(base.tag)
    if not top.is_index:
        name, image = _image(registry, top, f"{base.tagged}, manifest")
        if name not in PLATFORMS:
            raise RegistryProblem(base.tagged, f"one of {', '.join(PLATFORMS)}", name, "Take another image.")
        return ResolvedBase(None, {name: image})
    platforms = {
        name: _member(registry, descriptor, f"{base.tagged}, {name}")
        for name, descriptor in _members(top.body, base.tagged).items()
    }
    return ResolvedBase(top.digest, platforms)


# The registry's answer


def _members(index: Mapping[str, Any], place: str) -> dict[str, Mapping[str, Any]]:
    """The descriptors of the suite's platforms; attestations and other platforms are passed over."""
    found: dict[str, Mapping[str, Any]] = {}
    descriptors = index["manifests"]
    for descriptor in descriptors if isinstance(descriptors, list) else ():
        platform = descriptor.get("platform") if isinstance(descriptor, dict) else None
        name = _name(platform if isinstance(platform, dict) else {})
        if name in found:
            raise RegistryProblem(f"{place}, index", f"one manifest for {name}", "two", _MEND)
        if name in PLATFORMS:
            found[name] = descriptor
    if not found:
        raise RegistryProblem(
            f"{place}, index", f"one of {', '.join(PLATFORMS)}", "none", "Take another tag."
        )
    return {name: found[name] for name in PLATFORMS if name in found}


def _member(registry: ImageRegistry, descriptor: Mapping[str, Any], place: str) -> PlatformImage:
    manifest = registry.manifest(_checked(descriptor.get("digest"), f"{place}, descriptor"))
    if manifest.is_index:
        raise RegistryProblem(place, "an image manifest", "an index inside an index", _MEND)
    name, image = _image(registry, manifest, place)
    wanted = _name(descriptor["platform"])
    if name != wanted:
        raise RegistryProblem(f"{place}, configuration", wanted, name, _MEND)
    return image


def _image(registry: ImageRegistry, manifest: Manifest, place: str) -> tuple[str, PlatformImage]:
    """Platform and digests of one image manifest, with its configuration fetched."""
    config, layers = manifest.body["config"], manifest.body["layers"]
    if not isinstance(config, dict) or not isinstance(layers, list) or not layers:
        raise RegistryProblem(place, "a configuration and layers", "other types", _MEND)
    compressed = 0
    for layer in layers:
        size = layer.get("size") if isinstance(layer, dict) else None
        if type(size) is not int or size < 0:
            raise RegistryProblem(place, "the size of every layer in bytes", f"{layer!a:.80}", _MEND)
        compressed += size
    config_digest = _checked(config.get("digest"), f"{place}, configuration")
    body = registry.config(config_digest)
    rootfs = body.get("rootfs")
    diff_ids = rootfs.get("diff_ids") if isinstance(rootfs, dict) else None
    if not isinstance(diff_ids, list) or len(diff_ids) != len(layers):
        raise RegistryProblem(
            f"{place}, configuration", f"{len(layers)} diff_ids, one a layer", f"{diff_ids!a:.80}", _MEND
        )
    checked = tuple(_checked(one, f"{place}, diff_ids") for one in diff_ids)
    return _name(body), PlatformImage(manifest.digest, config_digest, checked, compressed)


def _name(platform: Mapping[str, Any]) -> str:
    """The platform as "os/architecture", in text that is safe to print."""
    return f"{platform.get('os')}/{platform.get('architecture')}".encode("ascii", "replace").decode()[:64]


def _checked(digest: Any, place: str) -> str:
    if not isinstance(digest, str) or not _DIGEST.match(digest):
        raise RegistryProblem(place, "sha256:<64 hex>", f"{digest!a:.80}", _MEND)
    return digest


# The lock against the answer


def _contradictions(base: Base, found: ResolvedBase) -> list[str]:
    """Values of the lock that the registry contradicts; what the lock does not know contradicts nothing."""
    differing = [
        f"{place}: the lock has {_short(old)}, the registry {_short(new)}"
        for place, old, new in _pairs(base, found)
        if old is not None and old != new
    ]
    loose = base.digest_of_unknown_kind
    manifests = {image.manifest_digest for image in found.platforms.values()}
    if loose is not None and loose not in manifests | {found.index_digest}:
        there = ", ".join(
            _short(one) for one in (found.index_digest, *sorted(filter(None, manifests))) if one
        )
        differing.append(f"digest_of_unknown_kind: the lock has {loose}, the registry {there}")
    return differing


def _differences(base: Base, found: ResolvedBase) -> list[str]:
    """The contradictions, and what the registry has that the lock lacks."""
    lacking = [
        f"{place}: the lock has nothing, the registry {_short(new)}"
        for place, old, new in _pairs(base, found)
        if old is None and new is not None
    ]
    return _contradictions(base, found) + lacking


def _pairs(base: Base, found: ResolvedBase) -> list[tuple[str, Any, Any]]:
    """(place, the lock's value, the registry's value) of everything that the registry can tell."""
    pairs: list[tuple[str, Any, Any]] = [("index_digest", base.index_digest, found.index_digest)]
    for name in PLATFORMS:
        if name in base.platforms or name in found.platforms:
            old, new = base.platform(name), found.platforms.get(name, PlatformImage())
            pairs += [
                (f"{name} {field}", getattr(old, field), getattr(new, field))
                for field in ("manifest_digest", "config_digest", "diff_ids", "compressed_bytes")
            ]
    return pairs


def _short(value: Any) -> str:
    if isinstance(value, tuple):
        return f"{len(value)} layers ending {value[-1]}"
    return "nothing" if value is None else str(value)


def _now() -> datetime:
    return datetime.now(UTC)
