"""The sbatch file of one run: options, and a few lines of shell that the node executes.

All values in the shell text are quoted.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from suite.plan.slurm_options import WARNING_S, SlurmOptions

SCRIPT, OUTPUT, ERRORS, EXIT_CODE = "job.sh", "stdout.txt", "stderr.txt", "exit_code.txt"
ENDED, TIME_LIMIT, CANCELLED = "ended", "time-limit", "cancelled"  # the reason in EXIT_CODE
_EXPORTED = (  # needed by the suite, the container engines and site Pythons; other variables are not exported
    *("HOME", "USER", "LOGNAME", "PATH", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "XDG_RUNTIME_DIR"),
    *("DOCKER_HOST", "DOCKER_CONTEXT", "ENROOT_CACHE_PATH", "ENROOT_DATA_PATH", "ENROOT_RUNTIME_PATH"),
)
_BODY = """\
set -euo pipefail
cd {root}

{command} &
run=$!

# Slurm's signals reach this script only. It ends the run, so that the log states the reason.
asked=1 why={ended}
trap 'asked=1 why={time_limit}; kill -TERM "$run" 2>/dev/null || true' INT
trap 'asked=1 why={cancelled}; kill -TERM "$run" 2>/dev/null || true' TERM
while ((asked)); do # a signal cuts `wait` short
  asked=0 code=0
  wait "$run" || code=$?
done

# Slurm forgets how a job ended after some minutes; this file stays.
printf '%s %s\\n' "$code" "$why" >{exit_code}.new
mv {exit_code}.new {exit_code}
exit "$code"
"""


def script(
    options: SlurmOptions, command: Sequence[str], *, job_name: str, folder: Path, root: Path, gpus: int
) -> str:
    """The sbatch file that runs ``command`` (an argv list) in ``root`` on one node with ``gpus`` GPUs.

    The job writes :data:`OUTPUT`, :data:`ERRORS` and, last, :data:`EXIT_CODE` (the exit code and one of
    ended, time-limit, cancelled) to ``folder``, an absolute path that the node shares.
    """
    lines = [f"#SBATCH {name}={_escaped(value)}" for name, value in _options(options, job_name, folder, gpus)]
    lines += ["#SBATCH --no-requeue"]
    if options.cpus is None:
        lines += ["#SBATCH --exclusive"]
    for option in options.extra:
        name, equals, value = option.partition("=")
        lines.append(f"#SBATCH {name}{equals}{_escaped(value)}")
    body = _BODY.format(
        root=shlex.quote(str(root)),
        command=shlex.join(command),
        ended=ENDED,
        time_limit=TIME_LIMIT,
        cancelled=CANCELLED,
        exit_code=shlex.quote(str(folder / EXIT_CODE)),
    )
    return "\n".join(["#!/bin/bash", *lines, body])


def _options(options: SlurmOptions, job_name: str, folder: Path, gpus: int) -> Iterator[tuple[str, str]]:
    yield "--job-name", job_name
    yield "--output", _no_pattern(folder / OUTPUT)
    yield "--error", _no_pattern(folder / ERRORS)
    yield "--export", ",".join(_EXPORTED)
    yield "--nodes", "1"
    yield "--ntasks", "1"
    yield "--time", options.time
    yield "--signal", f"B:INT@{WARNING_S}"
    for name in ("partition", "account", "constraint", "qos", "reservation"):
        if (value := getattr(options, name)) is not None:
            yield f"--{name}", value
    if options.cpus is not None:
        yield "--cpus-per-task", str(options.cpus)
    memory = options.memory or ("0" if options.cpus is None else None)  # 0: all that the node has
    if memory is not None:
        yield "--mem", memory
    if gpus:  # --gres instead of --gpus: all of Slurm's plugins for resource selection support it
        yield "--gres", f"gpu:{options.gpu_kind}:{gpus}" if options.gpu_kind else f"gpu:{gpus}"


def _no_pattern(path: Path) -> str:
    """``path`` with % doubled: sbatch replaces patterns such as %j."""
    return str(path).replace("%", "%%")


def _escaped(value: str) -> str:
    """``value`` as sbatch reads it from an #SBATCH line, where # begins a comment and a blank a value."""
    text = re.sub(r"""([\\"'#])""", r"\\\1", value)
    return f'"{text}"' if " " in text else text  # sbatch accepts no escaped blanks
