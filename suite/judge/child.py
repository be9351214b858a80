"""The long-lived child: one question a line on standard input, one answer a line on standard output.

A question is {"ask": "check", "compare", "row" or "export", "path": …}, {"ask": "entry" or "audit",
"path": …, "root": …}, or {"ask": "mllog", "path": …, "asked": …}; an answer {"value": …}, or {"limits": why}
where memory ran out, or {"error": what, "at": where} for a fault of the checker itself.
Whoever asks is :class:`suite.judge.parent.Judge`. Nothing that a question names is imported, run or written.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from suite.judge import limits

CHECK, ALL = "check", "all"
ENOUGH = 10  # last frames of a fault that are told


def serve(questions: BinaryIO, answers: BinaryIO, able: str) -> int:
    """Answer until the questions end: those of kind "check" alone, or with ``able`` ALL any."""
    known = _prepare() if able == ALL else _prepare_check()
    gc.freeze()  # what is imported stays: a collection need not look through it
    limits.limit()
    limits.refuse()
    for line in questions:
        limits.grant_cpu()
        answer, whole = _answer(known, json.loads(line))
        answers.write(json.dumps(answer).encode("ascii") + b"\n")
        answers.flush()
        if not whole:
            return 1  # what memory is left in is unknown: the next question gets a fresh child
    return 0


def _answer(able: dict[str, Callable[..., Any]], question: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    from suite.checker.verdict import without_collection
    from suite.rules import MalformedRules

    try:
        arguments = {name: Path(value) for name, value in question.items() if name != "ask"}
        with without_collection():  # until the record is gone: there would be much to look through
            return {"value": able[question["ask"]](**arguments)}, True
    except MemoryError:
        return {"limits": f"over {limits.MEMORY >> 30} GiB of memory"}, False
    except MalformedRules as error:
        return {"malformed": str(error)}, True
    except Exception as error:  # noqa: BLE001 - a fault of the checker is told as one and never passes
        frames = traceback.extract_tb(error.__traceback__)[-ENOUGH:]
        at = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
        return {"error": f"{type(error).__name__}: {error}", "at": at}, True


def _prepare_check() -> dict[str, Callable[..., Any]]:
    """The one question that is asked most, by people who wait: nothing is imported that only others need."""
    from suite.checker import check_result
    from suite.checker.verdict import prepare

    prepare()
    return {"check": lambda path: check_result(path).as_dict()}


def _prepare() -> dict[str, Callable[..., Any]]:
    """What can be asked. All that an answer imports is imported here, before anything is refused."""
    from suite.audit.examine import examine
    from suite.mllog.examine import examine as examine_mllog
    from suite.mllog.export import export
    from suite.registry import Registry, read_registry
    from suite.report import submission
    from suite.report.comparable import comparable
    from suite.report.summary import row_of

    @cache
    def registry(root: Path) -> Registry:
        return read_registry(root / "registry")  # once a child, whatever is done to it meanwhile

    return {
        **_prepare_check(),
        "compare": comparable,
        "row": lambda path: row_of(path).as_dict(),
        "audit": lambda path, root: examine(path, root, registry(root)),
        "export": export,
        "mllog": lambda path, asked: examine_mllog(path, str(asked)),
        "entry": lambda path, root: submission.check_entry(path, root, registry(root)).as_dict(),
    }


def main() -> int:
    """Serve the standard streams; whatever else prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return serve(sys.stdin.buffer, answers, sys.argv[2])


if __name__ == "__main__":
    sys.exit(main())
