"""A run on two nodes: two local processes that meet as machines do, over TCP."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from suite.checker import check_result
from suite.contract.network import unused_ports
from tests.end_to_end.command import ROOT, all_ended, command, workers_of

DIGEST = "sha256:" + "5e" * 32
BOUND_S = 90  # the run of a lost rank has ended by then


class Nodes:
    """The programs of a run's nodes on this machine, each with a separate cache."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.results = folder / "results"
        self.programs: list[subprocess.Popen[str]] = []
        (self.port,) = unused_ports("127.0.0.1", 1)
        self.token = secrets.token_hex(32)

    def start(self, number: int, *options: str, join_s: int = 120, **which: Any) -> None:
        """Start the program of one node."""
        cache = f"cache_dir={self.folder}/cache-{number}"
        argv = command(self.results, "runtime=native", cache, *options, **which)
        argv[argv.index("run")] = "node"
        environment = {
            "SUITE_NODE": str(number),
            "SUITE_NODE_0": f"127.0.0.1:{self.port}",
            "SUITE_TOKEN": self.token,
            "SUITE_JOIN_SECONDS": str(join_s),
            "SUITE_EXIT_CODE": str(self.folder / "exit_code.txt"),
        }
        self.run(argv, environment)

    def run(self, argv: list[str], environment: dict[str, str]) -> None:
        """Start a node's program by its command and variables."""
        self.programs.append(
            subprocess.Popen(
                argv,
                cwd=ROOT,
                env=os.environ | environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )

    def codes(self, timeout: float = 300) -> list[int]:
        """The exit codes of all programs; their output is in :attr:`output`."""
        self.output = [program.communicate(timeout=timeout)[0] for program in self.programs]
        return [program.returncode for program in self.programs]

    def log(self) -> list[dict[str, Any]]:
        """The events of the only log so far; of a line that is being written only a part may be there."""
        return [
            json.loads(line)
            for log in self.results.glob("*/run.jsonl")
            for line in log.read_text().splitlines(keepends=True)
            if line.endswith("\n")
        ]

    def wait_for(self, kind: str, count: int, timeout: float = 120) -> None:
        """Wait until the log has ``count`` events of ``kind``."""
        until = time.monotonic() + timeout
        while sum(event["kind"] == kind for event in self.log()) < count:
            ended = [program.poll() for program in self.programs]
            assert time.monotonic() < until, f"no {kind} in {timeout} s"
            assert None in ended, self.codes(5) and self.output
            time.sleep(0.05)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    started = Nodes(tmp_path)
    yield started
    for program in started.programs:
        program.kill()
        program.wait()


def clock_of_another_machine() -> tuple[str, ...]:
    """The command that starts a program with another monotonic clock, if this kernel allows it."""
    argv = ("unshare", "--time", "--monotonic", "1000000", "--fork", "--kill-child")
    done = subprocess.run([*argv, "true"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"unshare --time: {done.stderr.strip()}")
    return argv


TRAINING = ("devices=2", "nodes=2")


def test_pods_of_a_job_set_train_and_are_accepted(nodes: Nodes, tmp_path: Path) -> None:
    """The commands of a JobSet's pods, as processes of this machine; the second has another clock."""
    argv = command(nodes.results, "launcher=kubernetes", "scale=mini", "repeats=1", *TRAINING)
    argv += [
        f"launcher.image=registry.example/suite@{DIGEST}",
        "launcher.claim=c",
        f"launcher.directory={ROOT}",
    ]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "kubectl apply -f" in done.stdout
    (path,) = nodes.results.glob("kubernetes/*/jobset.yaml")
    secret, jobset = yaml.safe_load_all(path.read_text())
    job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    for number in range(job["completions"]):
        environment = {row["name"]: row.get("value", "") for row in container["env"]}
        host, _, _ = environment["SUITE_NODE_0"].partition(":")
        assert host.endswith(f".{jobset['metadata']['name']}")
        environment |= {
            "SUITE_NODE_0": f"127.0.0.1:{nodes.port}",  # instead of the name that the cluster resolves
            "SUITE_TOKEN": secret["stringData"]["token"],
            "JOB_COMPLETION_INDEX": str(number),
        }
        # The volumes of a pod: /work is shared, /cache is not.
        mounts = {"=/work/": f"={tmp_path}/", "=/cache": f"={tmp_path}/cache-{number}"}
        # A checkout may lie below /work too.
        parts = container["command"]
        pod = [part if str(ROOT) in part else _replaced(part, mounts) for part in parts]
        assert all(Path(part).exists() for part in (pod[0], container["workingDir"]))
        nodes.run([*(clock_of_another_machine() if number else ()), *pod], environment)
    assert nodes.codes() == [0, 0], nodes.output
    (folder,) = [path.parent for path in nodes.results.glob("*/run.jsonl")]
    verdict = check_result(folder)
    assert verdict.accepted, verdict.findings
    events = nodes.log()
    first = [event["data"] for event in events if event["repeat"] == 0]
    header = events[0]["data"]
    assert (header["key"]["nodes"], header["key"]["strategy"]) == (2, "allreduce")
    assert (header["launcher"], header["settings"]["pod_image"]) == ("kubernetes", DIGEST)
    assert "registry.example" not in json.dumps(header)
    assert [(end["rank"], end["node"]) for end in first if "parameters" in end] == [(0, 0), (1, 1)]
    assert [one["node"] for one in first if one.get("side") == "outside"] == [0, 1]
    clocks = [one for one in first if "monotonic" in one and one["node"] == 1]
    (here, *_) = [one["monotonic"] for one in first if "monotonic" in one and one["node"] == 0]
    assert len(clocks) == 4
    assert all(abs(one["origin"][0] - here[0] - 1_000_000) < 100 for one in clocks)
    assert max(one["bound_ns"] for one in clocks) < 100_000_000
    assert not list(folder.parent.glob("*.debug/node-1"))


def _replaced(text: str, parts: dict[str, str]) -> str:
    for old, new in parts.items():
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize(
    ("framework", "backend"), [("tensorflow", "ring"), ("mxnet", "cpu"), ("jax", "gloo")]
)
def test_ranks_of_two_nodes_exchange_gradients(framework: str, backend: str, nodes: Nodes) -> None:
    for number in range(2):
        nodes.start(number, *TRAINING, "telemetry=false", "fingerprint=false", framework=framework)
    nodes.wait_for("repeat_end", 1)
    nodes.programs[0].send_signal(signal.SIGINT)
    assert nodes.codes(BOUND_S) == [130, 0], nodes.output
    first = [event["data"] for event in nodes.log() if event["repeat"] == 0]
    parameters = [one["parameters"] for one in first if "parameters" in one]
    assert parameters[0] == parameters[1]
    assert len(set(parameters[0].values())) == 3
    inside = [one["facts"]["framework"]["exchange"] for one in first if one.get("side") == "inside"]
    assert [one["backend"] for one in inside] == [backend] * 2
    assert "127.0.0.1" not in json.dumps(inside)


def ranks_of(program: subprocess.Popen[str], timeout: float = 60) -> tuple[list[int], list[int]]:
    """The parents and the ranks that ``program`` has started, once there is a rank."""
    until = time.monotonic() + timeout
    while time.monotonic() < until:
        parents = workers_of(program.pid)
        if ranks := [rank for parent in parents for rank in workers_of(parent)]:
            return parents, ranks
        time.sleep(0.05)
    raise AssertionError(f"no rank in {timeout} s")


def test_lost_samples_of_another_node_are_reported(nodes: Nodes) -> None:
    for number in range(2):
        nodes.start(number, *TRAINING, "batch=100000", "data=synthetic", "fingerprint=false")
    nodes.wait_for("clock", 4)  # two at the start of the repeat, two at the start of the window
    (sampler,) = workers_of(nodes.programs[1].pid, b"suite.telemetry.sampler")
    os.kill(sampler, signal.SIGKILL)
    nodes.wait_for("repeat_end", 1)
    nodes.programs[0].send_signal(signal.SIGINT)
    assert nodes.codes(BOUND_S) == [130, 0], nodes.output
    expected = "samples of telemetry are missing: node 1: the sampling process ended with status -9"
    assert expected in nodes.output[0]


@pytest.mark.parametrize("lost", ["a rank", "node 1"])
def test_lost_rank_of_another_node_ends_the_run_and_is_named(lost: str, nodes: Nodes) -> None:
    for number in range(2):  # with steps so long that the window lasts some seconds
        nodes.start(number, *TRAINING, "telemetry=false", "batch=100000", "data=synthetic")
    nodes.wait_for("clock", 4)  # two at the start of the repeat, two at the start of the window
    processes = [ranks_of(program) for program in nodes.programs]
    (rank,) = processes[1][1]
    time.sleep(1)
    victim = nodes.programs[1].pid if lost == "node 1" else rank
    os.kill(victim, signal.SIGKILL)
    began = time.monotonic()
    codes = nodes.codes(timeout=BOUND_S + 30)
    assert time.monotonic() - began < BOUND_S
    expected = {"a rank": [22, 0], "node 1": [20, -9]}[lost]
    assert codes == expected, nodes.output
    (abort,) = [event["data"] for event in nodes.log() if event["kind"] == "abort"]
    assert (abort["rank"], abort["node"]) == (1, 1), abort
    assert "rank 1 (node 1)" in nodes.output[0]
    assert all_ended([pid for found in processes for pid in (*found[0], *found[1])], timeout=30)


def test_lost_node_0_ends_the_others(nodes: Nodes) -> None:
    for number in range(2):
        nodes.start(number, *TRAINING)
    nodes.wait_for("repeat_start", 1)
    processes = [ranks_of(program) for program in nodes.programs]
    nodes.programs[0].kill()
    assert nodes.codes(BOUND_S) == [-9, 20]
    assert "node 0 was lost" in nodes.output[1]
    assert all_ended([pid for found in processes for pid in (*found[0], *found[1])], timeout=30)


@pytest.mark.parametrize("alone", [0, 1])
def test_node_without_the_other_gives_up(alone: int, nodes: Nodes) -> None:
    nodes.start(alone, *TRAINING, join_s=2)
    assert nodes.codes(60) == [23]
    expected = "found no node 1" if alone == 0 else f"expected node 0 at 127.0.0.1:{nodes.port} in 2 s"
    assert expected in nodes.output[0]
    assert not nodes.log()
    written = nodes.folder / "exit_code.txt"  # Slurm's script reads it: srun returns a killed node's code
    assert (written.read_text() if written.exists() else "") == ("23\n" if alone == 0 else "")


def test_node_with_other_options_is_refused(nodes: Nodes) -> None:
    nodes.start(0, *TRAINING)
    nodes.start(1, *TRAINING, "batch=128")
    assert nodes.codes(60) == [14, 14]
    for output in nodes.output:
        assert "node 1: header.key.batch: expected 256, as on node 0, found 128" in output
    assert not nodes.log()


def test_node_with_another_token_is_not_admitted(nodes: Nodes) -> None:
    nodes.start(0, *TRAINING, join_s=8)
    nodes.token = secrets.token_hex(32)
    nodes.start(1, *TRAINING, join_s=3)
    assert nodes.codes(60) == [23, 23]


@pytest.mark.parametrize("dry", ["dry=false", "dry=true"])
def test_run_on_several_nodes_needs_a_launcher(dry: str, tmp_path: Path) -> None:
    argv = command(tmp_path, "runtime=native", *TRAINING, dry)
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 10
    assert "use LAUNCHER=slurm or kubernetes" in done.stderr
