"""Ranks of TensorFlow on two nodes meet, although strangers connect to the first one."""

from __future__ import annotations

import socket
import threading
import time

from suite.contract import Network
from suite.contract.network import connect, unused_ports
from suite.frameworks.tensorflow import exchange

STRANGERS = (b"\xff\xfe 1 a:1\n", "é 1 a:1\n".encode(), b"\n", b"x" * 5000)


def main() -> None:
    """Rank 0 listens in a thread; strangers come first, and one of them says nothing."""
    exchange._HELLO_S = 1.0
    barrier, port = unused_ports("127.0.0.1", 2)
    network = Network("127.0.0.1", "127.0.0.1", "lo", barrier, port, "5e" * 16)
    found: list[list[str]] = []
    leader = threading.Thread(target=lambda: found.append(exchange.agree_on_addresses(network, 0, 2)))
    leader.start()
    silent = connect("127.0.0.1", port, 10)
    for text in STRANGERS:
        with connect("127.0.0.1", port, 10) as stranger:
            stranger.sendall(text)
            stranger.shutdown(socket.SHUT_WR)
    began = time.monotonic()
    found.append(exchange.agree_on_addresses(network, 1, 2))
    leader.join(20)
    silent.close()
    assert time.monotonic() - began < 15
    assert len(found) == 2
    assert found[0] == found[1]
    assert len(found[0]) == 2


if __name__ == "__main__":
    main()
