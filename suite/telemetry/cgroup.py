"""The control group of a process: its usage and its limits, from v1, v2 and hybrid hierarchies.

Inside a container the usual libraries report the whole host, so this module reads the group's files. The
group of a process is in /proc/<pid>/cgroup, the mount points of hierarchies in /proc/self/mountinfo
(cgroups(7)).
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from suite.telemetry.reading import Collector, Unavailable, read_int, read_table, read_text

UNIFIED = ""  # the key of the v2 hierarchy among the v1 controllers
_NO_LIMIT = 1 << 60  # v1 writes the largest page-aligned number where no limit is set


@dataclass(frozen=True)
class CgroupMount:
    """One mounted hierarchy: its controller, the group at its root, and its mount point."""

    controller: str
    root: str
    folder: Path


@dataclass(frozen=True)
class Cgroup:
    """A process's group in each hierarchy: controller name (``""`` for v2) to folder."""

    version: str  # v1 | v2 | hybrid
    folders: dict[str, Path]
    tops: dict[str, Path]  # the mount point of each folder, where a walk to the ancestors ends

    def folder(self, controller: str) -> tuple[bool, Path]:
        """(is v2, folder) of the hierarchy that accounts for ``controller``; v1 if both are mounted."""
        if controller in self.folders:
            return False, self.folders[controller]
        if UNIFIED in self.folders:
            return True, self.folders[UNIFIED]
        raise Unavailable(f"no hierarchy accounts for {controller} here")

    def ancestry(self, controller: str) -> tuple[bool, list[Path]]:
        """(is v2, folders from the process's group up to the mount point)."""
        unified, folder = self.folder(controller)
        top = self.tops[UNIFIED if unified else controller]
        chain = [folder]
        while chain[-1] != top:
            chain.append(chain[-1].parent)
        return unified, chain


def locate(pid: int | str, root: Path = Path("/")) -> Cgroup:
    """The control group of ``pid`` (or ``"self"``); ``root`` stands for / in tests.

    Raises Unavailable if no hierarchy is mounted or the group is outside of this namespace.
    """
    try:
        text = (root / "proc" / str(pid) / "cgroup").read_text()
    except FileNotFoundError:
        raise Unavailable("the process has ended") from None
    paths = _paths(text)
    mounts = _mounts((root / "proc/self/mountinfo").read_text(), root)
    folders: dict[str, Path] = {}
    tops: dict[str, Path] = {}
    for mount in mounts:
        folder = _resolve(mount, paths.get(mount.controller))
        if folder is not None and mount.controller not in folders and folder.is_dir():
            folders[mount.controller], tops[mount.controller] = folder, mount.folder
    if not folders:
        raise Unavailable(
            "no control group hierarchy is mounted" if not mounts else "the group lies outside this namespace"
        )
    kinds = {mount.controller == UNIFIED for mount in mounts}
    version = "hybrid" if len(kinds) == 2 else "v2" if True in kinds else "v1"
    return Cgroup(version, folders, tops)


def _paths(text: str) -> dict[str, str]:
    """Controller to group path, from /proc/<pid>/cgroup (lines ``id:controller,controller:path``)."""
    paths: dict[str, str] = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


def _mounts(text: str, root: Path) -> list[CgroupMount]:
    """The mounted hierarchies, from /proc/self/mountinfo (proc(5): root, mount point, then type)."""
    mounts: list[CgroupMount] = []
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        fields, (kind, _, options) = left.split(), right.split(" ", 2)  # the source may be empty
        folder = root / fields[4].lstrip("/")
        if kind == "cgroup2":
            mounts.append(CgroupMount(UNIFIED, fields[3], folder))
        elif kind == "cgroup":
            names = [name for name in options.split(",") if name not in ("rw", "ro")]
            mounts.extend(CgroupMount(name, fields[3], folder) for name in names)
    return mounts


def _resolve(mount: CgroupMount, path: str | None) -> Path | None:
    """The folder of group ``path`` under ``mount``; None if the mount does not contain it."""
    if path is None or ".." in path.split("/"):  # ".." : the group is outside this cgroup namespace
        return None
    base = mount.root.rstrip("/")
    if base and path != base and not path.startswith(base + "/"):
        return None
    relative = path[len(base) :].strip("/")
    return mount.folder / relative if relative else mount.folder


def usage(group: Cgroup) -> tuple[dict[str, Any], dict[str, str]]:
    """The ``host`` object of a telemetry event (ns, bytes) and the reasons of its nulls."""
    take = Collector()
    data = {
        "cpu_usage_ns": take.take("cpu_usage_ns", lambda: _cpu_usage(group)),
        "cpu_throttled_ns": take.take("cpu_throttled_ns", lambda: _cpu_throttled(group)),
        "memory_bytes": take.take("memory_bytes", lambda: _memory(group, "current", "usage")),
        "memory_peak_bytes": take.take("memory_peak_bytes", lambda: _memory(group, "peak", "max_usage")),
        "page_cache_bytes": take.take("page_cache_bytes", lambda: _page_cache(group)),
        "io_read_bytes": take.take("io_read_bytes", lambda: _io(group, "rbytes", "Read")),
        "io_write_bytes": take.take("io_write_bytes", lambda: _io(group, "wbytes", "Write")),
        "cpu_pressure_ns": take.take("cpu_pressure_ns", lambda: _cpu_pressure(group)),
        "oom_kills": take.take("oom_kills", lambda: oom_kills(group)),
    }
    return data, take.reasons


