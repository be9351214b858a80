"""``python -m suite node``: this machine's part of a run on several nodes; launchers start it on each.

It takes the options of ``run``, the same on every node. Node 0 writes the log; the other nodes connect to it.
The launcher's variables say which node this is (docs/scaling.md).
"""

from __future__ import annotations

import os
import sys

from suite.cli.guard import INTERRUPTED
from suite.cli.run import compose_and, one_run, prepare_resources, refuse
from suite.plan.errors import BadConfiguration, Refusal
from suite.plan.settings import Settings

LOST = 20


def main(argv: list[str]) -> int:
    """Take part in the run that ``argv`` describes; returns the exit code.

    On node 0 it is that of the run, elsewhere 0 if node 0 ended the run in order.
    """
    from suite.cli.overrides import check_overrides

    check_overrides(argv, verb="node")
    return compose_and(argv, _take_part)


def _take_part(settings: Settings) -> int:
    from suite.harness import meeting
    from suite.harness.connection import ConnectionLost
    from suite.harness.node import Terminated, end_soon_after_a_signal
    from suite.launch.placement import placement
    from suite.plan.machine import detect_machine
    from suite.plan.prepare import prepare_run
    from suite.plan.resolve import resolve

    here = placement(os.environ)
    if here.node >= settings.nodes:
        raise BadConfiguration(
            f"nodes: expected {settings.nodes}, found a node of number {here.node}; numbers begin at 0"
        )
    if here.node == 0:
        try:
            code = one_run(settings, here=here)
        except Refusal as error:
            code = refuse(error)
        if here.exit_code is not None:
            here.exit_code.write_text(f"{code}\n")
        return code
    plan = resolve(settings, detect_machine())
    run = prepare_run(plan, prepare_resources(plan), attempt=1)  # node 0 counts the attempt
    end_soon_after_a_signal()
    try:
        meeting.take_part(run, here.node, here.host, here.port, here.token, here.join_s)
    except ConnectionLost as error:
        print(f"error: node {here.node}: node 0 was lost: {error.strerror or error}", file=sys.stderr)
        return LOST
    except Terminated:
        print(f"error: node {here.node}: a signal ended it", file=sys.stderr)
        return INTERRUPTED
    return 0
