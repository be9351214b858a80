"""Check the options of a run before Hydra does, for errors in one sentence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

from suite.containers.engines.native import PROJECT
from suite.plan.errors import BadConfiguration, did_you_mean
from suite.plan.options import by_name, path_in_section, renamed

_GROUPS = ("workload", "framework", "runtime", "launcher")  # folders of conf/, which Hydra looks up first
_NEEDED = ("workload", "framework")
_DEFAULTS = {"runtime": "auto", "launcher": "local"}
_ANSWERED = ("--hydra-help", "--info", "-i", "--version")  # Hydra answers these without a run
_SWEEP = ("-m", "--multirun")
_SWITCHES = (*_SWEEP, *_ANSWERED, "--resolve", "-r", "--run", "-sc", "--shell-completion")
_WITH_VALUE = (  # flags of Hydra that take the next argument
    *("-c", "--cfg", "-p", "--package", "-cp", "--config-path", "-cn", "--config-name"),
    *("-cd", "--config-dir", "--experimental-rerun"),
)
_WITH_AXES = ("matrix", "sweep")
_EXAMPLE = "expected OPTION=VALUE such as batch=256"


def split_arguments(argv: Iterable[str]) -> tuple[list[str], list[str]]:
    """Hydra's flags with their values, and the options, in ``argv``; BadConfiguration for another flag."""
    flags: list[str] = []
    options: list[str] = []
    arguments = iter(argv)
    for argument in arguments:
        name = argument.partition("=")[0]
        if not argument.startswith("-"):
            options.append(argument)
        elif name in _SWITCHES or (name in _WITH_VALUE and "=" in argument):
            flags.append(argument)
        elif name in _WITH_VALUE:
            flags += [argument, *([value] if (value := next(arguments, None)) is not None else [])]
        else:
            bare = name.lstrip("-").replace("-", "_")
            if bare in by_name():
                raise BadConfiguration(
                    f"expected {bare}=VALUE, found {argument}: options of a run have no dashes"
                )
            hint = did_you_mean(name, (*_SWITCHES, *_WITH_VALUE))
            raise BadConfiguration(f"{_EXAMPLE}, found the unknown flag {argument}{hint}")
    return flags, options


def check_overrides(argv: Iterable[str], *, verb: str = "run") -> None:
    """BadConfiguration for text that is no option, an unknown option, and an unknown or missing group.

    Groups are workload, framework, runtime and launcher. In a matrix or a sweep an option may have several
    values.
    """
    flags, options = split_arguments(argv)
    if any(flag in _ANSWERED for flag in flags):
        return
    given = {name.lstrip("+"): value for name, value in _pairs(options)}
    _refuse_unknown(given, several_workloads=verb in _WITH_AXES)
    if not any(flag.startswith(("-cd", "--config-dir")) for flag in flags):  # it may have its own experiments
        _refuse_experiment(given.get("experiment"))
    known = by_name()
    for group in _GROUPS:
        choices = known[group].choices()
        if group not in given:
            if group in _NEEDED and "experiment" not in given:  # an experiment sets them
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
            if not (PROJECT / "conf" / group / f"{value}.yaml").is_file():
                raise BadConfiguration(
                    f"{group}: expected conf/{group}/{value}.yaml, found no such file; write it "
                    f"(docs/adding-a-{group}.md)"
                )
    if verb not in _WITH_AXES and not any(flag in _SWEEP for flag in flags):
        _refuse_several_values(verb, options, given)
    elif any(flag in _SWEEP for flag in flags):
        _refuse_too_many_runs(options)


