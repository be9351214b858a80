"""The system description of a submitted result (``system.json``): read, filled in, validated.

Its fields are the 33 of MLPerf's system description, typed, and container digest, drivers, clocks, error
correction and power limit. ``rules/1.0/schemas/system.json`` lists them with their meaning. Facts in the log
are taken from the log; a person states the rest. Nothing is guessed.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from suite.log import strict
from suite.log.model import Record
from suite.log.safe import safe
from suite.metrics.machine import ACCELERATOR_NAMES, machine_facts
from suite.rules.root import LATEST
from suite.rules.schemas import Schemas, schemas_for

FORMAT = "suite-system/1"
SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
# What a name in a published sentence must not contain: it could end the name, or read as another claim.
_QUOTES = re.compile(r"[\"'`\\]")
_TIME = r"(?:[num]?s|sec|seconds?|min|minutes?|h|hours?)"
_CLAIM = re.compile(
    rf"\d\s*(?:%|{_TIME}\b|(?i:[a-z]*\s*(?:/|\bper\b)\s*{_TIME}\b)"
    r"|(?i:x\s+(?:faster|slower)|(?:percent|times|fps)\b)"
    r"|(?i:images|samples|sentences|tokens|words|rows|steps|batches|queries)\b)"
    r"|(?i:\b(?:division|assurance|interval|sha-?256)\b|\brules\s+\d)"
)
MAX_BYTES = 64 * 1024
_MAX_DIGITS = 16
# The suite fills these in.
_AUTOMATIC = ("format", "reasons")


class SystemProblem(ValueError):
    """A system description cannot be read or made; the message states what to fix."""


class MissingFacts(SystemProblem):
    """Facts that only a person can state are missing; ``names`` lists them."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        super().__init__(f"facts that the log does not contain are missing: {', '.join(names)}")


@dataclass(frozen=True, slots=True)
class FieldDefect:
    """One fault of a system description: the field, what was expected and what was found."""

    field: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.field}: expected {self.expected}, found {self.found}"


def problem_of(faults: Sequence[FieldDefect]) -> SystemProblem:
    """The error of one or more faults, one a line."""
    first, *others = map(str, faults)
    problem = SystemProblem(first)
    for other in others:
        problem.add_note(safe(other, 1000))
    return problem


@cache
def schema() -> dict[str, Any]:
    """The JSON Schema of ``system.json``."""
    return _schemas().schema("system")


def _schemas() -> Schemas:
    return schemas_for(LATEST)


def names() -> tuple[str, ...]:
    """Every field of a system description, in the order of the schema."""
    return tuple(schema()["properties"])


def meaning(name: str) -> str:
    """The meaning of the field ``name`` in one line, for prompts and messages."""
    return str(schema()["properties"][name]["description"])


def submitter_problem(name: str) -> str | None:
    """Why ``name`` cannot be a submitter's folder in the tree of submissions; None if it can."""
    if SLUG.fullmatch(name) and name != "registry":
        return None
    return (
        f"--submitter: expected lower-case letters, digits and single hyphens, found {name!r}; "
        f"perhaps {slug(name) or 'my-company'}"
    )


def slug(text: str) -> str:
    """``text`` as the name of a folder: lower-case letters, digits, single hyphens."""
    return "-".join(re.findall(r"[a-z0-9]+", text.lower()))[:60].strip("-")


def name_problem(name: str) -> str | None:
    """Why ``name`` cannot be part of a published sentence, as "expected …, found …"; None if it can.

    A name must not end its quotes or read as a part of the sentence, such as another result.
    """
    if not (name.isascii() and name.isprintable()) or _QUOTES.search(name):
        return f"expected printable ASCII without quotes and backslashes, found {safe(repr(name))}"
    if found := _CLAIM.search(name):
        return f"expected a name without results and terms of the sentence, found {found[0]!r} in it"
    return None


def parse(content: bytes) -> dict[str, Any]:
    """Parse a ``system.json`` strictly: no duplicate keys, floats, NaN or numbers of many digits.

    Raises :class:`SystemProblem` for anything that is not one JSON object of at most 64 KiB.
    """
    try:
        return strict.decode(content, MAX_BYTES)
    except strict.StrictError as error:
        raise SystemProblem(f"system.json: {error}") from None


def defects(value: Mapping[str, Any]) -> list[FieldDefect]:
    """The faults of a description by itself: of the schema, then of nulls and their reasons."""
    violations = _violations(value)
    if violations:
        return violations
    nulls = {name for name, field in value.items() if field is None}
    reasons = set(value["reasons"])
    return [
        *(
            FieldDefect(name, "a reason under reasons", "null without one")
            for name in sorted(nulls - reasons)
        ),
        *(FieldDefect(f"reasons.{name}", "a null to explain", "none") for name in sorted(reasons - nulls)),
    ]


def _violations(value: Mapping[str, Any]) -> list[FieldDefect]:
    found = [
        FieldDefect(".".join(str(part) for part in error.absolute_path) or "(top)", *_explain(error))
        for error in sorted(
            _schemas().errors("system", value), key=lambda error: list(map(str, error.absolute_path))
        )
    ]
    # "$" in a Python regular expression accepts a final line feed, so control characters are checked here.
    for name, field in value.items():
        for text in field.values() if isinstance(field, dict) else [field]:
            if isinstance(text, str) and not (text.isascii() and text.isprintable()):
                found += [FieldDefect(name, "printable ASCII characters", safe(repr(text)))]
    return found


