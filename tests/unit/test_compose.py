"""Composing many settings in one process gives what Hydra gives for each."""

from __future__ import annotations

from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from suite.containers.engines.native import PROJECT
from suite.plan.compose import composer
from suite.plan.errors import BadConfiguration
from suite.plan.settings import validate

NCF = ("workload=ncf", "framework=pytorch")
CASES = [
    (*NCF, "batch=64", "framework.threads=2", "telemetry=false", "runtime.cpus=1.5", "runtime.memory=8g"),
    (*NCF, "batch=max", "runtime=docker", "runtime.cpuset=[0,1]", "devices=[0,1]"),
    (*NCF, 'data_root="/a b/c"', 'nonce="0000000000000000000000000000000000000000000000000000000000000001"'),
    (*NCF, "precision=bf16", "precision=fp32", "workload.hyper.rate=0.5", "image=null", "runtime.cpuset=0-1"),
    ("workload=gnmt", "framework=jax", "launcher=slurm", "launcher.partition=gpu", "nodes=2", "devices=4"),
]


@pytest.mark.parametrize("overrides", CASES, ids=lambda overrides: overrides[2])
def test_settings_are_those_that_hydra_composes(overrides: tuple[str, ...]) -> None:
    with composer() as settings:
        settings((*NCF, "batch=32"))  # the tree of an earlier cell is not changed by a later one
        made = settings(overrides)
    with initialize_config_dir(version_base="1.3", config_dir=str(PROJECT / "conf")):
        tree: Any = OmegaConf.to_container(compose("run", overrides=list(overrides)), resolve=True)
    assert made == validate(tree, overrides)


@pytest.mark.parametrize("wrong", ["bach=1", "runtime.cpu=1", "batch=[1", "framework.threads.more=1"])
def test_override_of_nothing_is_refused(wrong: str) -> None:
    with composer() as settings, pytest.raises(BadConfiguration):
        settings((*NCF, wrong))
