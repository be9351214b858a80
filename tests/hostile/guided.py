"""Fuzzing guided by coverage, with atheris, which is not in the suite's environment.

    python3.11 -m venv fuzz && fuzz/bin/pip install atheris==3.0.0 orjson jsonschema jsonschema-rs numpy rich
    fuzz/bin/python -m tests.hostile.guided CORPUS -max_total_time=60 -max_len=4096

The first byte selects what the rest is: bytes of a line, of a log, of a system.json, or the data of one event
of a good log whose chain is recomputed. Any exception is a crash.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["suite.log", "suite.checker", "suite.submissions.system"]):
    from suite.checker.verdict import check_raw, prepare
    from suite.cli.check import print_verdict
    from suite.log.files import Raw
    from suite.log.finding import RecordError
    from suite.log.lines import parse, parse_line
    from suite.submissions import system

import orjson

from tests.fixtures.good_log import Good, write_good
from tests.hostile.mutators import chained
from tests.hostile.ways import ways_agree

_LARGEST = 1 << 16


def main() -> None:
    """Hand the process over to atheris."""
    prepare()
    with tempfile.TemporaryDirectory() as root:
        folder = write_good(Path(root), Good(out_of_memory_in=0))
        name, lines = folder.name, (folder / "run.jsonl").read_bytes().splitlines()

    def one(data: bytes) -> None:
        kind, rest = data[:1], data[1:_LARGEST]
        if kind == b"L":
            with contextlib.suppress(RecordError):
                parse_line(rest, "line 1")
        elif kind == b"F":
            with contextlib.suppress(RecordError):
                parse(rest, True)
            if not ways_agree(rest):
                raise AssertionError("the quick way reads what the careful one does not")
        elif kind == b"S":
            with contextlib.suppress(system.SystemProblem):
                system.defects(system.parse(rest))
        else:
            _event(name, lines, data)

    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


def _event(name: str, lines: list[bytes], data: bytes) -> None:
    """Judge a good log in which the data of one event is derived from ``data`` after its first byte."""
    try:
        value = orjson.loads(data[1:])
    except orjson.JSONDecodeError:
        return
    events = [orjson.loads(line) for line in lines]
    event = events[data[0] % len(events) if data else 0]
    event["data"] = {**event["data"], **value} if isinstance(value, dict) else value
    verdict = check_raw(Raw(name, ("run.jsonl",), chained(events)))
    print_verdict(verdict, io.StringIO())


if __name__ == "__main__":
    main()
