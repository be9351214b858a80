"""The Dockerfiles of the pairs: linted, pinned to the lock, equal except for the framework, reproducible."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from suite.containers.images import build
from suite.containers.images.lock import base_for, bases
from suite.environments import environments

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILES = sorted(ROOT.glob("containers/*/Dockerfile"))
NAMES = [path.parent.name for path in DOCKERFILES]
LOCKS = sorted(ROOT.glob("containers/*/requirements-*.txt"))
MOVING = ("apt", "git ", "curl", "wget", "http:", "https:", "latest", "syntax=", "pip install", "ADD ")
MODULES = {"pytorch": "torch", "tensorflow": "tensorflow", "mxnet": "mxnet", "jax": "jax"}


def bake() -> ModuleType:
    specification = importlib.util.spec_from_file_location("bake", ROOT / "containers/bake.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_every_framework_has_a_dockerfile() -> None:
    assert tuple(NAMES) == environments.frameworks()


@pytest.mark.parametrize("path", DOCKERFILES, ids=NAMES)
def test_hadolint_reports_nothing(path: Path) -> None:
    program = Path(sys.executable).parent / "hadolint"
    found = str(program) if program.is_file() else shutil.which("hadolint")
    assert found, "hadolint is in requirements/dev.txt"
    done = subprocess.run([found, "--no-color", str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("path", DOCKERFILES, ids=NAMES)
def test_every_from_has_the_digest_of_the_lock(path: Path) -> None:
    text = path.read_text()
    base = base_for("1.0", path.parent.name)
    assert re.findall(r"^ARG BASE=(.*)$", text, re.MULTILINE) == [base.reference]
    froms = re.findall(r"^FROM\s+(\S+)(?: AS (\w+))?$", text, re.MULTILINE)
    assert [name for name, _ in froms] == ["${BASE}"] * 3
    assert froms[-1][1] == "", "the last stage is the image"
    digest = re.search(r"@sha256:[0-9a-f]{64}$", base.reference)
    assert digest or base.status == "unresolved", "only a base without a known digest is pinned by its tag"


@pytest.mark.parametrize("path", DOCKERFILES, ids=NAMES)
def test_dockerfile_is_reproducible_and_its_user_is_not_root(path: Path) -> None:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    assert not [line for line in lines for moving_name in MOVING if moving_name in line]
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users == ["1000:1000"]
    assert "ENTRYPOINT []" in lines


@pytest.mark.parametrize("path", DOCKERFILES, ids=NAMES)
def test_dockerfiles_differ_only_in_the_framework(path: Path) -> None:
    """Only the base, the framework's name and its module may differ."""

    def recipe(of: Path) -> str:
        lines = [line for line in of.read_text().splitlines() if not line.startswith(("#", "ARG BASE="))]
        text = "\n".join(lines).replace(f'"requirements", "{MODULES[of.parent.name]}"', '"requirements", "M"')
        return text.replace(f'suite.framework="{of.parent.name}"', 'suite.framework="F"')

    assert recipe(path) == recipe(DOCKERFILES[0])


@pytest.mark.parametrize("path", DOCKERFILES, ids=NAMES)
def test_labels_and_times_are_those_of_a_build(path: Path) -> None:
    text = path.read_text()
    framework = path.parent.name
    label = build.label_of("gnmt", framework, base_for("1.0", framework))
    assert set(re.findall(r"suite\.(\w+)=", text)) == set(label)
    arguments = set(re.findall(r"^ARG (\w+)$", text, re.MULTILINE))
    assert arguments == {name.upper() for name in label if name != "framework"} | {"RECIPE_DIGEST"}
    assert f"ARG SOURCE_DATE_EPOCH={build.EPOCH_S}\n" in text
    assert int(build.EPOCH_S) == bake().EPOCH_S


@pytest.mark.parametrize("path", LOCKS, ids=[f"{path.parent.name}-{path.stem}" for path in LOCKS])
def test_every_lock_pins_every_file_by_hash(path: Path) -> None:
    text = re.sub(r"\\\n\s*", " ", path.read_text())
    pins = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    assert all(re.match(r"[a-z0-9._-]+==\S+(\s+--hash=sha256:[0-9a-f]{64})+", pin) for pin in pins)
    assert pins or path.name == "requirements-image.txt", "only NVIDIA's images bring all that is needed"
    assert path.with_suffix(".in").is_file()


@pytest.mark.parametrize("name", [base.name for base in bases("1.0").values() if base.current])
def test_every_current_base_has_requirements(name: str) -> None:
    assert build.requirements_of(bases("1.0")[name]).is_file()
