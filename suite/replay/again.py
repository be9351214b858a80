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

from suite.audit.items import ComparedItem
from suite.audit.replay import identity
from suite.contract import CONVERSION
from suite.harness.run import Outcome, execute
from suite.plan import prepare
from suite.plan.code import current_code_digest
from suite.plan.compose import composer
from suite.plan.errors import RuleProblem, Unsupported
from suite.plan.header import build_header
from suite.plan.machine import detect_machine
from suite.plan.prepared import PreparedRun
from suite.plan.resolve import resolve
from suite.replay.words import setting, words_of
from suite.rules import load
from suite.rules.root import LATEST


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """What the auditor has on this machine: folders, the submitter's custom files, what was agreed to."""

    results: Path  # where the log of the replay goes
    data_root: Path
    cache: Path
    pair: Path | None = None
    python: Path | None = None
    other_code: bool = False
    fetch: bool = False


def ready(
    header: Mapping[str, Any], here: ReplayOptions, chosen: tuple[int, ...]
) -> tuple[PreparedRun, list[ComparedItem]]:
    """The run that ``header`` describes with its repeats ``chosen``, prepared here, and what identifies it.

    What departs from closed is declared in the submission's words; the rules are not asked again. Raises a
    Refusal where the run cannot be made here, RuleProblem for code that is not the submission's unless
    ``here.other_code``.
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
    plan = replace(resolve(settings, detect_machine()), run_id=str(header["run_id"]), repeats=len(chosen))
    wanted = setting(header["settings"], "device")
    if plan.device.partition(":")[0] != wanted:
        raise Unsupported(
            f"device: expected {wanted} as in the submission, found {plan.device} "
            "here; DEVICE=cpu STEPS=3 computes its first steps on a processor"
        )
    prepare.check_path_options(plan)
    resources = prepare.prepare_resources(plan)
    ours = build_header(
        plan,
        load(plan.rules_version),
        resources.dataset,
        resources.image,
        resources.custom,
        changes=b"",
        attempt=1,
        differences=header["differences"],
    )
    return PreparedRun(plan, resources, 1, b"", ours, chosen), identity(header, ours)


def _replayable(header: Mapping[str, Any]) -> None:
    if header["kind"] == CONVERSION or header["mode"] != "throughput":
        what = "a conversion" if header["kind"] == CONVERSION else f"mode {header['mode']}"
        raise Unsupported(f"audit-replay: expected a throughput run of train or infer, found {what}")
    version = header["rules"]["version"]
    newest = ("practice", LATEST)
    if version not in newest:
        raise Unsupported(
            f"rules: expected {' or '.join(newest)}, under which this checkout runs, found {version}; check "
            f"out the suite that measured it ({_commit(header)}) and replay there"
        )


def _same_code(header: Mapping[str, Any], other_code: bool) -> None:
    expected, found = header["code_digest"], current_code_digest()
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


def run(prepared: PreparedRun, repeats: int) -> Outcome:
    """Run the chosen of the submission's ``repeats`` again; the log says what came of it."""
    chosen = ", ".join(map(str, prepared.replayed))
    print(f"running repeat {chosen} of {repeats} again", file=sys.stderr, flush=True)
    return execute(prepared)
