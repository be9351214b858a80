"""The rows of the equivalence tables as lines for a terminal and as ``docs/equivalence.md``."""

from __future__ import annotations

import string
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.equivalence import compare
from tests.equivalence.case import FRAMEWORKS, Case
from tests.equivalence.gpu_check import REDUCED
from tests.equivalence.recorded import Largest, Row

KINDS = {
    "fp64": ("outputs", "gradient", "update", "losses", "inference", "evaluated"),
    "fp32": ("outputs", "first loss", "inference", "update"),
}
INTRODUCTION = """# Equivalence

The first tables have the largest relative difference between any two frameworks on a CPU, from the same
initial weights and batches; the line below each names the frameworks. The last two are of GPUs. Dropout and
warm-up are off; the learning rate changes once, and clipping is active if the workload has it.
`make equivalence SCALE=reference OUT=docs/equivalence.md`, and the same with `SCALE=mini`, write this page
from `docs/equivalence.json`; do not edit it by hand.

| column | quantity | bound in float64 | bound in float32 |
| --- | --- | --- | --- |
| outputs | outputs of the first step | {fp64:.0e} | {outputs:.0e} |
| gradient | gradient of each parameter in step 0 | {fp64:.0e} | |
| update | update of each parameter after three steps | {fp64:.0e} | that of the case, if any |
| losses, first loss | ten losses; the loss of step 0 | {fp64:.0e} | {loss:.0e} |
| inference | outputs of inference | {fp64:.0e} | {outputs:.0e} |
| evaluated | outputs with running statistics after three steps, if the model has any | {fp64:.0e} | |

- Differences in float64, and those of updates, are differences in norm; the others are the greatest
  difference over the greatest value.
- A tensor whose norm is below {negligible:.0e} of the norm of all tensors is compared relative to that,
  because it is zero apart from rounding.
- `ok, magnified`: an untrained deep network amplifies rounding errors, in float32 as in float64. If the
  float64 difference times {rounding:.0f} (the ratio of both roundings) exceeds a float32 bound, it
  replaces the bound. Outputs and first loss come from one pass, so both bounds grow by the same factor.
- `parameters` is the number in the specification; each pair in float64 was checked to have as many.
- `code` is a digest of the code and locks that determine the row (`code_digest` in
  `tests/equivalence/recorded.py`). The commands above measure a row of other code again.

Mutants show that the cases detect mistakes: each is a mistake in the PyTorch pair that must exceed a bound
(`make test`).
"""


UNLISTED = """## Mini scale

`make test` compares every workload at mini scale with the same bounds, and every mutant; `resnet152` and
`resnet50_cifar10` with the first two blocks of each stage, which the others repeat.
"""


GPU_BOUNDS = {"fp64": ("largest", compare.FP64["outputs"]), "bf16": ("losses", REDUCED)}
ON_A_GPU = """## On a GPU, mini scale

Each framework's fast path on a GPU beside the same on a CPU (`python -m tests.equivalence.gpu_check`, from
`docs/equivalence-gpu.json`). float64: the largest difference of any compared array, bound {fp64:.0e}. bf16:
that of ten losses from those in float32 on the CPU, bound {bf16:.0e}. An empty cell was not measured.
"""
REFUSED = """`WrongCode`: the suite refuses what `torch.compile` made, because its outputs are not those of
the uncompiled network.
"""
ABOVE = """Bold: above the bound.
"""
# Figures of docs/performance-gpu.md (PyTorch's kernels on a GPU), which says how they were measured.
HALF_PRECISION = """## Kernels on a GPU, half precision

Errors of PyTorch's kernels against float64, divided by those of the plain path in the same precision, at
published sizes on an H100 or H200 ([how](performance-gpu.md#pytorchs-kernels-on-a-gpu)). The bound is 1.5;
these figures were measured by hand, and no test compares them with it. That page has what was compared of the
other kernels.

| kernel | arrays | precision | ratio |
| --- | --- | --- | --- |
| `lstm_ptb`, all layers | outputs, states, gradients | bf16, fp16 | 0.84 to 0.94 |
| `gnmt`, attention | scores | bf16 | 0.0025 |
| `gnmt`, attention | gradients | bf16 | 0.38 |
| `ncf`, forward and backward | each gradient | bf16, fp16 | at most 1.13 |
| `ncf`, inference | scores | bf16 | 0.88 |
| batch normalisation | outputs, gradients | bf16, fp16 | at most 1; one of 3.1e-5: 1.8 (above the bound) |
| max pools | maxima | bf16 | 1: equal bit for bit |
| convolution with ReLU and sum, inference | outputs | bf16 | not measured; 2e-3 to 4e-3 from float32 |

Errors of batch normalisation below 1e-6 are left out.
"""


def line(row: Row) -> str:
    """One row for a terminal."""
    cells = []
    for kind in KINDS[row.precision]:
        if kind in row.largest:
            found = row.largest[kind]
            cells.append(f"{kind} {found.value:.1e}" + (f" ({found.tensor})" if found.tensor else ""))
    head = f"{verdict(row)} {row.workload} {row.variant} {row.scale} {row.precision} {row.parameters:,}"
    return f"{head}: {', '.join(cells)}; {sum(row.seconds.values()):.0f} s"


