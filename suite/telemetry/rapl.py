"""Energy of the processors and the memory by RAPL, from the kernel's powercap files.

Zones named ``package-N`` are processors with their caches, ``dram`` is the memory of one. ``psys`` and
``core`` overlap with them and are left out. Counters wrap around after ``max_energy_range_uj``, on servers in
some minutes; since Linux 5.10 only root may read them (CVE-2020-8694). Virtual machines have none.
Source: Documentation/power/powercap/powercap.rst of Linux.
"""

from __future__ import annotations

from pathlib import Path

from suite.telemetry.reading import Unavailable, read_int, read_text

_NO_ZONES = "this machine shows no energy counters (RAPL) of its processors"


class Rapl:
    """Reads the sum of all zones in µJ; ``root`` stands for / in tests.

    A counter that wraps around between two readings of one object counts on.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        folder = root / "sys/class/powercap"
        names = sorted(path.name for path in folder.glob("intel-rapl:*")) if folder.is_dir() else []
        self._zones = [folder / name for name in names if _counts(folder / name)]
        self._last: dict[Path, int] = {}
        self._wrapped = 0

    def read(self) -> int:
        """µJ since an arbitrary moment. Raises Unavailable, or OSError where a file cannot be read."""
        if not self._zones:
            raise Unavailable(_NO_ZONES)
        now = {zone: read_int(zone / "energy_uj") for zone in self._zones}
        for zone, value in now.items():
            if value < self._last.get(zone, 0):
                self._wrapped += read_int(zone / "max_energy_range_uj") + 1
        self._last = now
        return sum(now.values()) + self._wrapped


def _counts(zone: Path) -> bool:
    try:
        name = read_text(zone / "name")
    except OSError:
        return False
    return name.startswith("package-") or name == "dram"
