"""Runs modules in forks of a process that has imported a framework: an import takes longer than most modules.

``python -m tests.equivalence.forks FRAMEWORK`` imports the framework and then reads requests from stdin, one
line of JSON each: ``module``, ``arguments``, and the files ``stdout`` and ``stderr``. It runs
``python -m module arguments`` in a fork and answers with its exit code, negative after a signal.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import selectors
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path


class Forks:
    """A process that has imported a framework, for the modules that run in it one after the other."""

    def __init__(self, argv: list[str], environment: dict[str, str], folder: Path) -> None:
        self._process = subprocess.Popen(
            argv,
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        atexit.register(self.end)

    def run(self, module: str, arguments: tuple[str, ...], timeout: float) -> tuple[int, str, str]:
        """Exit code, stdout and stderr; subprocess.TimeoutExpired after ``timeout`` seconds, and all end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.TemporaryDirectory() as scratch:
            files = {name: str(Path(scratch, name)) for name in ("stdout", "stderr")}
            request = {"module": module, "arguments": list(arguments), **files}
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            with selectors.DefaultSelector() as selector:
                selector.register(self._process.stdout, selectors.EVENT_READ)
                if not selector.select(timeout):
                    self.end()
                    raise subprocess.TimeoutExpired(module, timeout)
            code = int(self._process.stdout.readline())
            out, errors = (Path(files[name]).read_text(errors="replace") for name in ("stdout", "stderr"))
        return code, out, errors

    @property
    def alive(self) -> bool:
        """Whether it can run another module."""
        return self._process.poll() is None

    def end(self) -> None:
        """Kill the process and its forks."""
        if self.alive:
            os.killpg(self._process.pid, 9)
            self._process.wait()


def main(framework: str) -> None:
    """See the module; a fork returns from here into its own end, with the exit handlers of its libraries."""
    gc.disable()  # imports make hardly any garbage
    import_module(f"suite.frameworks.{framework}.pair")
    if framework == "pytorch":
        import_module("torch._dynamo")  # DistributedDataParallel would import it in each rank: a second each
    gc.freeze()  # no fork searches for garbage among the objects of the imports
    gc.enable()
    answers = os.dup(1)
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            os.close(answers)
            for number, name in ((1, "stdout"), (2, "stderr")):
                target = os.open(request[name], os.O_WRONLY | os.O_CREAT, 0o600)
                os.dup2(target, number)
                os.close(target)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            sys.argv = [request["module"], *request["arguments"]]
            runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
            return
        _, status = os.waitpid(child, 0)
        os.write(answers, f"{os.waitstatus_to_exitcode(status)}\n".encode())


if __name__ == "__main__":
    main(sys.argv[1])
