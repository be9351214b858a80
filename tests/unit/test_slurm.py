"""launcher=slurm without a Slurm: options, text and execution of the script, outcome of each job state."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from suite.launch.script import EXIT_CODE, script
from suite.launch.slurm import launch, node_command
from suite.plan.errors import BadConfiguration, StorageProblem, Unsupported
from suite.plan.slurm_options import FIELDS, ExcludedNode, SlurmOptions, login_scale, parse

ROOT = Path(__file__).resolve().parents[2]
SECTION: dict[str, Any] = {
    "name": "slurm",
    **dict.fromkeys(("partition", "account", "constraint", "qos", "reservation", "memory")),
    "time": "02:00:00",
    "gpus": "auto",
    "cpus": "auto",
    "exclude": [],
    "extra": [],
    "wait": True,
    "on_node": False,
}
BODY = """\
set -euo pipefail
cd /home/ada/suite

/home/ada/suite/.venv/bin/python -m suite run workload=gnmt 'data_root="/data, 2"' launcher=slurm &
run=$!

# Slurm's signals reach this script only. It ends the run, so that the log states the reason.
asked=1 why=ended
trap 'asked=1 why=time-limit; kill -TERM "$run" 2>/dev/null || true' INT
trap 'asked=1 why=cancelled; kill -TERM "$run" 2>/dev/null || true' TERM
while ((asked)); do # a signal cuts `wait` short
  asked=0 code=0
  wait "$run" || code=$?
done

# Slurm forgets how a job ended after some minutes; this file stays.
printf '%s %s\\n' "$code" "$why" >/scratch/slurm/1/exit_code.txt.new
mv /scratch/slurm/1/exit_code.txt.new /scratch/slurm/1/exit_code.txt
exit "$code"
"""
EXPORT = (
    "HOME,USER,LOGNAME,PATH,LANG,LD_LIBRARY_PATH,PYTHONPATH,XDG_RUNTIME_DIR,DOCKER_HOST,DOCKER_CONTEXT,"
    "ENROOT_CACHE_PATH,ENROOT_DATA_PATH,ENROOT_RUNTIME_PATH,SUITE_JOIN_SECONDS"
)
WHOLE_NODE = f"""\
#!/bin/bash
#SBATCH --job-name=suite-gnmt-pytorch
#SBATCH --output=/scratch/slurm/1/stdout.txt
#SBATCH --error=/scratch/slurm/1/stderr.txt
#SBATCH --export={EXPORT}
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --time=02:00:00
#SBATCH --signal=B:INT@60
#SBATCH --mem=0
#SBATCH --gres=gpu:1
#SBATCH --no-requeue
#SBATCH --exclusive
"""
PART_OF_A_NODE = f"""\
#!/bin/bash
#SBATCH --job-name=suite-gnmt-pytorch
#SBATCH --output=/scratch/slurm/1/stdout.txt
#SBATCH --error=/scratch/slurm/1/stderr.txt
#SBATCH --export={EXPORT}
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --time=1-12
#SBATCH --signal=B:INT@60
#SBATCH --partition=gpu,debug
#SBATCH --account=dl\\#42
#SBATCH --constraint=a100&nvlink
#SBATCH --qos=high
#SBATCH --reservation=night
#SBATCH --cpus-per-task=16
#SBATCH --mem=64G
#SBATCH --gres=gpu:h100:2
#SBATCH --no-requeue
#SBATCH --comment="issue \\#3, \\"again\\""
#SBATCH --spread-job
"""


def text_of(options: SlurmOptions, gpus: int = 0, **changed: Any) -> str:
    arguments: dict[str, Any] = {
        "command": [
            *("/home/ada/suite/.venv/bin/python", "-m", "suite", "run", "workload=gnmt"),
            *('data_root="/data, 2"', "launcher=slurm"),
        ],
        "job_name": "suite-gnmt-pytorch",
        "folder": Path("/scratch/slurm/1"),
        "root": Path("/home/ada/suite"),
    } | changed
    command = arguments.pop("command")
    return script(options, command, gpus=gpus, **arguments)


# ---- the script ------------------------------------------------------------------------------------------
def test_golden_script_of_a_whole_node() -> None:
    assert text_of(SlurmOptions(), gpus=1) == WHOLE_NODE + BODY


def test_golden_script_with_every_option() -> None:
    section = SECTION | {
        "partition": "gpu,debug",
        "account": "dl#42",
        "constraint": "a100&nvlink",
        "qos": "high",
        "reservation": "night",
        "time": "1-12",
        "gpus": "h100:2",
        "cpus": 16,
        "memory": "64g",
        "extra": ['--comment=issue #3, "again"', "--spread-job"],
    }
    options = parse(section)
    assert options is not None
    assert text_of(options, gpus=options.gpus_for("reference", 1)) == PART_OF_A_NODE + BODY


def test_script_of_several_nodes_starts_one_task_on_each() -> None:
    options = parse(SECTION | {"exclude": ["n7:memory errors"], "cpus": 8})
    assert options is not None
    text = text_of(options, gpus=4, nodes=2)
    lines = set(text.splitlines())
    asked = ("--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--gres=gpu:4", "--exclude=n7")
    assert {f"#SBATCH {option}" for option in asked} <= lines
    assert "\nsrun --nodes=2 --ntasks=2 --ntasks-per-node=1 --export=ALL --kill-on-bad-exit=0" in text
    assert " --wait=360 " in text
    assert " --wait=960 " in text_of(options, gpus=4, nodes=2, join_s=900)
    assert "--cpus-per-task=8 --wait=360 /home/ada/suite/.venv/bin/python -m suite" in text


def test_node_command_has_the_reason_and_not_the_name_of_an_excluded_node() -> None:
    excluded = [ExcludedNode("n7", "memory errors")]
    *_, last = node_command(("node",), path_options={}, decided={}, excluded=excluded)
    parsed = OverridesParser.create().parse_override(last)
    assert (parsed.key_or_group, parsed.value()) == ("launcher.exclude", ["excluded:memory errors"])


def test_percent_signs_in_a_folder_are_escaped() -> None:
    text = text_of(SlurmOptions(), folder=Path("/a %j b"))
    assert '#SBATCH --output="/a %%j b/stdout.txt"\n' in text


def start(folder: Path, *command: str) -> subprocess.Popen[bytes]:
    """The script itself, as a node would run it: to bash, #SBATCH lines are comments."""
    folder.mkdir()
    location = folder / "job.sh"
    location.write_text(text_of(SlurmOptions(), command=list(command), folder=folder, root=folder))
    return subprocess.Popen(["/bin/bash", str(location)])


