"""``python -m suite --make TARGET NAME=VALUE …``: translate make's command line into arguments of a verb.

The Makefile passes every variable of its command line unchanged. Standard library only: ``make help`` and
suggestions work without an environment.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence

from suite.cli.arguments import Verb
from suite.cli.verbs import OTHER_TARGETS, TARGETS
from suite.plan.errors import did_you_mean
from suite.plan.options import Option, path_in_section, renamed

USAGE = 2
ARGS, PYTHON = "ARGS", "PYTHON"  # further arguments, unchanged; make's interpreter
RESULTS = "RESULTS"  # several paths
_ON, _OFF = {"1", "true", "yes"}, {"0", "false", "no"}
_PLAIN = re.compile(r"[A-Za-z0-9_./+-]*")
_SEVERAL = re.compile(r"[A-Za-z0-9_.+-]+(,[A-Za-z0-9_.+-]+)+")


class WrongVariable(Exception):
    """A target or variable that does not exist, is missing, or has a wrong value."""


def main(
    arguments: Sequence[str],
    run_verb: Callable[[Sequence[str]], int],
    show_page: Callable[[Callable[[], str]], int],
) -> int:
    """Run the verb of ``make TARGET NAME=VALUE …``; 2 if a target or variable is wrong.

    ``run_verb`` and ``show_page`` are functions of the command line, which imports this module.
    """
    from suite.cli import pages

    target, *pairs = arguments
    try:
        if target == "help":
            refuse_unknown(target, [name for name, _ in split(pairs)], ())
            return show_page(pages.make_page)
        verb = verb_of(target)
        translated = translate(target, pairs)
    except WrongVariable as error:
        print(f"make: {error}", file=sys.stderr)
        return USAGE
    if verb.program:
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, "-m", verb.module, *translated])  # noqa: S606
    if verb.name == "run":  # print the equivalent command
        print(shlex.join([".venv/bin/python", "-m", "suite", verb.name, *translated]), flush=True)
    return run_verb([*verb.name.split(), *translated])


def split(pairs: Sequence[str]) -> list[tuple[str, str]]:
    """Names and values of ``NAME=VALUE``."""
    return [(name, value) for name, _, value in (pair.partition("=") for pair in pairs)]


def verb_of(target: str) -> Verb:
    """The verb of ``make target``; WrongVariable if there is none."""
    if target not in TARGETS:
        known = (*TARGETS, *OTHER_TARGETS, "help")
        raise WrongVariable(f"no target {target!r}{did_you_mean(target, known)}; `make` lists them")
    return TARGETS[target]


def translate(target: str, pairs: Sequence[str]) -> list[str]:
    """The arguments of the verb of ``target``, in the order of its options; WrongVariable."""
    verb = verb_of(target)
    given = {name: value for name, value in split(pairs) if name != PYTHON}
    variables = [name for option in (*verb.options, *verb.overrides) for name in option.variables]
    if verb.overrides:
        variables.append(ARGS)
    refuse_unknown(target, given, variables)
    for option in verb.options:
        if option.required and not set(option.variables) & set(given):
            raise WrongVariable(f"`make {target}` needs {_needed(option)}")
    flags: list[str] = []
    last: list[str] = []
    for option in verb.options:
        (last if option.positional else flags).extend(_arguments(verb, option, given))
    for option in verb.overrides:
        if option.name.upper() in given and all(option.name != one.name for one in verb.options):
            flags += override(option, given[option.name.upper()])
    try:
        flags += shlex.split(given.get(ARGS, ""))
    except ValueError as error:
        raise WrongVariable(f"ARGS: expected closed quotes, found {given[ARGS]!r}") from error
    if verb.name == "ab":
        return [*flags, *_sides(target, given)]
    if last and any(option.many and not option.positional for option in verb.options):
        flags.append("--")  # argparse would take what follows --in DIR for further values of it
    return [*flags, *last]


def refuse_unknown(target: str, given: Mapping[str, str] | Sequence[str], variables: Sequence[str]) -> None:
    """WrongVariable for an unknown variable, with a suggestion."""
    for name in given:
        if name in variables or name == PYTHON:
            continue
        current = renamed(name.lower(), [known.lower() for known in variables])
        if current is not None:
            text = f"{name} is now {current.upper()}"
            if current == "result" and "RESULTS_DIR" in variables:
                text += ", and RESULTS_DIR the folder that holds results"
            raise WrongVariable(text)
        path = path_in_section(name.lower())
        if path is not None and ARGS in variables:
            raise WrongVariable(f"`make {target}` does not know the variable {name}: use ARGS={path}=VALUE")
        takes = ", ".join(variables) or "none"
        raise WrongVariable(
            f"`make {target}` does not know the variable {name}{did_you_mean(name, variables)}; "
            f"it takes: {takes}"
        )


def _needed(option: Option) -> str:
    values = option.shown() if not option.positional or option.values else (option.metavar,)
    return " ".join(f"{name}={'|'.join(values)}" for name in option.variables[:2])


def _arguments(verb: Verb, option: Option, given: Mapping[str, str]) -> list[str]:
    """The arguments for one option of argparse."""
    if verb.name == "ab" and option.name in ("a", "b"):
        return []
    values = [given[name] for name in option.variables if name in given]
    if option.positional:
        return [part for name in option.variables if name in given for part in _parts(name, given[name])]
    if not values:
        return []
    if not option.switch:
        return [option.flag, values[0]]
    if switched(option, values[0]) == bool(option.default):
        return []
    return [f"--no-{option.flag[2:]}" if option.default else option.flag]


def _parts(name: str, value: str) -> list[str]:
    """The paths in one variable: several, separated by blanks, only in RESULTS."""
    if name != RESULTS:
        return [value]
    try:
        return shlex.split(value)
    except ValueError as error:
        raise WrongVariable(f"{name}: expected closed quotes, found {value!r}") from error


def switched(option: Option, value: str) -> bool:
    """Whether a switch is on; WrongVariable for any other value."""
    if value not in _ON | _OFF:
        name = option.variables[0]
        raise WrongVariable(f"{name} is a switch: expected {name}=1 or {name}=0, found {name}={value}")
    return value in _ON


def override(option: Option, value: str) -> list[str]:
    """An option of a run as Hydra reads it: a value that is not plain goes in double quotes."""
    if option.switch:
        on = switched(option, value)
        return [] if on == bool(option.default) else [f"{option.name}={str(on).lower()}"]
    several = option.type is None and _SEVERAL.fullmatch(value)  # an axis of `make matrix`, or of ARGS=-m
    if not several and not _PLAIN.fullmatch(value):
        value = '"' + value.replace('"', '\\"') + '"'
    return [f"{option.name}={value}"]


def _sides(target: str, given: Mapping[str, str]) -> list[str]:
    for side in ("A", "B"):
        if side not in given:
            raise WrongVariable(f"`make {target}` needs {side}='<options of {side}>'")
    return ["--", given["A"], "--", given["B"]]
