"""IMG: the container image of the run, its attestation from outside, and the isolation of the container.

The checker only compares the image in the header and the attestations: with its lock and with each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from suite.checker.context import Context, Fault, HeaderContext, departs, header_rule, rule
from suite.log.model import Event, Repeat

_IMAGE = "header, data.image"
_LIMITS = ("cpus", "cpuset", "memory_bytes", "shm_bytes")
_PAGE = 65536  # bytes; the kernel rounds memory limits down to pages of at most 64 KiB
_NUMBER = re.compile(r"[0-9]{1,6}(\.[0-9]{1,9})?")


# --- rules on the header


@header_rule("IMG-001", declarable=True)
def image_locked(c: HeaderContext) -> Iterator[Fault]:
    """The worker ran in an image of the lock, of its framework and platform."""
    if c.image is None:
        if c.division != "practice":
            yield Fault(_IMAGE, f"an image of the lock ({len(c.rules.bases())} entries)", "no image")
        return
    if c.locked is None:
        found = f"{c.image['name']}, which is not in it"
        yield Fault(f"{_IMAGE}.lock", f"an image of the lock ({len(c.rules.bases())} entries)", found)
        return
    allowed = {"framework": [c.locked["framework"]], "platform": sorted(c.locked["platforms"])}
    stated = {"framework": c.subject.framework, "platform": c.image["platform"]}
    for name, found in stated.items():
        if found not in allowed[name]:
            wanted = f"{name} {' or '.join(allowed[name])}, as {c.image['lock']} has"
            yield Fault(f"{_IMAGE}.lock", wanted, found)


@header_rule("IMG-002", declarable=True)
def container_used(c: HeaderContext) -> Iterator[Fault]:
    """The worker ran in a container."""
    if c.division != "practice" and c.header["runtime"] == "native":
        yield Fault("header, data.runtime", "a container runtime", "native")


@header_rule("IMG-003")
def image_fits_runtime(c: HeaderContext) -> Iterator[Fault]:
    """An image is stated exactly where a container ran."""
    if (c.image is None) != (c.header["runtime"] == "native"):
        wanted = "null with runtime native, an image with any other"
        found = "null" if c.image is None else "an image"
        yield Fault(_IMAGE, wanted, f"{found} with {c.header['runtime']}")


@header_rule("IMG-005", declarable=True)
def base_first(c: HeaderContext) -> Iterator[Fault]:
    """The layers begin with those of the base image in the lock; with form base there are no others."""
    if c.image is None or c.locked is None:
        return
    base, found = _base_layers(c.image, c.locked), c.image["diff_ids"]
    if base is None or (found is None and _from_file(c, c.image)):
        return  # IMG-009 reports an unresolved entry; IMG-004 compares the digest of a file
    location = f"{_IMAGE}.diff_ids"
    begins = None if found is None else found[: len(base)]
    if begins != base:
        yield Fault(location, f"first {_layers(base)}", _layers(begins))
    elif c.image["form"] == "base" and found != base:
        yield Fault(location, f"exactly the {len(base)} layers of the base", f"{len(found)} layers")


@header_rule("IMG-006", declarable=True)
def layers_published(c: HeaderContext) -> Iterator[Fault]:
    """The layers above the base are published; with form base, the mounted code is."""
    if c.image is None or c.locked is None:
        return
    if c.published is None:
        wanted = f"code published for {c.subject.workload} in {c.subject.framework} on {c.image['lock']}"
        yield Fault(f"{_IMAGE}.code_digest", wanted, c.image["code_digest"])
        return
    base, found = _base_layers(c.image, c.locked), c.image["diff_ids"]
    if c.image["form"] == "base" or base is None or found is None or found[: len(base)] != base:
        return  # IMG-005 reports it
    if found[len(base) :] != c.published["layers"]:
        wanted = f"above the base {_layers(c.published['layers'])}"
        yield Fault(f"{_IMAGE}.diff_ids", wanted, _layers(found[len(base) :]))


@header_rule("IMG-009", declarable=True)
def entry_resolved(c: HeaderContext) -> Iterator[Fault]:
    """The lock's entry was resolved against its image registry, for this platform."""
    if c.image is None or c.locked is None:
        return
    status = c.locked["status"]
    if status != "resolved":
        wanted = f"{c.image['lock']} resolved against its image registry"
        yield Fault(f"{_IMAGE}.lock", wanted, f"status {status}")
    elif c.image["platform"] in c.locked["platforms"] and _base_layers(c.image, c.locked) is None:
        wanted = f"{c.image['lock']} resolved for {c.image['platform']}"
        yield Fault(f"{_IMAGE}.platform", wanted, "no diff_ids in the lock")


