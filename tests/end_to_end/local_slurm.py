"""A Slurm of this machine for tests: controller, nodes and munge of Debian's packages.

The packages are fetched with ``apt-get download`` and unpacked into a folder: nothing is installed. All
daemons listen on the loopback address with a key made for the test, write only below one folder and are ended
by their pid files.
"""

from __future__ import annotations

import fcntl
import getpass
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from suite.contract.network import unused_ports
from tests.end_to_end.command import ROOT, all_ended

PACKAGES = (
    *("libhwloc15", "liblua5.1-0", "libmunge2", "munge"),
    *("slurm-wlm-basic-plugins", "slurm-client", "slurmctld", "slurmd"),
)
MEMORY_MB = 2000
_START_S = 60
_STOP_S = 20


class NoSlurmError(Exception):
    """The reason why no Slurm can run on this machine."""


@dataclass(frozen=True, slots=True)
class Slurm:
    """A running Slurm; ``environment`` has the variables that its commands need."""

    environment: Mapping[str, str]
    folder: Path

    def run(self, *argv: str) -> str:
        """The output of one of Slurm's commands; CalledProcessError if it fails."""
        environment = os.environ | dict(self.environment)
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout


def unpack(folder: Path) -> Path:
    """Unpack the packages below ``folder``, unless an earlier call did; NoSlurmError if that fails.

    Processes of pytest-xdist call this at the same time: one unpacks, the others wait for it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    complete = folder / "whole"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if complete.exists():
            return folder
        fetched = folder / "packages"
        shutil.rmtree(fetched, ignore_errors=True)  # what an attempt that failed left
        fetched.mkdir()
        for tool in ("apt-get", "dpkg"):
            if shutil.which(tool) is None:
                raise NoSlurmError(f"{tool} is not installed: the test takes Slurm from Debian's packages")
        _fetch(fetched)
        for package in sorted(fetched.glob("*.deb")):
            subprocess.run(["dpkg", "-x", str(package), str(folder)], timeout=120, check=True)
        complete.touch()
    return folder


def _fetch(folder: Path) -> None:
    argv = ["apt-get", "download", "-qq", *PACKAGES]
    for attempt in ("with present lists", "with updated lists"):
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode == 0:
            return
        if attempt == "with present lists" and os.geteuid() == 0:
            subprocess.run(["apt-get", "update", "-qq"], capture_output=True, timeout=300, check=False)
    raise NoSlurmError(f"apt-get download failed: {done.stderr.strip()[-500:]}")


@contextmanager
def slurm_for_tests(folder: Path, nodes: int = 1) -> Iterator[Slurm]:
    """A Slurm of ``nodes`` nodes; where none can run, tests with CI=true fail, and others are skipped."""
    try:
        with local_slurm(unpack(ROOT / ".cache" / "slurm-packages"), folder, nodes) as slurm:
            yield slurm
    except NoSlurmError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))


@contextmanager
def local_slurm(packages: Path, folder: Path, nodes: int = 1) -> Iterator[Slurm]:
    """A Slurm of ``nodes`` nodes from the unpacked ``packages``, its files below ``folder``."""
    for name in ("run", "log", "state", "spool"):
        (folder / name).mkdir(parents=True)
    folder.chmod(0o755)  # munged refuses a socket that others could not reach
    libraries = packages / "usr/lib/x86_64-linux-gnu"
    environment = {
        "PATH": f"{packages / 'usr/bin'}:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": f"{libraries}:{libraries / 'slurm-wlm'}",
        "SLURM_CONF": str(folder / "slurm.conf"),
    }
    (folder / "slurm.conf").write_text(_configuration(libraries / "slurm-wlm", folder, nodes))
    slurm = Slurm(environment, folder)
    with ExitStack() as stack:
        for argv, pid_file in _daemons(packages / "usr/sbin", folder, nodes):
            # Registered before the start: a daemon detaches before it is ready, and may fail afterwards.
            stack.callback(_stop, folder / "run" / pid_file)
            done = subprocess.run(
                argv, env=os.environ | environment, capture_output=True, text=True, timeout=60, check=False
            )
            if done.returncode:
                raise NoSlurmError(f"{argv[0]} did not start: {done.stderr.strip()[-500:]}")
        _wait_until_idle(slurm)
        yield slurm


def _daemons(programs: Path, folder: Path, nodes: int) -> Iterator[tuple[list[str], str]]:
    """The argv and the pid file of each daemon."""
    run, log, key = folder / "run", folder / "log", folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o400)
    munged = [
        *(str(programs / "munged"), "--force", "--key-file", str(key), "--socket", str(run / "munge.socket")),
        *("--pid-file", str(run / "munged.pid"), "--log-file", str(log / "munged")),
        *("--seed-file", str(run / "munge.seed")),
    ]
    yield munged, "munged.pid"
    yield [str(programs / "slurmctld-wlm"), "-c"], "slurmctld.pid"
    for node in node_names(nodes):
        argv = [str(programs / "slurmd-wlm"), "-N", node, "-d", str(programs / "slurmstepd-wlm")]
        yield argv, f"slurmd-{node}.pid"


def node_names(nodes: int) -> list[str]:
    """The names of the nodes."""
    return [f"n{number}" for number in range(nodes)]


def _configuration(plugins: Path, folder: Path, nodes: int) -> str:
    host, user = socket.gethostname().split(".")[0], getpass.getuser()
    controller, *ports = unused_ports("127.0.0.1", 1 + nodes)
    settings = {
        "ClusterName": "test",
        "SlurmctldHost": f"{host}(127.0.0.1)",
        "SlurmUser": user,
        "SlurmdUser": user,
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={folder}/run/munge.socket",
        "CredType": "cred/munge",
        "CommunicationParameters": "NoCtldInAddrAny,NoInAddrAny",
        "PluginDir": plugins,
        "SlurmctldPort": controller,
        "StateSaveLocation": folder / "state",
        "SlurmdSpoolDir": folder / "spool/%n",
        "SlurmctldPidFile": folder / "run/slurmctld.pid",
        "SlurmdPidFile": folder / "run/slurmd-%n.pid",
        "SlurmctldLogFile": folder / "log/slurmctld",
        "SlurmdLogFile": folder / "log/slurmd-%n",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "JobAcctGatherType": "jobacct_gather/none",
        "AccountingStorageType": "accounting_storage/none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory",
        "MpiDefault": "none",
        "SwitchType": "switch/none",
        "ReturnToService": 2,
        "KillWait": 5,
    }
    lines = [f"{name}={value}" for name, value in settings.items()]
    cores = len(os.sched_getaffinity(0))
    for name, port in zip(node_names(nodes), ports, strict=True):
        where = f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port}"
        lines += [f"{where} CPUs={cores} RealMemory={MEMORY_MB // nodes} State=UNKNOWN"]
    lines += [
        f"PartitionName=debug Nodes={','.join(node_names(nodes))} Default=YES MaxTime=INFINITE State=UP"
    ]
    return "\n".join(lines) + "\n"


def _wait_until_idle(slurm: Slurm) -> None:
    until = time.monotonic() + _START_S
    message = ""
    while time.monotonic() < until:
        try:
            message = slurm.run("sinfo", "--noheader", "--format=%T").strip()
        except subprocess.CalledProcessError as error:
            message = error.stderr.strip()
        if set(message.split()) == {"idle"}:
            return
        time.sleep(0.5)
    raise NoSlurmError(f"the nodes were not idle after {_START_S} s: {json.dumps(message[-500:])}")


def _stop(pid_file: Path) -> None:
    """End the daemon of ``pid_file`` and wait until it has ended."""
    try:
        pid = int(pid_file.read_text())
    except (OSError, ValueError):
        return
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        if not all_ended([pid], _STOP_S):
            os.kill(pid, signal.SIGKILL)