def _refuse_too_many_runs(options: Sequence[str]) -> None:
    """BadConfiguration where ``-m`` would start more runs than a sweep may have cells: Hydra has no limit."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    from suite.sweep.grid import parse_axes, refuse_too_many

    parse = OverridesParser.create().parse_override
    swept = [one for one in options if (found := parse(one)).is_choice_sweep() or found.is_range_sweep()]
    refuse_too_many(prod(map(len, parse_axes(swept).values())))


def _pairs(options: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Name and value of each option that sets one; BadConfiguration for what Hydra's grammar refuses."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    for option in options:
        name, equals, value = option.partition("=")
        if not name or not (equals or name.startswith("~")):
            raise BadConfiguration(f"{_EXAMPLE}, without spaces around the =, found {option!r}")
        try:
            OverridesParser.create().parse_override(option)
        except HydraException as error:
            reason = next(line for line in str(error).splitlines() if not line.startswith("Error parsing"))
            raise BadConfiguration(
                f"{name}: expected a value that Hydra can read, found {value} ({reason.split(': ')[0]}); "
                f"""quote special characters for Hydra and the shell: '{name}="…"'"""
            ) from error
        if not name.startswith("~"):
            yield name, value


def _refuse_unknown(given: Mapping[str, str], *, several_workloads: bool) -> None:
    """BadConfiguration for the first name in ``given`` that is no option, with a suggestion."""
    known = by_name()
    for name, value in given.items():
        section, dot, _ = name.partition(".")
        if section.partition("/")[0] in ("hydra", "experiment"):
            continue
        if section not in known:
            if current := renamed(section, known):
                raise BadConfiguration(f"{section}: it is now {current}={value}")
            path = path_in_section(name)
            hint = f" (did you mean {path}?)" if path else did_you_mean(name, known)
            raise BadConfiguration(
                f"unknown option {name!r}{hint}; `python -m suite run --help` lists the options"
            )
        if dot and not (section == "workload" and several_workloads):  # each has hyperparameters of its own
            _refuse_unknown_field(name, section, given.get(section, _DEFAULTS.get(section, "")))


def _refuse_unknown_field(name: str, section: str, chosen: str) -> None:
    """BadConfiguration if the configuration ``chosen`` for ``section`` has no field ``name``."""
    if section not in _GROUPS:
        raise BadConfiguration(f"{name}: expected {section}=VALUE, found a field: {section} has none")
    path = PROJECT / "conf" / section / f"{chosen}.yaml"
    if not chosen.isidentifier() or not path.is_file():
        return  # a sweep, an experiment, or a value that is refused elsewhere
    from omegaconf import OmegaConf

    fields = list(_paths(OmegaConf.to_container(OmegaConf.load(path)), section))
    if name not in fields:
        named = [one for one in fields if one.count(".") == name.count(".")]
        expected, hint = ", ".join(named or fields), did_you_mean(name, fields)
        raise BadConfiguration(f"unknown option {name!r}{hint}: expected one of {expected}")


def _paths(tree: Any, prefix: str) -> Iterator[str]:
    """The dotted path of every field of ``tree`` below ``prefix``, sections included; not its name."""
    for name, value in tree.items():
        if (prefix, name) not in [(group, "name") for group in _GROUPS]:
            yield f"{prefix}.{name}"
        if isinstance(value, Mapping):
            yield from _paths(value, f"{prefix}.{name}")


def _refuse_experiment(name: str | None) -> None:
    """BadConfiguration for an experiment that is not there, and for a sweep, which is a grid of runs."""
    if name is None or not name.isidentifier():  # none, or a list of them
        return
    if (PROJECT / "conf" / "experiment" / f"{name}.yaml").is_file():
        return
    grids = sorted(path.stem for path in (PROJECT / "conf" / "sweep").glob("*.yaml"))
    if name in grids:
        raise BadConfiguration(
            f"experiment: expected the settings of one run, found a grid of them; run it with "
            f"`python -m suite sweep --sweep {name}` (make sweep SWEEP={name})"
        )
    raise BadConfiguration(
        f"experiment: expected the name of a file in conf/experiment, found {name!r}; "
        f"`make sweep SWEEP=NAME` runs the grids {', '.join(grids)}"
    )


def _refuse_several_values(verb: str, options: Sequence[str], given: Mapping[str, str]) -> None:
    """BadConfiguration for the first of ``options`` with several values; for a run, with what takes them."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    for option in options:
        override = OverridesParser.create().parse_override(option)
        if not override.is_sweep_override():
            continue
        name, value = option.lstrip("+").split("=", 1)
        refusal = f"{name}: expected one value, found {value}"
        if verb != "run":
            raise BadConfiguration(f"{refusal}; give one to each `make {verb}`")
        flags = ("workload", "framework", "phase")
        shown = [f"{one.upper()}={given[one]}" for one in flags if one in given]
        shown += [] if name in flags else [f'GRID="{name}={value}"']
        raise BadConfiguration(
            f"{refusal}; `make sweep {' '.join(shown)}` runs each value and shows one table; -m (make: "
            "ARGS=-m) runs each as Hydra does"
        )
