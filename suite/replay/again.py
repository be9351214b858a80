"""Running chosen repeats of a submission again, from its log alone: same settings, seeds and order of data.

The harness does it as it does any run, into a log of its own. Whether it is the same is then told by
:mod:`suite.audit.replay`, from the two logs.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from suite.audit.items import Item
from suite.audit.replay import identity
from suite.harness.run import Outcome, execute
from suite.plan import prepare
from suite.plan.code import code_digest
from suite.plan.compose import composer
from suite.plan.errors import RuleProblem, Unsupported
from suite.plan.machine import look
from suite.plan.plan import Plan
from suite.plan.resolve import resolve
from suite.replay.words import header_of, setting, words_of
from suite.rules import load
from suite.rules.places import NEWEST


@dataclass(frozen=True, slots=True)
class Here:
    """What the auditor has on this machine: places, own files of the submitter, and what was agreed to."""

    results: Path  # where the log of the replay goes
    data_root: Path
    cache: Path
    pair: Path | None = None
    python: Path | None = None
    other_code: bool = False
    fetch: bool = False


def ready(header: Mapping[str, Any], here: Here) -> tuple[Plan, list[Item]]:
    """The plan of the run that ``header`` describes, prepared on this machine, and what identifies it.

    Raises a Refusal where the run cannot be made here, RuleProblem for code that is not the submission's
    unless ``here.other_code``.
    """
    _replayable(header)
    _same_code(header, here.other_code)
    words = [*words_of(header, here.pair, here.python), "dry=false", f"fetch={str(here.fetch).lower()}"]
    with composer() as compose:
        settings = replace(
            compose(words),
            results_dir=here.results,
            data_root=here.data_root,
            cache_dir=here.cache,
        )
    plan = resolve(settings, look()).with_(run_id=str(header["run_id"]))
    wanted = setting(header["settings"], "device")
    if plan.device.partition(":")[0] != wanted:
        raise Unsupported(
            f"device: expected {wanted} as in the submission, found {plan.device} "
            "here; DEVICE=cpu STEPS=3 computes its first steps on a processor"
        )
    prepare.prepare_places(plan)
    plan = prepare.prepare_workers(prepare.prepare_data(plan))
    return plan, identity(header, plan.header(load(plan.rules_version)))


def _replayable(header: Mapping[str, Any]) -> None:
    if header["mode"] != "throughput" or header["key"]["phase"] == "preprocess":
        what = "a conversion" if header["key"]["phase"] == "preprocess" else f"mode {header['mode']}"
        raise Unsupported(f"audit-replay: expected a throughput run of train or infer, found {what}")
    version = header["rules"]["version"]
    newest = ("practice", NEWEST)
    if version not in newest:
        raise Unsupported(
            f"rules: expected {' or '.join(newest)}, under which this checkout runs, found {version}; check "
            f"out the suite that measured it ({_commit(header)}) and replay there"
        )


def _same_code(header: Mapping[str, Any], other_code: bool) -> None:
    expected, found = header["code_digest"], code_digest()
    if expected == found or other_code:
        return
    raise RuleProblem(
        f"code: expected {expected}, found {found}: this checkout has other code than the submission "
        f"({_commit(header)}). Check that commit out in a worktree of its own and replay there (python -m "
        f"tools.code_commit {expected} finds one with its code); OTHER_CODE=1 runs it with this code, says "
        "so, and never reaches L3"
    )


def _commit(header: Mapping[str, Any]) -> str:
    git = header["git"] or {}
    if git.get("commit") is None:
        return "its log names no commit"
    return f"commit {git['commit']}" + (", with changes" if git.get("dirty") else "")


def run(plan: Plan, header: Mapping[str, Any], chosen: tuple[int, ...]) -> Outcome:
    """Run the repeats ``chosen`` of the submission with ``header`` again; the log says what came of it."""
    plan = plan.with_(again=chosen, repeats=len(chosen))
    told = ", ".join(map(str, chosen))
    print(f"running repeat {told} of {header['repeats']} again", file=sys.stderr, flush=True)
    return execute(plan, header_of(plan, header, load(plan.rules_version)))