def _explain(error: Any) -> tuple[str, str]:
    """Expected and actual of one schema violation, short and safe to print."""
    keyword, rule, instance = error.validator, error.validator_value, error.instance
    if keyword == "required":
        missing = [name for name in rule if name not in instance]
        return "every name present", f"missing: {', '.join(missing)}"
    if keyword == "additionalProperties":
        unknown = sorted(set(instance) - set(error.schema.get("properties", ())))
        return "known names only", f"unknown: {', '.join(safe(name) for name in unknown)}"
    if keyword == "enum":
        return "one of " + ", ".join("null" if one is None else str(one) for one in rule), safe(
            repr(instance)
        )
    if keyword in ("minimum", "maximum"):
        return f"at {'least' if keyword == 'minimum' else 'most'} {rule}", str(instance)
    if keyword == "not":
        return "a value (the system has accelerators)", "null"
    if keyword == "anyOf" and any(one.get("type") == "object" for one in rule):
        clocks = '{ compute_max_mhz = 1980, memory_max_mhz = 2619, offsets = "none" }'
        return f"a table such as {clocks}", safe(repr(instance))
    if keyword == "anyOf":
        return "a text of 1 to 300 printable ASCII characters", safe(repr(instance))
    return f"{keyword} {safe(str(rule))}", safe(repr(instance))


def read_statement(path: Path) -> dict[str, Any]:
    """The facts that a person states about a system, from a TOML or JSON file.

    Raises :class:`SystemProblem` for a file that cannot be read and for a name that is not known.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SystemProblem(
            f"{path}: {error.strerror}; `make system` writes a file to fill in, and --system names it"
        ) from None
    try:
        stated = parse(content) if path.suffix == ".json" else tomllib.loads(content.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SystemProblem(f"{path}: expected TOML, found: {error}") from None
    for name in stated:
        if name not in names():
            near = difflib.get_close_matches(name, names(), n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise SystemProblem(f"{path}: unknown name {safe(name)}{hint}")
    # A complete system.json is accepted too: facts that the suite fills in are not statements.
    return {name: field for name, field in stated.items() if name not in _AUTOMATIC and field is not None}


def describe(record: Record, submitter: str, stated: Mapping[str, Any]) -> dict[str, Any]:
    """The complete description of the system that made ``record``.

    Raises :class:`MissingFacts` with the facts that a person must state, :class:`SystemProblem` where a
    statement contradicts the log or breaks the schema.
    """
    known, reasons = machine_facts(record)
    if stated.get("accelerators_per_node") == 0 and "accelerators_per_node" not in known:
        reasons |= dict.fromkeys(ACCELERATOR_NAMES, "no accelerator, as stated")
    logged = {**known, **dict.fromkeys(reasons), "submitter": submitter, "format": FORMAT, "reasons": reasons}
    for name, field in stated.items():
        if name in logged and field != logged[name]:
            raise SystemProblem(
                f"{name}: expected {safe(json.dumps(logged[name]))} as in the log, "
                f"found {safe(json.dumps(field))}; leave it out: facts in the log are taken from the log"
            )
    merged = {**stated, **logged}
    missing = [name for name in names() if name not in merged]
    if missing:
        raise MissingFacts(missing)
    value = {name: merged[name] for name in names()}
    if (problem := name_problem(str(value["system_name"]))) is not None:
        raise SystemProblem(f"system_name: {problem}")
    wrong = defects(value)
    unfilled = tomllib.loads(template(list(stated)))
    if empty := sorted(
        name for name in {d.field for d in wrong} & set(stated) if stated[name] == unfilled[name]
    ):
        raise SystemProblem(f"expected a value for every name, found none yet for {', '.join(empty)}")
    if wrong:
        raise problem_of(wrong)
    return value


def template(missing: Sequence[str]) -> str:
    """TOML for a person to fill in: each missing name with its meaning and a placeholder."""
    lines = []
    for name in missing:
        quoted = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)
        lines += [f"# {meaning(name)}", f"{quoted} = {_placeholder(name)}"]
    return "\n".join(lines) + "\n"


def _is_integer(name: str) -> bool:
    """Whether ``name`` is a whole number."""
    return "integer" in str(schema()["properties"][name].get("type", ""))


def read_answer(name: str, answer: str) -> Any:
    """The value of ``name`` from a typed answer; raises :class:`SystemProblem` if it does not fit."""
    value: Any = answer
    if _is_integer(name):
        digits = answer.replace("_", "").replace(",", "")
        if not digits.isdecimal() or len(digits) > _MAX_DIGITS:
            raise SystemProblem("expected a whole number")
        value = int(digits)
    elif _placeholder(name) != '""':
        try:
            value = tomllib.loads(f"value = {answer}")["value"]
        except tomllib.TOMLDecodeError:
            raise SystemProblem(f"expected a table such as {_placeholder(name)}") from None
    wrong = [fault for fault in _violations({name: value}) if fault.field.split(".")[0] == name]
    if wrong:
        raise SystemProblem(f"expected {wrong[0].expected}, found {wrong[0].found}")
    return value


def _placeholder(name: str) -> str:
    if _is_integer(name):
        return "0"
    if name == "other_software_stack":
        return "{}"
    if name == "accelerator_clocks":
        return '{ compute_max_mhz = 0, memory_max_mhz = 0, offsets = "unknown" }'
    return '""'


def encode(value: Mapping[str, Any]) -> bytes:
    """The bytes of ``system.json``: names in the schema's order, two spaces, a final line feed."""
    return (json.dumps(value, indent=2, ensure_ascii=True) + "\n").encode("ascii")
