"""The ranks of one repeat as each of them sees the others: a barrier, and decisions of rank 0.

Rank 0 holds one socket to each other rank, every other rank one to rank 0. Nothing passes over them between
the edges of a span of steps. The parent process (:mod:`suite.worker.parent`) makes the sockets.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from time import monotonic_ns

STRANDED = 5  # exit status of a rank that ended because it lost another one


class LostRank(Exception):
    """Another rank has ended. The parent process finds out which and why, and ends all."""


class Group:
    """The ranks of a repeat; without ``peers``, a rank that is alone, which waits for nobody."""

    def __init__(self, rank: int = 0, peers: Sequence[socket.socket] = ()) -> None:
        self.rank = rank
        self._peers = tuple(peers)

    @classmethod
    def of(cls, rank: int, descriptors: Sequence[int]) -> Group:
        """The group of ``rank`` over sockets that this process inherited."""
        return cls(rank, [socket.socket(fileno=descriptor) for descriptor in descriptors])

    def gather(self) -> None:
        """Let rank 0 wait until every rank is here; the others go on at once."""
        if self.rank:
            self._send(b".")
        else:
            self._receive()

    def release(self, word: bytes = b".") -> bytes:
        """Let every other rank wait for rank 0, and give all of them rank 0's ``word``, one byte."""
        if self.rank:
            return self._receive()[0]
        self._send(word)
        return word

    def decide(self, wish: bool) -> bool:
        """Whether all go on: what rank 0 wishes, once every rank has asked. Alone: what it wishes itself."""
        self.gather()
        return self.release(b"1" if wish else b"0") == b"1"

    def _send(self, word: bytes) -> None:
        try:
            for peer in self._peers:
                peer.sendall(word)
        except OSError as error:
            raise LostRank from error

    def _receive(self) -> list[bytes]:
        found = []
        for peer in self._peers:
            try:
                found.append(peer.recv(1))
            except OSError as error:
                raise LostRank from error
            if not found[-1]:
                raise LostRank
        return found


class Edges:
    """What happens right before and right after a rank's own span: all begin together, rank 0 sees all end.

    ``open_ns`` and ``close_ns`` are rank 0's clock before it releases the others and after all have
    delivered: by causality they contain the span of every rank.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self.open_ns = self.close_ns = 0

    def enter(self) -> None:
        """The last that a rank does before it reads its clock."""
        self._group.gather()
        self.open_ns = monotonic_ns()
        self._group.release()

    def leave(self) -> None:
        """The first that a rank does after it has read its clock again."""
        self._group.gather()
        self.close_ns = monotonic_ns()