@header_rule("IMG-010", declarable=True)
def named_by_digest(c: HeaderContext) -> Iterator[Fault]:
    """The header names the base by the lock's digest of its index or manifest, and by the lock's name."""
    if c.image is None:
        return
    stated = {name: c.image[name] for name in ("index_digest", "manifest_digest") if c.image[name]}
    if not stated:
        yield Fault(_IMAGE, "an index digest or a manifest digest", f"a name alone, {c.image['name']}")
    if c.locked is None:
        return
    platform = c.locked["platforms"].get(c.image["platform"], {})
    known = {
        "index_digest": c.locked["index_digest"],
        "manifest_digest": platform.get("manifest_digest"),
        "name": f"{c.locked['repository']}:{c.locked['tag']}",
    }
    for name, found in {**stated, "name": c.image["name"]}.items():
        if found != known[name]:
            yield Fault(f"{_IMAGE}.{name}", f"{known[name] or 'none'}, as in the lock", found)


@header_rule("IMG-012")
def limits_need_a_container(c: HeaderContext) -> Iterator[Fault]:
    """Runtime native has no limits, because nothing would enforce them."""
    if c.header["runtime"] != "native":
        return
    for name in _LIMITS:
        found = c.header["settings"].get(name)
        if found is not None:
            yield Fault(f"header, data.settings.{name}", "null with runtime native", found)


@header_rule("IMG-013", declarable=True)
def code_of_the_release(c: HeaderContext) -> Iterator[Fault]:
    """Where the header's code is that of a release, the container image contains its worker."""
    wanted = c.rules.image_codes.get(c.header["code_digest"])
    if c.image is not None and wanted is not None and c.image["code_digest"] != wanted:
        version = c.rules.releases[c.header["code_digest"]]
        yield Fault(f"{_IMAGE}.code_digest", f"{wanted}, of release {version}", c.image["code_digest"])


# --- rules on the attestation of each repeat


def _machines(c: Context) -> Iterator[tuple[Repeat, Event]]:
    """Every repeat with the outside facts of each of its nodes."""
    for repeat in c.record.repeats:
        for event in repeat.envs_of("outside"):
            yield repeat, event


@rule("IMG-004")
def attested_image(c: Context) -> Iterator[Fault]:
    """The container image attested from outside in every repeat is the header's."""
    for repeat, event in _machines(c):
        found = event["facts"].get("container")
        location = event.location("facts.container")
        if c.image is None:
            if found is not None:
                yield Fault(location, "null with runtime native", f"a container of {found['engine']}")
        elif found is None:
            if repeat.end is not None:  # the harness cannot inspect a worker that did not start
                yield Fault(location, "the engine's facts about the container", "null")
        else:
            yield from _attested(c, c.image, event, found)


def _attested(
    c: Context, image: Mapping[str, Any], event: Event, found: Mapping[str, Any]
) -> Iterator[Fault]:
    location = event.location("facts.container.")
    if found["engine"] != c.header["runtime"]:
        yield Fault(f"{location}engine", c.header["runtime"], found["engine"])
    if found["image"] is None:
        yield Fault(f"{location}image", "the image that ran", "null")
    elif found["worth"] == "claimed":
        wanted = "worth engine or file: attested from outside"
        yield from departs(c, "IMG-004", [Fault(f"{location}worth", wanted, "claimed")])
    elif found["worth"] == "file":
        yield from _attested_file(c, image, location, found["image"])
    else:
        yield from _attested_by_engine(image, location, found["image"])


