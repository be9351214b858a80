"""Compose settings from options as ``suite run`` does, many times in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from suite.containers.engines.native import PROJECT
from suite.plan.errors import BadConfiguration
from suite.plan.settings import Settings, validate


@contextmanager
def composer() -> Iterator[Callable[[Sequence[str]], Settings]]:
    """Yield a function from Hydra overrides to settings; the function raises BadConfiguration."""
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    def settings(overrides: Sequence[str]) -> Settings:
        try:
            tree = OmegaConf.to_container(
                compose("run", overrides=list(overrides)), resolve=True, throw_on_missing=True
            )
        except (HydraException, OmegaConfBaseException) as error:
            raise BadConfiguration(str(error).splitlines()[0]) from error
        if not isinstance(tree, dict):
            raise BadConfiguration("the configuration must be a mapping")
        return validate({str(name): value for name, value in tree.items()}, tuple(overrides))

    with initialize_config_dir(version_base="1.3", config_dir=str(PROJECT / "conf")):
        yield settings
