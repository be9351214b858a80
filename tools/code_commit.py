"""The commits with the code of a result: ``python -m tools.code_commit DIGEST``.

DIGEST is the header's ``code_digest``. A log also names its commit, but a rebased or squashed history no
longer contains it. This tool prints every commit of this clone whose code has the digest.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from suite.containers.engines.native import PROJECT
from suite.plan.code import FOLDERS, digest_of, is_covered


def commits_of(digest: str, root: Path = PROJECT) -> Iterator[str]:
    """The commits with code of this ``digest``, newest first. CalledProcessError if git fails."""
    return (commit for commit, found in digests(root) if found == digest)


def digests(root: Path = PROJECT) -> Iterator[tuple[str, str]]:
    """Each commit that changed the code, newest first, and its digest. CalledProcessError if git fails."""
    argv = ["git", "-C", str(root), "cat-file", "--batch"]  # one process for thousands of files
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        asked, answers = reader.stdin, reader.stdout

        @cache
        def content(blob: str) -> str:
            asked.write(f"{blob}\n".encode())
            asked.flush()
            size = int(answers.readline().split()[2])  # BLOB blob SIZE, then the content and a line feed
            return hashlib.sha256(answers.read(size + 1)[:size]).hexdigest()

        # Full history: otherwise git leaves out a merged branch whose code a merge did not take.
        listing = _git(root, "rev-list", "--full-history", "HEAD", "--all", "--", *FOLDERS)
        for commit in listing.decode().split():
            listed = _git(root, "ls-tree", "-r", "-z", commit, "--", *FOLDERS).decode().rstrip("\0")
            rows = [row.partition("\t") for row in listed.split("\0") if row]
            files = {name: content(facts.split()[2]) for facts, _, name in rows if is_covered(name)}
            yield commit, digest_of(files)


def _git(root: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(root), *arguments], stdout=subprocess.PIPE, check=True).stdout


def main() -> int:
    """See the module. Exits with 1 if no commit has the digest."""
    parser = argparse.ArgumentParser(prog="python -m tools.code_commit", description=__doc__)
    parser.add_argument("digest", metavar="DIGEST")
    digest = parser.parse_args().digest
    if not re.fullmatch("[0-9a-f]{64}", digest):
        parser.error(f"expected the 64 hexadecimal digits of a code_digest, found {digest!r}")
    count = 0
    for commit in commits_of(digest):
        count += 1
        print(_git(PROJECT, "log", "-1", "--format=%H %cs %s", commit).decode(), end="", flush=True)
    if not count:
        print(
            f"expected a commit of this clone with the code {digest}, found none: fetch the submitter's "
            "branch (git fetch REPOSITORY BRANCH:BRANCH) and try again, or replay with OTHER_CODE=1",
            file=sys.stderr,
        )
    return 0 if count else 1


if __name__ == "__main__":
    sys.exit(main())
