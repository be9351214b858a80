"""What all tests need: signals as a terminal hands them down.

A test run started in the background, or under nohup, ignores the interrupt or the hang-up, and so does every
process it starts: tests of both would fail for a reason that has nothing to do with them. pytest-xdist sets
the width of a terminal, which its workers do not have. The test processes of a run share what JAX compiles.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile

import hypothesis
import pytest

for _number, _usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)

os.environ.pop("COLUMNS", None)

# Each run tries the same examples, so that none fails by chance; `--hypothesis-profile=default` draws others.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.load_profile("repeatable")


# Collecting thousands of tests makes hardly any garbage, and takes a third longer with the garbage collector.
gc.disable()


def pytest_collection_finish() -> None:
    """From now on the collector looks for garbage, rarely and not among the collected tests."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    """Make a folder for what JAX compiles, until the run ends; pytest-xdist hands its path to the workers."""
    if not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="suite-compiled-")
        config.add_cleanup(folder.cleanup)
        os.environ["SUITE_TESTS_COMPILED"] = folder.name


@pytest.fixture
def ample_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks of free space find a terabyte, however little the test's machine has free."""
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10**12))