@pytest.mark.parametrize("code", [0, 21])
def test_script_returns_the_exit_code_of_the_run(tmp_path: Path, code: int) -> None:
    folder = tmp_path / 'it\'s a "folder" #1'
    process = start(folder, "bash", "-c", f"exit {code}")
    assert process.wait(timeout=20) == code
    assert (folder / EXIT_CODE).read_text() == f"{code} ended\n"
    assert not list(folder.glob("*.new"))


@pytest.mark.parametrize(
    ("number", "why"), [(signal.SIGINT, "time-limit"), (signal.SIGTERM, "cancelled")], ids=["INT", "TERM"]
)
def test_script_ends_the_run_on_a_signal_and_records_the_reason(
    tmp_path: Path, number: signal.Signals, why: str
) -> None:
    folder = tmp_path / "job"
    code = (
        "import pathlib, signal, sys, time\n"
        "def end(*_): time.sleep(0.5); pathlib.Path('stopped').touch(); sys.exit(130)\n"
        "signal.signal(signal.SIGTERM, end); pathlib.Path('ready').touch(); time.sleep(60)"
    )
    process = start(folder, sys.executable, "-c", code)
    wait_for(folder / "ready")
    process.send_signal(number)
    assert process.wait(timeout=20) == 130
    assert (folder / "stopped").exists()
    assert (folder / EXIT_CODE).read_text() == f"130 {why}\n"


def wait_for(path: Path) -> None:
    until = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < until, path
        time.sleep(0.02)


# ---- the command on the node -----------------------------------------------------------------------------
def test_node_command_has_the_run_and_the_decided_options() -> None:
    command = (
        *(
            "run",
            "workload=gnmt",
            "framework=pytorch",
            "launcher=slurm",
            "launcher.account=ada",
            "scale=auto",
        ),
        *("+experiment=study", "runtime.cpus=2", "dry=false", "data_root=data", "hydra.verbose=true"),
    )
    argv = node_command(
        command,
        path_options={"data_root": Path("/big/data"), "results_dir": Path("/r")},
        decided={"scale": "reference"},
        python="/venv/python",
    )
    assert argv == [
        *("/venv/python", "-m", "suite", "run", "workload=gnmt", "framework=pytorch", "+experiment=study"),
        *("runtime.cpus=2", "hydra.verbose=true", "data_root=/big/data", "results_dir=/r"),
        *("scale=reference", "launcher=slurm", "launcher.on_node=true"),
    ]


@pytest.mark.parametrize(
    "name", ["plain", "with blank", "a,b", "it's", 'say "x"', "a=b", "[1]", "größe", "a:b"]
)
def test_path_survives_hydra_parsing(name: str) -> None:
    location = Path("/data") / name
    *_, override, _, _ = node_command(("run",), path_options={"data_root": location}, decided={})
    parsed = OverridesParser.create().parse_override(override)
    assert (parsed.key_or_group, parsed.value()) == ("data_root", str(location))


# ---- options ---------------------------------------------------------------------------------------------
def test_shipped_launcher_sections_are_valid() -> None:
    from omegaconf import OmegaConf

    sections = {
        path.stem: OmegaConf.to_container(OmegaConf.load(path)) for path in (ROOT / "conf/launcher").iterdir()
    }
    assert sections.keys() == {"local", "slurm", "kubernetes"}
    del sections["kubernetes"]  # tests/unit/test_kubernetes.py
    assert all(isinstance(section, dict) and set(section) == FIELDS for section in sections.values())
    assert parse(sections["local"]) is None  # type: ignore[arg-type] # checked above
    assert parse(sections["slurm"]) == SlurmOptions()  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(FIELDS - {"name"}))
