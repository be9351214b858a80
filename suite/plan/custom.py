"""Custom code in a run: a pair, an interpreter, a container image. Each has a digest and is in changes.patch.

The patch is text for people: sections in a fixed order, each with a title line and a unified diff. It names
no folder of this machine. ``git apply --exclude='custom/*'`` applies the changes of the tree.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from suite.containers.engines.native import PROJECT
from suite.containers.images.lock import LockProblem, base_for
from suite.log.files import MAX_CHANGES
from suite.plan.changes import as_text, tree_changes
from suite.plan.errors import BadConfiguration, EnvironmentProblem, RuleProblem
from suite.plan.settings import Settings

_QUERY_TIMEOUT_S = 60.0
_QUERY_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}  # as for a worker
_QUERY = (
    "import importlib.metadata as m, json; "
    "print(json.dumps([[str(d.metadata['Name']), str(d.version)] for d in m.distributions()]))"
)
_LOCKED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)
_BASE = re.compile(r"^ARG BASE=.*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class CustomCode:
    """The parts of a run that are not the suite's; None: the suite's part runs. Digests are SHA-256, in hex.

    ``python_digest`` is over the lines of ``packages``, each "name==version". ``lock`` is the project's file
    that lists the packages of the suite's interpreter for the framework.
    """

    pair: Path | None = None
    python: Path | None = None
    image: str | None = None
    pair_digest: str | None = None
    python_digest: str | None = None
    packages: tuple[str, ...] = ()
    lock: str | None = None


NO_CUSTOM_CODE = CustomCode()


def custom_code(settings: Settings, accelerator: str) -> CustomCode:
    """The custom code that ``settings`` name, on ``accelerator`` (cpu | cuda).

    Raises BadConfiguration for a pair that is not a text file, EnvironmentProblem for an interpreter that
    does not answer. An interpreter named beside a custom image lies in the image, whose digest covers it.
    """
    pair = pair_digest = python = python_digest = lock = None
    listed: tuple[str, ...] = ()
    if settings.pair is not None:
        pair = settings.pair
        pair_digest = hashlib.sha256(_read_pair(pair).encode()).hexdigest()
    if settings.python is not None and settings.image is None:
        python = Path(settings.python).expanduser().absolute()  # a link into an environment must stay one
        listed = packages(python)
        python_digest = hashlib.sha256(_lines(listed).encode()).hexdigest()
        lock = f"containers/{settings.framework}/requirements-{accelerator}.txt"
    return CustomCode(pair, python, settings.image, pair_digest, python_digest, listed, lock)


def packages(python: Path) -> tuple[str, ...]:
    """The packages of the interpreter ``python``, sorted, as "name==version"; EnvironmentProblem."""
    if not python.is_file() or not os.access(python, os.X_OK):
        raise EnvironmentProblem(f"framework.python: expected an interpreter, found {python}")
    argv = [str(python), "-I", "-c", _QUERY]
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=_QUERY_TIMEOUT_S, check=True, env=_QUERY_ENVIRONMENT
        )
        return tuple(sorted({_requirement(name, version) for name, version in json.loads(done.stdout)}))
    except subprocess.TimeoutExpired:
        why = f"no answer in {_QUERY_TIMEOUT_S:.0f} s"
    except subprocess.CalledProcessError as error:
        why = (error.stderr.strip().splitlines() or [f"exit code {error.returncode}"])[-1]
    except (OSError, ValueError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
    raise EnvironmentProblem(
        f"framework.python: expected an interpreter from 3.10 on that lists its packages, found {python}, "
        f"which fails ({why[:200]}); try `{python} -m pip list`"
    )


def changes_patch(
    custom: CustomCode, workload: str, framework: str, rules_version: str, root: Path = PROJECT
) -> bytes:
    """The text of changes.patch; empty where nothing is changed and no custom code runs.

    BadConfiguration where it would exceed the size limit of a result.
    """
    sections = [tree_changes(root)]
    if custom.pair is not None:
        sections.append(_pair_section(custom, f"suite/workloads/{workload}/{framework}.py", root))
    if custom.python is not None:
        sections.append(_python_section(custom, root))
    if custom.image is not None:
        reference = _base_reference(rules_version, framework)
        sections.append(_image_section(custom.image, f"containers/{framework}/Dockerfile", reference, root))
    patch = "".join(sections).encode()
    if len(patch) > MAX_CHANGES:
        raise BadConfiguration(
            f"changes.patch: expected at most {MAX_CHANGES} bytes, found {len(patch)}; commit what belongs "
            "to the code, put data elsewhere, or run from a clean checkout"
        )
    return patch


def _pair_section(custom: CustomCode, replaced: str, root: Path) -> str:
    if custom.pair is None:
        return ""
    text = _read_pair(custom.pair)
    if hashlib.sha256(text.encode()).hexdigest() != custom.pair_digest:
        raise BadConfiguration("pair: the file changed while the run was prepared; run the command again")
    title = f"custom pair: custom/pair.py, SHA-256 {custom.pair_digest}, instead of {replaced}\n"
    return title + unified((root / replaced).read_text("utf-8"), text, replaced, "custom/pair.py")


def _python_section(custom: CustomCode, root: Path) -> str:
    file = root / custom.lock if custom.lock is not None else None
    text = file.read_text("utf-8") if file is not None and file.is_file() else ""
    locked = sorted(_requirement(name, version) for name, version in _LOCKED.findall(text))
    title = (
        f"custom interpreter: {len(custom.packages)} packages, SHA-256 {custom.python_digest}, instead of "
    )
    return f"{title}{custom.lock}\n" + unified(
        _lines(locked), _lines(custom.packages), str(custom.lock), "custom/packages.txt"
    )


def _image_section(image: str, file: str, reference: str, root: Path) -> str:
    dockerfile = (root / file).read_text("utf-8")
    before, after = (_BASE.sub(f"ARG BASE={name}", dockerfile, count=1) for name in (reference, image))
    title = f"custom image: {image}, instead of {reference}\n"
    return title + unified(before, after, file, "custom/Dockerfile")


def unified(before: str, after: str, old: str, new: str) -> str:
    """The unified diff of two texts labelled ``old`` and ``new``; empty where they are equal."""
    found = difflib.unified_diff(_split(before), _split(after), old, new)
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in found
    )


def _split(text: str) -> list[str]:
    """Lines with their ends. Not splitlines(): for git a form feed or carriage return ends no line."""
    *lines, rest = text.split("\n")
    return [f"{line}\n" for line in lines] + [rest] * bool(rest)


def _read_pair(path: Path) -> str:
    """The text of a custom pair."""
    try:
        data = path.read_bytes() if path.is_file() and path.stat().st_size <= MAX_CHANGES else None
    except OSError as error:
        raise BadConfiguration(f"pair: {path} cannot be read: {error.strerror}") from error
    text = None if data is None else as_text(data)
    if text is None:
        raise BadConfiguration(
            f"pair: expected a Python file in UTF-8 of at most {MAX_CHANGES} bytes, found {path}, which is "
            "none; tests/fixtures/pairs/good.py is an example"
        )
    return text


def _requirement(name: str, version: str) -> str:
    """One line of a package list: the name as the package index normalises it, printable ASCII only."""
    name = re.sub(r"[-_.]+", "-", name).lower()
    return re.sub(r"[^A-Za-z0-9=._+!-]", "?", f"{name}=={version}")


def _lines(texts: tuple[str, ...] | list[str]) -> str:
    return "".join(f"{text}\n" for text in texts)


def _base_reference(rules_version: str, framework: str) -> str:
    try:
        return base_for(rules_version, framework).reference
    except LockProblem as error:
        raise RuleProblem(f"image: {error}") from error
