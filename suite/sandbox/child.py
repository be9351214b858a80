"""The long-lived child process: one request a line on standard input, one answer a line on standard output.

A request is {"task": name, "arguments": {…}}. An answer is {"value": …}, {"limits": reason} if memory ran
out, {"fatal": message} if no task can run, or {"error": message, "at": frames} for a fault of the task.
:class:`suite.sandbox.sandbox.Sandbox` sends the requests. The child's command line names the modules that
declare the allowed tasks; a request cannot make the child import, run or write anything else.
"""

from __future__ import annotations

import gc
import json
import os
import re
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from suite.sandbox import limits
from suite.sandbox.tasks import Tasks

_MODULE = re.compile(r"suite\.(?:[a-z_]+\.)*tasks")
_FRAMES = 10  # last frames of a fault that are reported


def serve(requests: BinaryIO, answers: BinaryIO, modules: Sequence[str]) -> int:
    """Answer until the requests end. ``modules`` declare the tasks."""
    tasks = _load(modules)
    gc.freeze()  # imported modules stay: the collector need not visit them
    limits.limit()
    limits.refuse(tasks.late_imports)
    for line in requests:
        limits.grant_cpu()
        answer, reusable = _answer(tasks, json.loads(line))
        answers.write(json.dumps(answer).encode("ascii") + b"\n")
        answers.flush()
        if not reusable:
            return 1  # out of memory: the next request gets a fresh child
    return 0


def _load(modules: Sequence[str]) -> Tasks:
    """The tasks of all ``modules`` together; prepares each, so that its imports happen before the limits."""
    declared: list[Tasks] = []
    for name in modules:
        if not _MODULE.fullmatch(name):
            raise ValueError(f"sandbox: expected modules named suite.<package>.tasks, found {name!r}")
        declared.append(import_module(name).TASKS)
    for one in declared:
        one.prepare()
    return Tasks(
        {name: function for one in declared for name, function in one.functions.items()},
        late_imports=frozenset().union(*(one.late_imports for one in declared)),
        fatal=tuple(fatal for one in declared for fatal in one.fatal),
    )


def _answer(tasks: Tasks, request: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    gc.disable()  # a task creates a hundred thousand objects and few cycles
    try:
        return {"value": tasks.functions[request["task"]](**request["arguments"])}, True
    except MemoryError:
        return {"limits": f"over {limits.MEMORY >> 30} GiB of memory"}, False
    except tasks.fatal as error:
        return {"fatal": str(error)}, True
    except Exception as error:  # noqa: BLE001 - every fault of a task is reported
        frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
        at = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
        return {"error": f"{type(error).__name__}: {error}", "at": at}, True
    finally:
        gc.enable()


def main() -> int:
    """Serve the standard streams; other output of the process goes to standard error."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return serve(sys.stdin.buffer, answers, sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
