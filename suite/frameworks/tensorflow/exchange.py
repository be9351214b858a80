"""The exchange between the ranks of a training job: collectives of ``MultiWorkerMirroredStrategy``.

NCCL on GPUs, TensorFlow's ring over gRPC on CPUs. The ranks of one node reach each other over the loopback
interface: a container without a network suffices. Those of several nodes learn their addresses from rank 0.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from time import monotonic, monotonic_ns, sleep
from typing import Any

import tensorflow as tf

from suite.contract import Job, Network
from suite.contract.network import connect, unused_ports
from suite.frameworks.common import variables
from suite.frameworks.tensorflow.arrivals import WallArrivals

Tensor = Any

_HOST = "127.0.0.1"
_SETUP_S = 1800.0  # ranks may import and read their data for different times
_POLL_S = 0.02
_MEETING_S = 300.0
_HELLO_S = 10.0  # for what a connected rank says; others may be strangers
_LONGEST_LINE = 1000
_PREFIXES = ("NCCL_", "TF_CONFIG", "GRPC_")
_LOST = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError)
_LOST_TEXT = "Collective ops is aborted"


class Exchange:
    """The strategy of a job; ``active`` is false for ranks that exchange nothing: there is none.

    The ranks use the strategy's collectives only. Each rank has its own variables: their initial values are
    equal by construction, and their digests are logged, while the strategy's variables are a broadcast of
    those of rank 0, which would hide a rank that differs.
    """

    operation = "all_reduce"

    def __init__(self, job: Job, cuda: bool) -> None:
        self.active = job.exchanges
        self.arrivals = WallArrivals() if self.active and not cuda else None
        self.arrival: Tensor = None  # the arrival of the step that is traced, or that runs without a trace
        self._rank, self._size, self._collective = job.rank, job.world_size, job.collective
        if not self.active:
            return
        if self._collective == "nccl":
            interface = "lo" if job.network is None else job.network.interface
            os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)
        if job.network is None:
            ports = agree_on_ports(Path(job.scratch_dir), job.rank, job.world_size)
            addresses = [f"{_HOST}:{port}" for port in ports]
        else:
            addresses = agree_on_addresses(job.network, job.rank, job.world_size)
        kinds = tf.distribute.experimental.CommunicationImplementation
        self._strategy = tf.distribute.MultiWorkerMirroredStrategy(
            cluster_resolver=tf.distribute.cluster_resolver.SimpleClusterResolver(
                tf.train.ClusterSpec({"worker": addresses}),
                task_type="worker",
                task_id=job.rank,
                rpc_layer="grpc",
                num_accelerators={"GPU": 1} if cuda else {},  # else the strategy uses the CPU
            ),
            communication_options=tf.distribute.experimental.CommunicationOptions(
                implementation=kinds[self._collective.upper()]
            ),
        )

    def describe(self) -> dict[str, Any]:
        """Facts of an active exchange: backend (its version is TensorFlow's) and variables."""
        return {
            "backend": self._collective,
            "version": None,
            "type": "float32",
            "bucket_bytes": None,  # all gradients are one tensor
            "variables": variables(*_PREFIXES),
        }

    def total(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Each of ``tensors``, of one type, summed over all ranks; they travel as one tensor."""
        return self._reduced(tf.distribute.ReduceOp.SUM, tensors)

    def averaged(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Each of ``tensors``, of one type, averaged over all ranks; they travel as one tensor."""
        return self._reduced(tf.distribute.ReduceOp.MEAN, tensors)

    def _reduced(self, operation: Any, tensors: Sequence[Tensor]) -> list[Tensor]:
        if not self.active:
            return list(tensors)

        def reduce(values: list[Tensor]) -> list[Tensor]:
            if self.arrivals is not None:
                with tf.control_dependencies(values):
                    self.arrival = tf.timestamp()
            with tf.control_dependencies([] if self.arrivals is None else [self.arrival]):
                # The strategy needs tensors with a device, which an identity gets from the strategy's scope.
                placed = [tf.identity(value) for value in values]
            reduced: list[Tensor] = tf.distribute.get_replica_context().all_reduce(operation, placed)
            return reduced

        reduced: list[Tensor] = self._strategy.run(reduce, args=(list(tensors),))
        return reduced

    def time_sums(self, count: int, iterations: int) -> tuple[list[int], bool] | None:
        """See :class:`suite.contract.Exchange`."""
        ranks, room = self._size, 1.0

        @tf.function(autograph=False)
        def total(tensor: Tensor) -> Tensor:
            return self.total([tensor])[0]

        try:
            pattern = tf.cast(tf.range(count) % 127, tf.float32)
            own, expected = pattern + self._rank, ranks * pattern + ranks * (ranks - 1) // 2
            tf.reduce_all(own == expected)  # it needs memory too
        except tf.errors.ResourceExhaustedError:
            room = 0.0
        if int(total(tf.constant([room]))[0]) < ranks:
            return None
        times, exact = [], True
        for _ in range(1 + iterations):
            start = monotonic_ns()
            summed = total(own)
            if self._collective == "nccl":  # on a CPU the call returns when the sum is there
                tf.test.experimental.sync_devices()
            times.append(monotonic_ns() - start)
            exact = bool(tf.reduce_all(summed == expected)) and exact
        return times[1:], exact


def agree_on_ports(folder: Path, rank: int, size: int) -> list[int]:
    """A free port for each rank, by rank: every rank writes its own to a file of ``folder``.

    A rank reserves its port until all ranks have theirs. TimeoutError if a rank is missing for 30 minutes.
    """
    files = [folder / f"port-{each}" for each in range(size)]
    (port,) = unused_ports(_HOST, 1)
    with socket.socket() as reserved:
        reserved.bind((_HOST, port))
        draft = folder / f"port-{rank}.draft"
        draft.write_text(str(port))
        draft.replace(files[rank])  # the other ranks see a whole file
        until = monotonic() + _SETUP_S
        while not all(file.exists() for file in files):
            if monotonic() > until:
                missing = [each for each, file in enumerate(files) if not file.exists()]
                raise TimeoutError(f"ranks: expected a port of each of {size} ranks, {missing} wrote none")
            sleep(_POLL_S)
    return [int(file.read_text()) for file in files]


def agree_on_addresses(network: Network, rank: int, size: int) -> list[str]:
    """The address and a free port of each rank of several nodes, by rank: rank 0 collects and sends them.

    A rank reserves its port until it knows those of all ranks. OSError if a rank is missing for 5 minutes.
    """
    (port,) = unused_ports(network.address, 1)
    with socket.socket() as reserved:
        reserved.bind((network.address, port))
        own = f"{network.address}:{port}"
        if rank:
            with connect(network.node_0, network.exchange_port, _MEETING_S) as leader:
                leader.sendall(f"{network.secret} {rank} {own}\n".encode())
                leader.settimeout(_MEETING_S)
                return leader.makefile().readline().split()
        found = {0: own}
        with contextlib.ExitStack() as peers:
            server = peers.enter_context(socket.create_server((network.node_0, network.exchange_port)))
            server.settimeout(_MEETING_S)
            others = []
            while len(found) < size:
                peer = peers.enter_context(server.accept()[0])
                peer.settimeout(_HELLO_S)
                try:
                    secret, _, said = peer.makefile("rb").readline(_LONGEST_LINE).partition(b" ")
                except OSError:
                    continue  # not a rank
                if hmac.compare_digest(secret, network.secret.encode()):
                    number, address = said.decode().split()
                    found[int(number)] = address
                    others.append(peer)
            line = " ".join(found[each] for each in range(size)) + "\n"
            for peer in others:
                peer.sendall(line.encode())
    return line.split()


def lost_rank(error: tf.errors.OpError) -> bool:
    """Whether ``error`` means that another rank has ended or hangs."""
    return isinstance(error, _LOST) or _LOST_TEXT in str(error)
