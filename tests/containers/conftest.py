"""What the tests of containers share: the engine, the stand-in bases, and images of pairs on them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from suite.images import build
from suite.images.lock import Base
from suite.images.publish import publish
from suite.runtime.attestation import EngineImage
from suite.runtime.docker_engine import DockerEngine
from tests.containers import stand_in
from tests.containers.engine import ensure_engine, in_ci

PairImage = Callable[[str, str], EngineImage]


@pytest.fixture(scope="session")
def docker() -> DockerEngine:
    """The engine that answers; see :mod:`tests.containers.engine` for where none does."""
    return ensure_engine()


@pytest.fixture(scope="session")
def bases(docker: DockerEngine) -> dict[str, Base]:
    """The stand-in bases by framework, locked and pulled."""
    try:
        return stand_in.ensure(docker)
    except RuntimeError as problem:
        if in_ci():
            raise
        pytest.skip(str(problem))


@pytest.fixture(scope="session")
def pair_image(docker: DockerEngine, bases: dict[str, Base]) -> PairImage:
    """The image of a pair on its stand-in, found or built, and published in rules/practice."""

    @cache
    def of(workload: str, framework: str) -> EngineImage:
        base = bases[framework]
        built = build.build(workload, framework, base, rules_version="practice", say=print)
        image = docker.image(built)
        assert image is not None
        publish("practice", workload, framework, base, image)
        return image

    return of
