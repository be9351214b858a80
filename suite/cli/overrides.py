"""Check the names of a run's options before Hydra does, for clearer errors."""

from __future__ import annotations

from collections.abc import Iterable

from suite.plan.errors import BadConfiguration, did_you_mean
from suite.plan.options import RUN_OPTIONS, by_name, renamed

_HYDRA_FLAGS = ("--hydra-help", "--info", "--version")
_GROUPS = ("workload", "framework", "runtime", "launcher")  # folders of conf/, which Hydra looks up first
_NEEDED = ("workload", "framework")


def check_overrides(argv: Iterable[str]) -> None:
    """BadConfiguration for an unknown option, and an unknown or missing workload, framework or runtime."""
    arguments = list(argv)
    if any(argument in _HYDRA_FLAGS for argument in arguments):
        return
    given = dict(
        argument.split("=", 1) for argument in arguments if "=" in argument and argument[0] not in "-+~"
    )
    _refuse_grid(arguments)
    known = by_name(RUN_OPTIONS)
    for name, value in given.items():
        section = name.split(".")[0]
        if section not in known and section != "hydra":
            if current := renamed(section, known):
                raise BadConfiguration(f"{section}: it is now {current}={value}")
            raise BadConfiguration(f"unknown option {name!r}{did_you_mean(name, known)}")
    experiment = "+experiment" in [argument.split("=", 1)[0] for argument in arguments]
    for group in _GROUPS:
        choices = known[group].choices()
        if group not in given:
            if group in _NEEDED and not experiment:  # an experiment sets them
                raise BadConfiguration(
                    f"{group}: expected {group}=<one of {', '.join(choices)}>, found nothing"
                )
            continue
        for value in given[group].split(","):
            if value not in choices:
                hint = did_you_mean(value, choices)
                raise BadConfiguration(
                    f"{group}: expected one of {', '.join(choices)}, found {value!r}{hint}"
                )


def _refuse_grid(arguments: Iterable[str]) -> None:
    """BadConfiguration for an experiment that is a grid of runs: `suite matrix` runs those."""
    from suite.sweep.cells import is_grid

    for argument in arguments:
        name, _, value = argument.partition("=")
        if name == "+experiment" and is_grid(value):
            raise BadConfiguration(
                f"experiment: expected the settings of one run, found a grid of them; run it with "
                f"`python -m suite matrix --experiment {value}` (make matrix EXPERIMENT={value})"
            )
