"""The ranks of one repeat: a barrier, and decisions of rank 0.

Rank 0 has one socket to each other rank, every other rank one to rank 0. No rank uses them between the start
and the end of a span of steps. The parent process (:mod:`suite.worker.parent`) creates the sockets.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from time import monotonic_ns

STRANDED = 5  # exit status of a rank that ended because it lost another one


class LostRank(Exception):
    """Another rank has ended. The parent process finds the rank and the reason, and ends all ranks."""


class Group:
    """The ranks of a repeat; without ``peers``, a single rank, which never waits."""

    def __init__(self, rank: int = 0, peers: Sequence[socket.socket] = ()) -> None:
        self.rank = rank
        self._peers = tuple(peers)

    @classmethod
    def of(cls, rank: int, descriptors: Sequence[int]) -> Group:
        """The group of ``rank``, connected by inherited sockets."""
        return cls(rank, [socket.socket(fileno=descriptor) for descriptor in descriptors])

    def gather(self) -> None:
        """Rank 0 waits until every rank has called this; the other ranks continue at once."""
        if self.rank:
            self._send(b".")
        else:
            self._receive()

    def release(self, message: bytes = b".") -> bytes:
        """Every other rank waits for rank 0; returns rank 0's ``message``, one byte, on all ranks."""
        if self.rank:
            return self._receive()[0]
        self._send(message)
        return message

    def decide(self, proceed: bool) -> bool:
        """Whether all ranks continue: ``proceed`` of rank 0, after every rank has called this."""
        self.gather()
        return self.release(b"1" if proceed else b"0") == b"1"

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
