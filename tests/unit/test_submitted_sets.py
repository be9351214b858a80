"""Scaling sets among the submissions: packaged with their runs, and checked with the tree."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from suite.cli import main
from suite.compare.scaling_set import FILE
from suite.compare.submitted_sets import check_submitted_sets, package_set, submitted_set_folders
from suite.site.cache import Cache
from suite.site.collect import collect
from suite.submissions.package import Rejected, load_accepted
from tests.fixtures.odd_logs import SETS, write_set
from tests.fixtures.registered import Registrar
from tests.unit.test_submit_system import OF_ACCELERATOR, STATED

ORG, BOX = "example-labs", "example-box-1"
NAME = next(name for name in SETS if "four/alexnet" in name)


def submit(folder: Path, root: Path) -> int:
    """`python -m suite submit --yes` of the set in ``folder``; returns its exit code."""
    statement = root.with_name("system.json")
    statement.write_text(json.dumps({**STATED, **OF_ACCELERATOR, "host_processor_frequency": 2100}))
    arguments = ["--result", str(folder), "--submitter", ORG, "--submissions", str(root), "--yes"]
    return main(["submit", *arguments, "--system", str(statement)])


def check(root: Path) -> int:
    """The exit code of `python -m suite check-submissions`."""
    return main(["check-submissions", str(root)])


@pytest.fixture(scope="module")
def submitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree with a set of three runs on four GPUs; read only."""
    folder = tmp_path_factory.mktemp("sets")
    Registrar(folder / "submissions").rows("keys")  # none: the submissions are not signed
    assert submit(write_set(NAME, folder / "results"), folder / "submissions") == 0
    return folder / "submissions"


@pytest.fixture
def tree(submitted: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(submitted, tmp_path / "submissions"))


def the_set(root: Path) -> Path:
    (folder,) = submitted_set_folders(root)
    return folder


