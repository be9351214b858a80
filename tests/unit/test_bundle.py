"""A bundle is untrusted input: every deviation is refused with its location and the fix."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from suite.cli import main as cli
from suite.containers.engines.attestation import EngineImage
from suite.containers.engines.native import PROJECT
from suite.containers.images.bundle import Bundle, open_bundle, rule_files
from suite.containers.images.bundle_manifest import MANIFEST, BundleProblem
from suite.containers.images.errors import ImageProblem
from suite.containers.images.inside import code_digest
from suite.datasets.errors import DatasetCorrupt
from suite.datasets.prepare import prepare as prepare_dataset
from suite.environments import environments
from tests.fixtures.made_bundle import DIGESTS, TAG, WHEEL, Made
from tests.unit.test_environments import Project, needs_python


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_dataset("ml-1m-mini", tmp_path_factory.mktemp("data")).path


@pytest.fixture
def made(tmp_path: Path, data: Path) -> Made:
    return Made(tmp_path / "bundle", data)


def test_valid_bundle_is_opened(made: Made) -> None:
    bundle = open_bundle(made.folder)
    assert (bundle.workload, bundle.framework, bundle.rules_version) == ("ncf", "pytorch", "1.0")
    assert bundle.image is not None
    assert bundle.image.diff_ids == DIGESTS
    assert bundle.wheels("pytorch-cpu") == made.folder / "wheels/pytorch-cpu"
    assert bundle.dataset("ml-1m-mini") == made.folder / "data/ml-1m-mini"
    assert bundle.wheels("pytorch-cuda") is None
    assert bundle.dataset("ml-1m") is None
    bundle.require("ncf", "pytorch")
    bundle.require_base("pytorch-26.08")


# The files of a bundle


def additional_file(made: Made) -> None:
    made.put("wheels/suite/another.whl", b"")


def missing_file(made: Made) -> None:
    (made.folder / WHEEL).unlink()


def other_bytes(made: Made) -> None:
    made.put(WHEEL, b"a wheem")


def more_bytes(made: Made) -> None:
    made.put(WHEEL, b"a wheel.")


def a_link(made: Made) -> None:
    (made.folder / WHEEL).rename(made.folder.parent / "elsewhere")
    (made.folder / WHEEL).symlink_to(made.folder.parent / "elsewhere")


def a_linked_folder(made: Made) -> None:
    (made.folder / "wheels").rename(made.folder.parent / "elsewhere")
    (made.folder / "wheels").symlink_to(made.folder.parent / "elsewhere")


def a_pipe(made: Made) -> None:
    (made.folder / WHEEL).unlink()
    os.mkfifo(made.folder / WHEEL)


def deep_nesting(made: Made) -> None:
    (made.folder / "image" / "/".join("d" * 40)).mkdir(parents=True)


def a_linked_manifest(made: Made) -> None:
    (made.folder / MANIFEST).rename(made.folder.parent / "elsewhere")
    (made.folder / MANIFEST).symlink_to(made.folder.parent / "elsewhere")


def no_manifest(made: Made) -> None:
    (made.folder / MANIFEST).unlink()


def a_large_manifest(made: Made) -> None:
    with (made.folder / MANIFEST).open("a") as file:
        file.write(" " * (4 << 20))


def a_deep_manifest(made: Made) -> None:
    (made.folder / MANIFEST).write_text("[" * 100_000)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (additional_file, r"wheels/suite/another.whl: expected only files that the manifest lists"),
        (missing_file, r"torch.*whl: expected the file that the manifest lists, found no such file"),
        (other_bytes, r"torch.*whl: expected SHA-256 [0-9a-f]{64}, found [0-9a-f]{64}"),
        (more_bytes, r"torch.*whl: expected 7 bytes, found 8"),
        (a_link, r"torch.*whl: expected a file, .*found a link"),
        (a_linked_folder, r"wheels: expected a file, .*found a link"),
        (a_pipe, r"torch.*whl: expected a file, .*found a link, pipe"),
        (deep_nesting, r"deep nesting"),
        (a_linked_manifest, r"manifest.json: expected a regular file, found a link"),
        (no_manifest, r"manifest.json: expected a regular file, found No such file"),
        (a_large_manifest, r"manifest.json: expected at most 4194304 bytes"),
        (a_deep_manifest, r"manifest.json: expected JSON"),
    ],
)
def test_folder_that_differs_from_its_manifest_is_refused(
    made: Made, change: Callable[[Made], None], match: str
) -> None:
    change(made)
    with pytest.raises(BundleProblem, match=match) as caught:
        open_bundle(made.folder)
    assert "make fetch" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleProblem, match=r"expected a folder written by `make fetch` \(No such file"):
        open_bundle(tmp_path / "absent")


# The content of the manifest


def put(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(manifest: dict[str, Any]) -> None:
        *parents, last = path.split("|")
        for name in parents:
            manifest = manifest[name]
        manifest[last] = value

    change.__name__ = f"{path}={value}"[:40]
    return change


FILE = {"bytes": 0, "sha256": "0" * 64}
CHANGES = [
    put("more", 1),
    put("format", "suite-bundle/2"),
    put("code_digest", "ABC"),
    put("platform", "windows/amd64"),
    put("workload", "../gnmt"),
    put("rules", "../../etc"),
    put("image|format", "exe"),
    put("image|file", "image/../../../etc/passwd"),
    put("image|file", "/etc/passwd"),
    put("image|tag", "--help"),
    put("image|tag", "no-tag"),
    put("image|more", None),
    put("image|diff_ids", []),
    put("image|diff_ids", ["sha256:short"]),
    put("image|config_digest", "sha256:" + "0" * 63 + "\n"),
    put("files", []),
    put("files|../outside", FILE),
    put("files|image/../../outside", FILE),
    put("files|/etc/passwd", FILE),
    put("files|image//two", FILE),
    put("files|image/.hidden", FILE),
    put("files|image/new\nline", FILE),
    put("files|suite/worker/main.py", FILE),
    put("files|manifest.json", FILE),
    put(f"files|{WHEEL}|bytes", -1),
    put(f"files|{WHEEL}|bytes", True),
    put(f"files|{WHEEL}|bytes", "7"),
    put(f"files|{WHEEL}|sha256", None),
    put(f"files|{WHEEL}|mode", 0o755),
    put("elsewhere", [{"name": "x"}]),
    put("elsewhere", [{"name": "x", "address": None, "reason": "y" * 2000}]),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: ascii(change.__name__))
def test_manifest_outside_the_schema_is_refused(made: Made, change: Callable[[dict[str, Any]], None]) -> None:
    change(made.manifest)
    made.write()
    with pytest.raises(BundleProblem, match="expected the format suite-bundle/1"):
        open_bundle(made.folder)


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", '{"format": NaN}', "\x1b[31m", '"\ud800"'])
def test_manifest_that_is_no_json_is_refused(made: Made, text: str) -> None:
    (made.folder / MANIFEST).write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(BundleProblem, match="manifest") as caught:
        open_bundle(made.folder)
    assert "\x1b" not in str(caught.value)


def test_incomplete_image_is_refused(made: Made) -> None:
    made.manifest["image"]["config_digest"] = None
    made.write()
    with pytest.raises(BundleProblem, match="config_digest and diff_ids"):
        open_bundle(made.folder)
    made.manifest["image"] |= {"file": "image/absent.tar", "config_digest": DIGESTS[0]}
    made.write()
    with pytest.raises(BundleProblem, match=r"image/absent.tar among the files"):
        open_bundle(made.folder)


# Bundles of another version or machine


@pytest.mark.parametrize(("name", "value"), [("suite_version", "9.9.9"), ("code_digest", "0" * 64)])
def test_bundle_of_another_suite_version_is_refused(made: Made, name: str, value: str) -> None:
    made.manifest[name] = value
    made.write()
    with pytest.raises(BundleProblem, match=rf"{name}: this checkout has .*made for {value}"):
        open_bundle(made.folder)


def test_unknown_rules_version_is_refused(made: Made) -> None:
    made.manifest["rules"] = "9.9"
    made.write()
    with pytest.raises(BundleProblem, match=r"rules: expected one of 1\.0"):
        open_bundle(made.folder)


def test_edited_rule_is_refused(made: Made) -> None:
    made.put("rules/1.0/limits.json", b"{}")
    made.list_files()
    with pytest.raises(BundleProblem, match=r"found others: rules/1\.0/limits\.json\. Use the checkout"):
        open_bundle(made.folder)


def test_additional_or_missing_rule_is_refused(made: Made) -> None:
    made.put("rules/1.0/images/pytorch-99.99.json", b"{}")
    (made.folder / "rules/1.0/limits.json").unlink()
    made.list_files()
    with pytest.raises(BundleProblem, match=r"rules/1.0/images/pytorch-99.99.json, rules/1.0/limits.json"):
        open_bundle(made.folder)


def test_entries_of_another_machine_need_consent(made: Made) -> None:
    made.put("rules/practice/images/pytorch-absent.json", b"{}")
    made.list_files()
    with pytest.raises(BundleProblem) as caught:
        open_bundle(made.folder)
    fix_command = f"cp -r {made.folder}/rules/practice/images {PROJECT}/rules/practice"
    assert str(caught.value).endswith(fix_command)


def test_bundle_of_another_pair_or_base_is_refused(made: Made) -> None:
    bundle = open_bundle(made.folder)
    with pytest.raises(BundleProblem, match=r"this run is of gnmt in pytorch, .* ncf in pytorch"):
        bundle.require("gnmt", "pytorch")
    with pytest.raises(BundleProblem, match=r"uses pytorch-stand-in of the lock, .* on pytorch-26.08"):
        bundle.require_base("pytorch-stand-in")


# Use of a bundle in a run
def test_dry_run_reads_the_manifest_alone(
    made: Made, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (made.folder / WHEEL).write_bytes(b"another one")
    folders = [f"{name}_dir={tmp_path / name}" for name in ("results", "cache")]
    run = ["run", "framework=pytorch", "data=synthetic", "runtime=native", "dry=true", *folders]
    assert cli([*run, "workload=ncf", f"bundle={made.folder}"]) == 0
    assert cli([*run, "workload=gnmt", f"bundle={made.folder}"]) == 13
    assert "this run is of gnmt in pytorch, the bundle was made for ncf" in capfd.readouterr().out
    assert cli([*run, "workload=ncf", f"bundle={tmp_path}/none"]) == 13
    assert "expected a folder written by `make fetch`" in capfd.readouterr().out


def test_data_are_copied_and_compared_with_the_rules(made: Made, tmp_path: Path) -> None:
    bundle = open_bundle(made.folder)
    bundle.copy_dataset("ml-1m-mini", tmp_path / "data")
    bundle.copy_dataset("ml-1m", tmp_path / "data")  # not in it
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["ml-1m-mini"]
    assert prepare_dataset("ml-1m-mini", tmp_path / "data").bytes == 1448370

    ratings = made.folder / "data/ml-1m-mini/ratings.dat"
    ratings.write_bytes(b"2" + ratings.read_bytes()[1:])  # another first user
    made.list_files()
    again = open_bundle(made.folder)  # a bundle that agrees with itself
    again.copy_dataset("ml-1m-mini", tmp_path / "other")
    with pytest.raises(DatasetCorrupt):
        prepare_dataset("ml-1m-mini", tmp_path / "other")


class Engine:
    """An engine that already has one image."""

    name, version = "docker", "0"

    def __init__(self, **labels: str) -> None:
        mine = {"workload": "ncf", "framework": "pytorch", "code_digest": code_digest()}
        mine |= {"requirements_digest": "0" * 64} | labels
        labels = {f"suite.{name}": value for name, value in mine.items()}
        self.found = EngineImage(DIGESTS[0], DIGESTS[0], DIGESTS, (), "linux/amd64", labels, 1)

    def image(self, reference: str) -> EngineImage | None:
        return self.found if reference in (TAG, DIGESTS[0]) else None


def load(bundle: Bundle, engine: Any) -> str:
    return bundle.load_image(engine, print)


def test_image_in_the_engine_is_not_loaded_again(made: Made) -> None:
    assert load(open_bundle(made.folder), Engine()) == DIGESTS[0]


@pytest.mark.parametrize("label", ["workload", "code_digest", "requirements_digest"])
def test_image_with_other_labels_is_refused(made: Made, label: str) -> None:
    with pytest.raises(ImageProblem, match=rf"the label {label}\b.*found another"):
        load(open_bundle(made.folder), Engine(**{label: "another"}))


def test_image_for_another_engine_is_refused(made: Made, tmp_path: Path) -> None:
    with pytest.raises(ImageProblem, match=r"apptainer, found an image as oci: .*IMAGE_FORMAT=sif"):
        open_bundle(made.folder).copy_image("apptainer", tmp_path / "x.sif", print)
    made.put("image/base.sif", b"a file")
    made.put("image/base.sif.import.json", b"its record")
    made.manifest["image"] |= {"format": "sif", "file": "image/base.sif"}
    made.list_files()
    bundle = open_bundle(made.folder)
    with pytest.raises(ImageProblem, match=r"docker can run, found an image as sif: .*IMAGE_FORMAT=oci"):
        load(bundle, Engine())
    bundle.copy_image("apptainer", tmp_path / "cache/base-1.sif", print)
    copied = {path.name: path.read_bytes() for path in (tmp_path / "cache").iterdir()}
    assert copied == {"base-1.sif": b"a file", "base-1.sif.import.json": b"its record"}
    made.manifest["image"] = None
    made.write()
    with pytest.raises(ImageProblem, match="found no image"):
        load(open_bundle(made.folder), Engine())


@needs_python
@pytest.mark.usefixtures("ample_disk")
def test_wheels_come_only_from_the_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = Project(tmp_path, monkeypatch)
    project.wheel("tiny")
    project.lock("tiny", download=2_000_000_000)  # no consent is possible: nothing is fetched
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(environments.EnvironmentMissing, match="was not found"):
        environments.ensure("tiny", "cpu", wheels=empty)
    lines: list[str] = []
    python = environments.ensure("tiny", "cpu", wheels=project.wheels, progress=lines.append)
    assert python.is_file()
    assert "2000 MB of local wheels" in lines[0]


# Creation of a bundle


def ask(*options: str) -> int:
    return cli(["fetch", "--workload", "ncf", *options])


def test_existing_target_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--framework", "pytorch", "--accelerator", "cpu", "--image-format", "none", "--dest")
    (tmp_path / "there").mkdir()
    assert ask(*options, str(tmp_path / "there")) == 2
    assert "exists already and is not overwritten" in capsys.readouterr().err
    (tmp_path / "cut-off.partial").mkdir()
    assert ask(*options, str(tmp_path / "cut-off")) == 2
    assert "wait for the fetch that writes it" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["cut-off.partial", "there"]


@pytest.mark.parametrize(
    ("framework", "options", "message"),
    [
        ("mxnet", ("--accelerator", "cuda", "--image-format", "none"), "no locked cuda build of mxnet"),
        ("pytorch", ("--accelerator", "cuda", "--image-format", "none"), "2.8 GB .*FETCH=1"),
        ("pytorch", ("--accelerator", "cpu", "--image-format", "sif"), "`apptainer` is not on PATH"),
        ("pytorch", ("--accelerator", "cpu", "--image-format", "sqsh"), "`enroot` is not on PATH"),
    ],
)
def test_failed_fetch_leaves_nothing(
    framework: str,
    options: tuple[str, ...],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, **_: None)  # none of the tools is installed
    arguments = ("--framework", framework, "--rules", "1.0", "--dest", str(tmp_path / "b"))
    assert ask(*arguments, "--cache-dir", str(tmp_path / "cache"), *options) == 13
    error = capsys.readouterr().err
    assert error.startswith("fetch: ")
    assert re.search(message, error), error
    assert [path.name for path in tmp_path.iterdir() if path.name != "cache"] == []


def test_bundle_has_only_the_rules_and_entries_of_its_run() -> None:
    names = rule_files("1.0", "ncf", "pytorch", "linux/amd64", "pytorch-26.08")
    assert "rules/1.0/images/pytorch-26.08.json" in names
    assert [name for name in names if "images" in name and "pairs" not in name] == [
        "rules/1.0/images/pytorch-26.08.json"
    ]
    for name in ("rules/1.0/limits.json", "rules/1.0/checks.json", "rules/practice/limits.json"):
        assert name in names
