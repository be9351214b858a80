"""A bundle comes from elsewhere: whatever is not as it must be is refused, with its place and the fix."""

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
from tests.unit.test_environments import House, needs_python


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_dataset("ml-1m-mini", tmp_path_factory.mktemp("data")).path


@pytest.fixture
def made(tmp_path: Path, data: Path) -> Made:
    return Made(tmp_path / "bundle", data)


def test_a_bundle_as_it_should_be(made: Made) -> None:
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


# What lies in the folder


def one_more(made: Made) -> None:
    made.put("wheels/suite/another.whl", b"")


def one_less(made: Made) -> None:
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
        (one_more, r"wheels/suite/another.whl: expected only files that the manifest lists"),
        (one_less, r"torch.*whl: expected what the manifest lists, found no such file"),
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
def test_a_folder_that_is_not_as_listed(made: Made, change: Callable[[Made], None], match: str) -> None:
    change(made)
    with pytest.raises(BundleProblem, match=match) as caught:
        open_bundle(made.folder)
    assert "make fetch" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_folder_at_all(tmp_path: Path) -> None:
    with pytest.raises(BundleProblem, match=r"expected a folder that `make fetch` made \(No such file"):
        open_bundle(tmp_path / "absent")


# What the manifest says


def put(place: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(manifest: dict[str, Any]) -> None:
        *path, last = place.split("|")
        for name in path:
            manifest = manifest[name]
        manifest[last] = value

    change.__name__ = f"{place}={value}"[:40]
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
def test_a_manifest_of_another_form(made: Made, change: Callable[[dict[str, Any]], None]) -> None:
    change(made.manifest)
    made.write()
    with pytest.raises(BundleProblem, match="what the format suite-bundle/1 allows"):
        open_bundle(made.folder)


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", '{"format": NaN}', "\x1b[31m", '"\ud800"'])
def test_a_manifest_that_is_none(made: Made, text: str) -> None:
    (made.folder / MANIFEST).write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(BundleProblem, match="manifest") as caught:
        open_bundle(made.folder)
    assert "\x1b" not in str(caught.value)


def test_an_image_that_is_not_whole(made: Made) -> None:
    made.manifest["image"]["config_digest"] = None
    made.write()
    with pytest.raises(BundleProblem, match="config_digest and diff_ids"):
        open_bundle(made.folder)
    made.manifest["image"] |= {"file": "image/absent.tar", "config_digest": DIGESTS[0]}
    made.write()
    with pytest.raises(BundleProblem, match=r"image/absent.tar among the files"):
        open_bundle(made.folder)


# Whether it is for this checkout


@pytest.mark.parametrize(("name", "value"), [("suite_version", "9.9.9"), ("code_digest", "0" * 64)])
def test_another_version_of_the_suite_or_its_code(made: Made, name: str, value: str) -> None:
    made.manifest[name] = value
    made.write()
    with pytest.raises(BundleProblem, match=rf"{name}: this checkout has .*made for {value}"):
        open_bundle(made.folder)


def test_rules_that_nobody_shipped(made: Made) -> None:
    made.manifest["rules"] = "9.9"
    made.write()
    with pytest.raises(BundleProblem, match=r"rules: expected one of 1\.0"):
        open_bundle(made.folder)


def test_an_edited_rule(made: Made) -> None:
    made.put("rules/1.0/limits.json", b"{}")
    made.list_files()
    with pytest.raises(BundleProblem, match=r"found others: rules/1\.0/limits\.json\. Bring the checkout"):
        open_bundle(made.folder)


def test_a_rule_more_and_a_rule_less(made: Made) -> None:
    made.put("rules/1.0/images/pytorch-99.99.json", b"{}")
    (made.folder / "rules/1.0/limits.json").unlink()
    made.list_files()
    with pytest.raises(BundleProblem, match=r"rules/1.0/images/pytorch-99.99.json, rules/1.0/limits.json"):
        open_bundle(made.folder)


def test_entries_of_another_machine_are_for_a_person_to_take(made: Made) -> None:
    made.put("rules/practice/images/pytorch-absent.json", b"{}")
    made.list_files()
    with pytest.raises(BundleProblem) as caught:
        open_bundle(made.folder)
    taken = f"cp -r {made.folder}/rules/practice/images {PROJECT}/rules/practice"
    assert str(caught.value).endswith(taken)


def test_another_pair_or_base_than_the_run_is_of(made: Made) -> None:
    bundle = open_bundle(made.folder)
    with pytest.raises(BundleProblem, match=r"this run is of gnmt in pytorch, .* ncf in pytorch"):
        bundle.require("gnmt", "pytorch")
    with pytest.raises(BundleProblem, match=r"goes by pytorch-stand-in of the lock, .* of pytorch-26.08"):
        bundle.require_base("pytorch-stand-in")


# What is taken out of it


def test_data_are_copied_and_then_held_to_the_rules(made: Made, tmp_path: Path) -> None:
    bundle = open_bundle(made.folder)
    bundle.place_dataset("ml-1m-mini", tmp_path / "data")
    bundle.place_dataset("ml-1m", tmp_path / "data")  # not in it
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["ml-1m-mini"]
    assert prepare_dataset("ml-1m-mini", tmp_path / "data").bytes == 1448370

    ratings = made.folder / "data/ml-1m-mini/ratings.dat"
    ratings.write_bytes(b"2" + ratings.read_bytes()[1:])  # another first user
    made.list_files()
    again = open_bundle(made.folder)  # a bundle that agrees with itself
    again.place_dataset("ml-1m-mini", tmp_path / "other")
    with pytest.raises(DatasetCorrupt):
        prepare_dataset("ml-1m-mini", tmp_path / "other")


class Engine:
    """An engine that already has one image."""

    name, version = "docker", "0"

    def __init__(self, **labels: str) -> None:
        mine = {"workload": "ncf", "framework": "pytorch", "code_digest": code_digest()}
        mine |= {"requirements_digest": "0" * 64} | labels
        told = {f"suite.{name}": value for name, value in mine.items()}
        self.found = EngineImage(DIGESTS[0], DIGESTS[0], DIGESTS, (), "linux/amd64", told, 1)

    def image(self, reference: str) -> EngineImage | None:
        return self.found if reference in (TAG, DIGESTS[0]) else None


def load(bundle: Bundle, engine: Any) -> str:
    return bundle.load_image(engine, print)


def test_an_image_that_is_there_is_not_loaded_again(made: Made) -> None:
    assert load(open_bundle(made.folder), Engine()) == DIGESTS[0]


@pytest.mark.parametrize("label", ["workload", "code_digest", "requirements_digest"])
def test_an_image_that_says_it_is_another(made: Made, label: str) -> None:
    with pytest.raises(ImageProblem, match=rf"the label {label}\b.*found another"):
        load(open_bundle(made.folder), Engine(**{label: "another"}))


def test_an_image_for_another_engine(made: Made, tmp_path: Path) -> None:
    with pytest.raises(ImageProblem, match=r"apptainer, found an image as oci: .*IMAGE_FORMAT=sif"):
        open_bundle(made.folder).place_image("apptainer", tmp_path / "x.sif", print)
    made.put("image/base.sif", b"a file")
    made.put("image/base.sif.import.json", b"its record")
    made.manifest["image"] |= {"format": "sif", "file": "image/base.sif"}
    made.list_files()
    bundle = open_bundle(made.folder)
    with pytest.raises(ImageProblem, match=r"docker can run, found an image as sif: .*IMAGE_FORMAT=oci"):
        load(bundle, Engine())
    bundle.place_image("apptainer", tmp_path / "cache/base-1.sif", print)
    copied = {path.name: path.read_bytes() for path in (tmp_path / "cache").iterdir()}
    assert copied == {"base-1.sif": b"a file", "base-1.sif.import.json": b"its record"}
    made.manifest["image"] = None
    made.write()
    with pytest.raises(ImageProblem, match="found no image"):
        load(open_bundle(made.folder), Engine())


@needs_python
def test_wheels_are_taken_from_the_folder_and_from_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House(tmp_path, monkeypatch)
    house.wheel("tiny")
    house.lock("tiny", download=2_000_000_000)  # nobody is asked: nothing is fetched
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(environments.EnvironmentMissing, match="was not found"):
        environments.ensure("tiny", "cpu", wheels=empty)
    said: list[str] = []
    python = environments.ensure("tiny", "cpu", wheels=house.wheels, progress=said.append)
    assert python.is_file()
    assert "2000 MB of wheels that are here" in said[0]


# Making one


def ask(*words: str) -> int:
    return cli(["fetch", "--workload", "ncf", *words])


def test_nothing_is_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--framework", "pytorch", "--accelerator", "cpu", "--image-format", "none", "--dest")
    (tmp_path / "there").mkdir()
    assert ask(*words, str(tmp_path / "there")) == 2
    assert "is there already and is not written over" in capsys.readouterr().err
    (tmp_path / "cut-off.partial").mkdir()
    assert ask(*words, str(tmp_path / "cut-off")) == 2
    assert "another fetch is writing it, or was cut off" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["cut-off.partial", "there"]


@pytest.mark.parametrize(
    ("framework", "words", "says"),
    [
        ("mxnet", ("--accelerator", "cuda", "--image-format", "none"), "no locked cuda build of mxnet"),
        ("pytorch", ("--accelerator", "cuda", "--image-format", "none"), "2.8 GB .*FETCH=1"),
        ("pytorch", ("--accelerator", "cpu", "--image-format", "sif"), "`apptainer` is not on PATH"),
        ("pytorch", ("--accelerator", "cpu", "--image-format", "sqsh"), "`enroot` is not on PATH"),
    ],
)
def test_what_cannot_be_had_leaves_nothing(
    framework: str,
    words: tuple[str, ...],
    says: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, **_: None)  # none of the tools, wherever this runs
    options = ("--framework", framework, "--rules", "1.0", "--dest", str(tmp_path / "b"))
    assert ask(*options, "--cache-dir", str(tmp_path / "cache"), *words) == 13
    error = capsys.readouterr().err
    assert error.startswith("fetch: ")
    assert re.search(says, error), error
    assert [path.name for path in tmp_path.iterdir() if path.name != "cache"] == []


def test_rules_in_a_bundle_are_those_of_the_run_and_no_other_machines() -> None:
    names = rule_files("1.0", "ncf", "pytorch", "linux/amd64", "pytorch-26.08")
    assert "rules/1.0/images/pytorch-26.08.json" in names
    assert [name for name in names if "images" in name and "pairs" not in name] == [
        "rules/1.0/images/pytorch-26.08.json"
    ]
    for name in ("rules/1.0/limits.json", "rules/1.0/checks.json", "rules/practice/limits.json"):
        assert name in names
