"""One job of Slurm: submitted, followed to its end, cancelled when the user goes."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from suite.harness.interrupts import Interrupted, Interrupts
from suite.launch.script import CANCELLED, ERRORS, EXIT_CODE, OUTPUT, TIME_LIMIT
from suite.plan.errors import Unsupported

INTERRUPTED, OUT_OF_MEMORY, KILLED, TIMED_OUT = 130, 21, 22, 23  # exit codes of `python -m suite run`
_POLL_S = 3
_COMMAND_S = 60
_LAG_S = 30  # until a file written on the node is seen here
_SILENT_S = 600  # how long the controller may be away; the job goes on meanwhile
_CANCEL_S = 45  # Slurm itself gives a cancelled job 30 s
_STATES = {  # states that a job does not leave: exit code and sentence where the script could not tell
    "COMPLETED": (KILLED, f"ended, but {EXIT_CODE} is missing: is this folder on a file system of the node?"),
    "FAILED": (KILLED, "ended before the run could: see its output"),
    "TIMEOUT": (TIMED_OUT, "reached its time limit: raise launcher.time"),
    "DEADLINE": (TIMED_OUT, "reached its deadline"),
    "OUT_OF_MEMORY": (OUT_OF_MEMORY, "ran out of memory: raise launcher.memory"),
    "CANCELLED": (INTERRUPTED, "was cancelled"),
    "PREEMPTED": (INTERRUPTED, "had to make room for another job: submit it again, or set launcher.qos"),
    "REVOKED": (INTERRUPTED, "was revoked"),
    "NODE_FAIL": (KILLED, "lost its node: submit it again"),
    "BOOT_FAIL": (KILLED, "could not start its node: submit it again"),
}
_SIGNALLED = 128  # a shell's exit code of a command that a signal ended, less the signal


@dataclass(frozen=True, slots=True)
class JobState:
    """What Slurm says of a job, such as PENDING and Resources; name GONE where it does not know it."""

    name: str
    reason: str = ""

    def __str__(self) -> str:
        return self.name + (f" ({self.reason})" if self.reason not in ("", "None") else "")

    @property
    def final(self) -> bool:
        """Whether nothing follows."""
        return self == GONE or self.name in _STATES

    @property
    def killed(self) -> bool:
        """Whether Slurm ended the job, so that no exit code of the script is on its way."""
        return self.name in _STATES and self.name not in ("COMPLETED", "FAILED")


GONE = JobState("GONE")


def submit(script: Path, wait: bool) -> int:
    """Hand ``script`` to sbatch; with ``wait`` follow the job and return the exit code of its run.

    ``script`` lies in the folder that it was made for (:func:`suite.launch.script.script`). What the run
    writes to stdout and stderr appears on those of this process. SIGINT, SIGTERM and SIGHUP cancel the job:
    130. Without ``wait`` 0 means that the job was accepted. Unsupported where sbatch is missing or refuses.
    """
    with Interrupts() as interrupts:
        # Not before the number is known: a job that was submitted is a job that can be cancelled.
        job = _Job(_sbatch(script), script.parent)
        job.say(f"submitted; its script and output are in {job.folder}")
        if not wait:
            job.say(f"not waited for (launcher.wait=false); `squeue --job={job.number}` tells its state")
            return 0
        try:
            interrupts.release()
            return job.follow()
        except Interrupted as interruption:
            return job.cancel(interruption.number)


def _sbatch(script: Path) -> int:
    if shutil.which("sbatch") is None:
        raise Unsupported(
            "launcher: expected Slurm's sbatch in PATH, found none; submit from a login node of the cluster "
            "(on some `module load slurm` first), or use LAUNCHER=local"
        )
    # SBATCH_PARTITION and the like would win over the script: a setting exported for other purposes
    # changes nothing. SLURM_* of an allocation that this is called from describes another job.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SBATCH_", "SLURM_"))}
    kept |= {name: os.environ[name] for name in ("SLURM_CONF",) if name in os.environ}
    done = _slurm(["sbatch", "--parsable", str(script)], kept)
    said = _sentence(done.stderr)
    found = re.match(r"(\d+)", done.stdout.strip())
    if done.returncode or found is None:
        raise Unsupported(
            f"launcher: Slurm refused the job: {said or 'without a reason'}; "
            "see launcher.* in conf/launcher/slurm.yaml, and `sinfo` for what this cluster offers"
        )
    if said:
        print(said, file=sys.stderr, flush=True)
    return int(found[1])


def _sentence(stderr: str) -> str:
    """What a command of Slurm said, in one line without its name."""
    lines = (re.sub(r"^s\w+: (error: )?", "", line.strip()) for line in stderr.splitlines())
    return "; ".join(line for line in lines if line)[-500:]


def _slurm(
    argv: Sequence[str], environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A finished command of Slurm, in a session of its own: Ctrl-C is for the suite alone."""
    try:
        return subprocess.run(
            argv,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_COMMAND_S,
            check=False,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(argv, 1, "", f"{argv[0]} did not answer in {_COMMAND_S} s")
    except OSError as error:
        return subprocess.CompletedProcess(argv, 1, "", f"{argv[0]}: {error.strerror}")


class _Job:
    """A submitted job and its folder."""

    def __init__(self, number: int, folder: Path) -> None:
        self.number, self.folder = number, folder
        self._tails = (
            _Tail(folder / OUTPUT, sys.stdout.buffer),
            _Tail(folder / ERRORS, sys.stderr.buffer),
        )

    def say(self, text: str, kind: str = "") -> None:
        """Tell the user something of this job."""
        print(f"{kind}job {self.number}: {text}", file=sys.stderr, flush=True)

    def follow(self) -> int:
        """Show the job's states and output until it has ended; the exit code of its run."""
        said: JobState | None = JobState("")
        heard, ended_at = time.monotonic(), None
        while True:
            now, state, recorded = time.monotonic(), self._state(), self._recorded()
            self._show()
            if recorded is not None:
                return self._concluded(*recorded)
            if state is not None:
                heard = now
            elif now - heard > _SILENT_S:
                return self._lost(f"Slurm has not answered for {_SILENT_S} s")
            if state != said:
                self.say("Slurm does not answer; asking again" if state is None else str(state))
                said = state
            if state is not None and state.final:
                ended_at = ended_at or now
                if now - ended_at >= (_POLL_S if state.killed else _LAG_S):
                    return self._unrecorded(state)
            time.sleep(_POLL_S)

    def cancel(self, received: int) -> int:
        """End the job, in order where it runs already, and return 130."""
        self.say(f"{signal.Signals(received).name} was received, the job is being cancelled")
        state = self._state()
        if state is not None and state.name == "RUNNING":
            # To the script alone: one that reached the workers too would look like a crash of theirs.
            _slurm(["scancel", "--batch", "--signal=TERM", str(self.number)])
            _wait_for(lambda: self._recorded() is not None)
        if self._recorded() is None:
            done = _slurm(["scancel", str(self.number)])
            if not _wait_for(self._gone):
                said = _sentence(done.stderr) or "it has not ended yet"
                self.say(f"{said}; see to it with `scancel {self.number}`", "error: ")
        self._show()
        if (recorded := self._recorded()) is not None:
            self._concluded(*recorded)
        return INTERRUPTED

    def _state(self) -> JobState | None:
        """The state of the job; None where Slurm does not answer."""
        done = _slurm(["scontrol", "show", "job", "--oneliner", str(self.number)])
        if done.returncode:
            return GONE if "Invalid job id" in done.stderr + done.stdout else None
        found = re.search(r"\bJobState=(\w+) Reason=(\S*)", done.stdout)
        return JobState(found[1], found[2]) if found else None

    def _gone(self) -> bool:
        state = self._state()
        return state is not None and state.final

    def _recorded(self) -> tuple[int, str] | None:
        """Exit code of the run and why it ended, as the script wrote them; None where it has not."""
        try:
            code, why = (self.folder / EXIT_CODE).read_text().split()
            return int(code), why
        except (OSError, ValueError):
            return None

    def _show(self) -> None:
        for tail in self._tails:
            tail.copy()

    def _concluded(self, code: int, why: str) -> int:
        """The exit code of a run that the script saw ending."""
        if why == TIME_LIMIT and code:
            self.say("Slurm's time limit came before the run's end; raise launcher.time", "error: ")
            return TIMED_OUT
        if why == CANCELLED and code:
            self.say("was cancelled", "error: ")
            return INTERRUPTED
        if code > _SIGNALLED and code != INTERRUPTED:
            self.say(f"the run was ended by signal {code - _SIGNALLED}", "error: ")
            return KILLED
        self.say(f"ended with exit code {code}")
        return code

    def _unrecorded(self, state: JobState) -> int:
        """The exit code of a job whose script could not tell one."""
        if state == GONE:
            return self._lost("Slurm does not know it any more")
        code, sentence = _STATES[state.name]
        self.say(f"{sentence} ({self.folder})", "error: ")
        return code

    def _lost(self, why: str) -> int:
        self.say(f"lost: {why}, and there is no {EXIT_CODE} in {self.folder}", "error: ")
        return KILLED


def _wait_for(happened: Callable[[], bool]) -> bool:
    until = time.monotonic() + _CANCEL_S
    while not (found := happened()) and time.monotonic() < until:
        time.sleep(1)
    return found


class _Tail:
    """Copies what a growing file has gained since the last look."""

    def __init__(self, path: Path, to: IO[bytes]) -> None:
        self._path, self._to, self._at = path, to, 0

    def copy(self) -> None:
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                gained = file.read()
        except OSError:  # not there before the job starts, or not seen yet
            return
        self._at += len(gained)
        self._to.write(gained)
        self._to.flush()
