"""Errors of making an environment: one sentence each, with the fix."""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence

# For estimates before a download only; where the unpacked size was measured, sizes.json has it.
ASSUMED_BYTES_PER_S = 20_000_000
ASSUMED_UNPACKED_BYTES_PER_S = 50_000_000
ASSUMED_UNPACKED = 2.5  # unpacked bytes per byte of download

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
    """A run's environment is not installed and could not be installed; the message names the fix."""


class NoWheel(EnvironmentMissing):
    """None of pip's sources has the file that the lock names."""


class LargeDownload(Exception):
    """A download over 1 GB that the user has not allowed. Sizes in bytes; ``disk`` None: not measured."""

    def __init__(
        self, name: str, size: int, disk: int | None, command: str = "the same command with FETCH=1"
    ) -> None:
        disk = disk or round(size * ASSUMED_UNPACKED)
        seconds = size / ASSUMED_BYTES_PER_S + disk / ASSUMED_UNPACKED_BYTES_PER_S
        super().__init__(
            f"{name} is a download of {size / 1e9:.1f} GB (about {disk / 1e9:.1f} GB on disk, about "
            f"{max(1, round(seconds / 60))} min), and downloads over 1 GB need consent: run {command}"
        )


def explain(name: str, lines: Sequence[str]) -> Exception:
    """The exception to raise for the last output lines of a failed pip or venv for environment ``name``."""
    text = "\n".join(lines)
    if _NO_SPACE.search(text):
        return OSError(errno.ENOSPC, f"the disk filled up while making {name}: free space, then run it again")
    if _READ_ONLY.search(text):
        return OSError(
            errno.EROFS, f"the folder for {name} is read-only: make it writable, then run it again"
        )
    if _HASH.search(text):
        return EnvironmentMissing(
            f"a file that pip fetched for {name} differs from the one locked by hash, and was not installed: "
            "ask the operator of the mirror or proxy that pip is configured with, or try another one"
        )
    network = _NETWORK.search(text)
    missing = _NOT_FOUND.search(text)
    if missing:
        reason = f"pip could not connect: {network.group(0)}" if network else "none of pip's sources has it"
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
