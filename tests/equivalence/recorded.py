"""The frameworks' results for one case, stored on disk until they are compared."""

from __future__ import annotations

import ast
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite import workloads
from suite.environments import environments
from tests.equivalence import compare
from tests.equivalence.case import FRAMEWORKS, Case
from tests.equivalence.interpreters import ROOT, run
from tests.equivalence.recorder import INDEX

PRECISIONS = ("fp64", "fp32")
TIMEOUT_S = 4 * 3600
# Files that a row depends on beside those of its workload; their imports count too.
ROOTS = tuple(f"tests/equivalence/{name}.py" for name in ("compare", "recorder"))


class Stopped(Exception):
    """A run ended before it could be compared; the message contains the end of its output."""


class Stored(Mapping[str, NDArray[Any]]):
    """The arrays of a folder by name, each mapped from its file when asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.facts: dict[str, Any] = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        self._files: dict[str, str] = self.facts["arrays"]

    def __getitem__(self, name: str) -> NDArray[Any]:
        found: NDArray[Any] = np.load(self._folder / self._files[name], mmap_mode="r")
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


@dataclass(frozen=True)
class Largest:
    """The largest difference of one kind over all pairs of frameworks."""

    value: float
    tensor: str  # empty where the kind is one array
    between: tuple[str, str]


@dataclass(frozen=True)
class Row:
    """One case compared in one precision. ``over`` holds the differences above their bounds.

    ``magnified`` holds fp32 differences above the usual bound that the rounding seen in float64 explains.
    """

    workload: str
    scale: str
    variant: str
    batch: int
    precision: str
    parameters: int
    code: str
    versions: Mapping[str, str]
    seconds: Mapping[str, float]
    peak_bytes: Mapping[str, int]
    largest: Mapping[str, Largest]
    over: Mapping[str, float] = field(default_factory=dict)
    magnified: Mapping[str, float] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The identity of the row: workload, scale, variant and precision."""
        return self.workload, self.scale, self.variant, self.precision

    def as_json(self) -> dict[str, Any]:
        """The row as JSON values, which :meth:`of_json` reads."""
        return asdict(self)

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> Row:
        """The row from the values of :meth:`as_json`."""
        largest = {
            kind: Largest(item["value"], item["tensor"], tuple(item["between"]))
            for kind, item in values["largest"].items()
        }
        return cls(**{**values, "largest": largest})


def code_files(workload: str) -> set[Path]:
    """The files that decide a row of ``workload``: case, specification, pairs, frameworks, all they import.

    They do not include datasets, because a case defines its data, nor what ``suite/__init__.py`` imports for
    notebooks: reader, checker and metrics of logs, which no pair uses.
    """
    folder = ROOT / "suite" / "workloads" / (workloads.specification(workload).FAMILY or workload)
    pending = [ROOT / name for name in ROOTS]
    pending += [ROOT / "tests" / "equivalence" / "cases" / f"{workload}.py"]
    pending += [ROOT / "suite" / "workloads" / workload / "spec.py"]
    for framework in FRAMEWORKS:
        pending += [folder / f"{framework}.py"]
        pending += [ROOT / "suite" / "frameworks" / framework / "framework.py"]
    found: set[Path] = set()
    while pending:
        path = pending.pop()
        if path not in found:
            found.add(path)
            pending += _imported(path) if path != ROOT / "suite" / "__init__.py" else []
    return found