def test_options_of_slurm_beside_local_are_refused(name: str) -> None:
    section: dict[str, Any] = {**dict.fromkeys(FIELDS), "name": "local"}
    assert parse(section) is None
    with pytest.raises(BadConfiguration, match=rf"launcher\.{name}: .*LAUNCHER=slurm"):
        parse(section | {name: "debug"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("partition", ""),
        ("partition", "a b"),
        ("partition", "debug\n#SBATCH --uid=0"),
        ("account", ["a"]),
        ("qos", True),
        ("reservation", "x" * 201),
        ("time", "soon"),
        ("time", None),
        ("time", "1:59"),
        ("time", 1),
        ("time", "-1"),
        ("gpus", "many"),
        ("gpus", -1),
        ("gpus", True),
        ("gpus", "h100:"),
        ("cpus", 0),
        ("cpus", "2"),
        ("cpus", True),
        ("memory", 64),
        ("memory", "0g"),
        ("memory", "64 g"),
        ("exclude", "n7:fans fail"),
        ("exclude", ["n7"]),
        ("exclude", ["n7:see /root/notes"]),
        ("extra", "--nodelist=n1"),
        ("extra", None),
        ("extra", ["nodelist=n1"]),
        ("extra", ["--nodelist n1"]),
        ("extra", ["--comment=a\n#SBATCH --uid=0"]),
        ("extra", [3]),
        ("extra", ["--partition=debug"]),
        ("extra", ["--array=0-9"]),
        ("extra", ["--export=ALL"]),
        ("wait", "yes"),
        ("on_node", None),
    ],
)
def test_invalid_slurm_options_are_refused(name: str, value: object) -> None:
    with pytest.raises(BadConfiguration, match=rf"^launcher\.{name}: "):
        parse(SECTION | {name: value})


@pytest.mark.parametrize("value", [2, "120", "2:00", "0:02:00", "1-0", "1-12:30", "1-12:30:59", "00:120:00"])
def test_every_slurm_time_format_is_accepted(value: object) -> None:
    options = parse(SECTION | {"time": value})
    assert options is not None
    assert options.time == str(value)


def test_unknown_or_missing_launcher_field_is_refused() -> None:
    with pytest.raises(BadConfiguration, match=r"unknown field 'partitoin' \(did you mean partition\?\)"):
        parse(SECTION | {"partitoin": "debug"})
    with pytest.raises(BadConfiguration, match="expected the field qos"):
        parse({name: value for name, value in SECTION.items() if name != "qos"})


@pytest.mark.parametrize(
    ("scale", "gpus", "local", "expected"),
    [
        (
            "auto",
            None,
            0,
            ("reference", "this login node has no GPU: the job requests one GPU per device"),
        ),
        ("auto", 1, 0, ("reference", "this login node has no GPU: the job requests 1 GPU")),
        ("auto", 2, 4, ("reference", "scale reference: the job requests 2 GPUs")),
        ("reference", None, 0, ("reference", "this login node has no GPU")),
        ("reference", 0, 8, ("reference", "runs on the CPU")),
        ("mini", None, 0, ("mini", "practice only")),
        ("mini", 1, 8, ("mini", "practice only")),
    ],
)
def test_scale_is_chosen_for_the_node_of_the_job(
    scale: str, gpus: int | None, local: int, expected: tuple[str, str]
) -> None:
    found, why = login_scale(scale, gpus, local)
    assert found == expected[0]
    assert expected[1] in why


def test_job_without_a_gpu_needs_an_explicit_scale() -> None:
    with pytest.raises(BadConfiguration, match="SCALE=mini"):
        login_scale("auto", 0, 8)


@pytest.mark.parametrize(
    ("gpus", "scale", "asked"),
    [(None, "reference", 1), (None, "mini", 0), (2, "mini", 2), (0, "reference", 0)],
)
def test_requested_gpus_follow_from_option_and_scale(gpus: int | None, scale: str, asked: int) -> None:
    assert SlurmOptions(gpus=gpus).gpus_for(scale, 1) == asked


# ---- launching -------------------------------------------------------------------------------------------
def launched(location: Path, **changed: Any) -> int:
    arguments: dict[str, Any] = {"name": "ncf-pytorch-train", "path_options": {"results_dir": location}}
    return launch(SlurmOptions(), ("run", "workload=ncf"), decided={"scale": "mini"}, **(arguments | changed))


def test_dry_run_prints_the_script_and_writes_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert launched(tmp_path / "results", dry=True) == 0
    printed = capfd.readouterr().out
    assert printed.startswith("#!/bin/bash\n#SBATCH --job-name=suite-ncf-pytorch-train\n")
    assert f"workload=ncf results_dir={tmp_path}/results scale=mini launcher=slurm" in printed
    assert not list(tmp_path.iterdir())


def test_missing_sbatch_is_reported_with_its_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unsupported, match=r"sbatch in PATH, found none; .*LAUNCHER=local"):
        launched(tmp_path)


def test_unwritable_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "results").touch()
    with pytest.raises(StorageProblem, match="RESULTS_DIR"):
        launched(tmp_path / "results")
