"""``launcher=slurm``: the run as a job on a node, prepared, written and submitted on the login node.

The node executes the same command as the user, with ``launcher.on_node=true`` and with what the login node
has decided; Slurm is spoken to in argv lists, and containers are no business of this module.
"""

from __future__ import annotations

import re
import secrets
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from suite.launch.job import submit
from suite.launch.script import SCRIPT, script
from suite.plan.errors import StorageProblem
from suite.plan.slurm_options import SlurmOptions, login_scale, parse

__all__ = ["SlurmOptions", "launch", "login_scale", "node_command", "parse", "script", "submit"]
FOLDER = "slurm"  # below the results


def launch(
    options: SlurmOptions,
    command: Sequence[str],
    *,
    name: str,
    places: Mapping[str, Path],
    decided: Mapping[str, str],
    devices: int = 1,
    dry: bool = False,
) -> int:
    """Run ``command``, a verb and Hydra overrides, as a job; returns the exit code of the command.

    ``name`` becomes the job's, such as gnmt-pytorch-train. ``places`` are data_root, results_dir and
    cache_dir, absolute and seen from the node. ``decided`` are words that the node must not decide anew,
    ``scale`` at least (:func:`login_scale`). Everything that needs the network is to be prepared before.
    ``dry`` prints the script and submits nothing: 0. Raises Unsupported and StorageProblem.
    """
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    folder = places["results_dir"].resolve() / FOLDER / f"{now}-{name}-{secrets.token_hex(4)}"
    text = script(
        options,
        node_command(command, places=places, decided=decided),
        job_name=f"suite-{name}",
        folder=folder,
        root=Path.cwd(),
        gpus=options.gpus_for(decided["scale"], devices),
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
            "set RESULTS_DIR to a folder that can be written here and on the node"
        ) from error
    return submit(folder / SCRIPT, options.wait)


def node_command(
    command: Sequence[str],
    *,
    places: Mapping[str, Path],
    decided: Mapping[str, str],
    python: str = sys.executable,
) -> list[str]:
    """The argv of the node's part: the verb and the options of ``command``, with paths and what was decided.

    Partition, account and the like stay behind: the node needs none of them, and its overrides go into a
    log that others will read.
    """
    given = {**decided, **{name: str(place.resolve()) for name, place in places.items()}}
    kept = [text for text in command if _stays(text, given)]
    words = [f"{name}={_quoted(value)}" for name, value in sorted(given.items())]
    return [python, "-m", "suite", *kept, *words, "launcher=slurm", "launcher.on_node=true"]


def _stays(override: str, given: Mapping[str, str]) -> bool:
    name = override.partition("=")[0].lstrip("+~")
    return name not in (*given, "dry", "launcher") and not name.startswith("launcher.")


def _quoted(value: str) -> str:
    """``value`` in Hydra's grammar, in which commas, brackets and blanks mean something."""
    if re.fullmatch(r"[A-Za-z0-9_./+-]+", value):
        return value
    return '"{}"'.format(value.replace('"', '\\"'))
