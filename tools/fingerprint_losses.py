"""Write the losses that the fingerprint's common pass should give into the rules.

``python -m tools.fingerprint_losses [--workload a,b] [--scale mini|reference] [--framework pytorch]
[--precision fp64] [--write]`` computes them on this machine's CPU and prints how far they are from those in
the rules; ``--write`` puts them there, for which float64 in PyTorch is the reference.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from suite import rules, workloads
from suite.harness.fingerprint import job_of
from suite.harness.worker_process import WorkerProcess
from suite.rules import places
from suite.runtime import environments
from suite.runtime.workers import NativeWorkers
from suite.workloads.contract import Key

VERSIONS = {"reference": rules.LATEST, "mini": "practice"}
_HOURS_S = 4 * 3600.0


def losses(name: str, variant: str, scale: str, framework: str, precision: str, threads: int) -> list[str]:
    """The losses of the common pass as hexadecimal texts."""
    key = Key(name, framework, "train", "offline", "fp32", 1, 1, scale, "synthetic", "warm", variant)
    limits = rules.load(VERSIONS[scale]).limits["fingerprint"]
    common = next(one for one in limits["passes"]["train"] if one["name"] == "common")
    passes = [{**common, "precision": precision, "seed": 0, "salt": []}]
    job = job_of(rules.load(VERSIONS[scale]), key, passes) | {"device": "cpu", "threads": threads}
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder, "scratch")
        scratch.mkdir()
        python = environments.plan(framework, "cpu").python
        command = NativeWorkers(python, threads, "passive", "").command(0, scratch, None)
        with WorkerProcess(command, Path(folder, "debug.log")) as worker:
            worker.configure(job | {"scratch_dir": str(scratch)})
            worker.expect("hello", _HOURS_S)
            found, _ = worker.expect("fingerprint", _HOURS_S)
            worker.expect("done", _HOURS_S)
    told: list[str] = found["passes"][0]["losses"]
    return told


def distance(found: list[str], wanted: list[str] | None) -> str:
    """The relative differences at a few steps, as text."""
    if wanted is None:
        return "nothing in the rules to compare with"
    pairs = [(float.fromhex(one), float.fromhex(other)) for one, other in zip(found, wanted, strict=True)]
    each = [abs(one - other) / abs(other) for one, other in pairs]
    return " ".join(f"{step}:{each[step]:.1e}" for step in range(len(each)))


def main() -> int:
    """See the module."""
    options = _options()
    version = VERSIONS[options.scale]
    for name in options.workload.split(",") if options.workload else workloads.names():
        held: dict[str, Any] = dict(rules.load(version).workload(name))
        for variant in held["variants"]:
            found = losses(
                name, variant, options.scale, options.framework, options.precision, options.threads
            )
            first, last = float.fromhex(found[0]), float.fromhex(found[-1])
            told = distance(found, held["fingerprint"]["losses"][variant])
            print(
                f"{name} {variant} {options.framework} {options.precision}: {first:.4g} to {last:.4g}; {told}"
            )
            sys.stdout.flush()
            held["fingerprint"]["losses"][variant] = found
        if options.write:
            path = places.folder_of(version) / "workloads" / f"{name}.json"
            path.write_text(json.dumps(held, indent=2, ensure_ascii=False) + "\n", "utf-8")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The losses that the fingerprint's common pass should give.")
    parser.add_argument("--workload", default="", help="names, separated by commas (all)")
    parser.add_argument("--scale", choices=sorted(VERSIONS), default="mini")
    parser.add_argument("--framework", default="pytorch")
    parser.add_argument("--precision", choices=("fp64", "fp32"), default="fp64")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="put them into the rules")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
