"""Submit a Slurm job, follow it to its end, and cancel it when the user interrupts."""

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
_LAG_S = 30  # until a file written on the node is visible on this machine
_SILENT_S = 600  # longest time without an answer of the controller; the job continues meanwhile
_CANCEL_S = 45  # Slurm gives a cancelled job 30 s
_STATES = {  # final states: exit code and message if the script wrote no exit code
    "COMPLETED": (
        KILLED,
        f"ended, but {EXIT_CODE} is missing: is this folder on a file system that the node shares?",
    ),
    "FAILED": (KILLED, "ended before the run: see its output"),
    "TIMEOUT": (TIMED_OUT, "reached its time limit: raise launcher.time"),
    "DEADLINE": (TIMED_OUT, "reached its deadline"),
    "OUT_OF_MEMORY": (OUT_OF_MEMORY, "ran out of memory: raise launcher.memory"),
    "CANCELLED": (INTERRUPTED, "was cancelled"),
    "PREEMPTED": (INTERRUPTED, "was preempted by another job: submit it again, or set launcher.qos"),
    "REVOKED": (INTERRUPTED, "was revoked"),
    "NODE_FAIL": (KILLED, "lost its node: submit it again"),
    "BOOT_FAIL": (KILLED, "could not start its node: submit it again"),
}
_SIGNALLED = 128  # a shell's exit code of a command that a signal ended, less the signal


@dataclass(frozen=True, slots=True)
class JobState:
    """The state of a job in Slurm and its reason, such as PENDING (Resources); GONE if it lists none."""

    name: str
    reason: str = ""

    def __str__(self) -> str:
        return self.name + (f" ({self.reason})" if self.reason not in ("", "None") else "")

    @property
    def final(self) -> bool:
        """Whether the job does not leave this state."""
        return self == GONE or self.name in _STATES

    @property
    def killed(self) -> bool:
        """Whether Slurm ended the job, so that the script writes no exit code."""
        return self.name in _STATES and self.name not in ("COMPLETED", "FAILED")


GONE = JobState("GONE")


def submit(script: Path, wait: bool) -> int:
    """Submit ``script`` with sbatch; with ``wait`` follow the job and return the exit code of its run.

    ``script`` lies in the folder that it was made for (:func:`suite.launch.script.script`). The stdout and
    stderr of the run are copied to those of this process. SIGINT, SIGTERM and SIGHUP cancel the job: 130.
    Without ``wait``, 0 means that Slurm accepted the job. Unsupported if sbatch is missing or refuses.
    """
    with Interrupts() as interrupts:
        # Signals are delayed until the job number is known, so that the job can be cancelled.
        job = _SlurmJob(_sbatch(script), script.parent)
        job.report(f"submitted; its script and output are in {job.folder}")
        if not wait:
            job.report(f"not followed (launcher.wait=false); `squeue --job={job.number}` shows its state")
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
    # SBATCH_PARTITION and similar variables would override the script. SLURM_* of a surrounding allocation
    # describe another job.
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("SBATCH_", "SLURM_"))
    }
    environment |= {name: os.environ[name] for name in ("SLURM_CONF",) if name in os.environ}
    done = _slurm(["sbatch", "--parsable", str(script)], environment)
    message = _message(done.stderr)
    found = re.match(r"(\d+)", done.stdout.strip())
    if done.returncode or found is None:
        raise Unsupported(
            f"launcher: Slurm refused the job: {message or 'without a reason'}; "
            "see launcher.* in conf/launcher/slurm.yaml, and `sinfo` for the partitions of this cluster"
        )
    if message:
        print(message, file=sys.stderr, flush=True)
    return int(found[1])


def _message(stderr: str) -> str:
    """The error message of a Slurm command, in one line without the command's name."""
    lines = (re.sub(r"^s\w+: (error: )?", "", line.strip()) for line in stderr.splitlines())
    return "; ".join(line for line in lines if line)[-500:]


