"""One TCP connection between node 0 and another node: JSON lines, after both have proved to know a token.

The token itself is never sent. Nothing is encrypted: the nodes of a job share a network that others cannot
read.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import socket
from collections import deque
from time import monotonic, sleep
from typing import Any

import psutil

from suite.contract.network import connect, keep_alive

_LINE_LIMIT = 64 << 20
_CHUNK = 1 << 16
_PROOF_S = 10.0  # for the proofs of a program that has connected
_PROOF_BYTES = 4096
_AGAIN_S = 1.0


class ConnectionLost(OSError):
    """The other node has ended, or does not answer."""


class Connection:
    """Sends and receives objects as JSON lines."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._rest = b""
        self._messages: deque[dict[str, Any]] = deque()
        self._limit = _PROOF_BYTES  # until the other end is known

    def fileno(self) -> int:
        """The descriptor to wait at for messages."""
        return self._socket.fileno()

    @property
    def address(self) -> str:
        """The address of this end."""
        return str(self._socket.getsockname()[0])

    def trust(self) -> None:
        """Accept long messages and wait for them without a limit: the other end is known."""
        self._limit = _LINE_LIMIT
        self._socket.settimeout(None)

    def send(self, message: dict[str, Any]) -> None:
        """Send one message."""
        try:
            self._socket.sendall(json.dumps(message, allow_nan=False, separators=(",", ":")).encode() + b"\n")
        except OSError as error:
            raise ConnectionLost(error.errno, error.strerror) from error

    def pending(self) -> bool:
        """Whether :meth:`read` has messages that :meth:`fileno` does not show."""
        return bool(self._messages)

    def read(self) -> list[dict[str, Any]]:
        """The messages that have arrived, after waiting for some. Raises ConnectionLost at their end."""
        if self._messages:
            found = list(self._messages)
            self._messages.clear()
            return found
        return self._receive_some()

    def _receive_some(self) -> list[dict[str, Any]]:
        try:
            chunk = self._socket.recv(_CHUNK)
        except OSError as error:
            raise ConnectionLost(error.errno, error.strerror) from error
        if not chunk:
            raise ConnectionLost("the other end closed the connection")
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > self._limit:
            raise ConnectionLost(f"a message is longer than {self._limit} bytes")
        try:
            messages = [json.loads(line) for line in lines]
        except (ValueError, RecursionError) as error:
            raise ConnectionLost("expected JSON lines, found something else") from error
        if not all(isinstance(message, dict) for message in messages):
            raise ConnectionLost("expected JSON objects, found something else")
        return messages

    def receive(self, seconds: float | None = None) -> dict[str, Any]:
        """The next message; ConnectionLost if none comes within ``seconds``."""
        until = None if seconds is None else monotonic() + seconds
        while not self._messages:
            self._socket.settimeout(None if until is None else max(0.001, until - monotonic()))
            self._messages.extend(self._receive_some())
        self._socket.settimeout(None)
        return self._messages.popleft()

    def close(self) -> None:
        """Close it, so that the other end notices."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def admit(accepted: socket.socket, token: str) -> tuple[Connection, int]:
    """The connection that another node has opened, and the number of that node.

    ConnectionLost if it does not prove in 10 s that it knows ``token``.
    """
    keep_alive(accepted)
    connection, asked = Connection(accepted), secrets.token_hex(16)
    try:
        connection.send({"challenge": asked})
        answer = connection.receive(_PROOF_S)
        number, proof = answer.get("node"), str(answer.get("proof"))
        if type(number) is not int or not _equal(proof, _proof(token, number, asked)):
            raise ConnectionLost("expected a program that knows the token of this run, found another one")
        connection.send({"proof": _proof(token, 0, str(answer.get("challenge")))})
    except ConnectionLost:
        connection.close()
        raise
    connection.trust()
    return connection, number


def join(host: str, port: int, token: str, number: int, seconds: float) -> Connection:
    """The connection of node ``number`` to node 0; tries again for ``seconds``, while node 0 may still start.

    ConnectionLost if node 0 does not answer in time or does not know ``token``.
    """
    until = monotonic() + seconds
    while True:
        try:
            connection = Connection(connect(host, port, max(0.0, until - monotonic())))
        except OSError as error:
            raise ConnectionLost(error.errno, error.strerror or str(error)) from error
        try:
            _prove(connection, token, number)
        except ConnectionLost:
            connection.close()
            if monotonic() > until:
                raise
            sleep(_AGAIN_S)
            continue
        connection.trust()
        return connection


def _prove(connection: Connection, token: str, number: int) -> None:
    challenge = connection.receive(_PROOF_S).get("challenge")
    asked = secrets.token_hex(16)
    connection.send({"node": number, "proof": _proof(token, number, str(challenge)), "challenge": asked})
    found = str(connection.receive(_PROOF_S).get("proof"))
    if not _equal(found, _proof(token, 0, asked)):
        raise ConnectionLost("expected node 0 of this run, found a program that does not know its token")


def interface_of(address: str) -> str:
    """The network interface of this machine that has ``address``."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(one.address == address for one in addresses):
            return str(name)
    if address.startswith("127."):
        return "lo"
    raise ConnectionLost(f"expected a network interface with the address {address}, found none")


def _proof(token: str, number: int, challenge: str) -> str:
    text = f"node {number} {challenge}".encode(errors="replace")
    return hmac.digest(token.encode(), text, "sha256").hex()


def _equal(found: str, expected: str) -> bool:
    """As compare_digest, which refuses text beyond ASCII: a stranger may send any."""
    return hmac.compare_digest(found.encode(errors="replace"), expected.encode())
