"""Writes submissions/registry/references.json: ``python -m tools.references SUBMITTER``.

The accepted results of the submitter become reference results, "measured" by the project; entries of results
that an auditor "replayed" stay. The throughput of other results is compared with them (rule REG-014).
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from suite.submissions.package import check_tree

ROOT = Path(__file__).resolve().parents[1] / "submissions"


def document(root: Path, submitter: str, at: str) -> dict[str, Any]:
    """The document of the file; ``at`` is the time of entries that it did not have before."""
    path = root / "registry" / "references.json"
    before = (
        {row["sha256"]: row for row in json.loads(path.read_text())["references"]} if path.exists() else {}
    )
    rows = {digest: row for digest, row in before.items() if row["basis"] == "replayed"}
    for entry in check_tree(root)[0]:
        trace = entry.trace
        if entry.rejected or trace is None or trace.figure is None or trace.submitter != submitter:
            continue
        new = {"run_id": trace.run_id, "submitter": submitter, "basis": "measured", "recorded_at": at}
        rows[trace.digest] = before.get(trace.digest, {"sha256": trace.digest, **new})
    ordered = sorted(rows.values(), key=lambda row: str(row["run_id"]))
    return {"format": "suite-registry-references/1", "references": ordered}


def main(arguments: list[str]) -> int:
    """Write the file."""
    parser = argparse.ArgumentParser(prog="python -m tools.references", description=__doc__)
    parser.add_argument("submitter", help="whose accepted results are references: suite-reference")
    chosen = parser.parse_args(arguments)
    found = document(ROOT, chosen.submitter, f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
    (ROOT / "registry" / "references.json").write_text(json.dumps(found, indent=2) + "\n")
    print(f"references.json: {len(found['references'])} reference results")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