def _slurm(
    argv: Sequence[str], environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a Slurm command in a separate session: Ctrl-C reaches the suite only."""
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


class _SlurmJob:
    """A submitted job and its folder."""

    def __init__(self, number: int, folder: Path) -> None:
        self.number, self.folder = number, folder
        self._tails = (
            _Tail(folder / OUTPUT, sys.stdout.buffer),
            _Tail(folder / ERRORS, sys.stderr.buffer),
        )

    def report(self, text: str, kind: str = "") -> None:
        """Print a line about this job on stderr."""
        print(f"{kind}job {self.number}: {text}", file=sys.stderr, flush=True)

    def follow(self) -> int:
        """Print the job's states and output until it has ended; returns the exit code of its run."""
        reported: JobState | None = JobState("")
        answered_at, ended_at = time.monotonic(), None
        while True:
            now, state, record = time.monotonic(), self._state(), self._exit_record()
            self._copy_output()
            if record is not None:
                return self._finished(*record)
            if state is not None:
                answered_at = now
            elif now - answered_at > _SILENT_S:
                return self._lost(f"Slurm has not answered for {_SILENT_S} s")
            if state != reported:
                self.report("Slurm does not answer; asking again" if state is None else str(state))
                reported = state
            if state is not None and state.final:
                ended_at = ended_at or now
                if now - ended_at >= (_POLL_S if state.killed else _LAG_S):
                    return self._without_exit_code(state)
            time.sleep(_POLL_S)

    def cancel(self, received: int) -> int:
        """Cancel the job, in order if it runs already, and return 130."""
        self.report(f"{signal.Signals(received).name} was received, the job is being cancelled")
        state = self._state()
        if state is not None and state.name == "RUNNING":
            # To the script only: a signal to the workers would look like a crash.
            _slurm(["scancel", "--batch", "--signal=TERM", str(self.number)])
            _wait_for(lambda: self._exit_record() is not None)
        if self._exit_record() is None:
            done = _slurm(["scancel", str(self.number)])
            if not _wait_for(self._ended):
                problem = _message(done.stderr) or "it has not ended yet"
                self.report(f"{problem}; cancel it with `scancel {self.number}`", "error: ")
        self._copy_output()
        if (record := self._exit_record()) is not None:
            self._finished(*record)
        return INTERRUPTED

    def _state(self) -> JobState | None:
        """The state of the job; None if Slurm does not answer."""
        done = _slurm(["scontrol", "show", "job", "--oneliner", str(self.number)])
        if done.returncode:
            return GONE if "Invalid job id" in done.stderr + done.stdout else None
        found = re.search(r"\bJobState=(\w+) Reason=(\S*)", done.stdout)
        return JobState(found[1], found[2]) if found else None

    def _ended(self) -> bool:
        state = self._state()
        return state is not None and state.final

    def _exit_record(self) -> tuple[int, str] | None:
        """Exit code and reason as the script wrote them; None if it has not."""
        try:
            code, why = (self.folder / EXIT_CODE).read_text().split()
            return int(code), why
        except (OSError, ValueError):
            return None

    def _copy_output(self) -> None:
        for tail in self._tails:
            tail.copy()

    def _finished(self, code: int, why: str) -> int:
        """Report the end of the run; returns its exit code."""
        if why == TIME_LIMIT and code:
            self.report("Slurm's time limit ended the run; raise launcher.time", "error: ")
            return TIMED_OUT
        if why == CANCELLED and code:
            self.report("was cancelled", "error: ")
            return INTERRUPTED
        if code > _SIGNALLED and code != INTERRUPTED:
            self.report(f"the run was ended by signal {code - _SIGNALLED}", "error: ")
            return KILLED
        self.report(f"ended with exit code {code}")
        return code

    def _without_exit_code(self, state: JobState) -> int:
        """Report the end of a job whose script wrote no exit code; returns an exit code."""
        if state == GONE:
            return self._lost("Slurm no longer lists it")
        code, sentence = _STATES[state.name]
        self.report(f"{sentence} ({self.folder})", "error: ")
        return code

    def _lost(self, why: str) -> int:
        self.report(f"lost: {why}, and there is no {EXIT_CODE} in {self.folder}", "error: ")
        return KILLED


def _wait_for(happened: Callable[[], bool]) -> bool:
    until = time.monotonic() + _CANCEL_S
    while not (found := happened()) and time.monotonic() < until:
        time.sleep(1)
    return found


class _Tail:
    """Copies the new bytes of a growing file."""

    def __init__(self, path: Path, to: IO[bytes]) -> None:
        self._path, self._to, self._at = path, to, 0

    def copy(self) -> None:
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                new = file.read()
        except OSError:  # missing before the job starts, or not visible yet
            return
        self._at += len(new)
        self._to.write(new)
        self._to.flush()
