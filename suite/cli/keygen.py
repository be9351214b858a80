"""``python -m suite keygen``: make an Ed25519 key pair to sign submissions with.

The private key (PKCS #8, PEM, mode 0600) and beside it the public one. Prints the entry to propose for
submissions/registry/keys.json. Nothing is ever overwritten.
"""

from __future__ import annotations

import argparse
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from suite.cli.guard import UsageError

_YEARS = 2
_BEFORE = 30  # days: a run is often older than the key that its submitter makes for it


def main(args: argparse.Namespace) -> int:
    """Make the key: 0, or 2 where it cannot be written."""
    from suite.submissions.signing import keys

    path = args.out or default_path()
    key = keys.generate()
    try:
        beside = keys.write(key, path)
    except FileExistsError as error:
        raise UsageError(
            f"{error.filename} exists, and a key is never overwritten; fix: --out FILE (make: OUT=)"
        ) from error
    except OSError as error:
        raise UsageError(f"cannot write {error.filename}: {error.strerror}") from error
    now = datetime.now(UTC).replace(microsecond=0)
    entry = {
        "organisation": args.organisation,
        "submitter": args.submitter,
        "key_id": key.public.key_id,
        "spki": key.public.text,
        "not_before": f"{now - timedelta(days=_BEFORE):%Y-%m-%dT%H:%M:%SZ}",
        "not_after": f"{now + timedelta(days=365 * _YEARS):%Y-%m-%dT%H:%M:%SZ}",
        "revoked": None,
    }
    print(f"private key: {path} (yours alone: whoever has it signs as you)")
    print(f"public key:  {beside}")
    print(f"key id:      {key.public.key_id}")
    print("Propose this entry for submissions/registry/keys.json (docs/submitting.md):")
    print(json.dumps(entry, indent=2))
    return 0


def default_path() -> Path:
    """Where a key goes by default: outside of any repository that might be published."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "dl-benchmark-suite" / "signing-key.pem"
