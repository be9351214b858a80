"""Replay repeats of a submission from its log alone: equal settings, seeds and order of the data.

The harness executes the replay like any run and writes a new log. :mod:`suite.audit.replay` compares the two
logs.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from suite.audit.items import ComparedItem
from suite.audit.replay import identity
from suite.contract import BENCHMARK
from suite.harness.run import Outcome, execute
from suite.plan import prepare
from suite.plan.code import current_code_digest
from suite.plan.compose import composer
from suite.plan.errors import RuleProblem, Unsupported
from suite.plan.header import build_header
from suite.plan.machine import detect_machine
from suite.plan.prepared import PreparedRun
from suite.plan.resolve import resolve
from suite.replay.options import options_of, setting
from suite.rules import load
from suite.rules.root import LATEST


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The auditor's folders, the submitter's custom files on this machine, and what the auditor permits."""

    results: Path  # the folder for the log of the replay
    data_root: Path
    cache: Path
    pair: Path | None = None
    python: Path | None = None
    other_code: bool = False
    fetch: bool = False


def prepare_replay(
    header: Mapping[str, Any], options: ReplayOptions, repeats: tuple[int, ...]
) -> tuple[PreparedRun, list[ComparedItem]]:
    """Prepare the ``repeats`` of the run that ``header`` describes; compare the headers of both runs.

    The differences from closed are those that the submission declares; the rules are not checked again.
    Raises a Refusal if this machine cannot execute the run, and RuleProblem if this checkout's code is not
    that of the submission, unless ``options.other_code``.
    """
    _require_replayable(header)
    _require_same_code(header, options.other_code)
    fetch = f"fetch={str(options.fetch).lower()}"
    with composer() as compose:
        settings = replace(
            compose([*options_of(header, options.pair, options.python), "dry=false", fetch]),
            results_dir=options.results,
            data_root=options.data_root,
            cache_dir=options.cache,
        )
    plan = replace(resolve(settings, detect_machine()), run_id=str(header["run_id"]), repeats=len(repeats))
    device = setting(header["settings"], "device")
    if plan.device.partition(":")[0] != device:
        raise Unsupported(
            f"device: expected {device} as in the submission, found {plan.device} on this machine; "
            "DEVICE=cpu STEPS=3 recomputes its first steps on a CPU"
        )
    prepare.check_path_options(plan)
    resources = prepare.prepare_resources(plan)
    new_header = build_header(
        plan,
        load(plan.rules_version),
        resources.dataset,
        resources.image,
        resources.custom,
        changes=b"",
        attempt=1,
        differences=header["differences"],
    )
    return PreparedRun(plan, resources, 1, {}, new_header, repeats), identity(header, new_header)


def _require_replayable(header: Mapping[str, Any]) -> None:
    if header["kind"] != BENCHMARK or header["mode"] != "throughput":
        found = f"a {header['kind']}" if header["kind"] != BENCHMARK else f"mode {header['mode']}"
        raise Unsupported(f"audit-replay: expected a throughput run of train or infer, found {found}")
    if (nodes := header["key"].get("nodes", 1)) > 1:
        raise Unsupported(f"audit-replay: expected a run on one node, found one on {nodes}")
    version = header["rules"]["version"]
    if version not in ("practice", LATEST):
        raise Unsupported(
            f"rules: expected practice or {LATEST}, which this checkout runs, found {version}; check out "
            f"the suite that measured the submission ({_commit(header)}) and replay there"
        )


def _require_same_code(header: Mapping[str, Any], other_code: bool) -> None:
    expected, found = header["code_digest"], current_code_digest()
    if expected == found or other_code:
        return
    raise RuleProblem(
        f"code: expected {expected}, found {found}: this checkout differs from the code of the submission "
        f"({_commit(header)}). `.venv/bin/python -m tools.code_commit {expected}` prints the commits of this "
        "clone with that code: check one out in another folder (git worktree add ../audited COMMIT) and "
        "replay there; OTHER_CODE=1 replays with this checkout's code, reports the difference, and never "
        "reaches L3"
    )


def _commit(header: Mapping[str, Any]) -> str:
    git = header["git"] or {}
    if git.get("commit") is None:
        return "the log names no commit"
    return f"commit {git['commit']}" + (", with changes" if git.get("dirty") else "")


def run_replay(prepared: PreparedRun, repeats: int) -> Outcome:
    """Replay the prepared ones of the submission's ``repeats``; the outcome has the new log's folder."""
    numbers = ", ".join(map(str, prepared.replayed))
    print(f"replaying repeat {numbers} of {repeats}", file=sys.stderr, flush=True)
    return execute(prepared)
