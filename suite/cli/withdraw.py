"""``python -m suite withdraw``: withdraw a submission of yours, with a reason.

It writes the entry to submissions/registry/withdrawals.json, as a change to propose to the project. The
result stays in the tree, without a score. Exit codes: 0, also if it is withdrawn already; 2 usage error.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from datetime import UTC, datetime
from pathlib import Path

from suite.cli.guard import UsageError
from suite.cli.register import PROPOSE, faultless_registry, replace_file

_REASON = re.compile("[ -~]{1,500}")


def main(args: argparse.Namespace) -> int:
    """Add the entry; returns 0. UsageError for a folder that is no submission, a reason or a registry."""
    from suite.cli.archives import problem_of
    from suite.compare.scaling_set import is_set
    from suite.log.canonical import sha256_hex
    from suite.log.files import LOG, folder_of, read_file
    from suite.log.finding import RecordError

    reason = args.reason.strip()
    if not _REASON.fullmatch(reason):
        raise UsageError("--reason: expected one line of 1 to 500 printable ASCII characters")
    registry: Path = args.submissions / "registry"
    if not registry.is_dir():
        raise UsageError(
            f"expected the registry {registry}, found no such folder: run this in the project's folder"
        )
    if is_set(args.result):
        raise UsageError(f"--result: expected the folder of a submission, found {problem_of(args.result)}")
    folder = folder_of(args.result)
    run_id, submitter = _names(folder, args.submissions)
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            digest = sha256_hex(read_file(descriptor, LOG))
        finally:
            os.close(descriptor)
    except RecordError as error:
        raise UsageError(
            f"{folder / LOG}: expected {error.defects[0].expected}, found {error.defects[0].found}"
        ) from error
    file = registry / "withdrawals.json"
    if (known := faultless_registry(registry).withdrawals.get(digest)) is not None:
        print(f"{file} has this already: {known}")
        return 0
    content = {"format": "suite-registry-withdrawals/1", "withdrawals": []}
    if file.exists():
        content = json.loads(file.read_bytes())
    entry = {
        "sha256": digest,
        "run_id": run_id,
        "submitter": submitter,
        "withdrawn_at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "reason": reason,
    }
    replace_file(file, {**content, "withdrawals": [*content["withdrawals"], entry]})
    print(f"added to {file}: {run_id} of {submitter}; it stays in the tree, without a score")
    print(PROPOSE)
    return 0


def _names(folder: Path, submissions: Path) -> tuple[str, str]:
    """Run id and submitter by the folder of a submission: <submitter>/<tree>/<system>/<workload>/<run id>."""
    inside, root = folder.resolve(), submissions.resolve()
    parts = inside.relative_to(root).parts if inside.is_relative_to(root) else ()
    if len(parts) != 5 or not inside.is_dir():
        raise UsageError(
            f"--result: expected the folder of a submission, {submissions}/<submitter>/<results or practice>/"
            f"<system>/<workload>/<run id>, found {folder}"
        )
    return parts[4], parts[0]
