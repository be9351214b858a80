"""``python -m suite keygen``: make an Ed25519 key pair to sign submissions with.

Writes the private key (PKCS #8, PEM, mode 0600) and the public key beside it, and prints the entry that
`register` adds to submissions/registry/keys.json. Existing files are never overwritten.
"""

from __future__ import annotations

import argparse
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suite.cli.guard import UsageError

if TYPE_CHECKING:
    from suite.submissions.signing.keys import PublicKey

_YEARS = 2
_BEFORE = 30  # days: runs are often older than the key


def main(args: argparse.Namespace) -> int:
    """Make the key pair and print its entry; UsageError if it cannot be written."""
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
    entry = entry_of(key.public, args.submitter, args.organisation)
    print(f"private key: {path} (yours alone: whoever has it signs as you)")
    print(f"public key:  {beside}")
    print(f"key id:      {key.public.key_id}")
    print("Its entry in submissions/registry/keys.json, which `make register` adds (docs/submitting.md):")
    print(json.dumps(entry, indent=2))
    return 0


def entry_of(public: PublicKey, submitter: str, organisation: str) -> dict[str, Any]:
    """The registry's entry of a key, valid from thirty days ago for two years."""
    now = datetime.now(UTC).replace(microsecond=0)
    return {
        "organisation": organisation,
        "submitter": submitter,
        "key_id": public.key_id,
        "spki": public.text,
        "not_before": f"{now - timedelta(days=_BEFORE):%Y-%m-%dT%H:%M:%SZ}",
        "not_after": f"{now + timedelta(days=365 * _YEARS):%Y-%m-%dT%H:%M:%SZ}",
        "revoked": None,
    }


def default_path() -> Path:
    """The default path of the private key, outside of any repository."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "dl-benchmark-suite" / "signing-key.pem"
