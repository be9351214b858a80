"""``python -m suite keygen``: make a key to sign submissions with."""

from __future__ import annotations

import argparse
import json
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

_YEARS = 2
_BEFORE = 30  # days: a run is often older than the key that its submitter makes for it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.description = (
        "Make an Ed25519 key pair: the private key (PKCS #8, PEM, mode 0600) and beside it the public one. "
        "Prints the entry to propose for submissions/registry/keys.json. Nothing is ever overwritten."
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=None,
        metavar="FILE",
        help="where the private key goes (default: ~/.config/dl-benchmark-suite/signing-key.pem)",
    )
    parser.add_argument(
        "--submitter", default="<submitter>", metavar="ORG", help="as in submissions/<submitter>/"
    )
    parser.add_argument("--organisation", default="<organisation>", metavar="NAME", help="its full name")


def main(args: argparse.Namespace) -> int:
    """Make the key: 0, or 2 where it cannot be written."""
    from suite.signing import keys

    path = args.out or default_path()
    key = keys.generate()
    try:
        beside = keys.write(key, path)
    except FileExistsError as error:
        print(
            f"keygen: {error.filename} exists, and a key is never overwritten; mend: --out FILE (make: OUT=)",
            file=sys.stderr,
        )
        return 2
    except OSError as error:
        print(f"keygen: cannot write {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
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
    """Where a key goes unless told otherwise: outside of any repository that might be published."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "dl-benchmark-suite" / "signing-key.pem"
