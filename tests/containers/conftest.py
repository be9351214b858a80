"""Fixtures of the container tests: the engine, the stand-in base images, and images of pairs on them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from suite.containers.engines.attestation import EngineImage
from suite.containers.engines.docker_engine import DockerEngine
from suite.containers.images.lock import Base
from tests.containers import pairs
from tests.containers.engine import ensure_engine

PairImage = Callable[[str, str], EngineImage]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the file that takes longest first, so that the test processes end at about the same time."""
    items.sort(key=lambda item: item.path.name != "test_runs.py")


@pytest.fixture(scope="session")
def docker() -> DockerEngine:
    """The engine that answers; without one, the test skips or fails (:mod:`tests.containers.engine`)."""
    return ensure_engine()


@pytest.fixture(scope="session")
def bases() -> dict[str, Base]:
    """The stand-in base images by framework, locked and pulled."""
    return pairs.stand_ins()


@pytest.fixture(scope="session")
def pair_image() -> PairImage:
    """Finds or builds the image of a pair on its stand-in base, and publishes it in rules/practice."""
    return pairs.published
