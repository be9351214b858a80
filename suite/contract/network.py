"""TCP between the nodes of a run, for harness and worker. Standard library only."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from time import monotonic, sleep


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


def keep_alive(connection: socket.socket) -> None:
    """Send at once, and let the kernel end ``connection`` about 30 s after its other end has disappeared."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000)
