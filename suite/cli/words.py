"""A first look at the words of a command line, for errors that help more than a composer's."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from suite import workloads
from suite.plan.errors import BadConfiguration, did_you_mean
from suite.plan.settings import LAUNCHERS, PLACES, RUNTIMES, WORDS
from suite.runtime.native import PROJECT

_HELP = """\
usage: python -m suite run workload=NAME framework=NAME [WORD=VALUE …]

Runs one workload in one framework five times, writes the log and checks it. Words and their values:
{words}
  batch, devices, variant, nonce, image, pair, bundle, fetch, dry, {places}
A value in another table goes by its path: runtime.memory=8g, framework.threads=2, workload.hyper.rate=1e-3.
README.md says what each means and what it is by itself; --cfg job, --resolve, -m and +experiment=NAME are
Hydra's, and so is --hydra-help."""
_GROUPS = {"runtime": ("auto", RUNTIMES), "launcher": ("local", LAUNCHERS)}
_OTHER = (
    *("fetch", "dry", "telemetry", "fingerprint", "batch", "variant", "devices", "nonce"),
    *("image", "pair", "bundle"),
)


def help_text() -> str:
    """What ``run --help`` prints: every word with its values."""
    frameworks = sorted(path.stem for path in (PROJECT / "conf" / "framework").glob("*.yaml"))
    known = {"workload": workloads.names(), "framework": frameworks, **WORDS}
    known |= {"runtime": RUNTIMES, "launcher": LAUNCHERS}
    lines = (
        textwrap.fill(" | ".join(values), 100, initial_indent=f"  {word}: ", subsequent_indent="      ")
        for word, values in known.items()
    )
    return _HELP.format(words="\n".join(lines), places=", ".join(PLACES))


def check_words(argv: Iterable[str]) -> None:
    """BadConfiguration where a workload, framework, runtime or word does not exist or is missing."""
    arguments = list(argv)
    if any(argument in ("--hydra-help", "--info", "--version") for argument in arguments):
        return
    given = dict(
        argument.split("=", 1) for argument in arguments if "=" in argument and argument[0] not in "-+~"
    )
    _no_grid(arguments)
    words = ["workload", "framework", *_GROUPS, *WORDS, *PLACES, *_OTHER]
    for name in given:
        if name.split(".")[0] not in (*words, "hydra"):
            raise BadConfiguration(f"unknown word {name!r}{did_you_mean(name, words)}")
    groups = {
        "workload": workloads.names(),
        "framework": tuple(sorted(path.stem for path in (PROJECT / "conf" / "framework").glob("*.yaml"))),
    }
    for group, known in groups.items():
        if group not in given:
            if "+experiment" in [argument.split("=", 1)[0] for argument in arguments]:
                continue  # a published study names its own
            raise BadConfiguration(f"{group}: expected {group}=<one of {', '.join(known)}>, found nothing")
        for word in given[group].split(","):
            if word not in known:
                hint = did_you_mean(word, known)
                raise BadConfiguration(f"{group}: expected one of {', '.join(known)}, found {word!r}{hint}")
    for group, (usual, known) in _GROUPS.items():
        for word in given.get(group, usual).split(","):
            if word not in known:
                hint = did_you_mean(word, known)
                raise BadConfiguration(f"{group}: expected one of {', '.join(known)}, found {word!r}{hint}")


def _no_grid(arguments: Iterable[str]) -> None:
    """An experiment is the settings of one run; one that is a grid of runs is for `suite matrix`."""
    from suite.matrix.cells import is_grid

    for argument in arguments:
        name, _, value = argument.partition("=")
        if name == "+experiment" and is_grid(value):
            raise BadConfiguration(
                f"experiment: expected the settings of one run, found a grid of them; run it with "
                f"`python -m suite matrix --experiment {value}` (make matrix EXPERIMENT={value})"
            )
