"""Compose settings from options as ``suite run`` does, many times in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import cache
from typing import Any

from suite.containers.engines.native import PROJECT
from suite.plan.errors import BadConfiguration
from suite.plan.settings import Settings, validate

_FILES = ("workload", "framework", "runtime", "launcher")  # options that choose a file of conf/


@contextmanager
def composer() -> Iterator[Callable[[Sequence[str]], Settings]]:
    """Yield a function from Hydra overrides to settings; the function raises BadConfiguration.

    Hydra composes each choice of configuration files once. A plain value in place of another one is then set
    in the tree, as Hydra would: composing takes a tenth of a second, and a sweep has thousands of cells.
    """
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    @cache
    def composed(overrides: tuple[str, ...]) -> Any:
        try:
            return OmegaConf.to_container(
                compose("run", overrides=list(overrides)), resolve=True, throw_on_missing=True
            )
        except (HydraException, OmegaConfBaseException) as error:
            raise BadConfiguration(str(error).splitlines()[0]) from error

    def settings(overrides: Sequence[str]) -> Settings:
        plain = {one: found for one in overrides if (found := _plain(one)) is not None}
        tree = deepcopy(composed(tuple(one for one in overrides if one not in plain)))
        if not isinstance(tree, dict) or not all(_set(tree, path, value) for path, value in plain.values()):
            tree = composed(tuple(overrides))
        if not isinstance(tree, dict):
            raise BadConfiguration("the configuration must be a mapping")
        return validate({str(name): value for name, value in tree.items()}, tuple(overrides))

    with initialize_config_dir(version_base="1.3", config_dir=str(PROJECT / "conf")):
        yield settings


@cache
def _plain(override: str) -> tuple[tuple[str, ...], Any] | None:
    """Path and value of an override that replaces one value by another; None for every other override."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import OverrideType
    from hydra.errors import HydraException

    try:
        parsed = OverridesParser.create().parse_override(override)
    except HydraException:
        return None  # composing reports it
    path = tuple(parsed.key_or_group.split("."))
    if parsed.type != OverrideType.CHANGE or parsed.package or (path[0] in _FILES and len(path) == 1):
        return None
    value = None if parsed.is_sweep_override() else parsed.value()
    simple = isinstance(value, (str, int, float)) and "$" not in str(value)  # no interpolation
    return (path, value) if simple else None


def _set(tree: dict[str, Any], path: tuple[str, ...], value: object) -> bool:
    """Set the value at ``path``; False if the tree has none there."""
    *sections, name = path
    for section in sections:
        below = tree.get(section)
        if not isinstance(below, dict):
            return False
        tree = below
    if name not in tree or isinstance(tree[name], dict):
        return False
    tree[name] = value
    return True
