"""The ranks of one repeat: a barrier, and joint decisions.

Rank 0 has one socket to each other rank, every other rank one to rank 0. No rank uses them between the start
and the end of a span of steps. The parent process (:mod:`suite.worker.parent`) creates those within node 0;
ranks of other nodes connect to rank 0 over TCP.
"""

from __future__ import annotations

import hmac
import socket
from collections.abc import Sequence
from time import monotonic, monotonic_ns

from suite.contract import LostRank, Network
from suite.contract.network import connect, keep_alive

_HELLO_S = 5.0  # a rank sends the secret at once; strangers that are silent must not use up the time to meet
MEETING_S = 300.0  # longest time until all ranks have connected: they import for different times
STRANDED = 5  # exit status of a rank that ended because it lost another one


class Group:
    """The ranks of a repeat; without ``peers``, a single rank, which never waits."""

    def __init__(self, rank: int = 0, peers: Sequence[socket.socket] = ()) -> None:
        self.rank = rank
        self._peers = tuple(peers)

    @classmethod
    def of(
        cls, rank: int, descriptors: Sequence[int], world_size: int = 1, network: Network | None = None
    ) -> Group:
        """The group of ``rank``, connected by inherited sockets and, over several nodes, by TCP.

        LostRank if a rank of another node cannot be reached in 300 s.
        """
        peers = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        if network is not None and rank == 0:
            peers += _accept(network, world_size - 1 - len(peers))
        elif network is not None and not peers:
            try:
                peers = [connect(network.node_0, network.barrier_port, MEETING_S)]
                peers[0].sendall(network.secret.encode())
            except OSError as error:
                raise LostRank from error
        return cls(rank, peers)

    def gather(self) -> None:
        """Rank 0 waits until every rank has called this; the other ranks continue at once."""
        if self.rank:
            self._send(b".")
        else:
            self._receive()

    def release(self) -> None:
        """Every other rank waits until rank 0 calls this."""
        if self.rank:
            self._receive()
        else:
            self._send(b".")

    def decide(self, proceed: bool) -> bool:
        """Whether all ranks continue: if one wishes to ``proceed``, after every rank has called this."""
        wish = b"1" if proceed else b"0"
        if self.rank:
            self._send(wish)
            return self._receive()[0] == b"1"
        wish = max([wish, *self._receive()])
        self._send(wish)
        return wish == b"1"

    def _send(self, message: bytes) -> None:
        try:
            for peer in self._peers:
                peer.sendall(message)
        except OSError as error:
            raise LostRank from error

    def _receive(self) -> list[bytes]:
        messages = []
        for peer in self._peers:
            try:
                messages.append(peer.recv(1))
            except OSError as error:
                raise LostRank from error
            if not messages[-1]:
                raise LostRank
        return messages


def _accept(network: Network, count: int) -> list[socket.socket]:
    """Connections of ``count`` ranks of other nodes, which know the secret."""
    secret = network.secret.encode()
    found: list[socket.socket] = []
    until = monotonic() + MEETING_S
    with socket.create_server((network.node_0, network.barrier_port), backlog=count) as server:
        while len(found) < count:
            server.settimeout(max(0.001, until - monotonic()))
            try:
                peer, _ = server.accept()
                peer.settimeout(_HELLO_S)
                known = hmac.compare_digest(peer.recv(len(secret), socket.MSG_WAITALL), secret)
            except OSError as error:
                if monotonic() < until:
                    continue
                raise LostRank from error
            if known:
                peer.settimeout(None)
                keep_alive(peer)
                found.append(peer)
    return found


class SpanBarrier:
    """The barriers before and after a span: all ranks begin together, and rank 0 waits for the end of all.

    ``open_ns`` and ``close_ns`` are rank 0's clock before it releases the others and after all ranks have
    their results: by causality they contain the span of every rank.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self.open_ns = self.close_ns = 0

    def enter(self) -> None:
        """Called directly before a rank reads its clock at the start of the span."""
        self._group.gather()
        self.open_ns = monotonic_ns()
        self._group.release()

    def leave(self) -> None:
        """Called directly after a rank has read its clock at the end of the span."""
        self._group.gather()
        self.close_ns = monotonic_ns()
