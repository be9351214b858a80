"""The sbatch file of one run: options, and a few lines of shell that the node executes.

All values in the shell text are quoted.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from suite.launch.placement import JOIN, JOIN_S
from suite.plan.slurm_options import WARNING_S, SlurmOptions

# srun kills the other tasks so many seconds after a first one has ended. If that is a node that failed before
# it joined, node 0 still waits for it, and then needs this long to report which node is missing.
_REPORT_S = 60
SCRIPT, OUTPUT, ERRORS, EXIT_CODE = "job.sh", "stdout.txt", "stderr.txt", "exit_code.txt"
ENDED, TIME_LIMIT, CANCELLED = "ended", "time-limit", "cancelled"  # the reason in EXIT_CODE
_EXPORTED = (  # needed by the suite, the container engines and site Pythons; other variables are not exported
    *("HOME", "USER", "LOGNAME", "PATH", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "XDG_RUNTIME_DIR"),
    *("DOCKER_HOST", "DOCKER_CONTEXT", "ENROOT_CACHE_PATH", "ENROOT_DATA_PATH", "ENROOT_RUNTIME_PATH", JOIN),
)
_BODY = """\
set -euo pipefail
cd {root}
{before}
{command} &
run=$!

# Slurm's signals reach this script only. It ends the run, so that the log states the reason.
asked=1 why={ended}
trap 'asked=1 why={time_limit}; {end} 2>/dev/null || true' INT
trap 'asked=1 why={cancelled}; {end} 2>/dev/null || true' TERM
while ((asked)); do # a signal cuts `wait` short
  asked=0 code=0
  wait "$run" || code=$?
done
{after}
# Slurm forgets how a job ended after some minutes; this file stays.
printf '%s %s\\n' "$code" "$why" >{exit_code}.new
mv {exit_code}.new {exit_code}
exit "$code"
"""
# Node 0 listens at the address from which srun starts the tasks, which they know. The token exists in the
# variables of the job's processes only. Node 0 finds a node that was lost, and ends the run: srun waits for
# it, and does not kill it with the first failure. srun returns the highest exit code, that of a killed node:
# node 0 writes its own to a file.
_SEVERAL_NODES = """\
export SUITE_TOKEN SUITE_NODE_0 SUITE_EXIT_CODE={own}
SUITE_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \\n')
SUITE_NODE_0=:$((20000 + SLURM_JOB_ID % 10000))
"""
# srun would kill its tasks at once if it were ended; the tasks end the run in order.
_END, _END_OF_NODES = 'kill -TERM "$run"', 'scancel --signal=TERM "$SLURM_JOB_ID.0"'
_OWN_CODE = "if [[ -s {own} ]]; then code=$(<{own}); fi"
_SRUN = ("--export=ALL", "--kill-on-bad-exit=0", "--cpu-bind=none", "--unbuffered")


def script(
    options: SlurmOptions,
    command: Sequence[str],
    *,
    job_name: str,
    folder: Path,
    root: Path,
    gpus: int,
    nodes: int = 1,
    join_s: float = JOIN_S,
) -> str:
    """The sbatch file that runs ``command``, an argv list, in ``root``.

    It runs on ``nodes`` nodes with ``gpus`` GPUs each, of which node 0 waits ``join_s`` for the others.
    The job writes :data:`OUTPUT`, :data:`ERRORS` and, last, :data:`EXIT_CODE` (the exit code and one of
    ended, time-limit, cancelled) to ``folder``, an absolute path that the node shares.
    """
    lines = [
        f"#SBATCH {name}={_escaped(value)}"
        for name, value in _options(options, job_name, folder, gpus, nodes)
    ]
    lines += ["#SBATCH --no-requeue"]
    if options.cpus is None:
        lines += ["#SBATCH --exclusive"]
    for option in options.extra:
        name, equals, value = option.partition("=")
        lines.append(f"#SBATCH {name}{equals}{_escaped(value)}")
    if nodes > 1:
        cpus = [] if options.cpus is None else [f"--cpus-per-task={options.cpus}"]
        srun = [f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", *_SRUN, *cpus]
        srun.append(f"--wait={math.ceil(join_s) + _REPORT_S}")
        command = ["srun", *srun, *command]
    own = shlex.quote(str(folder / "node_0.txt"))
    body = _BODY.format(
        root=shlex.quote(str(root)),
        end=_END_OF_NODES if nodes > 1 else _END,
        before=_SEVERAL_NODES.format(own=own) if nodes > 1 else "",
        after=_OWN_CODE.format(own=own) + "\n" if nodes > 1 else "",
        command=shlex.join(command),
        ended=ENDED,
        time_limit=TIME_LIMIT,
        cancelled=CANCELLED,
        exit_code=shlex.quote(str(folder / EXIT_CODE)),
    )
    return "\n".join(["#!/bin/bash", *lines, body])


def _options(
    options: SlurmOptions, job_name: str, folder: Path, gpus: int, nodes: int
) -> Iterator[tuple[str, str]]:
    yield "--job-name", job_name
    yield "--output", _no_pattern(folder / OUTPUT)
    yield "--error", _no_pattern(folder / ERRORS)
    yield "--export", ",".join(_EXPORTED)
    yield "--nodes", str(nodes)
    yield "--ntasks", str(nodes)
    if nodes > 1:
        yield "--ntasks-per-node", "1"
    yield "--time", options.time
    yield "--signal", f"B:INT@{WARNING_S}"
    for name in ("partition", "account", "constraint", "qos", "reservation"):
        if (value := getattr(options, name)) is not None:
            yield f"--{name}", value
    if options.exclude:
        yield "--exclude", ",".join(one.host for one in options.exclude)
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