def _attested_by_engine(image: Mapping[str, Any], location: str, found: Mapping[str, Any]) -> Iterator[Fault]:
    for name in ("diff_ids", "platform", "config_digest"):
        wanted, actual = image[name], found[name]
        if name == "config_digest" and None in (wanted, actual):
            continue  # some image stores of engines have no config digest
        if actual is None or actual != wanted:
            show = _layers if name == "diff_ids" else str
            yield Fault(f"{location}image.{name}", f"{show(wanted)}, as in the header", show(actual))


def _attested_file(
    c: Context, image: Mapping[str, Any], location: str, found: Mapping[str, Any]
) -> Iterator[Fault]:
    """An image file contains the unmodified base; the attestation names the imported digest."""
    if not _from_file(c, image):
        yield Fault(
            f"{location}worth", "engine: an image file is of form base, run by apptainer or enroot", "file"
        )
    if found["file_digest"] is None:
        yield Fault(f"{location}image.file_digest", "the digest of the image file", "null")
    digests = _digests(image)
    if str(found["imported_from"]).rpartition("@")[2] not in digests:
        wanted = f"an import of {' or '.join(digests)}" if digests else "a digest that the header states"
        yield Fault(f"{location}image.imported_from", wanted, found["imported_from"])


@rule("IMG-007", declarable=True)
def labels_agree(c: Context) -> Iterator[Fault]:
    """Labels outside and the label file inside agree, with each other and with key, header and lock."""
    if c.image is None:
        return
    wanted = _wanted_labels(c, c.image)
    (stated,) = wanted["requirements_digest"]
    if c.image["form"] == "pair" and c.image["requirements_digest"] != stated:
        yield Fault(f"{_IMAGE}.requirements_digest", stated, c.image["requirements_digest"])
    for repeat in c.repeats:
        first: Mapping[str, Any] = {}
        for event, field, label in _labels(repeat):
            location = event.location(field)
            if c.image["form"] == "base":
                if label:
                    yield Fault(location, "no labels of a pair with form base", ", ".join(sorted(label)))
            elif not label:
                yield Fault(location, "the labels of the pair", "none")
            else:
                yield from _wrong_labels(location, label, {**wanted, **first})
                first = {name: (label.get(name),) for name in wanted}  # later labels must equal the first


def _labels(repeat: Repeat) -> Iterator[tuple[Event, str, Mapping[str, Any] | None]]:
    for outside in repeat.envs_of("outside"):
        container = outside["facts"].get("container")
        if container is not None and container["worth"] == "engine":
            labels = None if container["image"] is None else container["image"]["labels"]
            yield outside, "facts.container.image.labels", labels
    for inside in repeat.envs_of("inside"):
        yield inside, "facts.image_label", inside["facts"].get("image_label")


