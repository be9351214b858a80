"""Wrong inputs of a first hour: each is answered with one sentence, an exit code and no traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from suite.cli import main
from suite.cli.overrides import check_overrides
from suite.plan.errors import BadConfiguration

ROOT = Path(__file__).resolve().parents[2]
NCF = ("--make", "run", "WORKLOAD=ncf", "FRAMEWORK=pytorch")
RUN = ("run", "workload=ncf", "framework=pytorch")

SWEEP = ("--make", "sweep", "WORKLOAD=ncf", "FRAMEWORK=pytorch")
_THOUSAND = ",".join(map(str, range(1, 1001)))
MILLION = f"GRID=batch={_THOUSAND} framework.threads={_THOUSAND}"

SET = min(ROOT.glob("submissions/*/sets/*/*"))
RUN_FOLDER = min(ROOT.glob("submissions/*/results/*/*/*"))
IS_SET = f"found {SET}: this is a scaling set; give one of its runs, in {ROOT}/submissions/"

# The arguments of `python -m suite`, its exit code, and what the message says. `--make` is how make calls it.
CASES: list[tuple[tuple[str, ...], int, str]] = [
    # names
    (("--make", "rum"), 2, "no target 'rum' (did you mean run?)"),
    (("rnu",), 2, "unknown verb 'rnu' (did you mean run?)"),
    (("--make", "run", "WORKLOD=ncf"), 2, "did you mean WORKLOAD?"),
    (("--make", "run", "workload=ncf"), 2, "did you mean WORKLOAD?"),
    ((*NCF, "THREADS=2"), 2, "use ARGS=framework.threads=VALUE"),
    ((*RUN, "threads=2"), 10, "did you mean framework.threads?"),
    ((*RUN, "framework.thread=2"), 10, "did you mean framework.threads?"),
    ((*RUN, "runtime.cpu=2"), 10, "did you mean runtime.cpus?"),
    ((*RUN, "workload.hyper.rat=1"), 10, "did you mean workload.hyper.rate?"),
    ((*RUN, "batch.size=1"), 10, "batch.size: expected batch=VALUE"),
    ((*RUN, "+foo=1"), 10, "unknown option 'foo'; `python -m suite run --help` lists the options"),
    (("run", "+experiment=titan"), 10, "`make sweep SWEEP=NAME` runs the grids gpu_cloud"),
    (("run", "+experiment=titan_rtx_2019"), 10, "make sweep SWEEP=titan_rtx_2019"),
    (("--make", "matrix", "SWEEP=titan"), 10, "did you mean titan_rtx_2019?"),
    (("--make", "matrix", "EXPERIMENT=titan"), 2, "EXPERIMENT is now SWEEP"),
    # grids
    ((*SWEEP, "GRID=bach=1,2"), 10, "did you mean batch?"),
    ((*SWEEP, "GRID=threads=1,2"), 10, "did you mean framework.threads?"),
    ((*SWEEP, "GRID=runtime.cpu=1,2"), 10, "did you mean runtime.cpus?"),
    ((*SWEEP, "GRID=batch=32,64,32"), 10, "batch: expected each value once, found 32 twice; remove one"),
    ((*SWEEP, "GRID=batch=32 batch=64"), 10, "batch: expected one list of values, found two; join them"),
    ((*SWEEP, "GRID=batch="), 10, "batch: expected at least one value, found none"),
    ((*SWEEP, "GRID=batch"), 10, "grid: expected axes such as batch=32,64, found 'batch'"),
    (
        (*SWEEP, "GRID=precision=fp32,fp8"),
        10,
        "precision: expected one of fp32, tf32, bf16, fp16, found 'fp8'",
    ),
    ((*SWEEP, "GRID=storage=nvme,network"), 10, "the axis of folders on several disks is disk=nvme"),
    ((*SWEEP, "GRID=disk=nvme", "DISKS=none.toml"), 10, "disks: expected a TOML file, found none.toml"),
    (
        (*SWEEP, "BATCH=1", "GRID=batch=32"),
        10,
        "batch: expected it once, found it in the grid and as an option",
    ),
    ((*SWEEP, "GRID=workload=gnmt"), 10, "workload: expected it once, found it as a flag and in the grid"),
    (SWEEP, 10, 'GRID="batch=32,64"'),
    (("--make", "sweep", "WORKLOAD=ncf", "GRID=batch=1,2"), 10, "framework: expected framework=<one of"),
    ((*SWEEP, MILLION), 10, "grid: expected at most 10,000 cells, found 1,000,000; sweep fewer values"),
    ((*SWEEP, "GRID=batch=range(1,100000000)"), 10, "batch: expected at most 10,000 values, found more"),
    ((*SWEEP, "GRID=batch=1,2", "TIMEOUT=0"), 2, "expected seconds above 0, found 0"),
    (("--make", "sweep", "SWEEP=titan"), 10, "did you mean titan_rtx_2019?"),
    # values
    (("--make", "run", "WORKLOAD=ncf"), 10, "framework: expected framework=<one of jax, mxnet"),
    (("--make", "run", "WORKLOAD=ncg", "FRAMEWORK=pytorch"), 10, "did you mean ncf?"),
    (("--make", "run", "WORKLOAD=ncf", "FRAMEWORK=torch"), 10, "did you mean pytorch?"),
    ((*NCF, "PRECISION=fp8"), 10, "precision: expected one of fp32, tf32, bf16, fp16, found 'fp8'"),
    ((*NCF, "VARIANT=f9"), 10, "variant: expected one of f8, f64, found 'f9'"),
    ((*NCF, "DATA=/lustre/ratings"), 10, "use DATA_ROOT=/lustre/ratings"),
    ((*NCF, "NONCE=12"), 10, "nonce: expected 64 hexadecimal digits"),
    ((*NCF, "IMAGE=pytorch:latest"), 10, "expected repository@sha256:"),
    ((*NCF, "FETCH=2"), 2, "expected FETCH=1 or FETCH=0, found FETCH=2"),
    (("--make", "doctor", "WORKLOAD=nfc"), 2, "found 'nfc' (did you mean ncf?); --help lists the options"),
    (("--make", "quality", "SEEDS=x"), 2, "--seeds: expected a whole number, found 'x'"),
    # zero, negative, huge
    (
        (*NCF, "BATCH=0"),
        10,
        "batch: expected auto, max or a whole number from 1 to 9007199254740991, found 0",
    ),
    ((*NCF, "BATCH=-1"), 10, "found -1"),
    ((*NCF, "BATCH=99999999999999999999"), 10, "from 1 to 9007199254740991, found 99999999999999999999"),
    ((*NCF, "DEVICES=100000"), 10, "devices: expected auto or a whole number from 1 to 4096"),
    ((*RUN, "framework.threads=0"), 10, "framework.threads: expected auto or a whole number from 1 to 4096"),
    ((*RUN, "framework.threads=1000000"), 10, "found 1000000"),
    (("--make", "quality", "SEEDS=0"), 10, "seeds: expected at least 1, found 0"),
    (("--make", "scale", "WORKLOAD=ncf", "FRAMEWORK=pytorch", "DEVICES=0"), 10, "numbers such as 1,2,4"),
    # Hydra's grammar
    (
        (*NCF, "BATCH=256,1024"),
        10,
        '`make sweep WORKLOAD=ncf FRAMEWORK=pytorch GRID="batch=256,1024"` runs each',
    ),
    ((*RUN, "framework.threads=1,2"), 10, 'GRID="framework.threads=1,2"`'),
    (
        (*RUN, "batch"),
        10,
        "expected OPTION=VALUE such as batch=256, without spaces around the =, found 'batch'",
    ),
    ((*RUN, "batch=[1,2"), 10, "batch: expected a value that Hydra can read, found [1,2"),
    ((*RUN, "batch=1 devices=2"), 10, "found 1 devices=2"),
    ((*RUN, "-m", "batch=range(1,101)", "framework.threads=range(1,10001)"), 10, "cells, found 1,000,000"),
    ((*SWEEP, "GRID=batch=range(1,1000001)"), 10, "at most 10,000 values, found more"),
    ((*RUN, "--multrun"), 10, "did you mean --multirun?"),
    (("run", "--workload", "ncf"), 10, "expected workload=VALUE, found --workload"),
    ((*NCF, "ARGS='batch=2"), 2, "ARGS: expected closed quotes"),
    # files and folders
    ((*NCF, "PAIR=none.py"), 10, "pair: expected a Python file"),
    ((*NCF, "BUNDLE=none"), 13, "expected a folder written by `make fetch`"),
    ((*NCF, "SCALE=reference", "DATA=real"), 12, "make data WORKLOAD=ncf"),
    ((*RUN, "framework.python=/none"), 13, "framework.python: expected an interpreter, found /none"),
    (("--make", "check", "RESULT=none"), 2, "expected a result's folder, found nothing at none"),
    (("--make", "compare", "A=none", "B=none"), 2, "A: expected a result's folder, found nothing at none"),
    (("--make", "submit", "RESULT=none", "SUBMITTER=x"), 2, "found nothing at none"),
    (("--make", "audit", "RESULT=none"), 2, "expected a result's folder, found nothing at none"),
    (("--make", "audit", "RESULT=."), 2, "found a folder of folders at .: give one of them"),
    (("--make", "system", "RESULT=run.debug"), 2, "the result is beside it, without .debug"),
    (("--make", "check", "RESULTS=x"), 2, "RESULTS is now RESULT, and RESULTS_DIR the folder that holds"),
    (("--make", "report", "RESULTS=x"), 2, "RESULTS is now RESULT, and RESULTS_DIR the folder that holds"),
    (("--make", "quote", "RESULTS=x"), 2, "RESULTS is now RESULT"),
    (("check", "--results", "x"), 2, "check: --results is now a path without a flag"),
    (("--make", "plot", "RESULTS=x"), 2, "RESULTS is now RESULTS_DIR"),
    (("--make", "check", f"RESULTS_DIR={RUN_FOLDER}"), 2, f"give it as RESULT={RUN_FOLDER}"),
    (("--make", "report", f"RESULTS_DIR={RUN_FOLDER}"), 2, f"give it as RESULT={RUN_FOLDER}"),
    (("--make", "data", "WORKLOAD=ncf", "FROM=none"), 12, "none: no such file"),
    # a scaling set instead of one of its results
    *(
        (("--make", verb, f"RESULT={SET}", *more), 2, IS_SET)
        for verb, more in {
            "audit": (),
            "audit-perturb": (),
            "audit-replay": (),
            "export": (),
            "quote": (),
            "report": (),
            "summary": (),
            "system": (),
            "withdraw": ("REASON=x", f"SUBMISSIONS={ROOT / 'submissions'}"),
        }.items()
    ),
    (("--make", "quote", f"RESULT={SET}/set.json"), 2, IS_SET),
    (
        ("--make", "compare", f"A={SET}", f"B={SET}"),
        2,
        f"A: expected a result's folder, found {SET}: this is a",
    ),
    (("--make", "compare", f"RESULTS={SET} {SET} x-load-y"), 2, IS_SET),
]


@pytest.mark.parametrize(
    ("arguments", "code", "message"), CASES, ids=[" ".join(case[0]).removeprefix("--") for case in CASES]
)
def test_wrong_input_is_answered_in_one_sentence(
    arguments: tuple[str, ...],
    code: int,
    message: str,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)  # where a wrong command would leave its files
    (tmp_path / "run.debug").mkdir()
    try:
        found = main(arguments)
    except SystemExit as stop:  # of argparse
        found = int(stop.code or 0)
    assert found == code
    errors = capfd.readouterr().err
    assert len([line for line in errors.splitlines() if message in line]) == 1, errors
    assert "Traceback" not in errors
    left = {path.name for path in tmp_path.iterdir()}
    assert left <= {"run.debug", "data"}  # data are generated before the run is prepared


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ("-S", "-m", "suite", "run"),
            13,
            "without hydra; in the project's folder run `.venv/bin/python -m suite run`",
        ),
        (("-S", "-m", "suite", "check"), 13, "run `.venv/bin/python -m suite check`"),
        (("suite", "run"), 2, "expected `.venv/bin/python -m suite VERB` in the project's folder"),
    ],
)
def test_wrong_python_or_command_names_the_right_one(
    arguments: tuple[str, ...], code: int, message: str
) -> None:
    """``-S``: an interpreter without the packages of the suite's environment, as the system's."""
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("dry", ["true", "false"])
def test_all_folders_that_cannot_be_written_are_named_at_once(
    dry: str, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    options = [f"{name}={file}/{name}" for name in ("results_dir", "cache_dir", "data_root")]
    assert main([*RUN, f"dry={dry}", *options]) == 15
    printed = capfd.readouterr()
    (line,) = [one for one in (printed.out + printed.err).splitlines() if "Set " in one]
    assert all(
        f"{name}: expected a folder, found a file at {file}" in line for name in ("results_dir", "data_root")
    )
    assert "Set RESULTS_DIR, CACHE_DIR, DATA_ROOT to a folder" in line


@pytest.mark.parametrize("arguments", [("-m", *RUN[1:], "batch=256,512"), (*RUN[1:], "-m", "batch=256,512")])
def test_sweep_takes_its_flag_where_hydra_does(
    arguments: tuple[str, ...], capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["run", *arguments, "dry=true", f"results_dir={tmp_path / 'results'}"]) == 0
    printed = capfd.readouterr().out
    assert all(f"batch {size}," in printed for size in (256, 512))


def test_several_values_of_a_make_variable_are_an_axis_of_a_matrix(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    only = ("WORKLOAD=ncf", "FRAMEWORK=pytorch", "PHASE=train", f"RESULTS_DIR={tmp_path}", "DRY=1")
    assert main(("--make", "matrix", *only, "BATCH=256,512")) == 0
    assert "2 cells: 0 done, 0 skipped, 2 to run" in capfd.readouterr().err


def test_matrix_takes_hyperparameters_of_any_workload() -> None:
    check_overrides(["workload=ncf", "framework=pytorch", "workload.hyper.dropout=0,0.1"], verb="matrix")
    with pytest.raises(BadConfiguration, match=r"unknown option 'workload\.hyper\.dropout'"):
        check_overrides(["workload=ncf", "framework=pytorch", "workload.hyper.dropout=0"])


def test_options_of_hydra_itself_are_left_to_hydra() -> None:
    check_overrides(["workload=ncf", "framework=pytorch", "hydra/launcher=basic", "hydra.verbose=true"])
    check_overrides(["--cfg", "job", "workload=ncf", "framework=pytorch", "--resolve"])
