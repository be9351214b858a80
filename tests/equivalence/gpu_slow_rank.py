"""Runs of two ranks with one that is slower by 3 % of a step, and without: how often is it named, on GPUs?

``python -m tests.equivalence.gpu_slow_rank planted --repeats 20 --out DIR OPTION…``, or ``clean``. The
options are those of ``python -m suite run``, such as ``framework.python=…``. Prints one JSON line: the
repeats with known arrivals, those in which each rank was slow by the limits of RANK-020, medians of
lateness, the error of the clocks, and the exit code of the run. Exits with 1 unless a planted rank 1 was
named in every repeat, and no rank in a clean one. ``--pair`` plants another slow rank:
tests/fixtures/pairs/slow_rank.py on a CPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from suite.log.lateness import repeat_lateness, slow_repeats
from suite.log.reader import read_result
from suite.log.statistics import median
from suite.rules import LATEST, load

ROOT = Path(__file__).resolve().parents[2]
PAIRS = ROOT / "tests" / "fixtures" / "pairs"
RUN = ("framework=pytorch", "workload=ncf", "scale=mini", "data=synthetic", "devices=2", "runtime=native")
QUICK = ("telemetry=false", "fingerprint=false")
BATCH = "batch=1048576"  # 3 % of its step exceeds the error of the GPUs' clocks by far


def found_in(folder: Path) -> dict[str, Any]:
    """What the log of ``folder`` says about slow ranks."""
    repeats = [one for one in read_result(folder).repeats if one.end is not None]
    known = [one for one in map(repeat_lateness, repeats) if one is not None]
    rules = load(LATEST)
    slow = slow_repeats(repeats, rules.limit("slow_rank_share"), rules.limit("slow_rank_lateness"))
    found: dict[str, Any] = {"repeats": len(repeats), "known": len(known)}
    found["slow"] = {str(rank): len(named) for rank, named in slow.items()}
    if known:
        found["late_of_step"] = median([one.late_of_step for one in known])
        found["last_share"] = median([one.last_share for one in known])
        found["step_us"] = median([one.step_ns for one in known]) / 1e3
        found["bound_us"] = [None if one.bound_ns is None else one.bound_ns / 1e3 for one in known]
    return found


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kind", choices=("planted", "clean"))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pair", type=Path, default=PAIRS / "slow_gpu_rank.py")
    parser.add_argument("options", nargs="*")
    chosen = parser.parse_intermixed_args()
    pair = [f"pair={chosen.pair.resolve()}"] if chosen.kind == "planted" else []
    out = (chosen.out / chosen.kind).resolve()
    options = [*RUN, *QUICK, BATCH, f"repeats={chosen.repeats}", f"results_dir={out}", *pair]
    began = time.monotonic()
    before = set(out.glob("*/run.jsonl"))
    done = subprocess.run(
        [sys.executable, "-m", "suite", "run", *options, *chosen.options], cwd=ROOT, check=False
    )
    seconds = round(time.monotonic() - began)
    for log in set(out.glob("*/run.jsonl")) - before:
        found = found_in(log.parent)
        expected = {"1": found["repeats"]} if chosen.kind == "planted" else {}
        met = found["slow"] == expected and found["known"] == found["repeats"] > 0
        print(json.dumps({"kind": chosen.kind, **found, "met": met, "code": done.returncode, "s": seconds}))
        return 0 if met else 1
    print(f"expected a log in {out}, found none: the run ended with {done.returncode}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
