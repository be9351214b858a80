"""Every check of the doctor, ordered so that the cause of a fault comes before its consequences."""

from __future__ import annotations

from suite.doctor import data, engines, gpu, host, libraries, start
from suite.doctor.examine import Examination


def examinations(runtime: str) -> list[Examination]:
    """The examinations for a run with this ``runtime`` option."""
    return [
        Examination("python", host.python),
        Examination("make", host.make),
        Examination("GPU driver", gpu.driver),
        Examination("GPU state", gpu.state),
        Examination(libraries.NAME, libraries.loadable),
        Examination("images", engines.preflight),
        *(Examination(name, check) for name, check in engines.check_functions(runtime)),
        Examination("start", start.start, start.TOTAL_S),
        Examination("CPU", host.processors),
        Examination("shared memory", host.shared_memory),
        Examination("memory", host.memory),
        Examination("clocks", host.clocks),
        Examination("ulimit", host.user_limits),
        Examination("allocation", host.allocation),
        Examination("other processes", host.other_processes),
        Examination("disks", host.disks),
        Examination("data", data.datasets),
    ]