def _imported(path: Path) -> Iterator[Path]:
    """The files of the project that ``path`` imports by name."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            module = ROOT.joinpath(*name.split("."))
            if name.partition(".")[0] in ("suite", "tests"):
                yield from filter(Path.is_file, (module.with_suffix(".py"), module / "__init__.py"))


def code_digest(workload: str) -> str:
    """The first 12 digits of the SHA-256 over :func:`code_files` and the locks of the environments."""
    digest = hashlib.sha256()
    for path in sorted(code_files(workload)):
        digest.update(f"{path.relative_to(ROOT)}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    for framework in FRAMEWORKS:
        digest.update(environments.plan(framework, "cpu").digest.encode())
    return digest.hexdigest()[:12]


def compute(case: Case, precision: str, cache: Path, threads: int, exact: Row | None = None) -> Row:
    """The row of ``case``. Results that a framework recorded with this code are not computed again.

    Raises Stopped where a framework fails; the other frameworks' results stay for the next attempt.
    """
    code = code_digest(case.workload)
    folder = cache / f"{case.workload}-{case.scale}-{case.variant}-{precision}-{code}"
    runs = {
        framework: _recorded(case, framework, precision, folder / framework, threads)
        for framework in FRAMEWORKS
    }
    row = compared(case, precision, code, runs, exact)
    shutil.rmtree(folder)
    return row


def _recorded(case: Case, framework: str, precision: str, folder: Path, threads: int) -> Stored:
    if not (folder / INDEX).is_file():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        arguments = (
            *(case.workload, case.scale, case.variant, framework, precision, str(threads), str(folder)),
        )
        module = "tests.equivalence.recorder"
        done = run(framework, module, *arguments, threads=threads, timeout=TIMEOUT_S)
        if done.returncode != 0:
            shutil.rmtree(folder)
            output = done.stderr.strip()[-2000:] or f"exit code {done.returncode} and no message"
            raise Stopped(f"{case.workload} {case.variant} {precision} in {framework}: {output}")
    return Stored(folder)


def compared(
    case: Case, precision: str, code: str, runs: Mapping[str, Stored], exact: Row | None = None
) -> Row:
    """The row for the frameworks' results.

    Raises Stopped for a pair with a wrong number of parameters or with results that are all zero.
    """
    spec = workloads.specification(case.workload)
    count = sum(p.size for p in spec.parameters(spec.dimensions(case.scale, case.variant)))
    for framework, stored in runs.items():
        if stored.facts["parameters"] not in (None, count):
            raise Stopped(
                f"{case.workload} {case.variant} in {framework}: expected {count} parameters, "
                f"found {stored.facts['parameters']}"
            )
    for framework, stored in runs.items():
        for name in stored:
            # A gradient may be zero, such as that of a table whose partner starts at zero.
            if name.partition("/")[0] not in ("gradient", "update") and not stored[name].any():
                where = f"{case.workload} {case.variant} in {framework}"
                raise Stopped(f"{where}: expected numbers in {name}, found zeros only")
    largest: dict[str, Largest] = {}
    over: dict[str, float] = {}
    magnified: dict[str, float] = {}
    rounding = None if exact is None else {kind: each.value for kind, each in exact.largest.items()}
    for first, second in combinations(runs, 2):
        found = compare.differences(runs[first], runs[second], precision)
        usual = compare.excesses(found, precision, case.update_bound)
        excess = compare.excesses(found, precision, case.update_bound, rounding)
        over |= {f"{name}, {first} and {second}": value for name, value in excess.items()}
        within = {name: value for name, value in usual.items() if name not in excess}
        magnified |= {f"{name}, {first} and {second}": value for name, value in within.items()}
        for name, value in found.items():
            kind, _, tensor = name.partition("/")
            if kind not in largest or not value <= largest[kind].value:
                largest[kind] = Largest(value, tensor, (first, second))
    facts = {framework: stored.facts for framework, stored in runs.items()}
    return Row(
        workload=case.workload,
        scale=case.scale,
        variant=case.variant,
        batch=case.batch,
        precision=precision,
        parameters=count,
        code=code,
        versions={name: each["version"] for name, each in facts.items()},
        seconds={name: each["seconds"] for name, each in facts.items()},
        peak_bytes={name: each["peak_bytes"] for name, each in facts.items()},
        largest=largest,
        over=over,
        magnified=magnified,
    )
