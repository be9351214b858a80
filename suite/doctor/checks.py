"""Every check of the doctor, in the order in which a fault is found: what comes first explains the rest."""

from __future__ import annotations

from suite.doctor import data, engines, gpu, host, start
from suite.doctor.examine import Examination


def examinations(runtime: str) -> list[Examination]:
    """What is looked at where ``runtime`` is the word of the run."""
    return [
        Examination("python", host.python),
        Examination("make", host.make),
        Examination("GPU driver", gpu.driver),
        Examination("GPU state", gpu.quiet),
        Examination("images", engines.preflight),
        *(Examination(name, look) for name, look in engines.looks(runtime)),
        Examination("start", start.start, start.TOTAL_S),
        Examination("CPU", host.processors),
        Examination("shared memory", host.shared_memory),
        Examination("memory", host.memory),
        Examination("clocks", host.clocks),
        Examination("ulimit", host.user_limits),
        Examination("allocation", host.allocation),
        Examination("other processes", host.busy),
        Examination("disks", host.disks),
        Examination("data", data.datasets),
    ]
