"""The rows of the equivalence tables as lines for a terminal and as ``docs/equivalence.md``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tests.equivalence import compare
from tests.equivalence.case import Case
from tests.equivalence.recorded import Largest, Row

KINDS = {
    "fp64": ("outputs", "gradient", "update", "losses", "inference", "evaluated"),
    "fp32": ("outputs", "first loss", "inference", "update"),
}
INTRODUCTION = """# Equivalence

Written by `make equivalence SCALE=reference OUT=docs/equivalence.md` and the same with `SCALE=mini`; not
edited by hand. `docs/equivalence.json` holds the rows. Each figure is the largest relative difference between
any two of PyTorch, TensorFlow and MXNet on a CPU, from the same initial weights and batches, dropout and
warm-up off, with one change of the rate and, where the workload can clip, clipping active:

- float64, in norm: the outputs; the gradient of each parameter in step 0; the update of each parameter after
  three steps; ten losses; the outputs of inference; and, where a model normalises by running statistics, its
  outputs by them after the three steps (`evaluated`). At most {fp64:.0e}. A tensor whose norm is below
  {negligible:.0e} of all tensors' together is measured against that: it is zero but for rounding.
- float32, greatest difference over greatest value: outputs and inference at most {outputs:.0e}, the first
  loss at most {loss:.0e}; in norm the updates, where the case has a bound for them. A deep network that
  learnt nothing magnifies rounding, in float32 as in float64. Where what float64 shows of the same quantity,
  times {rounding:.0f} (the ratio of both roundings), is more, that is the bound, and the verdict is
  `ok, magnified`. Outputs and first loss are of one pass: the bounds of both are wider by the same factor.

`parameters` is the specification's number; each pair in float64 was seen to have as many. `code` is a digest
of the code and locks that decide the row (`code_digest` in `tests/equivalence/recorded.py`): a row of other
code is measured again by the commands above, and by nothing else. What these cases would miss is the matter
of the mutants: mistakes put into the PyTorch pair, each of which must break a bound (`make test`).
"""


UNLISTED = """## Mini scale

`make test` compares every workload at mini scale with the same bounds, and every mutant.
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


def page(cases: Mapping[str, Sequence[Case]], find: Callable[[Case, str], Row | None]) -> str:
    """The whole of ``docs/equivalence.md``: a table for each scale and precision."""
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
    return "\n".join(parts)


def _order(case: Case) -> tuple[str, str]:
    return case.workload, case.variant


def _table(
    cases: Sequence[Case], precision: str, kinds: Sequence[str], find: Callable[[Case, str], Row | None]
) -> str:
    heads = ("workload", "variant", "parameters", "batch", *kinds, "verdict", "code")
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    versions: dict[str, None] = {}
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
            versions[", ".join(f"{name} {version}" for name, version in row.versions.items())] = None
        lines.append(f"| {' | '.join(cells)} |")
    if versions:
        lines += ["", f"Measured with {'; '.join(versions)}."]
    return "\n".join(lines) + "\n"


def _cell(found: Largest | None) -> str:
    if found is None:
        return ""
    return f"{found.value:.1e}" + (f" `{found.tensor}`" if found.tensor else "")
