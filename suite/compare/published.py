"""What the studies of ``conf/sweep`` published: figures and conclusions, shown beside results, never as one.

The files are part of the suite. A journal only names a study: what is shown as published is read here.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

SWEEPS = Path(__file__).resolve().parents[2] / "conf" / "sweep"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_DEFAULTS = {"phase": "train", "precision": "fp32", "devices": "1", "nodes": "1"}


class MalformedFigures(ValueError):
    """A file of published figures with a line that is none; the message names it."""


@dataclass(frozen=True, slots=True)
class Published:
    """A figure that a study published: units per second on ``platform``, for cells with these options."""

    platform: str
    options: Mapping[str, str]
    value: float
    unit: str

    def describes(self, cell: Mapping[str, str]) -> bool:
        """Whether a cell has these options; the defaults of a run stand for options that it leaves out."""
        return all((cell.get(name) or _DEFAULTS.get(name)) == wanted for name, wanted in self.options.items())

    @property
    def text(self) -> str:
        """The figure with its unit: ``219 images/s``."""
        return f"{self.value:,.{0 if self.value == int(self.value) else 1}f} {self.unit}/s"


@dataclass(frozen=True, slots=True)
class Study:
    """What a published study is, and what it concluded where it has no figure for a cell."""

    title: str
    sources: tuple[str, ...]
    findings: tuple[str, ...]
    figures: tuple[Published, ...]


def figures_of(figures: Iterable[Published], cell: Mapping[str, str]) -> dict[str, str]:
    """The figures of the cell with these options as text, by platform."""
    return {one.platform: one.text for one in figures if one.describes(cell)}


def read_figures(path: Path) -> tuple[Published, ...]:
    """The rows of a CSV (platform, value, unit, options), at reference scale; none without the file.

    Raises MalformedFigures.
    """
    if not path.is_file():
        return ()
    found = []
    with path.open(newline="", encoding="utf-8") as file:
        for number, row in enumerate(csv.DictReader(file), 2):
            try:
                platform, value, unit = row.pop("platform"), float(row.pop("value")), row.pop("unit")
            except (KeyError, ValueError, TypeError) as error:
                raise MalformedFigures(
                    f"{path.name}, line {number}: expected platform, value (a number) and unit, found {row}"
                ) from error
            options = {name: text for name, text in row.items() if text}
            found.append(Published(platform, {"scale": "reference", **options}, value, unit))
    return tuple(found)


def study_of(name: str) -> Study | None:
    """The study of ``conf/sweep`` with this name; None if there is none, or if it is no published one."""
    path = SWEEPS / f"{name}.yaml"
    if not _NAME.fullmatch(name) or not path.is_file():
        return None
    tree = yaml.safe_load(path.read_text("utf-8"))
    if "study" not in tree:
        return None
    source = tree.get("source") or []
    return Study(
        str(tree["study"]),
        tuple(map(str, source if isinstance(source, list) else [source])),
        tuple(map(str, tree.get("findings") or ())),
        read_figures(SWEEPS / "published" / f"{name}.csv"),
    )
