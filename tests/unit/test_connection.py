"""The connection between two nodes: proofs of a token, whole messages, and the end of the other node."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from suite.contract.network import unused_ports
from suite.harness.connection import Connection, ConnectionLost, admit, join

TOKEN = "5e" * 32


@pytest.fixture
def ends() -> Iterator[tuple[Connection, socket.socket]]:
    """A connection, and the socket at its other end."""
    near, far = socket.socketpair()
    with near, far:
        yield Connection(near), far


def lines(*messages: object) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


def test_message_that_came_with_another_one_is_pending(ends: tuple[Connection, socket.socket]) -> None:
    """A selector does not show it: its bytes have been read."""
    connection, far = ends
    far.sendall(lines({"first": 1}, {"second": 2}))
    assert connection.receive(5) == {"first": 1}
    assert connection.pending()
    assert connection.read() == [{"second": 2}]
    assert not connection.pending()


@pytest.mark.parametrize(
    "sent", [b"x" * 5000, b"not json\n", b"[1]\n", b""], ids=["long", "text", "list", "end"]
)
def test_stranger_is_not_listened_to(sent: bytes, ends: tuple[Connection, socket.socket]) -> None:
    connection, far = ends
    far.sendall(sent)
    if not sent:
        far.close()
    with pytest.raises(ConnectionLost):
        connection.receive(5)


@pytest.mark.parametrize(("token", "admitted"), [(TOKEN, True), ("6f" * 32, False)], ids=["same", "other"])
def test_only_a_node_that_knows_the_token_joins(token: str, admitted: bool) -> None:
    joined: list[Connection] = []

    def come(port: int) -> None:
        try:
            joined.append(join("127.0.0.1", port, token, number=3, seconds=0.1))
        except ConnectionLost:
            return

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=come, args=(server.getsockname()[1],))
        thread.start()
        accepted, _ = server.accept()
        if admitted:
            connection, number = admit(accepted, TOKEN)
            thread.join(10)
            assert number == 3
            connection.send({"hello": "there"})
            assert joined[0].receive(5) == {"hello": "there"}
            joined[0].close()
            with pytest.raises(ConnectionLost):
                connection.receive(5)
            connection.close()
        else:
            with pytest.raises(ConnectionLost):
                admit(accepted, TOKEN)
            server.close()
            thread.join(10)
            assert not joined


@pytest.mark.parametrize("proof", ["é", "\ud800", 7])
def test_stranger_with_any_text_is_refused(proof: object) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as far,
    ):
        near, _ = server.accept()
        far.sendall(lines({"node": 1, "proof": proof, "challenge": "\ud800"}))
        with pytest.raises(ConnectionLost, match="expected a program that knows the token"):
            admit(near, TOKEN)


def test_joining_gives_up_in_time() -> None:
    with socket.socket() as bound:  # and not listening, so that no other process can answer
        bound.bind(("127.0.0.1", 0))
        began = time.monotonic()
        with pytest.raises(ConnectionLost):
            join("127.0.0.1", bound.getsockname()[1], TOKEN, number=1, seconds=0.5)
    assert time.monotonic() - began < 30


def test_unused_ports_are_not_those_that_the_kernel_gives_to_connections() -> None:
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    ports = unused_ports("127.0.0.1", 3)
    assert len(set(ports)) == 3
    assert not any(first <= port <= last for port in ports)
    for port in ports:
        with socket.create_server(("127.0.0.1", port)):
            pass


def test_no_port_of_another_machine_is_unused() -> None:
    with pytest.raises(OSError, match="assign"):
        unused_ports("192.0.2.1", 1)
