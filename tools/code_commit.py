"""The commit whose code a result ran: ``python -m tools.code_commit DIGEST``.

DIGEST is the header's ``code_digest``. A log names its commit, too, but a history that was rebased or
squashed has it no more. What ran is settled by the digest of the code: this looks for it in the history of
HEAD, and prints every commit that has it.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from suite.containers.engines.native import PROJECT
from suite.plan.code import FOLDERS, digest_of, is_covered


def commits_of(digest: str, root: Path = PROJECT) -> Iterator[str]:
    """The commits with code of this ``digest``, newest first. CalledProcessError where git fails."""

    @cache
    def content(blob: str) -> str:
        return hashlib.sha256(_git(root, "cat-file", "blob", blob)).hexdigest()

    for commit in _git(root, "rev-list", "HEAD", "--", *FOLDERS).decode().split():
        listed = _git(root, "ls-tree", "-r", "-z", commit, "--", *FOLDERS).decode().rstrip("\0")
        rows = [row.partition("\t") for row in listed.split("\0") if row]
        files = {name: content(facts.split()[2]) for facts, _, name in rows if is_covered(name)}
        if digest_of(files) == digest:
            yield commit


def _git(root: Path, *words: str) -> bytes:
    return subprocess.run(["git", "-C", str(root), *words], stdout=subprocess.PIPE, check=True).stdout


def main() -> int:
    """See the module. Exits with 1 where no commit has the digest."""
    parser = argparse.ArgumentParser(prog="python -m tools.code_commit", description=__doc__)
    parser.add_argument("digest", metavar="DIGEST")
    digest = parser.parse_args().digest
    count = 0
    for commit in commits_of(digest):
        count += 1
        print(_git(PROJECT, "log", "-1", "--format=%H %cs %s", commit).decode(), end="", flush=True)
    if not count:
        print(f"expected a commit before HEAD with the code {digest}, found none", file=sys.stderr)
    return 0 if count else 1


if __name__ == "__main__":
    sys.exit(main())
