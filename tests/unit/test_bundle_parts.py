"""A bundle in parts is joined and verified; parts that differ, are missing or are not listed are refused."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from suite.cli import main as cli
from suite.containers.images.bundle import open_bundle
from suite.containers.images.bundle_manifest import MANIFEST, BundleProblem
from suite.containers.images.bundle_parts import LIST, split
from suite.datasets.prepare import prepare as prepare_dataset
from tests.fixtures.made_bundle import ARCHIVE, WHEEL, Made

SIZE = 200_000
CONTENT = bytes(range(256)) * 3_000  # four parts, the last one shorter


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_dataset("ml-1m-mini", tmp_path_factory.mktemp("data")).path


@pytest.fixture
def made(tmp_path: Path, data: Path) -> Made:
    """A bundle with the archive and the ratings in parts."""
    made = Made(tmp_path / "bundle", data)
    made.put(ARCHIVE, CONTENT)
    made.list_files()
    split(made.folder, made.manifest["files"], SIZE)
    return made


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def part(made: Made, number: int = 1) -> Path:
    return made.folder / f"{ARCHIVE}.part{number:04d}"


def test_parts_are_joined_when_the_bundle_is_opened(made: Made, data: Path) -> None:
    before = contents(made.folder)
    assert ARCHIVE not in before
    assert max(len(content) for content in before.values()) == SIZE
    bundle = open_bundle(made.folder)
    after = contents(made.folder)
    assert set(after) == {*made.manifest["files"], MANIFEST}  # no part, no list
    assert after[ARCHIVE] == CONTENT
    assert after["data/ml-1m-mini/ratings.dat"] == (data / "ratings.dat").read_bytes()
    assert open_bundle(made.folder) == bundle


def test_only_larger_files_are_split(made: Made) -> None:
    names = {line.split("  ")[1].rpartition(".part")[0] for line in (made.folder / LIST).open()}
    assert names == {name for name, file in made.manifest["files"].items() if file["bytes"] > SIZE}
    assert ARCHIVE in names
    assert (made.folder / WHEEL).is_file()


def test_bundle_of_small_files_has_no_list(tmp_path: Path, data: Path) -> None:
    made = Made(tmp_path / "bundle", data)
    before = contents(made.folder)
    split(made.folder, made.manifest["files"], max(map(len, before.values())))
    assert contents(made.folder) == before


def test_person_can_verify_and_join_the_parts_without_the_suite(made: Made) -> None:
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", LIST], cwd=made.folder, check=True)
    subprocess.run(f"cat {ARCHIVE}.part* > {ARCHIVE}", shell=True, cwd=made.folder, check=True)
    assert (made.folder / ARCHIVE).read_bytes() == CONTENT
    open_bundle(made.folder)  # it removes the parts
    assert set(contents(made.folder)) == {*made.manifest["files"], MANIFEST}


def another_byte(made: Made) -> None:
    part(made).write_bytes(b"x" + part(made).read_bytes()[1:])


def cut_off(made: Made) -> None:
    part(made).write_bytes(part(made).read_bytes()[:-1])


def missing(made: Made) -> None:
    part(made).unlink()


def additional(made: Made) -> None:
    shutil.copy(part(made), part(made, 9))


def exchanged(made: Made) -> None:
    part(made, 0).rename(made.folder / "aside")
    part(made, 1).rename(part(made, 0))
    (made.folder / "aside").rename(part(made, 1))


def a_link(made: Made) -> None:
    part(made).rename(made.folder.parent / "elsewhere")
    part(made).symlink_to(made.folder.parent / "elsewhere")


def edit(change: Callable[[list[str]], list[str]]) -> Callable[[Made], None]:
    def edited(made: Made) -> None:
        lines = (made.folder / LIST).read_text().splitlines(keepends=True)
        (made.folder / LIST).write_text("".join(change(lines)))

    return edited


def shorter_by_a_part(made: Made) -> None:
    edit(lambda lines: [line for line in lines if f"{ARCHIVE}.part0003" not in line])(made)
    part(made, 3).unlink()


REFUSED = [
    (another_byte, r"ncf-pytorch\.tar\.part0001: expected SHA-256 [0-9a-f]{64} of parts\.sha256, found"),
    (cut_off, r"part0001: expected SHA-256"),
    (missing, r"part0001: expected the part that parts\.sha256 lists, found no such file"),
    (additional, r"part0009: expected only files that manifest\.json or parts\.sha256 lists, found another"),
    (exchanged, r"part0000: expected SHA-256"),
    (a_link, r"part0001: expected a file, .*found a link"),
    (shorter_by_a_part, r"ncf-pytorch\.tar: expected parts of 768000 bytes .*found 600000 bytes"),
    (edit(lambda lines: lines[1:]), r"parts\.sha256: expected lines"),
    (edit(lambda lines: [*lines, lines[0]]), r"parts\.sha256: expected lines"),
    (edit(lambda lines: ["0" * 64 + "  ../../etc/passwd.part0000\n"]), r"parts\.sha256: expected lines"),
    (edit(lambda lines: ["\x1b[31m\n"]), r"parts\.sha256: expected lines"),
    (edit(lambda lines: []), r"expected only files that manifest\.json or parts\.sha256 lists"),
]


@pytest.mark.parametrize(("change", "match"), REFUSED)
def test_part_that_differs_from_the_list_is_refused(
    made: Made, change: Callable[[Made], None], match: str
) -> None:
    change(made)
    with pytest.raises(BundleProblem, match=match) as caught:
        open_bundle(made.folder)
    assert "copy the bundle again, or make another one with `make fetch`" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert not (made.folder / ARCHIVE).exists()


def test_join_continues_after_the_damaged_part_is_copied_again(made: Made) -> None:
    good = part(made, 3).read_bytes()
    part(made, 3).write_bytes(b"")
    with pytest.raises(BundleProblem):
        open_bundle(made.folder)
    part(made, 3).write_bytes(good)
    open_bundle(made.folder)
    assert set(contents(made.folder)) == {*made.manifest["files"], MANIFEST}


def test_join_that_was_interrupted_while_it_removed_parts_continues(made: Made) -> None:
    (made.folder / ARCHIVE).write_bytes(CONTENT)
    part(made, 0).unlink()
    (made.folder / f"{ARCHIVE}.joining").write_bytes(b"cut off")
    open_bundle(made.folder)
    assert set(contents(made.folder)) == {*made.manifest["files"], MANIFEST}


def test_folder_that_cannot_be_written_is_named(made: Made) -> None:
    (made.folder / f"{ARCHIVE}.joining").mkdir()
    with pytest.raises(BundleProblem, match=r"in which its parts can be joined, found .*joining: .*that can"):
        open_bundle(made.folder)


def test_too_many_parts_are_refused(made: Made) -> None:
    made.put(WHEEL, b"x" * 10_001)
    with pytest.raises(BundleProblem, match=r"part_size: expected at least 2 bytes.*larger PART_SIZE"):
        split(made.folder, [WHEEL], 1)


@pytest.mark.parametrize(("size", "message"), [("57", "at least 1m"), ("many", "a size such as 8g or 512m")])
def test_part_size_that_is_none_is_refused_before_anything_is_fetched(
    size: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--workload", "ncf", "--framework", "pytorch", "--dest", str(tmp_path / "b")]
    assert cli(["fetch", *options, "--part-size", size]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
