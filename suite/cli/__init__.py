"""The command line: ``python -m suite VERB …``. A verb's module is imported only when the verb is used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from suite.cli.guard import INTERRUPTED, USAGE, guarded
from suite.cli.listing import GROUPS, PROGRAMS, verbs_page

TYPE_CHECKING = False  # without an import of typing, see suite.cli.guard
if TYPE_CHECKING:
    from suite.cli.arguments import Verb

__all__ = ["INTERRUPTED", "USAGE", "main"]
_HELP = {"-h", "--help"}
_VERBS = {name for members in GROUPS.values() for name in members} - set(PROGRAMS)


def main(argv: Sequence[str] | None = None) -> int:
    """Dispatch on the verb and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in {*_HELP, "help"}:
        return show(verbs_page, 0 if arguments else USAGE)
    if arguments[0] == "--version":
        from suite import __version__

        print(f"suite {__version__}")
        return 0
    if arguments[0] == "--make" and len(arguments) > 1:
        from suite.cli import make

        return make.main(arguments[1:], main, show)
    length = 2 if " ".join(arguments[:2]) in _VERBS else 1  # `image list` is one verb
    name = " ".join(arguments[:length])
    if name not in _VERBS:
        return _unknown(arguments)
    from suite.cli.verbs import VERBS

    return guarded(name, lambda: _call(VERBS[name], arguments[length:]), VERBS[name].storage_code)


def show(page: Callable[[], str], code: int = 0) -> int:
    """Print a help page, also into a pipe whose reader ends early (head, less)."""

    def printed() -> int:
        print(page(), flush=True)
        return code

    return guarded("suite", printed)


def _unknown(arguments: Sequence[str]) -> int:
    from suite.plan.errors import did_you_mean

    family = tuple(sorted(name for name in _VERBS if name.startswith(f"{arguments[0]} ")))
    if family and set(arguments[1:]) & _HELP:
        return show(lambda: verbs_page(family))
    if family:
        found = arguments[1] if len(arguments) > 1 else "nothing"
        hint = did_you_mean(" ".join(arguments[:2]), family)
        print(
            f"suite: {arguments[0]}: expected one of {', '.join(family)}, found {found}{hint}",
            file=sys.stderr,
        )
        return USAGE
    hint = did_you_mean(arguments[0], _VERBS) or "; `python -m suite --help` lists the verbs"
    print(f"suite: unknown verb {arguments[0]!r}{hint}", file=sys.stderr)
    return USAGE


def _call(verb: Verb, rest: list[str]) -> int:
    from importlib import import_module

    from suite.cli import pages

    if verb.hydra and _HELP & set(rest):
        return show(lambda: pages.verb_page(verb))
    module = import_module(verb.module)
    function = getattr(module, verb.function)
    if verb.hydra:
        return int(function(rest))
    from suite.cli.parsing import parse

    return int(function(parse(verb, rest, pages.about(module.__doc__, verb))))
