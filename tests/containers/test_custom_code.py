"""The log of a run with custom code has its digests, and its result the code as a patch."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from suite.checker import check_result
from suite.containers.images import build
from suite.containers.images.lock import base_for
from tests.containers import image_registry, stand_in
from tests.containers.pairs import QUICK, ROOT, docker, events, published, result, run

pytestmark = pytest.mark.docker
PAIR = ROOT / "tests/fixtures/pairs/good.py"


def declared_rules(results: Path) -> set[str]:
    """The rules from which the result declares a difference."""
    (header,) = events(result(results), "header")
    assert all(row["reason"] for row in header["differences"])
    return {row["rule"] for row in header["differences"]}


def test_custom_pair_runs_in_published_image_and_its_patch_is_checked(tmp_path: Path) -> None:
    published("ncf", "pytorch")
    done = run(tmp_path, f"pair={PAIR}", *QUICK, framework="pytorch")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "DIV-007" in declared_rules(tmp_path)
    found = result(tmp_path)
    (header,) = events(found, "header")
    assert header["settings"]["custom_pair"] == hashlib.sha256(PAIR.read_bytes()).hexdigest()
    patch = (found / "changes.patch").read_bytes()
    assert header["settings"]["changes_digest"] == hashlib.sha256(patch).hexdigest()
    assert b"custom/pair.py" in patch
    assert str(ROOT).encode() not in patch + (found / "run.jsonl").read_bytes()
    (found / "changes.patch").write_bytes(patch + b"\n")
    assert {finding.rule for finding in check_result(found).rejections} == {"DIV-011"}
    (found / "changes.patch").unlink()
    assert {finding.rule for finding in check_result(found).rejections} == {"DIV-011"}


def test_custom_image_runs_with_mounted_code_and_is_declared(tmp_path: Path) -> None:
    reference = custom_image(tmp_path)
    results = tmp_path / "results"
    done = run(results, f"image={reference}", *QUICK)
    assert done.returncode == 0, done.stdout + done.stderr
    (header,) = events(result(results), "header")
    assert (header["image"]["form"], header["image"]["lock"]) == ("base", None)
    assert header["settings"]["custom_image"] == reference
    assert {"DIV-009", "IMG-001"} <= declared_rules(results)
    assert reference.encode() in (result(results) / "changes.patch").read_bytes()


def custom_image(folder: Path) -> str:
    """The reference by digest of a pulled image: the stand-in with the framework and without the suite.

    With MXNet, the smallest.
    """
    published("ncf", "mxnet")
    packages = folder / "packages.tar"
    tar = ["tar", "-cf", "-", "-C", "/", "opt/suite/site"]
    with packages.open("wb") as file:
        start = ["docker", "run", "--rm", "--log-driver", "none", build.tag_of("ncf", "mxnet")]
        subprocess.run([*start, *tar], stdout=file, check=True, timeout=120)
    digest = image_registry.push("suite/custom", "test", [stand_in.tree(), packages], stand_in.config())
    reference = f"{image_registry.ADDRESS}/suite/custom@{digest}"
    docker("pull", "--quiet", reference)
    return reference


def test_run_in_image_without_framework_aborts_with_the_import_error(tmp_path: Path) -> None:
    published("ncf", "mxnet")
    base = base_for("practice", "mxnet")
    done = run(tmp_path, f"image={base.repository}@{base.digest}")
    assert done.returncode == 13, done.stdout + done.stderr
    (abort,) = events(result(tmp_path), "abort")
    assert abort["code"] == "environment"
    assert "No module named" in abort["message"]
