"""The validated ``launcher`` section of ``launcher=kubernetes``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from suite.plan.errors import BadConfiguration, did_you_mean

FIELDS = frozenset({"name", "image", "directory", "claim", "gpus", "cpus", "memory", "in_pod"})
_NAME = r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?"


@dataclass(frozen=True, slots=True)
class KubernetesOptions:
    """The options of the JobSet that is written."""

    image: str  # repository@sha256:...
    directory: str  # of the project in the image
    claim: str  # the PersistentVolumeClaim for results and datasets
    gpus: int | None = None  # of each pod; None: one per device, none at mini
    cpus: int | None = None  # of each pod; None: not limited
    memory: str | None = None
    in_pod: bool = False

    @property
    def digest(self) -> str:
        """The digest of the image: sha256:..."""
        return self.image.partition("@")[2]


def parse(section: Mapping[str, Any]) -> KubernetesOptions:
    """The options in a ``launcher`` section of kubernetes; BadConfiguration otherwise."""
    for name in sorted(set(section) - FIELDS):
        raise BadConfiguration(f"launcher: unknown field {name!r}{did_you_mean(name, FIELDS)}")
    for name in sorted(FIELDS - set(section)):
        raise BadConfiguration(f"launcher: expected the field {name}, found it removed")
    return KubernetesOptions(
        image=_text(
            section, "image", r"[a-z0-9][a-zA-Z0-9._:/-]{0,255}@sha256:[0-9a-f]{64}",
            "an image with the suite as repository@sha256:<64 hexadecimal digits> (docs/scaling.md)",
        ),
        directory=_text(section, "directory", r"/[A-Za-z0-9._/-]{1,200}", "an absolute path in the image"),
        claim=_text(section, "claim", _NAME, "the name of a PersistentVolumeClaim"),
        gpus=_count(section, "gpus", least=0),
        cpus=_count(section, "cpus", least=1),
        memory=None
        if section["memory"] is None
        else _text(section, "memory", r"[1-9][0-9]{0,9}[KMGT]i", "a size such as 64Gi"),
        in_pod=section["in_pod"] is True,
    )  # fmt: skip


def _text(section: Mapping[str, Any], name: str, pattern: str, expected: str) -> str:
    found = section[name]
    if not isinstance(found, str) or not re.fullmatch(pattern, found):
        raise BadConfiguration(f"launcher.{name}: expected {expected}, found {found!r}")
    return found


def _count(section: Mapping[str, Any], name: str, least: int) -> int | None:
    found = section[name]
    if found == "auto":
        return None
    if type(found) is not int or found < least:
        raise BadConfiguration(
            f"launcher.{name}: expected auto or a whole number from {least}, found {found!r}"
        )
    return found
