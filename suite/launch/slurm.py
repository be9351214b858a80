"""``launcher=slurm``: prepare and submit a run as a Slurm job on the login node.

The compute node executes the user's command with ``launcher.on_node=true`` and the options that the login
node has decided.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from suite.launch.job import submit
from suite.launch.placement import join_seconds
from suite.launch.script import SCRIPT, script
from suite.plan.errors import StorageProblem
from suite.plan.slurm_options import ExcludedNode, SlurmOptions, login_scale, parse

__all__ = ["SlurmOptions", "launch", "login_scale", "node_command", "parse", "script", "submit"]
FOLDER = "slurm"  # under results_dir


def launch(
    options: SlurmOptions,
    command: Sequence[str],
    *,
    name: str,
    path_options: Mapping[str, Path],
    decided: Mapping[str, str],
    devices: int = 1,
    nodes: int = 1,
    dry: bool = False,
) -> int:
    """Run ``command``, a verb and Hydra overrides, as a job; returns the exit code of the command.

    ``name`` becomes the name of the job, such as gnmt-pytorch-train. ``path_options`` are data_root,
    results_dir and cache_dir: absolute paths that the node shares. ``decided`` are options that the node must
    not decide again, at least ``scale`` (:func:`login_scale`). The caller has prepared all that needs the
    network. The job has ``nodes`` nodes, with ``devices`` devices each. ``dry`` prints the script and submits
    nothing: 0. Raises Unsupported and StorageProblem.
    """
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    folder = path_options["results_dir"].resolve() / FOLDER / f"{now}-{name}-{secrets.token_hex(4)}"
    text = script(
        options,
        node_command(command, path_options=path_options, decided=decided, excluded=options.exclude),
        job_name=f"suite-{name}",
        folder=folder,
        root=Path.cwd(),
        gpus=options.gpus_for(decided["scale"], devices),
        nodes=nodes,
        join_s=join_seconds(os.environ),
    )
    if dry:
        print(text, end="")
        return 0
    try:
        folder.mkdir(parents=True)
        (folder / SCRIPT).write_text(text)
    except OSError as error:
        raise StorageProblem(
            f"launcher: the job's script cannot be written in {folder}: {error.strerror}; "
            "set RESULTS_DIR to a folder that this machine and the node can write"
        ) from error
    return submit(folder / SCRIPT, options.wait)


def node_command(
    command: Sequence[str],
    *,
    path_options: Mapping[str, Path],
    decided: Mapping[str, str],
    excluded: Sequence[ExcludedNode] = (),
    launcher: Sequence[str] = ("launcher=slurm", "launcher.on_node=true"),
    python: str = sys.executable,
) -> list[str]:
    """The argv for the node: the verb and options of ``command``, with ``path_options`` and ``decided``.

    Options of Slurm such as partition and account are left out: the node does not need them, and its
    overrides are in the public log. Of ``excluded`` nodes the log has the reasons, without the hosts' names.
    """
    added = {**decided, **{name: str(path.resolve()) for name, path in path_options.items()}}
    kept = [text for text in command if _is_kept(text, added)]
    overrides = [f"{name}={_quoted(value)}" for name, value in sorted(added.items())]
    overrides += launcher
    if excluded:
        rows = ",".join(f'"excluded:{one.reason}"' for one in excluded)
        overrides.append(f"launcher.exclude=[{rows}]")
    return [python, "-m", "suite", *kept, *overrides]


def _is_kept(override: str, added: Mapping[str, str]) -> bool:
    name = override.partition("=")[0].lstrip("+~")
    return name not in (*added, "dry", "launcher") and not name.startswith("launcher.")


def _quoted(value: str) -> str:
    """``value`` in Hydra's grammar, where commas, brackets and blanks have a meaning."""
    if re.fullmatch(r"[A-Za-z0-9_./+-]+", value):
        return value
    return '"{}"'.format(value.replace('"', '\\"'))
