"""TCP between the nodes of a run, for harness and worker. Standard library only."""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

_CHOSEN_BY_KERNEL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUAL = range(32_768, 61_000)  # Linux's default
_PORTS = range(10_000, 65_536)
_TRIES = 100


@dataclass(frozen=True, slots=True)
class Network:
    """How the ranks of several nodes reach each other; the ports are free ports of node 0."""

    node_0: str  # its address, as the other nodes reach it
    address: str  # of this node, as node 0 reaches it
    interface: str  # the network interface of ``address``
    barrier_port: int
    exchange_port: int
    secret: str  # only processes of this repeat know it


def connect(host: str, port: int, seconds: float) -> socket.socket:
    """A connection to ``host``, tried again until it answers; OSError if it does not within ``seconds``."""
    until = monotonic() + seconds
    while True:
        try:
            found = socket.create_connection((host, port), timeout=10)
        except OSError:
            if monotonic() > until:
                raise
            sleep(0.05)
            continue
        found.settimeout(None)
        keep_alive(found)
        return found


def unused_ports(address: str, count: int) -> list[int]:
    """Ports of this machine's ``address`` that nothing uses, for processes that bind them in a few seconds.

    They are none of those that the kernel gives to connections, if it leaves enough of them: one of those
    could be taken in the meantime. OSError if ``address`` is not of this machine, or if none is found.
    """
    try:
        first, last = map(int, _CHOSEN_BY_KERNEL.read_text().split())
        given = range(first, last + 1)
    except (OSError, ValueError):
        given = _USUAL
    candidates: Sequence[int] = [port for port in _PORTS if port not in given]
    if len(candidates) < _TRIES:
        candidates = _PORTS
    chosen: list[int] = []
    with ExitStack() as held:
        for port in random.SystemRandom().sample(candidates, _TRIES):
            try:
                held.enter_context(socket.create_server((address, port)))
            except OSError as error:
                if error.errno == errno.EADDRNOTAVAIL:
                    raise
                continue
            chosen.append(port)
            if len(chosen) == count:
                return chosen
    raise OSError(f"expected {count} unused ports of {address}, found {len(chosen)}")


def keep_alive(connection: socket.socket) -> None:
    """Send at once, and let the kernel end ``connection`` about 30 s after its other end has disappeared."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000)
