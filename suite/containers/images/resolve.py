"""Fill and check entries of the lock against their image registry."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from suite.containers.images.image_registry import ImageRegistry, ImageRegistryProblem, Manifest
from suite.containers.images.lock import PLATFORMS, Base, PlatformImage

RESOLVER = "python -m suite image lock, registry v2"
PROVENANCE = "read back from the image registry"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
_FIX = "The image registry serves an image that breaks the specification: take another tag."


class LockMismatch(Exception):
    """The image registry has another image than the lock; ``differences`` lists both values of each field."""

    def __init__(self, name: str, differences: list[str]) -> None:
        text = "; ".join(differences)
        super().__init__(f"{name}: the image registry has another image than the lock: {text}")
        self.name, self.differences = name, differences


@dataclass(frozen=True, slots=True)
class ResolvedBase:
    """The image under a tag: the digest of its index, if there is one, and the platforms of the suite."""

    index_digest: str | None
    platforms: Mapping[str, PlatformImage]


def resolve(base: Base, *, repin: bool = False, now: Callable[[], datetime] | None = None) -> Base:
    """``base`` with every digest as its image registry has it, each computed here from the bytes received.

    An entry that equals the image registry's comes back unchanged. Raises ImageRegistryProblem,
    ImageRegistryUnreachable, and LockMismatch where a pinned value differs and ``repin`` is false.
    """
    found = read_back(base)
    pinned = _contradictions(base, found)
    if pinned and not repin:
        raise LockMismatch(base.name, pinned)
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
    """The differences between the lock's entry and the image registry, one text each. Writes nothing.

    Raises ImageRegistryProblem, ImageRegistryUnreachable.
    """
    return _differences(base, read_back(base))


def read_back(base: Base) -> ResolvedBase:
    """The image that the image registry of ``base`` has under its tag; all digests are computed here."""
    registry = ImageRegistry(base.repository)
    top = registry.manifest(base.tag)
    if not top.is_index:
        name, image = _read_image(registry, top, f"{base.tagged}, manifest")
        if name not in PLATFORMS:
            raise ImageRegistryProblem(
                base.tagged, f"one of {', '.join(PLATFORMS)}", name, "Take another image."
            )
        return ResolvedBase(None, {name: image})
    platforms = {
        name: _platform_image(registry, descriptor, f"{base.tagged}, {name}")
        for name, descriptor in _platform_descriptors(top.body, base.tagged).items()
    }
    return ResolvedBase(top.digest, platforms)


# The image registry's answer


def _platform_descriptors(index: Mapping[str, Any], where: str) -> dict[str, Mapping[str, Any]]:
    """The descriptors of the suite's platforms; attestations and other platforms are skipped."""
    found: dict[str, Mapping[str, Any]] = {}
    descriptors = index["manifests"]
    for descriptor in descriptors if isinstance(descriptors, list) else ():
        platform = descriptor.get("platform") if isinstance(descriptor, dict) else None
        name = _platform_name(platform if isinstance(platform, dict) else {})
        if name in found:
            raise ImageRegistryProblem(f"{where}, index", f"one manifest for {name}", "two", _FIX)
        if name in PLATFORMS:
            found[name] = descriptor
    if not found:
        raise ImageRegistryProblem(
            f"{where}, index", f"one of {', '.join(PLATFORMS)}", "none", "Take another tag."
        )
    return {name: found[name] for name in PLATFORMS if name in found}


def _platform_image(registry: ImageRegistry, descriptor: Mapping[str, Any], where: str) -> PlatformImage:
    manifest = registry.manifest(_valid_digest(descriptor.get("digest"), f"{where}, descriptor"))
    if manifest.is_index:
        raise ImageRegistryProblem(where, "an image manifest", "an index inside an index", _FIX)
    name, image = _read_image(registry, manifest, where)
    wanted = _platform_name(descriptor["platform"])
    if name != wanted:
        raise ImageRegistryProblem(f"{where}, configuration", wanted, name, _FIX)
    return image


def _read_image(registry: ImageRegistry, manifest: Manifest, where: str) -> tuple[str, PlatformImage]:
    """Platform and digests of one image manifest, with its configuration fetched."""
    config, layers = manifest.body["config"], manifest.body["layers"]
    if not isinstance(config, dict) or not isinstance(layers, list) or not layers:
        raise ImageRegistryProblem(where, "a configuration and layers", "other types", _FIX)
    compressed = 0
    for layer in layers:
        size = layer.get("size") if isinstance(layer, dict) else None
        if type(size) is not int or size < 0:
            raise ImageRegistryProblem(where, "the size of every layer in bytes", f"{layer!a:.80}", _FIX)
        compressed += size
    config_digest = _valid_digest(config.get("digest"), f"{where}, configuration")
    body = registry.config(config_digest)
    rootfs = body.get("rootfs")
    diff_ids = rootfs.get("diff_ids") if isinstance(rootfs, dict) else None
    if not isinstance(diff_ids, list) or len(diff_ids) != len(layers):
        raise ImageRegistryProblem(
            f"{where}, configuration",
            f"{len(layers)} diff_ids, one for each layer",
            f"{diff_ids!a:.80}",
            _FIX,
        )
    checked = tuple(_valid_digest(one, f"{where}, diff_ids") for one in diff_ids)
    return _platform_name(body), PlatformImage(manifest.digest, config_digest, checked, compressed)


def _platform_name(platform: Mapping[str, Any]) -> str:
    """The platform as "os/architecture", in text that is safe to print."""
    return f"{platform.get('os')}/{platform.get('architecture')}".encode("ascii", "replace").decode()[:64]


def _valid_digest(digest: Any, where: str) -> str:
    if not isinstance(digest, str) or not _DIGEST.match(digest):
        raise ImageRegistryProblem(where, "sha256:<64 hex>", f"{digest!a:.80}", _FIX)
    return digest


# The lock against the answer


def _contradictions(base: Base, found: ResolvedBase) -> list[str]:
    """Values of the lock that differ from the image registry's; unknown values of the lock do not count."""
    differing = [
        f"{where}: the lock has {_short(old)}, the image registry {_short(new)}"
        for where, old, new in _compared_values(base, found)
        if old is not None and old != new
    ]
    loose = base.digest_of_unknown_kind
    manifests = {image.manifest_digest for image in found.platforms.values()}
    if loose is not None and loose not in manifests | {found.index_digest}:
        there = ", ".join(
            _short(one) for one in (found.index_digest, *sorted(filter(None, manifests))) if one
        )
        differing.append(f"digest_of_unknown_kind: the lock has {loose}, the image registry {there}")
    return differing


def _differences(base: Base, found: ResolvedBase) -> list[str]:
    """The contradictions, and the values of the image registry that the lock lacks."""
    lacking = [
        f"{where}: the lock has nothing, the image registry {_short(new)}"
        for where, old, new in _compared_values(base, found)
        if old is None and new is not None
    ]
    return _contradictions(base, found) + lacking


def _compared_values(base: Base, found: ResolvedBase) -> list[tuple[str, Any, Any]]:
    """(field, the lock's value, the image registry's value) of every value that the image registry has."""
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
