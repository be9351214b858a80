"""How a process is confined, as the kernel reports it: for runtimes without an engine that reports it.

Sources: proc(5), namespaces(7), capabilities(7). The fields are those of :func:`attestation.container_facts`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from suite.telemetry.reading import Collector, Unavailable, read_text

PATH = "container.confinement."
NOT_FOUND = "the worker's process was not found, so the kernel could not be asked"
_KERNEL_FOLDERS = ("/proc", "/sys", "/dev")  # they keep no files, whatever their mode
_FIELDS = ("privileged", "network", "read_only", "tty", "root", "capabilities_added", "writable", "ipc")


def confinement(take: Collector, pid: int | None) -> dict[str, Any]:
    """The object ``confinement`` of the process ``pid``; nulls with reasons for what cannot be read."""
    if pid is None:
        for field in _FIELDS:
            take.missing(PATH + field, NOT_FOUND)
        return dict.fromkeys(_FIELDS)
    proc = Path("/proc") / str(pid)
    reads = {
        "privileged": lambda: _capabilities(proc) != 0 and _uid(proc) == 0,
        "network": lambda: _network(proc),
        "read_only": lambda: "ro" in _mounts(proc)["/"],
        "tty": lambda: any(_is_terminal(proc / "fd" / number) for number in "012"),
        "root": lambda: _uid(proc) == 0,
        "capabilities_added": lambda: [f"{_capabilities(proc):#x}"] if _capabilities(proc) else [],
        "writable": lambda: _writable(proc),
        "ipc": lambda: "host" if _same(proc, "ipc") else "private",
    }
    return {field: take.take(PATH + field, reads[field]) for field in _FIELDS}


def _uid(proc: Path) -> int:
    """The effective user in this process's user namespace."""
    return int(_status(proc)["Uid"].split()[1])


def _capabilities(proc: Path) -> int:
    return int(_status(proc)["CapEff"], 16)


def _status(proc: Path) -> dict[str, str]:
    rows = (line.partition(":") for line in read_text(proc / "status").splitlines())
    return {name: value.strip() for name, _, value in rows}


def _network(proc: Path) -> str:
    if _same(proc, "net"):
        return "host"
    names = {line.partition(":")[0].strip() for line in read_text(proc / "net/dev").splitlines()[2:]}
    return "none" if names <= {"lo"} else "other"


def _same(proc: Path, namespace: str) -> bool:
    return (proc / "ns" / namespace).readlink() == Path(f"/proc/self/ns/{namespace}").readlink()


def _is_terminal(path: Path) -> bool:
    target = str(path.readlink())
    return target.startswith("/dev/") and target != "/dev/null"


def _mounts(proc: Path) -> dict[str, set[str]]:
    """Options by mount point; of several mounts on one point the last one is visible."""
    found: dict[str, set[str]] = {}
    for line in read_text(proc / "mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        options, of_all = left.split()[5].split(","), right.split()[-1].split(",")
        found[left.split()[4]] = {*options, *({"ro"} & {*of_all})}
    if "/" not in found:
        raise Unavailable("its root file system is not among its mounts")
    return found


def _writable(proc: Path) -> list[str]:
    """Mount points where the worker may write; the root if mounted writable, as folders in it may be."""
    return sorted(
        point
        for point, options in _mounts(proc).items()
        if "ro" not in options
        and not any(point == top or point.startswith(f"{top}/") for top in _KERNEL_FOLDERS)
        and (point == "/" or _permitted(proc, point))
    )


def _permitted(proc: Path, point: str) -> bool:
    """Whether owner and mode let the worker write; files such as /etc/hosts are root's, mounted writable."""
    try:
        stat = (proc / "root" / point.lstrip("/")).stat()
    except OSError:
        return True  # unknown counts as writable
    status = _status(proc)
    groups = {int(status["Gid"].split()[1]), *map(int, status["Groups"].split())}
    write_bit = 0o200 if stat.st_uid == _uid(proc) else 0o020 if stat.st_gid in groups else 0o002
    return bool(stat.st_mode & write_bit)
