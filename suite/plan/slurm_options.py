"""The validated ``launcher`` section of the configuration, and the choice of the scale on a login node."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from suite.plan.errors import BadConfiguration, did_you_mean

FIELDS = frozenset(
    {
        *("name", "partition", "account", "constraint", "qos", "reservation", "time", "gpus", "cpus"),
        *("memory", "exclude", "extra", "wait", "on_node"),
    }
)
WARNING_S = 60  # Slurm signals the run so long before its time limit, so that the log states the reason
_TEXT_FIELDS = ("partition", "account", "constraint", "qos", "reservation")
_MAX_CHARACTERS = 200
_TIME = re.compile(  # sbatch's formats: minutes, [hours:]minutes:seconds, days-hours[:minutes[:seconds]]
    r"(?:(?P<days>\d{1,4})-(?P<h1>\d{1,3})(?::(?P<m1>\d{1,3})(?::(?P<s1>\d{1,3}))?)?"
    r"|(?:(?P<h2>\d{1,5}):)?(?P<m2>\d{1,6}):(?P<s2>\d{1,3})|(?P<m3>\d{1,6}))"
)
_RESERVED = {  # sbatch options that the suite writes itself, and what to set instead
    **{f"--{name}": f"launcher.{name}" for name in (*_TEXT_FIELDS, "time")},
    "--gpus": "launcher.gpus",
    "--gres": "launcher.gpus",
    "--cpus-per-task": "launcher.cpus",
    "--exclusive": "launcher.cpus=auto",
    "--mem": "launcher.memory",
    "--wait": "launcher.wait",
    **dict.fromkeys(("--nodes", "--ntasks", "--ntasks-per-node"), "NODES, with one task on each"),
    "--array": "a run is one job",
    "--exclude": "launcher.exclude, with the reason",
    **dict.fromkeys(
        ("--job-name", "--output", "--error", "--open-mode", "--chdir", "--export", "--signal"),
        "the suite sets it",
    ),
    **dict.fromkeys(("--requeue", "--no-requeue"), "an interrupted run is never continued"),
    **dict.fromkeys(("--wrap", "--test-only", "--parsable", "--quiet"), "the suite calls sbatch itself"),
}


@dataclass(frozen=True, slots=True)
class ExcludedNode:
    """A node that the job must not run on, and why; the log has the reason."""

    host: str
    reason: str


@dataclass(frozen=True, slots=True)
class SlurmOptions:
    """The options of the Slurm job. None is the site's default, except for ``gpus`` and ``cpus``."""

    partition: str | None = None
    account: str | None = None
    constraint: str | None = None
    qos: str | None = None
    reservation: str | None = None
    time: str = "02:00:00"
    gpus: int | None = None  # of each node; None: one per device, none at mini
    gpu_kind: str | None = None
    cpus: int | None = None  # None: the whole node
    memory: str | None = None
    exclude: tuple[ExcludedNode, ...] = ()
    extra: tuple[str, ...] = ()
    wait: bool = True
    on_node: bool = False

    def gpus_for(self, scale: str, devices: int) -> int:
        """The number of GPUs of the job; ``scale`` as decided by :func:`login_scale`."""
        if self.gpus is not None:
            return self.gpus
        return 0 if scale == "mini" else devices


def parse(section: Mapping[str, Any]) -> SlurmOptions | None:
    """The options in a ``launcher`` section, None for launcher=local; BadConfiguration otherwise."""
    for name in sorted(set(section) - FIELDS):
        raise BadConfiguration(f"launcher: unknown field {name!r}{did_you_mean(name, FIELDS)}")
    for name in sorted(FIELDS - set(section)):
        raise BadConfiguration(f"launcher: expected the field {name}, found it removed")
    if section["name"] == "local":
        for name in sorted(FIELDS - {"name"}):
            if section[name] is not None:
                raise BadConfiguration(
                    f"launcher.{name}: expected launcher=slurm beside it, found launcher=local; "
                    f"set LAUNCHER=slurm or leave launcher.{name} out"
                )
        return None
    kind, gpus = _gpus(section["gpus"])
    return SlurmOptions(
        **{name: _text(name, section[name]) for name in _TEXT_FIELDS},
        time=_time(section["time"]),
        gpus=gpus,
        gpu_kind=kind,
        cpus=_cpus(section["cpus"]),
        memory=_memory(section["memory"]),
        exclude=_exclude(section["exclude"]),
        extra=_extra(section["extra"]),
        wait=_flag("wait", section["wait"]),
        on_node=_flag("on_node", section["on_node"]),
    )