def test_set_is_packaged_with_its_runs(submitted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert the_set(submitted).relative_to(submitted).parts == (ORG, "sets", BOX, NAME.rpartition("/")[2])
    assert [path.name for path in the_set(submitted).iterdir()] == [FILE]
    runs = {path.parent.name for path in submitted.glob(f"{ORG}/results/{BOX}/alexnet/*/run.jsonl")}
    (group,) = json.loads((the_set(submitted) / FILE).read_bytes())["groups"]
    assert runs == {arm["run_id"] for arm in group["arms"].values()}
    assert check(submitted) == 0
    assert "1 scaling set: 0 rejecting findings, 0 flags" in capsys.readouterr().out
    assert main(["check", str(the_set(submitted))]) == 0


def test_site_shows_the_submitted_set(submitted: Path, tmp_path: Path) -> None:
    found = collect(submitted, Cache(tmp_path / "cache"))
    (one,) = found.sets
    assert one.checked is not None
    assert one.checked.accepted == {4}


def test_interrupted_command_is_repeated_and_a_set_never_overwritten(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_set(NAME, tmp_path / "again")
    assert submit(folder, tree) == 2
    assert "a submission is never overwritten" in capsys.readouterr().err
    shutil.rmtree(tree / ORG / "sets")
    shutil.rmtree(next(tree.glob(f"{ORG}/results/*/*/*")))
    assert submit(folder, tree) == 0
    assert check(tree) == 0


def test_rejected_set_is_not_packaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_set(NAME, tmp_path / "results")
    shutil.rmtree(next((tmp_path / "results").glob("2*")))
    (tmp_path / "submissions").mkdir()
    assert submit(folder, tmp_path / "submissions") == 1
    assert "SET-002 reject" in capsys.readouterr().err
    assert list((tmp_path / "submissions").iterdir()) == []


def lose_a_run(folder: Path) -> None:
    shutil.rmtree(next(folder.parents[2].glob("results/*/*/*")))


def edit(folder: Path) -> None:
    file = folder / FILE
    file.write_bytes(file.read_bytes().replace(b'"batch":256', b'"batch":128'))


def link(folder: Path) -> None:
    (folder / FILE).rename(folder.parents[2] / "set.json")
    (folder / FILE).symlink_to(folder.parents[2] / "set.json")


def move(folder: Path) -> None:
    """To another system, whose runs are not there."""
    folder.parent.rename(folder.parent.with_name("another-box"))


def test_set_that_is_rejected_in_its_folder_leaves_no_empty_folder(tree: Path, tmp_path: Path) -> None:
    folder = write_set(NAME, tmp_path / "results")
    edit(folder)
    runs = tree.glob(f"{ORG}/results/*/*/*")
    described = {run: (load_accepted(run), json.loads((run / "system.json").read_bytes())) for run in runs}
    shutil.rmtree(tree / ORG / "sets" / BOX)
    with pytest.raises(Rejected) as rejected:
        package_set(folder, described, tree)
    assert {found.rule for found in rejected.value.findings} == {"SET-004"}
    assert not (tree / ORG / "sets" / BOX).exists()
    assert check(tree) == 0


FORGERIES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a run is missing": (lose_a_run, "SET-002"),
    "another batch": (edit, "SET-004"),
    "another system": (move, "SET-002"),
    "a further file": (lambda folder: (folder / "table.md").write_text("98 %"), "SUBM-001"),
    "a file beside the sets": (lambda folder: (folder.parent / "table.md").write_text("98 %"), "SUBM-001"),
    "a link": (link, "SUBM-001"),
}


def set_without_a_file(root: Path) -> None:
    (the_set(root).with_name("aaa") / FILE).mkdir(parents=True)


def run_without_a_system(root: Path) -> None:
    file = next(root.glob(f"{ORG}/results/*/*/*/system.json"))
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize(
    ("damage", "rule"), [(set_without_a_file, "SET-001"), (run_without_a_system, "SUBM-003")]
)
def test_folder_for_a_file_leaves_the_others_their_verdicts(
    damage: Callable[[Path], object],
    rule: str,
    tree: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    damage(tree)
    assert check(tree) == 1
    shown = capsys.readouterr().out
    assert f"{rule} reject" in shown
    assert "no verdict" not in shown
    found = collect(tree, Cache(tmp_path / "cache"))
    assert any(one.checked is not None for one in found.sets)
    assert len(found.results) == 3


def test_set_with_a_run_whose_submission_is_rejected_is_rejected(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (next(tree.glob(f"{ORG}/results/*/*/*")) / "system.json").write_text("{}")
    assert check(tree) == 1
    shown = capsys.readouterr().out
    assert "SET-002 reject group of 4 devices" in shown
    assert "found rejected by SUBM-004" in shown
    (one,) = collect(tree, Cache(tmp_path / "cache")).sets
    assert not one.verdict.accepted
    assert one.checked is not None
    assert one.checked.accepted == set()


def test_set_under_a_second_name_is_rejected(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = the_set(tree)
    shutil.copytree(first, first.with_name(f"{first.name[:-8]}ffffffff"))
    assert check(tree) == 1
    shown = capsys.readouterr().out
    assert shown.count("SET-003 reject group of 4 devices") == 3
    assert f"found that of {first.name}" in shown
    found = collect(tree, Cache(tmp_path / "cache"))
    assert [one.verdict.accepted for one in found.sets] == [True, False]


def test_stolen_run_does_not_reject_the_set_of_its_owner(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = next(tree.glob(f"{ORG}/results/*/*/*"))
    shutil.copytree(run, tree / "a-thief" / Path(*run.parts[-4:]))
    assert check(tree) == 1
    assert "1 scaling set: 0 rejecting findings" in capsys.readouterr().out


@pytest.mark.parametrize("name", FORGERIES)
def test_changed_set_is_rejected(name: str, tree: Path) -> None:
    forge, rule = FORGERIES[name]
    forge(the_set(tree))
    sets, stray = check_submitted_sets(tree, {})
    found = {one.rule for one in [*(finding for each in sets for finding in each.findings), *stray]}
    assert found == {rule}
    assert check(tree) == 1


def test_set_with_a_withdrawn_run_does_not_count(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = next(tree.glob(f"{ORG}/results/*/*/*"))
    assert main(["withdraw", "--result", str(run), "--reason", "x", "--submissions", str(tree)]) == 0
    assert check(tree) == 0
    assert "1 scaling set: 0 rejecting findings, 0 flags, 1 with a withdrawn run" in capsys.readouterr().out
    assert collect(tree, Cache(tmp_path / "cache")).sets == ()