def _wanted_labels(c: Context, image: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The allowed values of each label."""
    digests = [*_digests(image)]
    if c.locked is not None:  # the label may name the manifest of a base pinned by its index, or the reverse
        platform = c.locked["platforms"].get(image["platform"], {})
        digests += [c.locked["index_digest"], platform.get("manifest_digest")]
    requirements = image["requirements_digest"]
    if c.published is not None:
        requirements = c.published["requirements_digest"]
    return {
        "workload": (c.subject.workload,),
        "framework": (c.subject.framework,),
        "code_digest": (image["code_digest"],),
        "base_name": (image["name"],),
        "base_digest": tuple(digest for digest in digests if digest),
        "requirements_digest": (requirements,),
        "rules_version": c.rules.lineage,
    }


def _wrong_labels(
    location: str, label: Mapping[str, Any], wanted: Mapping[str, tuple[str, ...]]
) -> Iterator[Fault]:
    for name, allowed in wanted.items():
        found = label.get(name)
        if found not in allowed:
            shown = " or ".join(map(str, allowed)) or "a digest that the header states"
            yield Fault(f"{location}.{name}", shown, found)


@rule("IMG-008", declarable=True)
def container_isolated(c: Context) -> Iterator[Fault]:
    """The container had no network, no added capabilities and a read-only root file system.

    On several nodes it had the host's network.
    """
    if c.image is None:
        return
    table = c.rules.limits["confinement"]
    for _, event in _machines(c):
        found = event["facts"].get("container")
        if found is None:
            continue  # IMG-004
        location = event.location("facts.container.confinement.")
        for name, actual in _unconfined(found, table, c.nodes):
            yield Fault(location + name, _allowed(name, table, c.nodes), actual)


def _allowed(name: str, table: Mapping[str, Any], nodes: int) -> str:
    """What the isolation ``name`` must be, for a finding."""
    if name == "writable":
        return f"only {', '.join(table['writable'])}"
    if name == "host_devices":
        return "none" if nodes == 1 else "only /dev/infiniband/*"
    several = name == "network" and nodes > 1
    wanted = table["network_of_nodes"] if several else table["values"]["engine"][name]
    return " or ".join(map(_shown, wanted))


def _unconfined(found: Mapping[str, Any], table: Mapping[str, Any], nodes: int) -> Iterator[tuple[str, str]]:
    """(name, found) of each missing isolation. Null is only a breach if an engine attested."""
    confinement = found["confinement"]
    by_engine = found["worth"] == "engine"
    for name, allowed in table["values"]["engine" if by_engine else "file"].items():
        value = confinement[name]
        if name == "network" and nodes > 1:
            allowed = table["network_of_nodes"]
        if (value is None and by_engine) or (value is not None and value not in allowed):
            yield name, _shown(value)
    devices = confinement.get("host_devices", [])
    listed = devices if isinstance(devices, list) else [devices]
    if listed and (nodes == 1 or not all(str(path).startswith("/dev/infiniband/") for path in listed)):
        yield "host_devices", _shown(listed)
    writable = confinement["writable"]
    if writable is None:
        if by_engine:
            yield "writable", "null"
        return
    others = [path for path in writable if path not in table["writable"]]
    if others:
        yield "writable", ", ".join(others)


@rule("IMG-011")
def limits_in_force(c: Context) -> Iterator[Fault]:
    """The limits that the control group enforced are those that the settings state."""
    if c.image is None:
        return
    for _, event in _machines(c):
        found = event["facts"].get("container")
        if found is None:
            continue  # IMG-004
        for name in _LIMITS:
            requested, actual = c.header["settings"].get(name), found["limits"][name]
            if requested is None and name == "shm_bytes":
                continue  # every container has shared memory
            if not _same_limit(name, requested, actual):
                location = event.location(f"facts.container.limits.{name}")
                yield Fault(location, f"{_shown(requested)}, as in the settings", _shown(actual))


def _same_limit(name: str, requested: Any, found: Any) -> bool:
    if requested is None or found is None:
        return requested is found
    if name.endswith("bytes"):
        return type(requested) is int and type(found) is int and 0 <= requested - found < _PAGE
    if name == "cpus" and _NUMBER.fullmatch(str(requested)) and _NUMBER.fullmatch(str(found)):
        return Decimal(str(requested)) == Decimal(str(found))
    return bool(requested == found)


# --- shared


def _base_layers(image: Mapping[str, Any], locked: Mapping[str, Any]) -> list[str] | None:
    """The lock's layers of the base on the header's platform; None where the lock has none."""
    layers: list[str] | None = locked["platforms"].get(image["platform"], {}).get("diff_ids")
    return layers


def _from_file(c: HeaderContext, image: Mapping[str, Any]) -> bool:
    """Whether the unmodified base ran from an image file, which has no layers."""
    return image["form"] == "base" and c.header["runtime"] in c.rules.limits["file_runtimes"]


def _digests(image: Mapping[str, Any]) -> tuple[str, ...]:
    """The digests by which the header names the base."""
    return tuple(image[name] for name in ("index_digest", "manifest_digest") if image[name])


def _layers(found: list[str] | None) -> str:
    if not found:
        return "no layers"
    shown = ", ".join(layer.removeprefix("sha256:")[:12] for layer in found[:4])
    return f"{len(found)} layers ({shown}{', …' if len(found) > 4 else ''})"


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)