def login_scale(scale: str, gpus: int | None, local_gpus: int, of: str = "Slurm") -> tuple[str, str]:
    """The scale of a job and the reason, decided on the login node; BadConfiguration if it cannot be decided.

    ``scale`` is auto, reference or mini; ``gpus`` is :attr:`SlurmOptions.gpus`; ``local_gpus`` is the number
    of GPUs of the login node; ``of`` starts the job. Without a GPU here the scale is still reference: the
    compute node may have one.
    """
    if scale == "mini":
        return scale, "scale mini, as requested: the numbers are for practice only"
    if gpus == 0 and scale == "auto":
        raise BadConfiguration(
            "scale: expected reference or mini with launcher.gpus=0, found auto; set SCALE=mini for "
            "practice, or SCALE=reference"
        )
    if gpus == 0:
        return scale, f"scale {scale}, as requested, with launcher.gpus=0: the job runs on the CPU"
    requested = "one GPU per device" if gpus is None else f"{gpus} GPU{'s' if gpus > 1 else ''}"
    login_node = "this login node has no GPU: " if local_gpus == 0 else ""
    return "reference", f"scale reference: {login_node}the job requests {requested} from {of}"


def _text(name: str, value: object) -> str | None:
    if value is None:
        return None
    text = str(value)
    if isinstance(value, bool | list | dict) or not re.fullmatch(rf"[!-~]{{1,{_MAX_CHARACTERS}}}", text):
        raise BadConfiguration(
            f"launcher.{name}: expected text without blanks, at most {_MAX_CHARACTERS} printable characters, "
            f"found {value!r}"
        )
    return text


def _time(value: object) -> str:
    found = None if isinstance(value, bool) else _TIME.fullmatch(str(value))
    if found is None:
        raise BadConfiguration(
            "launcher.time: expected minutes, hours:minutes:seconds or days-hours:minutes:seconds, "
            f"such as 02:00:00, found {value!r}"
        )
    part = {name: int(digits or 0) for name, digits in found.groupdict().items()}
    hours = 24 * part["days"] + part["h1"] + part["h2"]
    seconds = 3600 * hours + 60 * (part["m1"] + part["m2"] + part["m3"]) + part["s1"] + part["s2"]
    if seconds < 2 * WARNING_S:
        raise BadConfiguration(
            f"launcher.time: expected at least {2 * WARNING_S} s, found {value!r}: "
            f"the last {WARNING_S} s are for ending the run in order"
        )
    return str(value)


def _gpus(value: object) -> tuple[str | None, int | None]:
    if value == "auto":
        return None, None
    found = re.fullmatch(r"(?:([A-Za-z][A-Za-z0-9_.-]{0,63}):)?([0-9]{1,3})", str(value))
    if isinstance(value, bool) or found is None:
        raise BadConfiguration(
            "launcher.gpus: expected auto, a whole number, or a kind and a number such as h100:1, "
            f"found {value!r}"
        )
    return found[1], int(found[2])


def _cpus(value: object) -> int | None:
    if value == "auto":
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadConfiguration(f"launcher.cpus: expected auto or a whole number from 1, found {value!r}")
    return value


def _memory(value: object) -> str | None:
    if value is None:
        return None
    found = re.fullmatch(r"([1-9][0-9]{0,9}[kmgt])(?:i?b)?", str(value).lower())
    if found is None:  # sbatch reads a bare number as MiB; elsewhere in the suite it means bytes
        raise BadConfiguration(f"launcher.memory: expected a size such as 512m or 64g, found {value!r}")
    return found[1].upper()


def _extra(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise BadConfiguration(f'launcher.extra: expected a list such as ["--nodelist=n1"], found {value!r}')
    for option in value:
        found = re.fullmatch(
            r"(--[a-z][a-z0-9-]{1,40})(?:=[ -~]{1,200})?", option if isinstance(option, str) else ""
        )
        if found is None:
            raise BadConfiguration(
                "launcher.extra: expected in each entry one option of sbatch, --name or --name=value on one "
                f"line, found {option!r}"
            )
        if found[1] in _RESERVED:
            raise BadConfiguration(
                f"launcher.extra: {found[1]} is set by the suite ({_RESERVED[found[1]]}); leave it out"
            )
    return tuple(value)


def _exclude(value: object) -> tuple[ExcludedNode, ...]:
    if not isinstance(value, list):
        raise BadConfiguration(
            f'launcher.exclude: expected a list such as ["n7:memory errors"], found {value!r}'
        )
    excluded = []
    for row in value:
        found = re.fullmatch(r"([A-Za-z0-9][A-Za-z0-9._-]{0,63}):([A-Za-z][A-Za-z0-9 .()%-]{2,99})", str(row))
        if found is None:
            raise BadConfiguration(
                "launcher.exclude: expected host:reason in each entry, the reason in letters, digits, blanks "
                f"and .()%-, found {row!r}"
            )
        excluded.append(ExcludedNode(found[1], found[2]))
    return tuple(excluded)


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise BadConfiguration(f"launcher.{name}: expected true or false, found {value!r}")
    return value
