"""Parsers of verbs, made from their declared options."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from suite.cli.arguments import Verb
from suite.plan.errors import did_you_mean
from suite.plan.options import RENAMED, Option, renamed

OVERRIDES = "overrides"
_CHOICE = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)")


class Parser(argparse.ArgumentParser):
    """A parser with suggestions for unknown flags and values."""

    verb: Verb

    def error(self, message: str) -> NoReturn:
        """Print ``message`` with a suggestion, and exit 2."""
        _, unknown, arguments = message.partition("unrecognized arguments: ")
        if unknown:
            flag = arguments.split()[0].partition("=")[0]
            message = f"unknown argument {arguments}"
            if any(option.positional and option.flag == flag for option in self.verb.options):
                message += f" (give the value without {flag})"
            else:
                known = [option.flag for option in self.verb.options if not option.positional]
                message += did_you_mean(flag, known)
        if choice := _CHOICE.search(message):
            allowed = choice[2].replace("'", "").split(", ")
            hint = did_you_mean(choice[1], allowed)
            message = (
                f"{message[: choice.start()]}expected one of {', '.join(allowed)}, found {choice[1]!r}{hint}"
            )
        for kind, number in (("int", "a whole number"), ("float", "a number")):
            message = message.replace(f"invalid {kind} value:", f"expected {number}, found")
        self.exit(2, f"{self.prog}: {message}; --help lists the options\n")


def parser_of(verb: Verb, about: str = "") -> Parser:
    """The parser of a verb; its help page shows every option with its values and default."""
    parser = Parser(
        prog=f"make {verb.name}" if verb.program else f"python -m suite {verb.name}",
        description=about or verb.help,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.verb = verb
    for option in verb.options:
        add(parser, option)
    if verb.overrides:
        parser.add_argument(
            OVERRIDES, nargs="*", metavar="OPTION=VALUE",
            help="further options of `suite run`"
            + ("" if verb.name == "scale" else "; batch=16,32 is an axis"),
        )  # fmt: skip
    return parser


def add(parser: argparse.ArgumentParser, option: Option) -> None:
    """Declare ``option`` to ``parser``."""
    settings: dict[str, Any] = {"help": _help(option)}
    if option.switch and not option.positional:
        flag = f"--no-{option.flag[2:]}" if option.default else option.flag
        action = "store_false" if option.default else "store_true"
        parser.add_argument(flag, dest=option.name, action=action, **settings)
        return
    if choices := option.choices():
        settings["choices"] = choices
    else:
        settings["metavar"] = option.metavar or None
    if option.type is not None:
        settings["type"] = option.type
    default = (
        option.type(option.default) if option.type and isinstance(option.default, str) else option.default
    )
    if option.many:
        settings["nargs"] = "+" if option.required or not option.positional else "*"
        default = [] if default is None else [default]
    if option.positional:
        if not option.required and not option.many:
            settings |= {"nargs": "?"}
        if option.required:
            parser.add_argument(option.name, **settings)
        else:
            # argparse checks a default against the choices, and a list is none of them
            parser.add_argument(option.name, default=default, **settings)
        return
    parser.add_argument(option.flag, dest=option.name, default=default, required=option.required, **settings)


def _help(option: Option) -> str:
    text = option.help
    default = option.shown_default()
    if default and not option.switch and not option.required and "(default" not in text:
        text += f" (default: {default})"
    return text.replace("%", "%%")


def parse(verb: Verb, arguments: Sequence[str], about: str = "") -> argparse.Namespace:
    """The arguments of ``verb``; SystemExit as in argparse, also for the former name of an option."""
    refuse_former(verb, arguments)
    parser = parser_of(verb, about)
    if verb.overrides:  # options and OPTION=VALUE in any order
        return parser.parse_intermixed_args(list(arguments))
    return parser.parse_args(list(arguments))


def refuse_former(verb: Verb, arguments: Sequence[str]) -> None:
    """SystemExit(2) for the former name of a flag, with its current name."""
    known = {option.name: option for option in verb.options}
    for argument in arguments:
        name = argument.partition("=")[0]
        former = name[2:].replace("-", "_")
        if name.startswith("--") and former in RENAMED and former not in known:
            current = renamed(former, known)
            if current is not None:
                option = known[current]
                now = "a path without a flag" if option.positional else option.flag
                print(f"{verb.name}: {name} is now {now}", file=sys.stderr)
                raise SystemExit(2)
