"""``python -m suite register``: add your public key to the registry of this checkout.

It writes the entry to submissions/registry/keys.json, as a change to propose to the project. Signatures by
the key then count in this checkout, and for others once the project has accepted the entry.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suite.cli.guard import UsageError
from suite.cli.keygen import default_path, entry_of

if TYPE_CHECKING:
    from suite.submissions.registry import Registry

PROPOSE = "Propose this change to the project as a pull request (docs/submitting.md)."


def main(args: argparse.Namespace) -> int:
    """Add the entry; returns 0, also if the registry has it. UsageError for an unusable name or registry."""
    from suite.submissions.signing import keys
    from suite.submissions.system import submitter_problem

    if (problem := submitter_problem(args.submitter)) is not None:
        raise UsageError(problem)
    file: Path = args.submissions / "registry" / "keys.json"
    if not file.is_file():
        raise UsageError(
            f"expected the registry's {file}, found no such file: run this in the project's folder"
        )
    registry = faultless_registry(file.parent)
    public = keys.read((args.key or default_path()).expanduser()).public
    known = {one.public.key_id: one.submitter for one in registry.keys}
    if public.key_id in known:
        if known[public.key_id] != args.submitter:
            raise UsageError(
                f"{file} has this key for {known[public.key_id]}: make another with `make keygen`"
            )
        print(f"{file} has this key already")
        return 0
    content = json.loads(file.read_bytes())
    content["keys"].append(entry_of(public, args.submitter, args.organisation))
    replace_file(file, content)
    print(f"added to {file}: key {public.key_id} of {args.submitter}")
    print(PROPOSE)
    return 0


def faultless_registry(folder: Path) -> Registry:
    """The registry in ``folder``; UsageError if a file there has a fault, so that none is written."""
    from suite.submissions.registry import read_registry

    registry = read_registry(folder)
    if registry.faults:
        fault = registry.faults[0]
        raise UsageError(f"{fault.location}: expected {fault.expected}, found {fault.found}")
    return registry


def replace_file(file: Path, content: dict[str, Any]) -> None:
    """Write one of the registry's files at once; UsageError if ``content`` does not match its schema."""
    from suite.submissions.registry.read import registry_schemas

    schemas, name = registry_schemas(), f"registry_{file.stem}"
    if not schemas.valid(name, content):
        where, message = schemas.explain(name, content)[0]
        raise UsageError(
            f"the new entry breaks the schema of {file} at {where}: {message}; nothing was written"
        )
    new = file.with_name(f".{file.name}.new")
    new.write_text(json.dumps(content, indent=2) + "\n", "utf-8")
    new.replace(file)
