"""The baselines that a site shows: shared files and logs in one folder, read in the sandbox and compared.

The folder is as ``make baseline`` leaves it: ``<kind of machine>/<digest>.json`` to share, and
``logs/<run id>``. Files come from others: links are not followed, and their number and sizes are bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from suite.checker.sandboxed import limit_finding
from suite.compare.baseline_verdict import BaselineVerdict, SeriesVerdict, verdicts
from suite.log.files import LOG
from suite.log.safe import safe
from suite.metrics.baseline import Baseline
from suite.sandbox.sandbox import LimitsError, Sandbox, TaskError
from suite.site.cache import Cache, code_digest

LOGS = "logs"
MOST = 500  # files of a site: their comparison takes a time that grows with the square


@dataclass(frozen=True, slots=True)
class CheckedBaseline:
    """A baseline with its verdicts. ``of_log``: it is of a log, not of a shared file."""

    baseline: Baseline
    verdicts: tuple[BaselineVerdict, ...]
    of_log: bool


@dataclass(frozen=True, slots=True)
class Baselines:
    """All baselines of a folder, the newest first, and a sentence for each file that was left out."""

    checked: tuple[CheckedBaseline, ...] = ()
    left_out: tuple[str, ...] = ()

    def of_kind(self, one: Baseline) -> list[Baseline]:
        """The other baselines of the kind of machine of ``one``."""
        return [
            other.baseline
            for other in self.checked
            if other.baseline.cohort == one.cohort and other.baseline.digest != one.digest
        ]


def read_baselines(folder: Path, cache: Cache, tasks: str) -> Baselines:
    """The baselines in ``folder``, which need not exist; from the cache if no file has changed."""
    paths = list(_paths(folder))
    names = [f"{path.relative_to(folder)} {cache.digest(_file(path))}" for path in paths]
    key = f"{sha256(chr(10).join([*names, code_digest()]).encode('utf-8', 'replace')).hexdigest()}.baselines"
    value = cache.read(key) if paths else {"baselines": [], "left_out": []}
    if value is None:
        value = _read(folder, paths, tasks)
        cache.write(key, value)
    checked = [
        CheckedBaseline(
            Baseline.of_dict(one["baseline"]),
            tuple(
                BaselineVerdict(each["against"], tuple(SeriesVerdict(**series) for series in each["series"]))
                for each in one["verdicts"]
            ),
            one["of_log"],
        )
        for one in value["baselines"]
    ]
    return Baselines(tuple(checked), tuple(value["left_out"]))


def _paths(folder: Path) -> Iterator[Path]:
    """The folders of logs, then the shared files, in name order; links are left out."""
    if not folder.is_dir():
        return
    below = sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
    for inner in sorted(below, key=lambda path: (path.name != LOGS, path.name)):
        for path in sorted(inner.iterdir()):
            if not path.is_symlink() and (_file(path).is_file() if inner.name == LOGS else _shared(path)):
                yield path


def _shared(path: Path) -> bool:
    return path.suffix == ".json" and path.is_file()


def _file(path: Path) -> Path:
    return path / LOG if path.parent.name == LOGS else path


def _read(folder: Path, paths: Sequence[Path], tasks: str) -> dict[str, Any]:
    """What the cache keeps: the baselines with their verdicts, and what was left out."""
    found: dict[str, tuple[Baseline, bool]] = {}
    left_out = []
    with Sandbox(tasks) as sandbox:
        for path in paths[:MOST]:
            of_log = path.parent.name == LOGS
            try:
                answer = sandbox.run("baseline_log" if of_log else "baseline_shared", path=path)
            except (LimitsError, TaskError) as error:
                why = limit_finding(error).found if isinstance(error, LimitsError) else str(error)
                answer = {"problem": why}
            name = path.relative_to(folder)
            if "problem" in answer:
                left_out.append(safe(f"{name}: {answer['problem']}", 500))
                continue
            one = Baseline.of_dict(answer["baseline"])
            if not of_log and path.parent.name != one.cohort.folder:
                kind = one.cohort.folder
                left_out.append(safe(f"{name}: expected the folder {kind}, after its kind of machine", 500))
            elif one.digest not in found:  # of a log and its shared file the log counts
                found[one.digest] = one, of_log
    if len(paths) > MOST:
        left_out.append(f"{len(paths) - MOST:,} more files: a site has at most {MOST:,} baselines")
    known = [one for one, _ in found.values()]
    ordered = sorted(found.values(), key=lambda each: (each[0].when, each[0].digest), reverse=True)
    return {
        "baselines": [
            {
                "baseline": one.as_dict(),
                "verdicts": [asdict(verdict) for verdict in verdicts(one, known)],
                "of_log": of_log,
            }
            for one, of_log in ordered
        ],
        "left_out": left_out,
    }
