"""The publishable sentence of a result: derived from the log each time, and compared field by field.

The sentence has every field that decides with which results a number may be compared
(rules/1.0/PUBLISHING.md). Text from a submission is in double quotes and cannot end them or read as a claim:
a result with such a name has no sentence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal

from suite.log.model import Record
from suite.metrics.image import conditions_text, counts_of, limits_of
from suite.metrics.machine import at, device_name
from suite.metrics.run import metrics_of, unit
from suite.submissions import system as system_description

Fields = Mapping[str, str]
PRACTICE = "practice division, a small model that stands for no published one"
_SIGNIFICANT = 2  # digits of the narrower half of the interval, which limits the decimals of the number
_WITHOUT_SPREAD = 6  # significant digits of a number whose interval has no width
_LONGEST_NAME = 200

# In the order of the sentence. :func:`differences` compares each field.
_BENCHMARK = (
    "{workload} {variant} in {framework}, {phase}, {precision}, {scale} scale, batch {batch}, "
    '{devices} x "{device}", '
    "{data} data, {cache} cache{apart}, {division}, rules {rules}, assurance level {level}: "
    '{score} on "{system}"; SHA-256 of the log {sha256}.'
)
_CONVERSION = (
    "images of {workload} to {storage} by {framework}, {scale} scale, {batch} images a shard, on "
    '"{device}", {cache} cache{apart}, {division}, rules {rules}, assurance level {level}: '
    '{score} on "{system}"; SHA-256 of the log {sha256}.'
)
_LOAD = (
    "{workload} {variant} in {framework}, {phase}: the input pipeline alone, without a model, {scale} scale, "
    'batch {batch}, {devices} x "{device}", {data} data, {cache} cache{apart}, {division}, rules {rules}, '
    'assurance level {level}: {score} on "{system}"; SHA-256 of the log {sha256}.'
)
_NAME = r"[A-Za-z0-9_.-]+"
_QUOTED = r"[^\"'`\\]*"
_PATTERNS = {
    "phase": r"train|train forward_backward|infer offline|infer single_stream|load|load_infer",
    "batch": r"[0-9]+",
    "devices": r"[0-9]+",
    "device": _QUOTED,
    "apart": r"(?:, with [A-Za-z0-9 .,-]+?)?",
    "division": rf"closed division|open division departing from [A-Z0-9, -]+?|open division|{PRACTICE}",
    "rules": r"[a-z0-9.]+",
    "level": r"L[0-9]",
    "score": r"[^\"]+",
    "system": _QUOTED,
    "sha256": r"[0-9a-f]{64}",
}


def _pattern(template: str) -> re.Pattern[str]:
    """The pattern of the sentences of ``template``, with a group for each field."""
    pieces = re.split(r"(\{\w+\})", template)
    return re.compile(
        "".join(
            f"(?P<{piece[1:-1]}>{_PATTERNS.get(piece[1:-1], _NAME)})"
            if piece.startswith("{")
            else re.escape(piece)
            for piece in pieces
        )
    )


_SENTENCES = (_pattern(_BENCHMARK), _pattern(_CONVERSION), _pattern(_LOAD))
_DIGEST = re.compile(r"\b[0-9a-f]{64}\b")
_LONGEST = 4096


class QuoteError(ValueError):
    """There is no sentence, or it cannot be parsed; the message states the reason."""


def fields_of(record: Record, level: str, system: str | None) -> dict[str, str]:
    """The fields of the sentence about an accepted ``record`` with a score.

    ``system`` is the name in system.json; if it is None, the device's name replaces it. Raises QuoteError if
    there is nothing to publish.
    """
    device = device_name(record) or "unknown device"
    common = {
        "device": _quoted("device", device),
        "division": _division(record),
        "rules": str(record.header["rules"]["version"]),
        "level": level,
        "score": _score(record),
        "system": _quoted("system_name", system or device),
        "sha256": record.digest,
    }
    if (conversion := record.conversion) is not None:
        if conversion.encoding != "file":
            raise QuoteError(
                f"encoding: expected files that are stored unchanged, found {conversion.encoding}"
            )
        apart_from = conditions_text(limits_of(record), "native", None)
        named = {name: str(value) for name, value in asdict(conversion).items()}
        return {**named, **common, "apart": _with(apart_from)}
    key, storage = record.key, at(record.header.data, "settings.storage")
    if key.phase == "train" and key.devices > 1 and not key.exchanges:
        raise QuoteError(
            f"strategy: expected an exchange of gradients, found {key.strategy}: {key.devices} trainings "
            "side by side are not training on that many devices; quote the scaling set"
        )
    conditions = [f"{key.nodes} nodes"] if key.nodes > 1 else []
    conditions += [key.strategy.replace("_", " ")] if key.exchanges else []
    limits = conditions_text(limits_of(record), str(record.header["loader"]), storage, counts_of(record))
    precision = {"precision": key.precision} if record.computes else {}
    return {
        "workload": key.workload,
        "variant": key.variant,
        "framework": key.framework,
        "phase": key.phase_and_scenario,
        **precision,
        "scale": key.scale,
        "batch": str(key.batch),
        "devices": str(key.devices),
        "data": key.data,
        "cache": key.cache,
        "apart": _with(", ".join([*conditions, *([limits] if limits else [])])),
        **common,
    }


def sentence(fields: Fields) -> str:
    """The sentence of ``fields``."""
    without = _CONVERSION if "storage" in fields else _LOAD
    return (_BENCHMARK if "precision" in fields else without).format(**fields)


def parse(text: str) -> dict[str, str]:
    """The fields of a sentence; QuoteError for any other text."""
    matches = [one.fullmatch(text) for one in _SENTENCES] if len(text) <= _LONGEST else []
    found = next((match for match in matches if match is not None), None)
    if found is None:
        raise QuoteError("expected a sentence as `make quote` prints it, found other text")
    return found.groupdict()


def digest_in(text: str) -> str | None:
    """The only SHA-256 in a text; None if it has none or several."""
    found = set(_DIGEST.findall(text[:_LONGEST]))
    return found.pop() if len(found) == 1 else None


def differences(quoted: Fields, derived: Fields) -> list[tuple[str, str, str]]:
    """(field, expected, found) of each field that differs between a sentence and the log."""
    rows = [(name, value, quoted.get(name, "nothing")) for name, value in derived.items()]
    return [row for row in rows if row[1] != row[2]]


def _with(limits: str) -> str:
    return f", with {limits}" if limits else ""


def _quoted(field: str, text: str) -> str:
    """``text`` between double quotes; QuoteError if it is too long or not a name that can be quoted."""
    if len(text) > _LONGEST_NAME:
        raise QuoteError(f"{field}: expected at most {_LONGEST_NAME} characters, found {len(text)}")
    if (problem := system_description.name_problem(text)) is not None:
        raise QuoteError(f"{field}: {problem}")
    return text


def _division(record: Record) -> str:
    if record.division == "practice":
        return PRACTICE
    declared = sorted({str(row["rule"]) for row in record.header["differences"]})
    return f"{record.division} division" + (f" departing from {', '.join(declared)}" if declared else "")


def _score(record: Record) -> str:
    if record.mode == "quality":
        return _time_to_quality(record)
    speed = record.throughput
    if speed is None or speed.half_width is None or speed.half_width >= 1:
        raise QuoteError("no 95 % interval follows from the log, and a number without one is not published")
    low, high = speed.per_second / (1 + speed.half_width), speed.per_second / (1 - speed.half_width)
    value, low_text, high_text = rounded(speed.per_second, low, high)
    return f"{value} {unit(record)}/s (95 % interval {low_text} to {high_text})"


def _time_to_quality(record: Record) -> str:
    found = metrics_of(record)
    time, target, quality = (found[name] for name in ("time_to_quality_s", "quality_target", "quality"))
    if time.value is None:
        raise QuoteError(f"there is no time to quality: {time.reason}")
    runs = sum(repeat.end is not None for repeat in record.repeats)
    return f"{time.value:.1f} s to {quality.unit} {target.value:g} (mean of {runs} runs)"


def rounded(value: float, low: float, high: float) -> tuple[str, str, str]:
    """The three numbers (per second) as plain digits, rounded by the width of the interval.

    The narrower half of the interval has two significant digits; the numbers end at the same decimal. The
    ends are rounded outwards: the interval that is printed contains the exact one.
    """
    halves = [half for half in (value - low, high - value) if half > 0]
    if halves:
        exponent = math.floor(math.log10(min(halves))) - (_SIGNIFICANT - 1)
    else:
        exponent = math.floor(math.log10(value)) - (_WITHOUT_SPREAD - 1)
    step = Decimal(1).scaleb(exponent)
    texts = []
    # As text: the binary value of 0.0123 is smaller, and rounding down would print 0.012299.
    for number, rounding in ((value, ROUND_HALF_EVEN), (low, ROUND_FLOOR), (high, ROUND_CEILING)):
        exact = (Decimal(str(number)) / step).quantize(Decimal(1), rounding) * step
        texts.append(f"{exact:f}" if exponent < 0 else f"{int(exact)}")
    return texts[0], texts[1], texts[2]
