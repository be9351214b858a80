"""Fuzzing the reader and the checker: ``python -m tests.hostile.fuzz --count 200000 --seed 1``.

Good results of every kind, signed files and the registry's files (:mod:`tests.hostile.signed`) are mutated,
by bytes and by events, and judged in memory. Every input must give a printable verdict: an exception, an
exceeded limit and a check of several seconds are faults. Each is printed with seed and index, and makes the
exit code 1.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from rich.console import Console

from suite.checker.verdict import check_raw, prepare
from suite.cli.check import print_verdict
from suite.log.files import Raw
from suite.log.lines import KINDS
from suite.report.table import print_table
from suite.rules.schemas import schemas_for
from suite.submissions import system
from tests.fixtures.forged_images import HONEST
from tests.fixtures.forged_storage import CONVERSION, LOADED
from tests.fixtures.good_container import rules_of
from tests.fixtures.good_log import MINI, Good, write_good
from tests.hostile.mutators import Choice, mutate_bytes, mutate_events
from tests.hostile.signed import TARGETS, Signed
from tests.hostile.ways import ways_agree

SECONDS = 2.0
CONTAINER = next(iter(HONEST.values()))
_LONGEST = 20  # faults that are printed
GOODS = {
    "train": Good(),
    "infer": Good(key=replace(MINI, phase="infer")),
    "container": CONTAINER,
    "quality": Good(mode="quality"),
    "aborted": Good(out_of_memory_in=1),
    "aborted at once": Good(out_of_memory_in=0),
    "conversion": CONVERSION,
    "load": LOADED,
}
# The long logs take twenty times as long as the others and are drawn more rarely.
_TURNS = ("quality", "aborted at once", "partial", "short") * 10 + ("system", "lines", *TARGETS) * 10


@dataclass(frozen=True)
class Seed:
    """A good result that is mutated."""

    name: str
    data: bytes

    @property
    def lines(self) -> list[bytes]:
        """Its lines without LF."""
        return self.data.splitlines()


def seeds(root: Path) -> dict[str, Seed]:
    """The good results by kind, and short ones cut from them."""
    found = {}
    for kind, good in GOODS.items():
        folder = write_good(root / kind.replace(" ", "-"), good)
        found[kind] = Seed(folder.name, (folder / "run.jsonl").read_bytes())
    train = found["train"]
    head = b"".join(line + b"\n" for line in train.lines[:40])
    found["partial"] = Seed(train.name + ".partial", head)
    found["short"] = Seed(train.name, head)
    return found


def judge_log(seed: Seed, choice: Choice) -> tuple[str, list[dict[str, Any]]]:
    """One mutated log, judged and printed: its outcome, and the events that were edited."""
    edited: list[dict[str, Any]] = []
    if choice.below(4) == 0:
        data = mutate_bytes(seed.data, choice)
    else:
        data, edited = mutate_events(seed.lines, choice)
    if not ways_agree(data):
        raise AssertionError("the quick way reads what the careful one does not")
    verdict = check_raw(Raw(seed.name, ("run.jsonl",), data), rules_of)
    out = io.StringIO()
    print_verdict(verdict, out)
    shown = out.getvalue()
    if any(not line.isprintable() or line.startswith("::") for line in shown.split("\n")):
        raise AssertionError(f"printed as it is: {shown!a}")
    json.dumps(verdict.as_dict())
    if verdict.scored and verdict.record is not None:
        print_table(verdict.record, Console(file=out, width=200))
    if verdict.rejections:
        return f"rejected by {verdict.rejections[0].rule}", edited
    return "accepted" + (" with flags" if verdict.flags else ""), edited


def judge_system(text: bytes, choice: Choice) -> str:
    """One mutated system.json, read and compared with its schema."""
    try:
        value = system.parse(mutate_bytes(text, choice))
    except system.SystemProblem as problem:
        if not str(problem).isprintable():
            raise AssertionError(f"printed as it is: {problem!s:a}") from None
        return "system: not strict JSON"
    return "system: " + ("departs from its schema" if system.defects(value) else "as its schema wants")


@cache
def _oracle(version: str, name: str) -> Callable[[Any], bool]:
    """The validator of jsonschema for schema ``name``."""
    from jsonschema import Draft202012Validator
    from referencing import Registry, Resource

    schemas = schemas_for(version)
    common = schemas.schema("common")
    registry: Any = Registry().with_resource(common["$id"], Resource.from_contents(common))
    validator = Draft202012Validator(schemas.schema(name), registry=registry)
    return lambda value: bool(validator.is_valid(value))


def differing(events: Sequence[dict[str, Any]], version: str = "practice") -> list[str]:
    """The schemas for which the two validators disagree about these events."""
    found = []
    for event in events:
        asked = [("envelope", event)]
        if event.get("kind") in KINDS and "data" in event:
            asked.append((event["kind"], event["data"]))
        found += [
            name
            for name, value in asked
            if schemas_for(version).valid(name, value) != _oracle(version, name)(value)
        ]
    return found


def one(
    index: int, seed: int, made: dict[str, Seed], described: bytes, signed: Signed
) -> tuple[list[str], int]:
    """Input ``index``: its outcomes, and how many events were compared between the validators."""
    choice = Choice(seed, index)
    kind = choice.of(tuple(made)) if choice.below(50) == 0 else choice.of(_TURNS)
    if kind == "system":
        return [judge_system(described, choice)], 0
    if kind in TARGETS:
        return [signed.one(kind, choice)], 0
    if kind == "lines":
        kind = "aborted at once"
    outcome, edited = judge_log(made[kind], choice)
    differ = [f"VALIDATORS DIFFER about {name}" for name in differing(edited)]
    return [outcome, *differ], len(edited)


def run(count: int, seed: int, first: int = 0) -> tuple[Counter[str], list[str], int]:
    """Judge ``count`` inputs: outcomes, faults, and how many events both validators saw."""
    outcomes: Counter[str] = Counter()
    faults: list[str] = []
    compared = 0
    described = json.dumps(dict.fromkeys(system.names(), "a")).encode()
    with tempfile.TemporaryDirectory() as root:
        made, signed = seeds(Path(root)), Signed(Path(root))
        for index in range(first, first + count):
            started = time.process_time()
            try:
                found, events = one(index, seed, made, described, signed)
            except Exception as error:  # noqa: BLE001 - fuzzing looks for any exception
                found, events = ["FAULT"], 0
                faults.append(f"seed {seed}, index {index}: {type(error).__name__}: {error}")
            outcomes.update(found)
            compared += events
            faults += [
                f"seed {seed}, index {index}: {outcome}"
                for outcome in found
                if outcome.startswith("VALIDATORS")
            ]
            if time.process_time() - started > SECONDS:
                faults.append(f"seed {seed}, index {index}: over {SECONDS} s")
    return outcomes, faults, compared


def main(argv: Sequence[str] | None = None) -> int:
    """Fuzz, print counts by outcome and the faults; 1 if there are any."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the first index: to repeat one input")
    args = parser.parse_args(argv)
    prepare()
    started = time.monotonic()
    outcomes, faults, compared = run(args.count, args.seed, args.first)
    took = time.monotonic() - started
    for name, many in outcomes.most_common():
        print(f"{many:>8}  {name}")
    print(f"{args.count} inputs of seed {args.seed} in {took:.0f} s ({args.count / took:.0f} a second)")
    print(f"{compared} mutated events: jsonschema and jsonschema-rs differ about {_count(faults)}")
    print(*faults[:_LONGEST], sep="\n")
    print(f"{len(faults)} faults")
    return 1 if faults else 0


def _count(faults: Sequence[str]) -> int:
    return sum("VALIDATORS" in fault for fault in faults)


if __name__ == "__main__":
    sys.exit(main())
