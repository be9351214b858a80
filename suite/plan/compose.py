"""Composing settings from words as ``suite run`` does, many times in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from suite.containers.engines.native import PROJECT
from suite.plan.errors import BadConfiguration
from suite.plan.settings import Settings, validate


@contextmanager
def composer() -> Iterator[Callable[[Sequence[str]], Settings]]:
    """A function from Hydra overrides to settings; it raises BadConfiguration."""
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    def settings(words: Sequence[str]) -> Settings:
        try:
            tree = OmegaConf.to_container(
                compose("run", overrides=list(words)), resolve=True, throw_on_missing=True
            )
        except (HydraException, OmegaConfBaseException) as error:
            raise BadConfiguration(str(error).splitlines()[0]) from error
        if not isinstance(tree, dict):
            raise BadConfiguration("the configuration must be a mapping")
        return validate({str(name): value for name, value in tree.items()}, tuple(words))

    with initialize_config_dir(version_base="1.3", config_dir=str(PROJECT / "conf")):
        yield settings
