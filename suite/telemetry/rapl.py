"""Energy of the processors and the memory by RAPL, from the kernel's powercap files.

Zones named ``package-N`` are processors with their caches, ``dram`` is the memory of one. ``psys`` and
``core`` overlap with them and are left out. Counters wrap around after ``max_energy_range_uj``, on servers in
some minutes; since Linux 5.10 only root may read them (CVE-2020-8694). Virtual machines have none.
Source: Documentation/power/powercap/powercap.rst of Linux.
"""

from __future__ import annotations

import time
from pathlib import Path

from suite.telemetry.reading import Unavailable, read_int, read_text

_MOST_W = 500  # of a zone, over minutes; the thermal design power of a processor is less
_NO_ZONES = "this machine shows no energy counters (RAPL) of its processors"


class Rapl:
    """Reads the sum of all zones in µJ; ``root`` stands for / in tests.

    A counter that wraps around once between two readings of one object counts on.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        folder = root / "sys/class/powercap"
        names = sorted(path.name for path in folder.glob("intel-rapl:*")) if folder.is_dir() else []
        self._zones = [folder / name for name in names if _counts(folder / name)]
        self._ranges: dict[Path, int] = {}
        self._last: dict[Path, int] = {}
        self._last_s = 0.0
        self._wrapped = 0

    def read(self) -> int:
        """µJ since an arbitrary moment.

        Raises Unavailable, also where a counter may have wrapped around several times since the last reading,
        and OSError where a file cannot be read.
        """
        if not self._zones:
            raise Unavailable(_NO_ZONES)
        now = {zone: read_int(zone / "energy_uj") for zone in self._zones}
        read_s = time.monotonic()
        if not self._ranges:  # they never change
            self._ranges = {zone: read_int(zone / "max_energy_range_uj") + 1 for zone in self._zones}
        elapsed_s = read_s - self._last_s if self._last else 0.0
        for zone, value in now.items():
            if value < self._last.get(zone, 0):
                self._wrapped += self._ranges[zone]
        self._last, self._last_s = now, read_s
        wraps_after_s = min(self._ranges.values()) / _MOST_W / 1e6
        if elapsed_s > wraps_after_s:
            raise Unavailable(
                f"a counter (RAPL) may have wrapped around several times in {elapsed_s:.0f} s: "
                f"at {_MOST_W} W it does so after {wraps_after_s:.0f} s"
            )
        return sum(now.values()) + self._wrapped


def _counts(zone: Path) -> bool:
    try:
        name = read_text(zone / "name")
    except OSError:
        return False
    return name.startswith("package-") or name == "dram"
