"""The doctor without an engine: the checks of a machine, their time limits and their reports."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from suite import __version__
from suite.cli import doctor as command
from suite.cli import main as cli
from suite.containers.images.errors import ImageProblem
from suite.doctor import data, host, junit
from suite.doctor.checks import examinations
from suite.doctor.examine import Examination, ExaminationOutcome, examine
from suite.doctor.model import FAIL, OK, SKIP, WARN, DoctorCheck, Subject, binary, gigabytes
from tests.unit.doctor_subject import states, subject

ROOT = Path(__file__).resolve().parents[2]
# Single checks and their sequence


def test_failed_check_requires_a_fix() -> None:
    for state in (WARN, FAIL):
        with pytest.raises(ValueError, match="expected a fix"):
            DoctorCheck("x", state, "broken")


def test_foreign_text_is_escaped() -> None:
    check = DoctorCheck("x", OK, "evil\x1b[31m\nname\ufffe", "rem\x00edy")
    assert check.found == "evil\\x1b[31m\\nname\\ufffe"
    assert check.fix == "rem\\x00edy"


def good(_: Subject) -> Iterator[DoctorCheck]:
    yield DoctorCheck("good", OK, "fine")


def breaks(_: Subject) -> Iterator[DoctorCheck]:
    yield DoctorCheck("before", OK, "was made")
    raise LookupError("first line\nsecond line")


def hangs(_: Subject) -> Iterator[DoctorCheck]:
    time.sleep(20)
    yield DoctorCheck("hangs", OK, "too late")


def test_check_that_raises_fails_and_other_checks_run(capfd: pytest.CaptureFixture[str]) -> None:
    found = [o.check for o in examine(subject(), [Examination("bad", breaks), Examination("good", good)])]
    assert states(found) == {"before": OK, "bad": FAIL, "good": OK}
    assert found[1].found == "LookupError: first line"
    assert "Traceback" not in "".join(capfd.readouterr())


def test_problem_with_its_fix_is_not_reported_as_bug() -> None:
    def look(_: Subject) -> Iterator[DoctorCheck]:
        raise ImageProblem("another image under this tag: remove it")

    (outcome,) = examine(subject(), [Examination("image", look)])
    assert outcome.check.found == "another image under this tag: remove it"
    assert "report" not in outcome.check.fix


def test_hanging_check_does_not_stop_others() -> None:
    began = time.monotonic()
    rows = [Examination("hang", hangs, 0.2), Examination("good", good)]
    found = [outcome.check for outcome in examine(subject(), rows)]
    assert states(found) == {"hang": FAIL, "good": OK}
    assert time.monotonic() - began < 5


def test_examinations_end_within_the_total_time_limit() -> None:
    rows = [Examination("hang", hangs), Examination("good", good)]
    found = [outcome.check for outcome in examine(subject(), rows, total_s=0.2)]
    assert states(found) == {"hang": FAIL, "good": SKIP}


def test_clean_up_runs_in_reverse_order_after_interruption() -> None:
    one, done = subject(), []

    def broken() -> None:
        done.append("broken")
        raise OSError("gone")

    one.undo = [lambda: done.append("first"), broken]
    with closing(examine(one, [Examination("good", good)] * 2)) as outcomes:
        next(outcomes)
    assert done == ["broken", "first"]


@pytest.mark.parametrize(
    ("count", "decimal", "two"),
    [(268_435_456, "268 MB", "256 MiB"), (1 << 30, "1.1 GB", "1 GiB"), (60 * 10**9, "60 GB", "55.9 GiB")],
)
def test_sizes_are_formatted_with_units(count: int, decimal: str, two: str) -> None:
    assert (gigabytes(count), binary(count)) == (decimal, two)


# The machine


@pytest.mark.parametrize(("free", "state"), [(1 << 20, FAIL), (5 * 10**9, WARN), (10**12, OK)])
def test_disks_are_checked_for_free_space(free: int, state: str, tmp_path: Path) -> None:
    path_options = dict.fromkeys(("data_root", "results_dir", "cache_dir"), tmp_path / "not" / "yet")
    found = list(host.disks(subject(free_bytes=lambda _: free, **path_options)))
    assert [check.state for check in found] == [state] * 3
    assert not (tmp_path / "not").exists()


def test_path_option_that_is_a_file_fails(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    check = next(iter(host.disks(subject(data_root=tmp_path / "data"))))
    assert (check.name, check.state) == ("disk data_root", FAIL)
    assert "DATA_ROOT" in check.fix


def group(root: Path, quota: str, memory: str) -> Path:
    """A machine whose control group (version 2) has these limits."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text("0::/job\n")
    line = "30 20 0:25 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
    (root / "proc/self/mountinfo").write_text(line)
    folder = root / "sys/fs/cgroup/job"
    folder.mkdir(parents=True)
    (folder / "cpu.max").write_text(quota + "\n")
    (folder / "memory.max").write_text(memory + "\n")
    (folder / "cpuset.cpus.effective").write_text("0-63\n")
    (root / "sys/devices/system/cpu").mkdir(parents=True)
    (root / "sys/devices/system/cpu/online").write_text("0-63\n")
    return root