def verdict(row: Row) -> str:
    """``ok``, ``ok, magnified`` (the introduction says when), or ``FAILED``: a difference above its bound."""
    if row.over:
        return "FAILED"
    return "ok, magnified" if row.magnified else "ok"


def page(
    cases: Mapping[str, Sequence[Case]],
    find: Callable[[Case, str], Row | None],
    on_gpu: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The whole of ``docs/equivalence.md``: a table for each scale and precision, and one of GPUs.

    ``on_gpu`` are the rows that ``gpu_check`` printed.
    """
    bounds = {"fp64": compare.FP64["outputs"], "outputs": compare.FP32["outputs"]}
    bounds |= {"loss": compare.FP32["first loss"], "negligible": compare.NEGLIGIBLE}
    parts = [INTRODUCTION.format(**bounds, rounding=compare.ROUNDING)]
    for scale, title in (("reference", "Published sizes"), ("mini", "Mini scale")):
        if scale == "mini" and not any(find(case, kind) for case in cases[scale] for kind in KINDS):
            parts.append(UNLISTED)
            continue
        for precision, kinds in KINDS.items():
            parts.append(f"## {title}, {precision}\n")
            parts.append(_table(sorted(cases[scale], key=_order), precision, kinds, find))
    if on_gpu:
        parts.append(ON_A_GPU.format(bf16=REDUCED, **bounds))
        if any("refused" in row for row in on_gpu):
            parts.append(REFUSED)
        letters = _letters(on_gpu)
        if letters:
            notes = [f"{letter}: {note}." for note, letter in letters.items()]
            parts.append(ABOVE + "\n".join(["", *(textwrap.fill(note, 120) + "\n" for note in notes)]))
        parts += [_gpu_table(on_gpu, letters), HALF_PRECISION]
    return "\n".join(parts)


def _letters(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """A letter in brackets for each note of ``rows``."""
    notes = dict.fromkeys(row["note"] for row in rows if "note" in row)
    return {note: f"({letter})" for note, letter in zip(notes, string.ascii_lowercase, strict=False)}


def _gpu_table(rows: Sequence[Mapping[str, Any]], letters: Mapping[str, str]) -> str:
    """A line for each workload; for each framework its float64 and bf16."""
    frameworks = [name for name in FRAMEWORKS if any(row["framework"] == name for row in rows)]
    cells: dict[str, dict[tuple[str, str], str]] = {}
    for row in rows:
        text = row.get("refused") or _gpu_cell(row, letters)
        cells.setdefault(row["workload"], {})[row["framework"], row["precision"]] = text
    columns = [(name, precision) for name in frameworks for precision in ("fp64", "bf16")]
    heads = ["workload", *(f"{name}, {precision}" for name, precision in columns)]
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    lines += [
        f"| {' | '.join([name, *(found.get(column, '') for column in columns)])} |"
        for name, found in sorted(cells.items())
    ]
    used = dict.fromkeys(f"{row['framework']} {row['version']} on {row['device']}" for row in rows)
    return "\n".join([*lines, "", f"Measured with {', '.join(used)}."]) + "\n"


def _gpu_cell(row: Mapping[str, Any], letters: Mapping[str, str]) -> str:
    kind, bound = GPU_BOUNDS[row["precision"]]
    text = f"{row[kind]:.1e}" if row[kind] <= bound else f"**{row[kind]:.1e}**"
    return f"{text} {letters[row['note']]}" if "note" in row else text


def _order(case: Case) -> tuple[str, str]:
    return case.workload, case.variant


def _table(
    cases: Sequence[Case], precision: str, kinds: Sequence[str], find: Callable[[Case, str], Row | None]
) -> str:
    heads = ("workload", "variant", "parameters", "batch", *kinds, "verdict", "code")
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    versions: dict[str, dict[str, None]] = {}  # the workloads that were measured with them
    for case in cases:
        row = find(case, precision)
        if row is None:
            cells = [
                case.workload,
                case.variant,
                "",
                str(case.batch),
                *([""] * len(kinds)),
                "not run yet",
                "",
            ]
        else:
            found = [_cell(row.largest.get(kind)) for kind in kinds]
            head = [row.workload, row.variant, f"{row.parameters:,}", str(row.batch)]
            cells = [*head, *found, verdict(row), f"`{row.code}`"]
            used = ", ".join(f"{name} {version}" for name, version in row.versions.items())
            versions.setdefault(used, {})[row.workload] = None
        lines.append(f"| {' | '.join(cells)} |")
    several = len(versions) > 1
    for used, workloads in versions.items():
        lines += ["", f"{', '.join(workloads) if several else 'Measured'} with {used}."]
    return "\n".join(lines) + "\n"


def _cell(found: Largest | None) -> str:
    if found is None:
        return ""
    return f"{found.value:.1e}" + (f" `{found.tensor}`" if found.tensor else "")
