"""The coverage of closed by one submitter: entries that are done, missing, or impossible with the reasons.

The reasons come from the rule functions that reject a closed run before it starts. Conversions of images are
not entries, because they have neither precision nor model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from suite.checker.context import RULE_FUNCTIONS, HeaderContext
from suite.checker.verdict import prepare
from suite.common.support import unsupported
from suite.contract import BENCHMARK, Key
from suite.contract.traits import framework_names
from suite.log.safe import folded
from suite.report.cells import aligned
from suite.rules import Rules
from suite.sandbox.sandbox import LimitsError, Sandbox
from suite.submissions import package as submission
from suite.workloads import frameworks, names, specification

DONE, MISSING, IMPOSSIBLE = "done", "missing", "impossible"
_LONGEST = 1000  # characters of a reason
_ORDER = (DONE, MISSING, IMPOSSIBLE)
_GPU = "cuda:0"  # closed is at reference scale, in a container, on an accelerator
_PLATFORM = "linux/amd64"
# Rules on the header that report a value that closed needs and the rules do not define yet.
_VALUE_RULES = ("TRAIN-006", "TRAIN-012", "FING-008", "DATA-002")


@dataclass(frozen=True, slots=True)
class CoverageEntry:
    """One entry of closed: ``reasons`` why it is impossible, ``runs`` with the ids of accepted results."""

    workload: str
    framework: str
    phase: str  # with its scenario, as in the publishable sentence: "train", "infer offline"
    precision: str
    status: str
    reasons: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()


def done(sandbox: Sandbox, submitter: str, root: Path) -> tuple[dict[tuple[str, ...], list[str]], list[str]]:
    """Run ids by (workload, framework, phase, precision) of the submitter's accepted closed results.

    The second value are faults of the checker over the submitter's results, which then have no verdict.
    """
    found: dict[tuple[str, ...], list[str]] = {}
    entries, _ = submission.check_tree(root, sandbox)
    own = [entry for entry in entries if entry.folder.relative_to(root).parts[0] == submitter]
    for entry in own:
        if entry.assurance is None:
            continue
        try:
            value = sandbox.run("audit", path=entry.folder, root=root)
        except LimitsError:
            continue
        quote = value["quote"]
        if quote is not None and "phase" in quote and quote["division"] == "closed division":
            cell = tuple(quote[name] for name in ("workload", "framework", "phase", "precision"))
            found.setdefault(cell, []).append(str(value["run_id"]))
    return found, [entry.fault for entry in own if entry.fault is not None]


def cells(
    rules: Rules, code_digest: str, finished: Mapping[tuple[str, ...], list[str]]
) -> Iterator[CoverageEntry]:
    """Every entry of closed under ``rules``, for the code of this checkout."""
    prepare()
    for workload in (name for name in names() if rules.has("workloads", name)):
        for framework in framework_names():
            image_reasons = tuple(_image_reasons(rules, workload, framework, code_digest))
            precisions = rules.workload(workload)["precisions"]
            for phase, scenario in (("train", "offline"), ("infer", "offline"), ("infer", "single_stream")):
                named = "train" if phase == "train" else f"infer {scenario}"
                for precision in precisions:
                    cell = (workload, framework, named, precision)
                    runs = tuple(finished.get(cell, ()))
                    if runs:
                        yield CoverageEntry(*cell, DONE, (), runs)
                        continue
                    reasons = (*_pair_reasons(cell, phase, scenario, rules), *image_reasons)
                    yield CoverageEntry(*cell, IMPOSSIBLE if reasons else MISSING, reasons)


def _image_reasons(rules: Rules, workload: str, framework: str, code_digest: str) -> Iterator[str]:
    """The reasons why no container image is ready for closed; none if one is."""
    base = rules.base_for(framework)
    if base is None:
        yield f"IMG-001: the lock has no current base image of {framework}"
    elif base["status"] != "resolved":
        yield f"IMG-009: {base['name']} is {base['status']} in the lock: expected resolved"
    elif rules.published(workload, framework, code_digest, _PLATFORM, base["name"]) is None:
        yield f"IMG-006: no layers of this code are published above {base['name']}"


def _pair_reasons(cell: tuple[str, ...], phase: str, scenario: str, rules: Rules) -> tuple[str, ...]:
    """Why the pair cannot run, or the rules reject every variant, batch and kind of data; empty if it can."""
    workload, framework, _, precision = cell
    if framework not in frameworks(workload):
        return (f"{workload} has no pair in {framework}",)
    batches = [1] if scenario == "single_stream" else rules.workload(workload)["batches"]
    variants = specification(workload).VARIANTS["reference"]
    fewest: tuple[str, ...] | None = None
    for variant, batch, data in product(variants, batches, ("synthetic", "real")):
        key = Key(
            workload, framework, phase, scenario, precision, batch, 1, "reference", data, "warm", variant
        )
        if (reason := unsupported(key, _GPU)) is not None:
            return (reason,)
        reasons = tuple(_undefined_values(key, rules))
        if not reasons:
            return ()
        fewest = reasons if fewest is None or len(reasons) < len(fewest) else fewest
    return fewest or ("the rules list no batch",)


def _undefined_values(key: Key, rules: Rules) -> Iterator[str]:
    """The values that closed needs for ``key`` and the rules do not define."""
    header = {
        "kind": BENCHMARK,
        "key": asdict(key),
        "division": "closed",
        "mode": "throughput",
        "initial_parameters": rules.initial_parameters(key, "throughput"),
        "dataset": _dataset(key, rules),
    }
    context = HeaderContext(header, rules)
    for rule in _VALUE_RULES:
        if key.data == "synthetic" and rule == "DATA-002":
            continue
        for fault in RULE_FUNCTIONS[rule].check(context):
            yield f"{rule}: {rules.checks[rule].title}: {fault.found}"
            break


def _dataset(key: Key, rules: Rules) -> dict[str, Any]:
    """The dataset in the header of a run on the published dataset."""
    name = specification(key.workload).DATASETS[key.scale]
    dataset: dict[str, Any] = {"name": name, "kind": "official"}
    if not rules.has("datasets", name):
        return dataset | dict.fromkeys(("digest", "bytes", "files", "generator"))
    entry = rules.dataset(name)
    files = entry.get("count", len(entry["files"]))
    return dataset | {field: entry[field] for field in ("digest", "bytes", "generator")} | {"files": files}


def as_dict(found: Iterable[CoverageEntry], submitter: str, rules: Rules) -> dict[str, Any]:
    """The coverage as JSON values. It has no overall score, because entries may be missing."""
    rows = list(found)
    counts = {status: sum(row.status == status for row in rows) for status in _ORDER}
    return {
        "format": "suite-coverage/1",
        "submitter": submitter,
        "division": "closed",
        "rules": rules.version,
        "counts": counts,
        "complete": counts[DONE] == len(rows) > 0,
        "entries": [asdict(row) for row in rows],
    }


def lines(found: Iterable[CoverageEntry], width: int | None = None) -> Iterator[str]:
    """The counts and what makes most entries possible, then a table; all safe to print, in ``width`` columns.

    The table joins phases and precisions of equal outcome. Its notes, ids of runs and reasons, follow.
    """
    rows = list(found)
    counts = ", ".join(f"{sum(row.status == status for row in rows)} {status}" for status in _ORDER)
    yield f"closed: {len(rows)} entries: {counts}"
    without = [row for row in rows if any(reason.startswith("IMG-") for reason in row.reasons)]
    if without:
        lacking = ", ".join(sorted({row.framework for row in without}))
        yield from folded(
            f"{len(without)} entries ({lacking}) lack a container image whose digests the rules contain. "
            "To supply them on a machine with a network: `make image-lock` reads the digests of the base "
            "images (IMG-009), `make images` builds the pairs, and `make image-publish` records their layers "
            "(IMG-006); then commit rules/ (docs/containers.md)",
            width,
            _LONGEST,
        )
    notes: dict[str, str] = {}
    for note in (note for row in rows for note in (*row.runs, *row.reasons)):
        notes.setdefault(note, f"[{len(notes) + 1}]")
    yield from aligned(_table(rows, notes), width=width)
    for note, number in notes.items():
        yield from folded(f"{number} {note}", width, _LONGEST)
    if all(row.status == DONE for row in rows):
        yield "complete; the rules define no overall score, so none is named"
    else:
        yield "overall score: none: a part of the entries would be a selection"


def _table(rows: Sequence[CoverageEntry], notes: Mapping[str, str]) -> Iterator[Sequence[str]]:
    """The heads, and a row for each workload, framework and outcome."""
    yield "workload", "framework", "phases", "precisions", "outcome", "notes"
    by_phase: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        numbers = " ".join(notes[note] for note in (*row.runs, *row.reasons))
        group = (row.workload, row.framework, row.phase, row.status, numbers)
        by_phase.setdefault(group, []).append(row.precision)
    joined: dict[tuple[str, ...], list[str]] = {}
    for (workload, framework, phase, *outcome), members in by_phase.items():
        every = {row.precision for row in rows if row.workload == workload}
        joined.setdefault((workload, framework, _joined(members, every), *outcome), []).append(phase)
    every = {row.phase for row in rows}
    for (workload, framework, precisions, *outcome), members in joined.items():
        yield workload, framework, _joined(members, every), precisions, *outcome


def _joined(members: Sequence[str], every: set[str]) -> str:
    return "all" if set(members) == every else ", ".join(members)
