"""What can go wrong while an environment is made: typed, one sentence each, with the fix."""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence

_NETWORK = re.compile(
    r"NewConnectionError|ConnectTimeout|ReadTimeout|NameResolutionError|Temporary failure in name resolution"
    r"|ProxyError|SSLError|Connection (?:refused|reset|broken)|Max retries exceeded|Network is unreachable"
)
_NOT_FOUND = re.compile(r"No matching distribution found for (\S+)")
_NO_SPACE = re.compile(r"No space left on device|\[Errno 28\]")
_READ_ONLY = re.compile(r"Read-only file system|\[Errno 30\]")
_HASH = re.compile(r"DO NOT MATCH THE HASHES")
_COMPILER = re.compile(r"command '?\S*(?:gcc|g\+\+|cc)'? failed|(?:gcc|g\+\+|cc): (?:command )?not found")


class EnvironmentMissing(Exception):
    """What a run needs is not installed and could not be; the message is one sentence with the fix."""


class NoWheel(EnvironmentMissing):
    """No source that pip asked has the file which the lock names."""


class LargeDownload(Exception):
    """Nothing over 1 GB is fetched unasked; sizes in bytes, and the command that goes on."""

    def __init__(self, name: str, size: int, disk: int, seconds: int, command: str) -> None:
        self.name, self.size, self.disk, self.seconds, self.command = name, size, disk, seconds, command
        super().__init__(
            f"the environment {name} is a download of {size / 1e9:.1f} GB (about {disk / 1e9:.1f} GB on "
            f"disk, about {max(1, round(seconds / 60))} min), and nothing over 1 GB is fetched unasked; "
            f"to go on: {command}"
        )


def explain(name: str, lines: Sequence[str]) -> Exception:
    """Turn the last lines of a failed pip or venv for environment ``name`` into an exception to raise."""
    text = "\n".join(lines)
    if _NO_SPACE.search(text):
        return OSError(errno.ENOSPC, f"the disk filled up while making {name}: make room, then run it again")
    if _READ_ONLY.search(text):
        return OSError(
            errno.EROFS, f"the folder for {name} is read-only: make it writable, then run it again"
        )
    if _HASH.search(text):
        return EnvironmentMissing(
            f"a file that pip fetched for {name} differs from the one locked by hash, and was not installed: "
            "ask whoever runs the mirror or proxy that pip is configured with, or try another one"
        )
    network = _NETWORK.search(text)
    missing = _NOT_FOUND.search(text)
    if missing:
        reason = f"pip could not connect: {network.group(0)}" if network else "no source of pip's has it"
        return NoWheel(
            f"the wheel {missing.group(1)} for {name} was not found ({reason}; locks are for CPython 3.11 on "
            "Linux x86-64): connect to the network, or set PIP_FIND_LINKS to a folder that holds the wheel"
        )
    if network:
        return EnvironmentMissing(
            f"the packages of {name} could not be fetched ({network.group(0)}): connect to the network, or "
            "point pip at a mirror (PIP_INDEX_URL) or a folder of wheels (PIP_FIND_LINKS)"
        )
    if _COMPILER.search(text):
        return EnvironmentMissing(
            f"building a package of {name} needs a compiler: sudo apt-get install build-essential"
        )
    last = next((line for line in reversed(lines) if line.strip()), "no message")
    return EnvironmentMissing(f"making {name} failed ({last.strip()[:200]}): fix that, then run it again")
