"""Which node of a run this process is, from the variables of its launcher."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from suite.plan.errors import BadConfiguration

# Set by hand, by the script of a Slurm job or by Kubernetes.
NODE, NODE_0, TOKEN = "SUITE_NODE", "SUITE_NODE_0", "SUITE_TOKEN"
JOIN, EXIT_CODE = "SUITE_JOIN_SECONDS", "SUITE_EXIT_CODE"
_INDEX = (NODE, "SLURM_PROCID", "JOB_COMPLETION_INDEX")  # the first that is set
JOIN_S = 300.0  # nodes start and prepare their part at different times


@dataclass(frozen=True, slots=True)
class Placement:
    """One node of a run: its number, where node 0 listens, and the token that all nodes of the run know."""

    node: int
    host: str
    port: int
    token: str
    join_s: float
    exit_code: Path | None = None  # to which node 0 writes the exit code of the run


def placement(environment: Mapping[str, str]) -> Placement:
    """The placement in ``environment``; BadConfiguration names the variable that is missing or wrong."""
    number = next((environment[name] for name in _INDEX if name in environment), None)
    if number is None or not number.isdecimal():
        raise BadConfiguration(f"{NODE}: expected the number of this node, from 0, found {number}; {_FIX}")
    host, _, port = environment.get(NODE_0, "").rpartition(":")
    host = host or environment.get("SLURM_LAUNCH_NODE_IPADDR", "")
    if not host or not (port.isdecimal() and 0 < int(port) < 1 << 16):
        found = environment.get(NODE_0)
        raise BadConfiguration(f"{NODE_0}: expected host:port of node 0, found {found}; {_FIX}")
    token = environment.get(TOKEN, "")
    if len(token) < 32:
        raise BadConfiguration(
            f"{TOKEN}: expected a secret of at least 32 characters, equal on all nodes; {_FIX}"
        )
    exit_code = Path(environment[EXIT_CODE]) if EXIT_CODE in environment else None
    return Placement(int(number), host, int(port), token, join_seconds(environment), exit_code)


def join_seconds(environment: Mapping[str, str]) -> float:
    """How long node 0 waits for the other nodes. BadConfiguration if ``environment`` states no seconds."""
    found = environment.get(JOIN, "")
    try:
        seconds = float(found or JOIN_S)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < 1e6:
        raise BadConfiguration(f"{JOIN}: expected seconds, found {found!r}")
    return seconds


_FIX = "LAUNCHER=slurm and LAUNCHER=kubernetes set it (docs/scaling.md)"
