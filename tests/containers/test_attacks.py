"""Container images with false claims: each is refused, or rejected by its rule."""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from suite.checker import check_result
from suite.containers.images import build
from tests.containers.engine import ensure_engine
from tests.containers.pairs import QUICK, checkout, docker, published, result, run

pytestmark = pytest.mark.docker
PAIR = ("word2vec", "mxnet")  # these tests move its tag, so that no other file may use it
REFUSED = 14  # by the rule pre-check
run_pair = partial(run, workload=PAIR[0], framework=PAIR[1])


@pytest.fixture
def tag() -> Iterator[str]:
    """The local tag of the pair. A test may move it to another image; the fixture moves it back."""
    image = published(*PAIR)
    name = build.tag_of(*PAIR)
    yield name
    docker("tag", image.id, name)


def derived(folder: Path, tag: str, *lines: str) -> str:
    """The id of an image made of ``tag`` and further lines of a Dockerfile."""
    (folder / "context").mkdir()
    (folder / "context/Dockerfile").write_text("\n".join([f"FROM {tag}", *lines]) + "\n")
    name = f"suite/attack:{folder.name.lower()[:40]}"
    docker("build", "--quiet", "--network", "none", "--tag", name, str(folder / "context"))
    return docker("image", "inspect", "--format", "{{.Id}}", name)


def substitute(parent: Path, wanted: str, other: str) -> str:
    """A folder with a ``docker`` client that starts ``other`` when it is asked for ``wanted``."""
    real = shutil.which("docker")
    folder = parent / "bin"
    folder.mkdir()
    client = folder / "docker"
    client.write_text(
        "#!/bin/bash\n"
        'arguments=()\nfor argument in "$@"; do\n'
        f'  [[ $argument == {wanted} ]] && argument={other}\n  arguments+=("$argument")\ndone\n'
        f'exec {real} "${{arguments[@]}}"\n'
    )
    client.chmod(client.stat().st_mode | stat.S_IXUSR)
    return str(folder)


def rejections(results: Path) -> set[str]:
    return {finding.rule for finding in check_result(result(results)).rejections}


def test_run_of_another_image_than_the_pinned_one_is_rejected(tmp_path: Path, tag: str) -> None:
    """The client starts another image; the engine's API reports the image that runs."""
    pinned = published(*PAIR)
    other = derived(tmp_path, tag, "ENV SOMETHING=else")
    results = tmp_path / "results"
    done = run_pair(results, *QUICK, path=substitute(tmp_path, pinned.id, other))
    assert done.returncode == 1, done.stdout + done.stderr
    assert rejections(results) == {"IMG-004"}


def test_pair_is_rebuilt_if_its_tag_names_another_image(tmp_path: Path, tag: str) -> None:
    """An image with the tag but other contents is ignored, and the pair is built again."""
    base = ensure_engine().image(published(*PAIR).id)
    assert base is not None
    docker("tag", published("gnmt", "mxnet").id, tag)
    results = tmp_path / "results"
    done = run_pair(results, *QUICK)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "building" in done.stderr
    assert check_result(result(results)).accepted


def test_image_with_additional_layer_is_refused(tmp_path: Path, tag: str) -> None:
    image = derived(tmp_path, tag, "USER 0:0", "RUN echo fast > /etc/fast", "USER 1000:1000")
    docker("tag", image, tag)
    done = run_pair(tmp_path / "results")
    assert done.returncode == REFUSED, done.stdout + done.stderr
    assert "IMG-006" in done.stderr
    assert not list((tmp_path / "results").glob("*"))


def test_image_with_false_label_is_rejected(tmp_path: Path, tag: str) -> None:
    """Layers as published, but the labels claim other requirements than the label file inside."""
    pinned = published(*PAIR)
    mislabelled = derived(tmp_path, tag, f'LABEL suite.requirements_digest="{"0" * 64}"')
    results = tmp_path / "results"
    done = run_pair(results, *QUICK, path=substitute(tmp_path, pinned.id, mislabelled))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "IMG-007" in rejections(results)


def test_run_of_edited_code_is_refused(tmp_path: Path) -> None:
    """Edited code has another digest, for which no layers are published."""
    published(*PAIR)
    tree = checkout(tmp_path / "tree")
    loop = tree / "suite/worker/loop.py"
    loop.write_text(loop.read_text() + "\n# faster\n")
    done = run_pair(tmp_path / "results", root=tree)
    assert done.returncode == REFUSED, done.stdout + done.stderr
    assert "IMG-006" in done.stderr


def test_run_with_edited_image_lock_is_rejected_by_the_checkers_lock(tmp_path: Path) -> None:
    """A lock edited by the submitter accepts the run; the checker's lock rejects it."""
    published(*PAIR)
    tree = checkout(tmp_path / "tree")
    entry = tree / "rules/practice/images/mxnet-stand-in.json"
    content = json.loads(entry.read_text())
    entry.write_text(json.dumps({**content, "note": "nothing to see here"}))
    results = tmp_path / "results"
    done = run_pair(results, *QUICK, root=tree)
    assert done.returncode == 0, done.stdout + done.stderr
    assert rejections(results) == {"ID-002"}


def test_run_with_unverified_image_lock_is_refused(tmp_path: Path) -> None:
    published(*PAIR)
    tree = checkout(tmp_path / "tree")
    entry = tree / "rules/practice/images/mxnet-stand-in.json"
    content = json.loads(entry.read_text())
    content |= {"status": "unverified", "resolved_at": None, "resolver": None}
    entry.write_text(json.dumps(content))
    done = run_pair(tmp_path / "results", root=tree)
    assert done.returncode == REFUSED, done.stdout + done.stderr
    assert "IMG-009" in done.stderr


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("runtime=native",), REFUSED, "IMG-002"),
        (("runtime=docker",), REFUSED, "never read back from its image registry"),
        (("runtime=docker", "image=nvcr.io/nvidia/pytorch:26.08-py3"), 10, "a tag can move to another image"),
    ],
)
def test_closed_run_of_unpinned_image_is_refused(
    tmp_path: Path, options: tuple[str, ...], code: int, message: str
) -> None:
    ensure_engine()
    closed = ("division=closed", "scale=reference", "data=synthetic", "purpose=submission")
    done = run(tmp_path, *closed, *options, framework="pytorch")
    assert done.returncode == code, done.stdout + done.stderr
    assert message in done.stderr
    assert not list(tmp_path.glob("*"))
