"""The report on published logs as text or Markdown; all text from the logs is escaped.

A table of the scores by system, then errors, then warnings, each with the number of logs that it concerns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import PurePath
from typing import Any

from suite.log.safe import safe
from suite.log.units import count
from suite.mllog.outcomes import CHECKS, ERROR, INFORMATION, WARNING
from suite.report.cells import markdown_table

_MAX_FINDINGS = 200  # of a severity that are shown one by one
_LONGEST = 240  # characters of a text


def text(value: Mapping[str, Any]) -> Iterator[str]:
    """Lines for a terminal."""
    yield "Scores in minutes to train: the olympic mean times the factor in scaling.json"
    for system, folders in groupby(value["folders"], key=_system):
        yield safe(system, _LONGEST)
        rows = list(folders)
        width = max(len(_benchmark(folder)) for folder in rows)
        for folder in rows:
            yield f"  {_benchmark(folder):{width}}  {_result(folder)}{_problems(folder)}"
    for severity in (ERROR, WARNING):
        findings = _findings(value, severity)
        if findings:
            yield ""
            yield f"{severity.capitalize()}s"
        for finding in findings[:_MAX_FINDINGS]:
            yield f"  {finding['check']}: {safe(finding['location'], _LONGEST)}"
            yield f"    expected {safe(finding['expected'], _LONGEST)}"
            yield f"    found    {safe(finding['found'], _LONGEST)}"
        yield from (f"  {line}" for line in _hidden(findings))
    yield ""
    yield from _totals(value)


def markdown(value: Mapping[str, Any]) -> Iterator[str]:
    """A table of scores, one of errors and one of warnings."""
    yield "## Scores in minutes to train"
    yield ""
    yield from markdown_table(
        ("system", "benchmark", "score: olympic mean × scaling.json", "errors", "warnings"),
        (
            (
                _system(folder),
                _benchmark(folder),
                _result(folder),
                *(str(_number_of(folder, severity)) for severity in (ERROR, WARNING)),
            )
            for folder in value["folders"]
        ),
    )
    for severity in (ERROR, WARNING):
        if not (findings := _findings(value, severity)):
            continue
        yield ""
        yield f"## {severity.capitalize()}s"
        yield ""
        fields = ("check", "location", "expected", "found")
        shown = findings[:_MAX_FINDINGS]
        yield from markdown_table(fields, ([finding[field] for field in fields] for finding in shown))
        yield from _hidden(findings)
    yield ""
    yield from _totals(value)


def _below(value: Mapping[str, Any], folder: Mapping[str, Any]) -> PurePath:
    """The path of a folder, relative to the one that was examined."""
    path, root = PurePath(folder["path"]), PurePath(value["path"])
    return path.relative_to(root) if path.is_relative_to(root) else path


def _system(folder: Mapping[str, Any]) -> str:
    layout = folder["layout"]
    mlperf_round = f"round {folder['round']}" if folder["round"] else "round unknown"
    if layout["org"] is None or layout["system"] is None:
        parts = [PurePath(folder["path"]).name]
    else:
        parts = [layout["org"], layout["system"], *([layout["scaling"]] if layout["scaling"] else [])]
    division = folder["division"] if folder["division"] in ("closed", "open") else "division unknown"
    return f"{', '.join(parts)} ({division}, {mlperf_round})"


def _benchmark(folder: Mapping[str, Any]) -> str:
    return safe(folder["benchmark"] or "no single benchmark", 40)


def _result(folder: Mapping[str, Any]) -> str:
    score = folder["score"]
    if score is None:
        minutes = [log["minutes"] for log in folder["logs"]]
        known = minutes and minutes[0] is not None
        return f"{count(len(minutes), 'log')}, {f'{minutes[0]:.3f} minutes' if known else 'no time to train'}"
    runs = f"{score['converged']} of {count(score['runs'], 'run')} converged"
    copies = f", {score['copies']} of them copies" if score["copies"] else ""
    if score["minutes"] is None:
        return f"no score: {safe(score['reason'])} ({runs}{copies})"
    factors = f" = {score['olympic_mean']:.3f} × {score['scaling_factor']:g}"
    return f"{score['minutes']:.3f}{factors if score['scaling_factor'] != 1 else ''} ({runs}{copies})"


def _number_of(folder: Mapping[str, Any], severity: str) -> int:
    return sum(outcome["outcome"] == severity for outcome in folder["outcomes"])


def _problems(folder: Mapping[str, Any]) -> str:
    numbers = [(_number_of(folder, severity), severity) for severity in (ERROR, WARNING)]
    return "".join(f", {count(number, severity)}" for number, severity in numbers if number)


def _findings(value: Mapping[str, Any], severity: str) -> list[dict[str, str]]:
    """The outcomes of a severity, by check; equal ones of several logs and folders are one."""
    names = list(CHECKS)
    merged: dict[tuple[str, ...], dict[str, str]] = {}
    more: dict[tuple[str, ...], int] = {}
    for folder in value["folders"]:
        for outcome in folder["outcomes"]:
            if outcome["outcome"] != severity:
                continue
            same = tuple(outcome[name] for name in ("check", "expected", "found"))
            more[same] = more.get(same, -1) + 1
            if same not in merged:
                merged[same] = outcome | {"location": _location(value, folder, outcome["location"])}
    for same, further in more.items():
        if further:
            merged[same]["location"] += f" and {further} more"
    return sorted(merged.values(), key=lambda finding: names.index(finding["check"]))


def _location(value: Mapping[str, Any], folder: Mapping[str, Any], location: str) -> str:
    below = _below(value, folder)
    path = below if below.parts else PurePath(PurePath(folder["path"]).name)
    if location in ("the folder", path.name):
        return str(path)
    is_log = any(log["name"] == location for log in folder["logs"])
    return str(path / location) if is_log else f"{path}: {location}"


def _hidden(findings: list[dict[str, str]]) -> Iterator[str]:
    if len(findings) > _MAX_FINDINGS:
        yield f"{len(findings) - _MAX_FINDINGS} more (--format json lists all)"


def _totals(value: Mapping[str, Any]) -> Iterator[str]:
    undecided = {
        outcome["check"]: 0
        for folder in value["folders"]
        for outcome in folder["outcomes"]
        if outcome["outcome"] == INFORMATION
    }
    counts = f"{count(value['errors'], 'error')}, {count(value['warnings'], 'warning')}"
    yield f"{count(value['logs'], 'log')} in {count(len(value['folders']), 'folder')}: {counts}"
    if undecided:
        names = ", ".join(name for name in CHECKS if name in undecided)
        yield f"not decided, or for information: {names} (--format json states why)"
