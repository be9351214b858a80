"""The nodes of a run meet before the first step: node 0 waits for the others, and all must agree."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import replace
from time import monotonic
from typing import Any

from suite.checker.environment import differences
from suite.checker.nodes import kind_of_machine
from suite.harness.connection import Connection, ConnectionLost, admit, interface_of, join
from suite.harness.node import Node
from suite.harness.remote_node import RemoteNode
from suite.harness.run import node_facts
from suite.plan.errors import NodeProblem, RuleProblem
from suite.plan.prepared import PreparedRun

_ANSWER_S = 60.0
# Parts of the header that belong to one prepared run, or follow from other parts.
_OWN = ("run_id", "attempt", "git", "overrides", "reasons", "settings_digest")


def gather(run: PreparedRun, nodes: int, port: int, token: str, seconds: float) -> list[RemoteNode]:
    """The other nodes of ``run``, by number, after they have joined node 0, this one, at ``port`` and agree.

    NodeProblem if one does not join in time; RuleProblem if one differs in header or machine.
    """
    found: dict[int, RemoteNode] = {}
    facts, _ = node_facts(run.plan)
    try:
        with _listen(port, nodes) as server:
            until = monotonic() + seconds
            while missing := [number for number in range(1, nodes) if number not in found]:
                server.settimeout(max(0.001, until - monotonic()))
                try:
                    accepted, _ = server.accept()
                except TimeoutError:
                    names = ", ".join(map(str, missing))
                    raise NodeProblem(
                        f"nodes: expected {nodes} in {seconds:.0f} s, found no node {names}; see the output "
                        "of its program, and whether its machine can reach this one"
                    ) from None
                try:
                    connection, number = admit(accepted, token)
                    joined = connection.receive(_ANSWER_S)
                except ConnectionLost:
                    continue  # not one of the nodes, or one that ended and is waited for
                if number not in missing:
                    RemoteNode(number, connection, joined).dismiss(
                        f"expected one of {missing}, found {number}"
                    )
                    continue
                found[number] = RemoteNode(number, connection, joined)
                _require_agreement(run, facts, number, joined)
        for node in found.values():
            node.welcome(run.plan.run_id)
    except BaseException as error:
        why = str(error) if isinstance(error, RuleProblem | NodeProblem) else "node 0 ended"
        for node in found.values():
            node.dismiss(why)
        raise
    return [found[number] for number in sorted(found)]


def _listen(port: int, nodes: int) -> socket.socket:
    try:
        return socket.create_server(("", port), backlog=nodes)
    except OSError as error:
        raise NodeProblem(
            f"nodes: node 0 cannot listen at port {port}: {error.strerror}; choose another port"
        ) from error


def _require_agreement(
    run: PreparedRun, facts: Mapping[str, Any], number: int, joined: Mapping[str, Any]
) -> None:
    """RuleProblem if node ``number`` has prepared another run, or its machine differs from ``facts``."""
    pairs = (
        (shared(run.header), joined["header"], "header"),
        (kind_of_machine(facts), kind_of_machine(joined["facts"]), "facts"),
    )
    for here, there, name in pairs:
        for path, expected, found in differences(here, there, name):
            raise RuleProblem(
                f"node {number}: {path}: expected {expected}, as on node 0, found {found}; give all nodes "
                "the same options, code, data and kind of machine"
            )


def shared(header: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of ``header`` that are equal on all nodes."""
    return {name: value for name, value in header.items() if name not in _OWN}


def take_part(run: PreparedRun, number: int, host: str, port: int, token: str, seconds: float) -> None:
    """Take part in ``run`` as node ``number``, until node 0 ends it.

    NodeProblem if node 0 does not answer in time; RuleProblem if it refuses; ConnectionLost if it is lost.
    """
    try:
        connection = join(host, port, token, number, seconds)
    except ConnectionLost as error:
        raise NodeProblem(
            f"node {number}: expected node 0 at {host}:{port} in {seconds:.0f} s, found "
            f"{error.strerror or error}; see the output of its program, and whether this machine can reach it"
        ) from error
    try:
        _serve(run, number, connection)
    finally:
        connection.close()


def _serve(run: PreparedRun, number: int, connection: Connection) -> None:
    facts, reasons = node_facts(run.plan)
    connection.send({"header": shared(run.header), "facts": facts, "reasons": reasons})
    welcome = connection.receive()  # node 0 waits for the other nodes, with a limit
    if welcome["request"] == "leave":
        raise RuleProblem(welcome["refused"])
    run = replace(run, plan=replace(run.plan, run_id=welcome["run_id"]))
    node = Node(number, run, connection, interface_of(connection.address))
    if refused := node.serve():
        raise RuleProblem(refused)
