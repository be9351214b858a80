"""Help pages and the table of options in README.md, made from the declarations. Standard library only."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from suite.cli.arguments import Verb
from suite.cli.listing import GROUPS
from suite.cli.verbs import ALIASES, OTHER_TARGETS, TARGETS, VERBS
from suite.plan.options import RUN_OPTIONS, Option

WIDTH = 110
_USAGE = {
    "run": "workload=NAME framework=NAME [OPTION=VALUE …]",
    "node": "workload=NAME framework=NAME nodes=N devices=N [OPTION=VALUE …]",
    "preprocess": "workload=NAME to=FORMAT [OPTION=VALUE …]",
    "ab": "[--FLAG …] [OPTION=VALUE … --] 'OPTION=VALUE …' -- 'OPTION=VALUE …'",
}
_HYDRA_HELP = """\
An option in a section goes by its path: runtime.memory=8g, framework.threads=2, workload.hyper.rate=1e-3.
--cfg job, --resolve, -m and +experiment=NAME work as in Hydra; see --hydra-help."""


def about(docstring: str | None, verb: Verb) -> str:
    """The description of a verb from its module's docstring, for a terminal."""
    text = re.sub(r"^``python -m suite [^`]*``:\s*", "", docstring or verb.help).replace("``", "`").strip()
    return text[:1].upper() + text[1:]


def verb_page(verb: Verb) -> str:
    """The help page of a verb whose options are those of a run."""
    spec = find_spec(verb.module)
    docstring = None
    if (
        spec is not None and spec.origin is not None
    ):  # parsed, not imported: a help page loads no large modules
        docstring = ast.get_docstring(ast.parse(Path(spec.origin).read_text("utf-8")))
    lines = [f"usage: python -m suite {verb.name} {_USAGE[verb.name]}", "", about(docstring, verb), ""]
    flags = [option for option in verb.options if option.name not in ("a", "b")]
    if flags:
        lines += ["flags:", *_rows(flags, lambda option: option.flag), ""]
    lines += ["options:", *_rows(verb.overrides, lambda option: option.name), "", _HYDRA_HELP]
    return "\n".join(lines)


def _rows(options: Iterable[Option], name: object) -> list[str]:
    lines: list[str] = []
    for option in options:
        called = name(option) if callable(name) else option.name
        values = "true|false" if option.switch else "|".join(option.shown())
        default = str(bool(option.default)).lower() if option.switch else option.shown_default()
        text = _plain(option.help) + (f" (default: {_plain(default)})" if default else "")
        head = f"  {called:<12} "
        text = f"{values} - {text}" if values else text
        lines += textwrap.wrap(
            text, WIDTH, initial_indent=head, subsequent_indent=" " * 15, break_on_hyphens=False,
            break_long_words=False,
        )  # fmt: skip
    return lines


def _plain(text: str) -> str:
    """``text`` without Markdown's backquotes."""
    return text.replace("`", "")


def make_page() -> str:
    """The page of ``make help``."""
    lines = [
        "make run WORKLOAD=gnmt FRAMEWORK=pytorch   run a benchmark five times, write the log, check it",
        "make test                                  the self-tests",
        "",
        "Options of make run (ARGS='…' passes further options to Hydra, such as framework.threads=2):",
        *_rows(RUN_OPTIONS, lambda option: option.name.upper()),
    ]
    lines = [line.replace("true|false -", "1|0 -").replace("default: true", "default: 1") for line in lines]
    lines = [line.replace("default: false", "default: 0") for line in lines]
    targets = {verb.name: target for target, verb in TARGETS.items() if target not in ALIASES}
    for heading, members in GROUPS.items():
        lines += ["", f"{heading}:"]
        for name in members:
            lines += _target(targets[name], VERBS[name])
        if heading == "Develop":
            lines += [f"  make {name}: {text}" for name, text in OTHER_TARGETS.items()]
    lines += [
        "",
        "`make image WORKLOAD= FRAMEWORK=` builds the image of a pair, `make images` all of them.",
        "PYTHON=/path/to/python3.11 is for every target, if python3.11 is not on PATH.",
        "A variable counts only when it is given on make's command line.",
        "`python -m suite VERB --help` explains each variable.",
    ]
    return "\n".join(lines)


def _target(target: str, verb: Verb) -> list[str]:
    usage = [f"make {target}"]
    for option in verb.options:
        values = ("1",) if option.switch and not option.default else option.shown()
        short = "|".join(values) if len(values) < 6 else f"{values[0]}|{values[1]}|…"
        for name in option.variables:
            needed = option.required and len(option.variables) == 1
            usage.append(f"{name}={short}" if needed else f"[{name}={short}]")
    if verb.overrides and verb.name != "run":
        usage.append("[options of make run]" if verb.name != "preprocess" else _variables(verb))
    lines = textwrap.wrap(
        " ".join(usage), WIDTH, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False,
        break_long_words=False,
    )  # fmt: skip
    return [*lines, f"      {verb.help}"]


def _variables(verb: Verb) -> str:
    return " ".join(f"[{option.name.upper()}=]" for option in verb.overrides)


def markdown() -> str:
    """README.md's table of the options of a run."""
    lines = ["| option | values | default | |", "| --- | --- | --- | --- |"]
    for option in RUN_OPTIONS:
        names = option.shown()
        values = "those above" if option.name == "workload" else ", ".join(_code(name) for name in names)
        default = option.shown_default()
        shown = option.usual or (f"`{default}`" if default else "")
        lines.append(f"| `{option.name.upper()}` | {values} | {shown} | {option.help} |")
    return "\n".join(lines) + "\n"


def _code(value: str) -> str:
    return f"`{value}`".replace("|", "\\|")
