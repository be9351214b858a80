"""The rules that compare logs, folders and descriptions: duplicates, and the hardware of a system."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from suite.log.finding import Finding
from suite.log.safe import safe
from suite.submissions.registry import Registry
from suite.submissions.registry.comparison import UNKNOWN, Order
from suite.submissions.rule_table import finding

if TYPE_CHECKING:
    from suite.submissions.package import CheckedSubmission
    from suite.submissions.registry.traces import Trace

SYSTEM = "system.json"
_LONGEST_PATH = 5000  # characters


def location_in(root: Path, path: Path) -> str:
    """How findings name ``path`` below ``root``: never cut, because two submissions may begin alike."""
    return safe(path.relative_to(root).as_posix(), _LONGEST_PATH)


def duplicates(entries: Sequence[CheckedSubmission], registry: Registry, root: Path) -> list[Finding]:
    """The same log or run id in two submissions; a flag where nobody knows which was first."""
    order, found = Order(registry), []

    def key(entry: CheckedSubmission) -> tuple[bool, object]:
        return entry.trace is None, str(entry.folder) if entry.trace is None else order.key(entry.trace)

    known = sorted(entries, key=key)
    for what in ("digest", "run_id"):
        seen: dict[str, CheckedSubmission] = {}
        for entry in known:
            value = getattr(entry, what)
            if value is None or (first := seen.setdefault(value, entry)) is entry:
                continue
            where, of_first = location_in(root, entry.folder), f"that of {location_in(root, first.folder)}"
            if _known(order, first.trace, entry.trace):
                found.append(finding("SUBM-007", where, f"a unique {what}", of_first))
            else:
                found.append(finding("SUBM-007", where, f"a unique {what}; {UNKNOWN}", of_first, "flag"))
    return found


def _known(order: Order, earlier: Trace | None, later: Trace | None) -> bool:
    """Whether ``earlier`` is known to be first; a submission without a trace is rejected anyway."""
    return earlier is None or later is None or order.known(earlier, later)


def rejected_folders(
    entries: Sequence[CheckedSubmission], about_tree: Sequence[Finding], root: Path
) -> dict[Path, str]:
    """The absolute folders of the submissions that do not count, each with why: the rules that reject it."""
    rules: dict[str, set[str]] = {}
    for found in about_tree:
        if found.severity == "reject":
            rules.setdefault(found.location.partition(", ")[0], set()).add(found.rule)
    rejected = {}
    for entry in entries:
        own = {found.rule for found in entry.findings if found.severity == "reject"}
        if broken := own | rules.get(location_in(root, entry.folder), set()):
            rejected[entry.folder.absolute()] = f"rejected by {', '.join(sorted(broken))}"
        elif entry.fault is not None:
            rejected[entry.folder.absolute()] = "no verdict"
    return rejected


def hardware_differences(entries: Sequence[CheckedSubmission], root: Path) -> list[Finding]:
    """Hardware facts of one system that differ from those of its first result.

    Run ids begin with the time: a later submission puts no flag on those before it.
    """
    different = []
    first: dict[Path, CheckedSubmission] = {}
    for entry in sorted(entries, key=lambda one: one.folder.name):
        machine = entry.folder.parent.parent
        if entry.system is None:
            continue
        before = first.setdefault(machine, entry)
        for name, value in entry.system.items():
            other = (before.system or {})[name]
            if _is_hardware(name) and None not in (value, other) and value != other:
                location = f"{location_in(root, entry.folder)}, {SYSTEM}, {name}"
                different.append(
                    finding("SUBM-008", location, f"{other!r}, as in {before.folder.name}", repr(value))
                )
    return different


def _is_hardware(name: str) -> bool:
    """Whether a field describes hardware, which is the same for every run on the system."""
    settings = ("host_driver", "accelerator_clocks", "accelerator_ecc", "accelerator_power_limit")
    return name == "cooling" or (name.startswith(("host_", "accelerator_")) and name not in settings)
