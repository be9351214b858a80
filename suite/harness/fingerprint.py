"""The fingerprint: after repeat 0 another worker computes a few untimed steps that others can recompute."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Any

from suite import rules as rulebook
from suite.contract import BENCHMARK, Key
from suite.contract.seeds import fingerprint_passes
from suite.harness.session import SETUP_S, Session
from suite.rules import Rules
from suite.workloads import specification


def fingerprint_job(rules: Rules, key: Key, passes: list[dict[str, Any]]) -> dict[str, Any]:
    """The fields of the job of a fingerprint of ``key`` that differ from those of a repeat.

    Batch, data and hyperparameters are those of the rules, not the user's: only then are fingerprints
    comparable.
    """
    limits, spec = rules.limits["fingerprint"], specification(key.workload)
    batch = rules.workload(key.workload)["fingerprint"]["batch"]
    common = replace(key, precision="fp32", scenario="offline", batch=batch, data="synthetic", cache="warm")
    hyper = spec.hyperparameters(key.scale, key.variant)
    return {
        "kind": BENCHMARK,
        "key": asdict(replace(common, devices=1)),
        "mode": "fingerprint",
        "seed": 0,
        "repeat": 0,
        "hyper": {name: limits["hyper"].get(name, value) for name, value in hyper.items()},
        "fast": False,
        "soak_ns": 0,
        "tail_ns": 0,
        "data_dir": "",
        "loader": "native",
        "deterministic": True,
        "passes": passes,
        "world_size": 1,
    }


def job_of_fingerprint(session: Session) -> tuple[int, dict[str, Any]]:
    """The number of its worker's container and debug file, and the job."""
    plan = session.plan
    if not isinstance(plan.key, Key):
        raise TypeError("a conversion has no fingerprint: it computes no steps")
    number = plan.repeats  # after those of the repeats
    rules = rulebook.load(plan.rules_version)
    passes = fingerprint_passes(rules.limits["fingerprint"], plan.key.phase, plan.settings.nonce, plan.run_id)
    return number, session.run.job(0, session.scratch(number)) | fingerprint_job(rules, plan.key, passes)


def take_fingerprint(session: Session) -> None:
    """Start a worker like those of the repeats, and log the fingerprint that it computes under repeat 0."""
    number, job = job_of_fingerprint(session)
    with ExitStack() as stack:
        worker = session.start_worker(number, stack)
        worker.configure(job)
        worker.expect("hello", SETUP_S)
        (attested,) = session.attest(number, worker)
        found, _ = worker.expect("fingerprint", SETUP_S)
        worker.expect("done", SETUP_S)
    data: dict[str, Any] = {
        "node": 0,
        "rank": 0,
        "passes": found["passes"],
        "nondeterministic": found["nondeterministic"],
        "container": attested.facts,
        "reasons": attested.reasons,
    }
    session.log.event("fingerprint", data, 0)