def oom_kills(group: Cgroup) -> int:
    """How often the kernel killed a process of the group because memory ran out.

    Raises Unavailable if the group has no memory controller.
    """
    unified, folder = group.folder("memory")
    table = read_table(folder / ("memory.events" if unified else "memory.oom_control"))
    if "oom_kill" not in table:
        raise Unavailable("the group does not count out-of-memory kills")
    return table["oom_kill"]


def limits(group: Cgroup) -> tuple[dict[str, Any], dict[str, str]]:
    """The limits of the group and its ancestors (cores as a decimal string, bytes, CPU list), and reasons."""
    take = Collector()
    data = {
        "version": group.version,
        "cpu_limit": take.take("cpu_limit", lambda: _cpu_limit(group)),
        "memory_limit_bytes": take.take("memory_limit_bytes", lambda: _memory_limit(group)),
        "cpuset": take.take("cpuset", lambda: _cpuset(group)),
    }
    return data, take.reasons


def _cpu_usage(group: Cgroup) -> int:
    unified, folder = group.folder("cpuacct")
    if unified:
        return read_table(folder / "cpu.stat")["usage_usec"] * 1000
    return read_int(folder / "cpuacct.usage")


def _cpu_throttled(group: Cgroup) -> int:
    unified, folder = group.folder("cpu")
    table = read_table(folder / "cpu.stat")
    name, scale = ("throttled_usec", 1000) if unified else ("throttled_time", 1)
    if name not in table:
        raise Unavailable("the group has no CPU controller")
    return table[name] * scale


def _memory(group: Cgroup, v2_name: str, v1_name: str) -> int:
    unified, folder = group.folder("memory")
    return read_int(folder / (f"memory.{v2_name}" if unified else f"memory.{v1_name}_in_bytes"))


def _page_cache(group: Cgroup) -> int:
    """Bytes of files in the page cache that the group pays for; on v1 with its subgroups."""
    unified, folder = group.folder("memory")
    table = read_table(folder / "memory.stat")
    name = "file" if unified else "total_cache"
    if name not in table:
        raise Unavailable("the group does not count its page cache")
    return table[name]


def _io(group: Cgroup, v2_name: str, v1_name: str) -> int:
    unified, folder = group.folder("blkio")
    if unified:
        fields = [field for line in read_text(folder / "io.stat").splitlines() for field in line.split()[1:]]
        return sum(int(field.partition("=")[2]) for field in fields if field.startswith(v2_name + "="))
    file = folder / "blkio.throttle.io_service_bytes_recursive"
    if not file.exists():
        file = folder / "blkio.throttle.io_service_bytes"
    rows = [line.split() for line in read_text(file).splitlines()]
    devices = [row for row in rows if len(row) == 3]
    if not devices:  # the file then contains only "Total 0", also after reads
        raise Unavailable("the v1 block controller accounts for no device in this group")
    return sum(int(row[2]) for row in devices if row[1] == v1_name)


def _cpu_pressure(group: Cgroup) -> int:
    if UNIFIED not in group.folders:
        raise Unavailable("only v2 hierarchies account for pressure")
    for line in read_text(group.folders[UNIFIED] / "cpu.pressure").splitlines():
        if line.startswith("some "):
            return int(line.rpartition("total=")[2]) * 1000
    raise Unavailable("the pressure file has no line 'some'")


def _cpu_limit(group: Cgroup) -> str:
    """Cores allowed by the smallest quota of the group and its ancestors, such as ``1.5``."""
    unified, chain = group.ancestry("cpu")
    quotas: list[Decimal] = []
    for folder in chain:
        try:
            if unified:
                quota, period = read_text(folder / "cpu.max").split()
            else:
                quota, period = (read_text(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
        except FileNotFoundError:  # the root of a v2 hierarchy has no limit files
            continue
        if quota not in ("max", "-1"):
            quotas.append(Decimal(quota) / Decimal(period))
    if not quotas:
        raise Unavailable("no limit is set")
    return format(min(quotas).quantize(Decimal("0.001")).normalize(), "f")


def _memory_limit(group: Cgroup) -> int:
    """The smallest memory limit of the group and its ancestors, in bytes."""
    unified, chain = group.ancestry("memory")
    values: list[int] = []
    for folder in chain:
        try:
            text = read_text(folder / ("memory.max" if unified else "memory.limit_in_bytes"))
        except FileNotFoundError:
            continue
        if text != "max" and int(text) < _NO_LIMIT:
            values.append(int(text))
    if not values:
        raise Unavailable("no limit is set")
    return min(values)


def _cpuset(group: Cgroup) -> str:
    unified, folder = group.folder("cpuset")
    if unified:
        return read_text(folder / "cpuset.cpus.effective")
    for name in ("cpuset.effective_cpus", "cpuset.cpus"):
        if (folder / name).exists():
            return read_text(folder / name)
    raise Unavailable("the group has no list of processors")
