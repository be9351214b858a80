"""The fingerprint: after repeat 0 a worker of its own computes a few untimed steps for others to repeat."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from suite import rules as rulebook
from suite.contract import BENCHMARK, Key
from suite.contract.seeds import fingerprint_passes
from suite.harness.session import Session
from suite.harness.worker_process import WorkerProcess
from suite.rules import Rules
from suite.workloads import specification


def job_of(rules: Rules, key: Key, passes: list[dict[str, Any]]) -> dict[str, Any]:
    """What the fingerprint of ``key`` needs told beyond a repeat's job, of whatever devices and places.

    Not the user's batch, data or hyperparameters, but those of the rules: else nobody could compare.
    """
    limits, spec = rules.limits["fingerprint"], specification(key.workload)
    batch = rules.workload(key.workload)["fingerprint"]["batch"]
    usual = replace(key, precision="fp32", scenario="offline", batch=batch, data="synthetic", cache="warm")
    usual = replace(usual, devices=1)
    given = spec.hyperparameters(key.scale, key.variant)
    return {
        "kind": BENCHMARK,
        "key": asdict(usual),
        "mode": "fingerprint",
        "seed": 0,
        "repeat": 0,
        "hyper": {name: limits["hyper"].get(name, value) for name, value in given.items()},
        "fast": False,
        "soak_ns": 0,
        "tail_ns": 0,
        "data_dir": "",
        "loader": "native",
        "deterministic": True,
        "passes": passes,
        "world_size": 1,
    }


def take_fingerprint(session: Session) -> None:
    """Start one more worker as those of the repeats are started, and log what it computed under repeat 0."""
    plan, resources = session.plan, session.run.resources
    if not isinstance(plan.key, Key):
        raise TypeError("a conversion computes no steps that a fingerprint could hold")
    number = plan.repeats  # behind those of the repeats, in names of containers and files of debug text
    scratch, workers = session.scratch(number), resources.workers
    rules = rulebook.load(plan.rules_version)
    passes = fingerprint_passes(rules.limits["fingerprint"], plan.key.phase, plan.settings.nonce, plan.run_id)
    job = session.run.job(0, scratch) | job_of(rules, plan.key, passes)
    with ExitStack() as stack:
        command, debug_file = resources.command(number, scratch), session.debug_file(number)
        with session.interrupts.held():  # a worker that was started is a worker that will be ended
            ended, remove = partial(workers.ended, number), partial(workers.remove, number)
            worker = stack.enter_context(WorkerProcess(command, debug_file, ended, remove))
            session.worker = worker
        worker.configure(job)
        worker.expect("hello", session.limits.setup_s)
        attested = workers.attest(number, worker.pid)
        found, _ = worker.expect("fingerprint", session.limits.setup_s)
        worker.expect("done", session.limits.setup_s)
    data: dict[str, Any] = {
        "node": 0,
        "rank": 0,
        "passes": found["passes"],
        "nondeterministic": found["nondeterministic"],
        "container": attested.facts,
        "reasons": attested.reasons,
    }
    session.log.event("fingerprint", data, 0)
