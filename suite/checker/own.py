"""Own code: put in the place of the suite's, declared, with digests and the patch that shows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from suite.checker.context import Context, Fault, HeaderContext, departs, header_rule, rule
from suite.record.files import CHANGES, MAX_CHANGES


def _own(c: HeaderContext, name: str) -> Any:
    """The digest or name of own code; None where it is the suite's, for which older logs say false."""
    found = c.header["settings"].get(name)
    return None if found is False else found


@header_rule("DIV-007")
def suites_pair(c: HeaderContext) -> Iterator[Fault]:
    """The pair is the suite's."""
    found = _own(c, "own_pair")
    if found is not None:
        fault = Fault("header, data.settings.own_pair", "null: the suite's pair", str(found))
        yield from departs(c, "DIV-007", fault)


@header_rule("DIV-008")
def suites_interpreter(c: HeaderContext) -> Iterator[Fault]:
    """The interpreter is the suite's or the image's."""
    found = _own(c, "own_python")
    if found is not None:
        fault = Fault("header, data.settings.own_python", "null: the suite's interpreter", str(found))
        yield from departs(c, "DIV-008", fault)


@header_rule("DIV-009")
def suites_image(c: HeaderContext) -> Iterator[Fault]:
    """The image is not one's own."""
    found = _own(c, "own_image")
    if found is not None:
        fault = Fault("header, data.settings.own_image", "null: an image of the lock", str(found))
        yield from departs(c, "DIV-009", fault)


@header_rule("DIV-010")
def code_committed(c: HeaderContext) -> Iterator[Fault]:
    """The code that ran was committed; where nobody knows, ID-013 flags submissions."""
    git = c.header["git"]
    if git is not None and git["dirty"]:
        yield from departs(c, "DIV-010", Fault("header, data.git.dirty", "false", "true"))


@rule("DIV-011")
def changes_shown(c: Context) -> Iterator[Fault]:
    """Own or changed code comes with the patch that the log names by digest, and with reasons."""
    for number, row in enumerate(c.header["differences"]):
        if not row["reason"].strip():
            yield Fault(f"header, data.differences.{number}.reason", "a reason", "blanks")
    digest, changes = c.header["settings"].get("changes_digest"), c.record.changes
    needed = _needs_patch(c)
    if changes is None:
        if digest is not None:
            yield Fault(CHANGES, f"the file of digest {digest}", "no such file")
        elif needed:
            yield Fault(CHANGES, f"the patch that shows what differs ({needed})", "no such file")
        return
    if changes.digest is None:
        yield Fault(CHANGES, f"at most {MAX_CHANGES} bytes", f"{changes.bytes} bytes")
    elif digest is None:
        yield Fault("header, data.settings.changes_digest", changes.digest, "null")
    elif changes.digest != digest:
        yield Fault(CHANGES, f"digest {digest}, as in the settings", changes.digest)
    elif not changes.text:
        yield Fault(CHANGES, "text in UTF-8 without control characters", "other bytes")


@rule("DIV-012")
def pair_loaded(c: Context) -> Iterator[Fault]:
    """The pair that the worker loaded, by its own account in every repeat, is the one of the settings."""
    wanted = _own(c, "own_pair")
    for repeat in c.repeats:
        event = repeat.env("inside")
        found = None if event is None else event["facts"].get("own_pair")
        if event is not None and found != wanted:
            none = "none: the suite's pair"
            yield Fault(event.place("facts.own_pair"), str(wanted or none), str(found or none))


def _needs_patch(c: Context) -> str:
    """Which departure has to be shown; empty where none has. In practice a dirty tree is information only."""
    for name in ("own_pair", "own_python", "own_image"):
        if _own(c, name) is not None:
            return name
    git = c.header["git"]
    dirty = c.division != "practice" and git is not None and git["dirty"]
    return "git.dirty" if dirty else ""
