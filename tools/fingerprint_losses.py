"""Write the expected losses of the fingerprint's common pass into the rules.

``python -m tools.fingerprint_losses [--workload a,b] [--scale mini|reference]`` computes them on this
machine's CPU: in float64 in PyTorch, the reference, and in float32 in every framework, whose distances from
it give the tolerances. ``--beside cuda:0 --python FILE`` computes float32 on that device and widens the
tolerances where its distance is larger.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

from suite import rules, workloads
from suite.contract import Key
from suite.contract.traits import framework_names, reference_framework
from suite.harness.fingerprint import fingerprint_job
from tools.one_worker import HOURS_S, WorkerLocation, configured_worker

VERSIONS = {"reference": rules.LATEST, "mini": "practice"}
MARGIN = 30  # factor on measured distances: other devices round differently
LEAST, MOST = 1e-5, 0.5


def losses(
    name: str, variant: str, scale: str, framework: str, precision: str, location: WorkerLocation
) -> list[str]:
    """The losses of the common pass as hexadecimal texts."""
    key = Key(name, framework, "train", "offline", "fp32", 1, 1, scale, "synthetic", "warm", variant)
    limits = rules.load(VERSIONS[scale]).limits["fingerprint"]
    common = next(one for one in limits["passes"]["train"] if one["name"] == "common")
    passes = [{**common, "precision": precision, "seed": 0, "salt": []}]
    job = fingerprint_job(rules.load(VERSIONS[scale]), key, passes)
    with configured_worker(framework, location, job) as worker:
        found, _ = worker.expect("fingerprint", HOURS_S)
    values: list[str] = found["passes"][0]["losses"]
    return values


def tolerances(reference: list[str], others: list[list[str]]) -> list[str]:
    """Relative tolerance of each step, to one digit: ``MARGIN`` times the largest distance so far."""
    found, most = [], 0.0
    for step, known in enumerate(reference):
        wanted = float.fromhex(known)
        most = max(most, *(abs(float.fromhex(other[step]) / wanted - 1) for other in others))
        found.append(f"{min(max(MARGIN * most, LEAST), MOST):.0e}".replace("e-0", "e-"))
    return found


def with_new_losses(
    name: str, held: Mapping[str, Any], scale: str, location: WorkerLocation
) -> dict[str, Any]:
    """The `fingerprint` of a workload's rules with new losses and tolerances."""
    known: dict[str, Any] = {"batch": held["fingerprint"]["batch"], "losses": {}, "tolerances": {}}
    for variant in held["variants"]:
        run = partial(losses, name, variant, scale, location=location)
        known["losses"][variant] = reference = run(reference_framework(), "fp64")
        others = [run(framework, "fp32") for framework in framework_names()]
        known["tolerances"][variant] = tolerances(reference, others)
        _report(name, variant, known)
    return known


def with_wider_tolerances(
    name: str, held: Mapping[str, Any], scale: str, location: WorkerLocation
) -> dict[str, Any]:
    """The `fingerprint` of a workload's rules with tolerances that include ``location``."""
    known: dict[str, Any] = deepcopy(held["fingerprint"])
    for variant in held["variants"]:
        reference = known["losses"][variant]
        seen = tolerances(reference, [losses(name, variant, scale, reference_framework(), "fp32", location)])
        both = zip(known["tolerances"][variant], seen, strict=True)
        known["tolerances"][variant] = [max(pair, key=float) for pair in both]
        _report(name, variant, known)
    return known


def main() -> int:
    """See the module."""
    options = _options()
    version = VERSIONS[options.scale]
    location = WorkerLocation(
        options.beside or "cpu", options.threads, options.python if options.beside else None
    )
    for name in options.workload.split(",") if options.workload else workloads.names():
        held: dict[str, Any] = dict(rules.load(version).workload(name))
        known = (with_wider_tolerances if options.beside else with_new_losses)(
            name, held, options.scale, location
        )
        path = rules.SHIPPED.folder(version) / "workloads" / f"{name}.json"
        path.write_text(
            json.dumps({**held, "fingerprint": known}, indent=2, ensure_ascii=False) + "\n", "utf-8"
        )
    return 0


def _report(name: str, variant: str, known: Mapping[str, Any]) -> None:
    found, slack = known["losses"][variant], known["tolerances"][variant]
    first, last = float.fromhex(found[0]), float.fromhex(found[-1])
    print(f"{name} {variant}: {first:.6g} to {last:.6g}, within {slack[0]} to {slack[-1]}", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The expected losses of the fingerprint's common pass.")
    parser.add_argument("--workload", default="", help="names, separated by commas (all)")
    parser.add_argument("--scale", choices=sorted(VERSIONS), default="mini")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--beside", default="", metavar="DEVICE", help="widen the tolerances for cuda:0")
    parser.add_argument(
        "--python",
        type=lambda text: Path(text).absolute(),
        help="with --beside: an interpreter with PyTorch for it",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
