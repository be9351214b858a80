"""The contents of a pair's container image, without an engine: code digest, build context, layers."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from suite import workloads
from suite.containers.images import build, client, wheels
from suite.containers.images.context import label_file, recipe_digest, stage
from suite.containers.images.errors import ImageProblem
from suite.containers.images.inside import code_digest, inside_files
from suite.containers.images.lock import Base, base_for
from suite.environments.errors import EnvironmentMissing, LargeDownload
from suite.log.canonical import sha256_hex
from suite.rules import LATEST

ROOT = Path(__file__).resolve().parents[2]
AMD64 = "linux/amd64"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small project with files inside and outside the container image."""
    root = tmp_path / "project"
    files = {
        "suite/__init__.py": "",
        "suite/worker/__init__.py": "",
        "suite/worker/loop.py": "STEPS = 10\n",
        "suite/frameworks/pytorch/framework.py": "import torch\n",
        "suite/workloads/gnmt/spec.py": "NAME = 'gnmt'\n",
        "suite/workloads/gnmt/notes.txt": "not code",
        "suite/harness/run.py": "host = True\n",
        "suite/__main__.py": "main()\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_image_contains_only_code_that_a_worker_imports(project: Path) -> None:
    names = [path.relative_to(project).as_posix() for path in inside_files(project)]
    assert names == [
        "suite/__init__.py",
        "suite/frameworks/pytorch/framework.py",
        "suite/worker/__init__.py",
        "suite/worker/loop.py",
        "suite/workloads/gnmt/spec.py",
    ]
    lines = "".join(f"{sha256_hex((project / name).read_bytes())}  {name}\n" for name in names)
    assert code_digest(project) == sha256_hex(lines.encode())


def test_code_digest_depends_only_on_files_in_the_image(project: Path) -> None:
    before = code_digest(project)
    (project / "suite/harness/run.py").write_text("host = False\n")
    (project / "suite/workloads/gnmt/notes.txt").write_text("other")
    assert code_digest(project) == before
    (project / "suite/worker/loop.py").write_text("STEPS = 11\n")
    changed = code_digest(project)
    assert changed != before
    (project / "suite/worker/loop.py").rename(project / "suite/worker/steps.py")
    assert code_digest(project) not in {before, changed}


def test_label_has_the_base_digest_of_the_platform() -> None:
    base = base_for("1.0", "pytorch")
    label = build.label_of("gnmt", "pytorch", base)
    assert label == {
        "workload": "gnmt",
        "framework": "pytorch",
        "code_digest": code_digest(),
        "base_name": "nvcr.io/nvidia/pytorch:26.08-py3",
        "base_digest": base.platform(AMD64).manifest_digest,
        "requirements_digest": sha256_hex((ROOT / "containers/pytorch/requirements-image.txt").read_bytes()),
        "rules_version": LATEST,
    }
    nameless = replace(base, index_digest=None, digest_of_unknown_kind=None, platforms={})
    assert build.label_of("gnmt", "pytorch", nameless)["base_digest"] == "unknown"
    seen = "sha256:" + "a" * 64
    assert build.label_of("gnmt", "pytorch", nameless, base_digest=seen)["base_digest"] == seen
    assert build.tag_of("gnmt", "pytorch") == f"suite/gnmt-pytorch:{code_digest()[:12]}"


@pytest.mark.parametrize("requirements", [None, "requirements-nowhere.txt"])
def test_base_without_requirements_file_is_refused(requirements: str | None) -> None:
    base = replace(base_for("1.0", "pytorch"), requirements=requirements)
    with pytest.raises(ImageProblem, match=r"pytorch-26.08: expected a lock in containers/pytorch"):
        build.requirements_of(base)


@pytest.mark.parametrize(
    ("workload", "framework", "base", "message"),
    [
        ("resnet", "pytorch", "pytorch", "expected a pair of the suite, found resnet in pytorch"),
        (
            "gnmt",
            "caffe",
            "pytorch",
            f"found gnmt in caffe: the workloads are {', '.join(workloads.names())}",
        ),
        ("gnmt", "mxnet", "pytorch", "expected a base image of mxnet, found pytorch-26.08 of pytorch"),
    ],
)
def test_unknown_pair_is_refused_before_an_engine_starts(
    workload: str, framework: str, base: str, message: str
) -> None:
    with pytest.raises(ImageProblem, match=message):
        build.build(workload, framework, base_for("1.0", base), report=print)


# --- the context and the layers


def context(tmp_path: Path, project: Path, lock: str = "# nothing\n") -> Path:
    """A staged context with one wheel."""
    source, wheelhouse = tmp_path / "lock.txt", tmp_path / "wheelhouse"
    source.write_text(lock)
    wheelhouse.mkdir(exist_ok=True)
    (wheelhouse / "tiny-1.0-py3-none-any.whl").write_bytes(b"wheel")
    folder = tmp_path / "context"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    stage(folder, source, wheelhouse, {"workload": "gnmt", "framework": "pytorch"}, project)
    return folder


def test_build_context_contains_only_inputs_of_the_layers(tmp_path: Path, project: Path) -> None:
    folder = context(tmp_path, project)
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    inside = {f"code/{path.relative_to(project)}" for path in inside_files(project)}
    assert names == inside | {
        "code/bake.py",
        "code/suite-image.json",
        "requirements/bake.py",
        "requirements/requirements.txt",
        "requirements/wheels/tiny-1.0-py3-none-any.whl",
    }
    assert code_digest(folder / "code") == code_digest(project)
    assert json.loads((folder / "code/suite-image.json").read_text())["workload"] == "gnmt"
    assert label_file({"b": "2", "a": "1"}) == label_file({"a": "1", "b": "2"})


def test_recipe_digest_covers_dockerfile_and_bake_script(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("FROM a\n")
    two.write_text("FROM b\n")
    assert recipe_digest(one) != recipe_digest(two)


def bake(folder: Path) -> ModuleType:
    """The script as it runs in a build, from the folder that is mounted there."""
    specification = importlib.util.spec_from_file_location("bake", folder / "bake.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def packed(root: Path) -> bytes:
    """A tree as a layer records it: names, modes, times, contents."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in [root, *sorted(root.rglob("*"))]:
            tar.add(path, arcname=path.relative_to(root).as_posix(), recursive=False)
    return target.getvalue()


def test_code_layer_has_equal_bytes_for_every_umask_and_order(tmp_path: Path, project: Path) -> None:
    layers = []
    for mask, moment in ((0o022, 1_000_000_000), (0o077, 1_700_000_000)):
        before = os.umask(mask)
        try:
            for path in project.rglob("*"):
                os.utime(path, (moment, moment))
            folder = context(tmp_path, project)
            root = tmp_path / f"made-{mask}"
            root.mkdir()
            bake(folder / "code").code(root)
        finally:
            os.umask(before)
        layers.append(packed(root))
    assert layers[0] == layers[1]
    for path in root.rglob("*"):
        assert path.stat().st_mtime == bake(folder / "code").EPOCH_S
        assert path.stat().st_mode & 0o777 == (0o755 if path.is_dir() else 0o644)
    # By hash and unchecked: valid for any modification time
    compiled = (root / "opt/suite/code/suite/worker/__pycache__").glob("loop.*.pyc")
    content = next(compiled).read_bytes()
    assert content[4:8] == b"\x01\x00\x00\x00"
    assert b"/opt/suite/code/suite/worker/loop.py" in content
    assert str(tmp_path).encode() not in content


def test_lock_without_packages_installs_nothing(tmp_path: Path, project: Path) -> None:
    root = tmp_path / "made"
    root.mkdir()
    bake(context(tmp_path, project) / "requirements").requirements(root, "torch")
    assert [path.relative_to(root).as_posix() for path in sorted(root.rglob("*"))] == [
        "opt",
        "opt/suite",
        "opt/suite/site",
    ]


def installing(site_files: dict[str, str]) -> Callable[[Path], None]:
    def install(site: Path) -> None:
        for name, text in site_files.items():
            (site / name).parent.mkdir(parents=True, exist_ok=True)
            (site / name).write_text(text)

    return install


def test_requirements_that_replace_the_framework_fail_the_build(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The base's framework is a package on PYTHONPATH here; a package that shadows it fails the build."""
    installed = tmp_path / "base"
    (installed / "torch").mkdir(parents=True)
    (installed / "torch/__init__.py").write_text("__version__ = '2.14'\n")
    script = bake(context(tmp_path, project, "tiny==1.0 --hash=sha256:0\n") / "requirements")
    monkeypatch.setenv("PYTHONPATH", str(installed))
    real = script._framework

    def with_base(module: str, site: Path | None) -> str:
        path = str(installed) if site is None else os.pathsep.join([str(site), str(installed)])
        return str(real(module, path))

    monkeypatch.setattr(script, "_framework", with_base)
    for number, (files, fits) in enumerate(
        [({"tiny.py": ""}, True), ({"torch/__init__.py": ""}, False), ({"torch.py": ""}, False)]
    ):
        root = tmp_path / f"made-{number}"
        root.mkdir()
        monkeypatch.setattr(script, "_install", installing(files))
        if fits:
            script.requirements(root, "torch")
            assert (root / "opt/suite/site/tiny.py").is_file()
        else:
            with pytest.raises(SystemExit, match="the requirements replaced torch of the base image"):
                script.requirements(root, "torch")


# --- the wheels


def test_lock_without_packages_needs_no_wheels_and_no_python(tmp_path: Path) -> None:
    lock = tmp_path / "requirements-image.txt"
    lock.write_text("# Written by make lock\n")
    folder = wheels.fetch(lock, None, platform=AMD64, cache=tmp_path, allow_large=False, report=print)
    assert list(folder.iterdir()) == []
    assert (
        wheels.fetch(lock, "3.12.3", platform=AMD64, cache=tmp_path, allow_large=False, report=print)
        == folder
    )


def test_wheels_are_fetched_for_the_python_of_the_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "tiny" / "requirements-image.txt"
    lock.parent.mkdir()
    lock.write_text("tiny==1.0 \\\n    --hash=sha256:0\n")
    seen: list[list[str]] = []

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        seen.append(command)
        return subprocess.CompletedProcess(command, 0, "")

    monkeypatch.setattr(subprocess, "run", run)
    options: dict[str, Any] = {"cache": tmp_path, "allow_large": False, "report": print}
    for python, platform in (("3.12.3", AMD64), ("3.12.3", "linux/arm64"), ("3.10", AMD64)):
        wheels.fetch(lock, python, platform=platform, **options)
    options_by_call = [set(command) for command in seen]
    assert all({"--require-hashes", "--no-deps", "--only-binary=:all:"} <= one for one in options_by_call)
    assert {"--python-version=3.12", "--platform=manylinux_2_28_x86_64"} <= options_by_call[0]
    assert {"--python-version=3.12", "--platform=manylinux_2_28_aarch64"} <= options_by_call[1]
    assert {"--python-version=3.10", "--platform=linux_x86_64"} <= options_by_call[2]
    refused: tuple[tuple[str | None, str, str], ...] = (
        (None, AMD64, "contains.python"),
        ("3.12", "linux/s390x", "linux/s390x"),
    )
    for version, platform, message in refused:
        with pytest.raises(EnvironmentMissing, match=message):
            wheels.fetch(lock, version, platform=platform, **options)


def test_failed_download_leaves_no_wheel_folder(tmp_path: Path) -> None:
    lock = tmp_path / "requirements-image.txt"
    lock.write_text(f"no-such-package-of-the-suite==1.0 \\\n    --hash=sha256:{'0' * 64}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_NO_INDEX", "1")
        with pytest.raises(EnvironmentMissing, match="no-such-package-of-the-suite"):
            wheels.fetch(lock, "3.11", platform=AMD64, cache=tmp_path, allow_large=False, report=print)
    assert list((tmp_path / "wheels").iterdir()) == []


def test_large_wheels_need_consent(tmp_path: Path) -> None:
    lock = ROOT / "containers/tensorflow/requirements-cuda.txt"
    with pytest.raises(LargeDownload, match=r"3\.4 GB.*FETCH=1"):
        wheels.fetch(lock, "3.11", platform=AMD64, cache=tmp_path, allow_large=False, report=print)


# --- the builder


def client_at(folder: Path, version: str, buildx: int) -> Path:
    """A docker client that prints its version and, with exit code 0, has the plugin buildx; no engine."""
    folder.mkdir()
    path = folder / "docker"
    path.write_text(
        f"#!{sys.executable}\nimport sys\n"
        f"if sys.argv[1] == 'version': print({version!r}); sys.exit(1)\n"
        f"if sys.argv[1:] == ['buildx', 'version'] and {buildx} == 0: print('buildx'); sys.exit(0)\n"
        "sys.exit(1)\n"
    )
    path.chmod(0o755)
    return path


def test_builder_is_the_first_client_with_buildkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = client_at(tmp_path / "bare", "28.2.2", 1)
    plugged = client_at(tmp_path / "plugged", "28.2.2", 0)
    old = client_at(tmp_path / "old", "20.10.24+dfsg1", 1)
    for order, chosen in (((bare, old), old), ((bare, plugged, old), plugged), ((old, plugged), old)):
        monkeypatch.setenv("PATH", os.pathsep.join(str(path.parent) for path in order))
        assert client.builder() == str(chosen)
    monkeypatch.setenv("PATH", str(bare.parent))
    with pytest.raises(ImageProblem, match=r"found 1 docker client\(s\) without it: install .*buildx"):
        client.builder()
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    with pytest.raises(ImageProblem, match="no docker client on PATH"):
        client.builder()


def test_large_base_image_needs_consent(tmp_path: Path) -> None:
    base: Base = base_for("1.0", "pytorch")
    with pytest.raises(ImageProblem, match=r"26\.08-py3@sha256:3becd.* its size is unknown.*FETCH=1"):
        build._pull_base(None, base, AMD64, tmp_path, False, print)  # type: ignore[arg-type]
    known = replace(base.platform(AMD64), compressed_bytes=11_960_000_000)
    large = replace(base, platforms={AMD64: known})
    with pytest.raises(LargeDownload, match=r"12\.0 GB \(about 38\.6 GB on disk"):
        build._pull_base(None, large, AMD64, tmp_path, False, print)  # type: ignore[arg-type]


def test_error_of_a_build_quotes_the_failed_step_beside_others(tmp_path: Path) -> None:
    """Lines of a step that ended later pushed pip's message out of the quoted ones."""
    output = ["#6 [requirements 2/2] RUN bake.py", "#6 2.9 ERROR: No matching distribution found for numpy"]
    output += [f"#8 {second} copying suite" for second in range(20)]
    output += ["#6 3.1 pip exited 1", "#6 ERROR: executor failed", "------", "executor failed"]
    script = "".join(f"echo '{line}'; " for line in output) + "exit 1"
    with pytest.raises(ImageProblem) as problem:
        client._logged(["sh", "-c", script], {}, tmp_path / "log", "building an image")
    assert "No matching distribution found for numpy" in str(problem.value)
    assert "copying suite" not in str(problem.value)