@pytest.mark.parametrize(
    ("quota", "memory", "state"),
    [("100000 100000", "max", WARN), ("max 100000", "1073741824", WARN), ("800000 100000", "max", OK)],
)
def test_allocation_is_compared_with_the_machine(
    quota: str, memory: str, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    (check,) = host.allocation(subject(root=group(tmp_path, quota, memory)))
    assert check.state == state
    assert check.found.startswith("8 of 64 processors")


@pytest.mark.skipif(shutil.which("sh") is None, reason="needs a shell to be busy")
def test_busy_foreign_process_is_named_without_processes_of_the_suite(tmp_path: Path) -> None:
    shell = shutil.which("sh") or ""
    busy = ["-c", "while :; do :; done"]
    for name in ("our-process", "foreign-busy"):
        shutil.copy(shell, tmp_path / name)
    ours = subprocess.Popen([tmp_path / "our-process", *busy])
    # A process whose parent has ended is not a descendant of this test.
    script = (
        "import subprocess, sys; "
        "print(subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).pid)"
    )
    argv = [sys.executable, "-c", script, str(tmp_path / "foreign-busy"), *busy]
    orphan = int(subprocess.run(argv, stdout=subprocess.PIPE, check=True, timeout=30).stdout)
    with suppress(PermissionError):  # so that it is among the busiest on a loaded machine
        os.setpriority(os.PRIO_PROCESS, orphan, -10)
    try:
        (check,) = host.other_processes(subject())
    finally:
        os.kill(orphan, signal.SIGKILL)
        ours.kill()
        ours.wait()
    assert check.state == WARN
    assert "foreign-busy" in check.found
    assert "our-process" not in check.found
    assert "while" not in check.found


def test_datasets_of_the_workload_are_checked(tmp_path: Path) -> None:
    named = states(data.datasets(subject(workload="ncf", data_root=tmp_path)))
    assert named == {"data ml-1m": WARN, "data mini": OK}
    assert list(tmp_path.iterdir()) == []
    broken = tmp_path / "ml-1m-mini"
    broken.mkdir()
    (broken / ".verified.json").write_text("{}")
    check = list(data.datasets(subject(workload="ncf", data_root=tmp_path)))[1]
    assert (check.name, check.state) == ("data ml-1m-mini", FAIL)
    assert f"remove {broken}" in check.fix


def test_each_dataset_is_one_check_that_names_its_workloads(tmp_path: Path) -> None:
    (tmp_path / "ptb-mini").mkdir()
    checks = {check.name: check for check in data.datasets(subject(data_root=tmp_path))}
    official = ("imagenet", "cifar-10", "coco-2017", "wmt16", "ptb", "ml-1m", "text8")
    assert set(checks) == {*(f"data {name}" for name in official), "data mini"}
    users = "alexnet, googlenet, inception_v3, resnet152, resnet50, vgg16"
    assert checks["data imagenet"].found == f"for {users}: not in {tmp_path / 'imagenet'}"
    assert checks["data imagenet"].fix.startswith("make data WORKLOAD=resnet50 FROM=path (")
    assert checks["data ml-1m"].fix == "make data WORKLOAD=ncf (FROM=path: your copy), or DATA=synthetic"
    assert {check.state for name, check in checks.items() if name != "data mini"} == {SKIP}
    generated = "cifar-10-mini, ml-1m-mini, text8-mini: generated when first needed"
    mini = checks["data mini"]
    assert mini.state == OK
    assert mini.found.endswith(f"{generated}; ptb-mini: present; the first run verifies it")


# Reports


def outcomes() -> list[ExaminationOutcome]:
    checks = [
        DoctorCheck("a", OK, "well"),
        DoctorCheck("b", WARN, "so so", "fix b"),
        DoctorCheck("c", FAIL, "bad <&\x1b>", "fix c"),
        DoctorCheck("d", SKIP, "not here"),
    ]
    return [ExaminationOutcome(check, 0.25) for check in checks]


def test_junit_report_contains_every_check(tmp_path: Path) -> None:
    path = tmp_path / "doctor.xml"
    junit.write(path, outcomes())
    root = ET.parse(path).getroot()
    suite = root.find("testsuite")
    assert suite is not None
    for element in (root, suite):
        counts = [element.get(name) for name in ("tests", "failures", "errors", "time")]
        assert counts == ["4", "1", "0", "1.000"]
    assert suite.get("skipped") == "1"
    assert "hostname" not in suite.attrib
    properties = {row.get("name"): row.get("value") for row in suite.iter("property")}
    assert properties["suite.version"] == __version__
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    assert {case.get("classname") for case in cases.values()} == {"suite.doctor"}
    failure, skipped = cases["c"].find("failure"), cases["d"].find("skipped")
    assert failure is not None
    assert skipped is not None
    assert (failure.get("message"), failure.text) == ("bad <&\\x1b>", "→ fix c")
    assert skipped.get("message") == "not here"
    assert cases["b"].findtext("system-out") == "warning: so so\n→ fix b"
    assert [len(cases[name]) for name in "abcd"] == [1, 1, 1, 1]


def test_check_is_wrapped_and_its_fix_is_not() -> None:
    fix = "do " + "this " * 40
    lines = command.shown(DoctorCheck("engine storage", WARN, "text " * 60, fix), 100).splitlines()
    assert lines[0].startswith("warn  engine storage       text")
    assert all(len(line) <= 100 for line in lines[:-1])
    assert lines[-1].strip() == f"→ {fix}".strip()


def test_doctor_command_runs_without_a_container(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "doctor.xml"
    path_options = [f"--{option}={tmp_path}" for option in ("data-root", "results-dir", "cache-dir")]
    code = cli(["doctor", "--runtime=native", "--workload=ncf", f"--junit={file}", *path_options])
    out = capsys.readouterr().out
    names = [case.get("name") for case in ET.parse(file).getroot().iter("testcase")]
    assert len(names) == len(set(names))
    assert {"python", "make", "start", "allocation", "data mini"} <= set(names)
    failed = [line for line in out.splitlines() if line.startswith("fail")]
    assert code == bool(failed)
    assert f"{len(failed)} failed" in out.splitlines()[-1]
    assert "\x1b" not in out


def test_failed_check_returns_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    path_options = [f"--{option}={tmp_path}" for option in ("results-dir", "cache-dir")]
    options = ["--runtime=native", f"--data-root={tmp_path / 'file'}", *path_options]
    assert cli(["doctor", *options]) == 1


def test_unwritable_junit_file_returns_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--runtime=native", f"--junit={tmp_path}/no/such/folder.xml"]
    assert cli(["doctor", *options]) == 2
    assert "give --junit a file" in capsys.readouterr().err


def test_examination_names_are_unique() -> None:
    names = [each.name for each in examinations("auto")]
    assert len(names) == len(set(names))
