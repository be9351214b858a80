"""What a submitter has done of closed, what is missing, and what cannot be done yet, with the reason.

The reasons are the rules' own: the same functions that refuse a closed run before it starts. Conversions of
images are no entries: they have no precision and no model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from suite.checker.context import RULE_FUNCTIONS, HeaderContext
from suite.checker.verdict import prepare
from suite.common.support import unsupported
from suite.contract import BENCHMARK, Key
from suite.contract.traits import framework_names
from suite.rules import Rules
from suite.sandbox.sandbox import LimitsError, Sandbox
from suite.submissions import package as submission
from suite.workloads import frameworks, names, specification

DONE, MISSING, IMPOSSIBLE = "done", "missing", "impossible"
_ORDER = (DONE, MISSING, IMPOSSIBLE)
_GPU = "cuda:0"  # closed is at reference scale, in a container, on an accelerator
_PLATFORM = "linux/amd64"
# What the header alone breaks where the rules have not settled a value that closed needs.
_SETTLED = ("TRAIN-006", "TRAIN-012", "FING-008", "DATA-002")


@dataclass(frozen=True, slots=True)
class CoverageEntry:
    """One entry of closed: ``reasons`` say why it is impossible, ``runs`` which results do it."""

    workload: str
    framework: str
    phase: str  # with its scenario, as in a sentence: "train", "infer offline"
    precision: str
    status: str
    reasons: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()


def done(sandbox: Sandbox, submitter: str, root: Path) -> dict[tuple[str, ...], list[str]]:
    """Run ids by (workload, framework, phase, precision) of the submitter's accepted closed results."""
    found: dict[tuple[str, ...], list[str]] = {}
    for entry in submission.entries_with_verdicts(root, sandbox):
        if entry.folder.relative_to(root).parts[0] != submitter or entry.assurance is None:
            continue
        try:
            value = sandbox.run("audit", path=entry.folder, root=root)
        except LimitsError:
            continue
        told = value["quote"]
        if told is not None and "phase" in told and told["division"] == "closed division":
            cell = tuple(told[name] for name in ("workload", "framework", "phase", "precision"))
            found.setdefault(cell, []).append(str(value["run_id"]))
    return found


def cells(
    rules: Rules, code_digest: str, finished: Mapping[tuple[str, ...], list[str]]
) -> Iterator[CoverageEntry]:
    """Every entry of closed under ``rules``, for the code of this checkout."""
    prepare()
    for workload in (name for name in names() if rules.has("workloads", name)):
        for framework in framework_names():
            image = tuple(_image(rules, workload, framework, code_digest))
            precisions = rules.workload(workload)["precisions"]
            for phase, scenario in (("train", "offline"), ("infer", "offline"), ("infer", "single_stream")):
                named = "train" if phase == "train" else f"infer {scenario}"
                for precision in precisions:
                    place = (workload, framework, named, precision)
                    runs = tuple(finished.get(place, ()))
                    if runs:
                        yield CoverageEntry(*place, DONE, (), runs)
                        continue
                    reasons = (*_pair(place, phase, scenario, rules), *image)
                    yield CoverageEntry(*place, IMPOSSIBLE if reasons else MISSING, reasons)


def _image(rules: Rules, workload: str, framework: str, code_digest: str) -> Iterator[str]:
    """Why no image is ready for closed, if none is."""
    base = rules.base_for(framework)
    if base is None:
        yield f"IMG-001: the lock has no current base image of {framework}"
    elif base["status"] != "resolved":
        yield f"IMG-009: {base['name']} is {base['status']} in the lock, not read back from its registry"
    elif rules.published(workload, framework, code_digest, _PLATFORM, base["name"]) is None:
        yield f"IMG-006: no layers of this code are published above {base['name']}"


def _pair(place: tuple[str, ...], phase: str, scenario: str, rules: Rules) -> tuple[str, ...]:
    """Why the pair cannot run, or the rules refuse every variant, batch and kind of data; empty if it can."""
    workload, framework, _, precision = place
    if framework not in frameworks(workload):
        return (f"{workload} has no pair in {framework}",)
    batches = [1] if scenario == "single_stream" else rules.workload(workload)["batches"]
    variants = specification(workload).VARIANTS["reference"]
    fewest: tuple[str, ...] | None = None
    for variant, batch, data in product(variants, batches, ("synthetic", "real")):
        key = Key(
            workload, framework, phase, scenario, precision, batch, 1, "reference", data, "warm", variant
        )
        if (why := unsupported(key, _GPU)) is not None:
            return (why,)
        found = tuple(_unsettled(key, rules))
        if not found:
            return ()
        fewest = found if fewest is None or len(found) < len(fewest) else fewest
    return fewest or ("the rules list no batch",)


def _unsettled(key: Key, rules: Rules) -> Iterator[str]:
    """What the rules of ``key`` have not settled, and closed needs."""
    header = {
        "kind": BENCHMARK,
        "key": asdict(key),
        "division": "closed",
        "mode": "throughput",
        "initial_parameters": rules.initial_parameters(key, "throughput"),
        "dataset": _dataset(key, rules),
    }
    context = HeaderContext(header, rules)
    for rule in _SETTLED:
        if key.data == "synthetic" and rule == "DATA-002":
            continue
        for fault in RULE_FUNCTIONS[rule].check(context):
            yield f"{rule}: {rules.checks[rule].title}: {fault.actual}"
            break


def _dataset(key: Key, rules: Rules) -> dict[str, Any]:
    """The header's dataset as a run on the published one would state it."""
    name = specification(key.workload).DATASETS[key.scale]
    stated: dict[str, Any] = {"name": name, "kind": "official"}
    if not rules.has("datasets", name):
        return stated | dict.fromkeys(("digest", "bytes", "files", "generator"))
    entry = rules.dataset(name)
    files = entry.get("count", len(entry["files"]))
    return stated | {at: entry[at] for at in ("digest", "bytes", "generator")} | {"files": files}


def as_dict(found: Iterable[CoverageEntry], submitter: str, rules: Rules) -> dict[str, Any]:
    """The coverage as JSON values. There is no overall score: it would be of a selection unless complete."""
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


def lines(found: Iterable[CoverageEntry]) -> Iterator[str]:
    """A table for people: precisions of one outcome and reason together, then one line that sums up."""
    rows = list(found)
    grouped: dict[tuple[Any, ...], list[str]] = {}
    for row in rows:
        place = (row.workload, row.framework, row.phase, row.status, row.reasons, row.runs)
        grouped.setdefault(place, []).append(row.precision)
    table = [
        (workload, framework, phase, ", ".join(precisions), status, "; ".join((*runs, *reasons)))
        for (workload, framework, phase, status, reasons, runs), precisions in grouped.items()
    ]
    widths = [max(len(row[at]) for row in table) for at in range(5)] if table else []
    for line in table:
        yield "  ".join(
            [*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[5]]
        ).rstrip()
    counts = ", ".join(f"{sum(row.status == status for row in rows)} {status}" for status in _ORDER)
    yield f"closed: {len(rows)} entries: {counts}"
    if all(row.status == DONE for row in rows):
        yield "complete; the rules define no overall score, so none is named"
    else:
        yield "overall score: none: a part of the entries would be a selection"
