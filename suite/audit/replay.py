"""Compares a submission with repeats of it that an auditor ran again.

The comparison depends only on the two logs, the rules and the auditor's nonce, so that everybody with both
logs gets the same verdict. A log can prove what was computed but not how fast; therefore the time is an item.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from suite.audit import systems
from suite.audit.curves import GRADIENTS_FP32, envelope, passes
from suite.audit.items import (
    DIFFERENT,
    EQUAL,
    INSIDE,
    NOT_COMPARABLE,
    ComparedItem,
    different,
    exactly,
    incomparable,
    numbers,
    sequences,
)
from suite.log.model import Record, Repeat
from suite.rules import Rules

_DOMAIN = b"suite-replay/1"
# Settings that do not affect the computation of a repeat: how batch and steps were found, how many repeats,
# who started the run. The number of measured steps is compared.
FREE_SETTINGS = (
    *("batch_search", "changes_digest", "excluded_nodes", "launcher", "pod_image", "repeats"),
    *("reuse_compiled", "steps", "min_seconds", "pilot_ns"),
)
_IMAGE = ("manifest_digest", "index_digest", "config_digest", "diff_ids")
_IMAGE_TOO = ("form", "platform", "code_digest", "requirements_digest")
# The items that a replay must compare for level L3.
NEEDED = frozenset(
    {"image", "code", "dataset", "settings", "software", "batches", "initial parameters", "types", "time"}
)
_RESULTS = ("losses", "outputs", "fingerprint common: output norms (fp32)")
LEAST_TOLERANCE, TOLERANCE_OF_A_MODEL = 0.02, 0.10
MOST_TOLERANCE = 0.10  # a time further away is not confirmed, however much the submission's repeats spread
ENERGY = 0.10
# Student's t, 99 % two-sided, by the number of repeats, one more than the degrees of freedom; normal, 99.9 %.
T99 = {
    2: 63.657, 3: 9.925, 4: 5.841, 5: 4.604, 6: 4.032, 7: 3.707, 8: 3.499, 9: 3.355, 10: 3.250, 11: 3.169,
    12: 3.106, 13: 3.055, 14: 3.012, 15: 2.977, 16: 2.947, 17: 2.921, 18: 2.898, 19: 2.878, 20: 2.861,
}  # fmt: skip
T999 = 3.29


def select(root: str, nonce: str, count: int, of: int = 5) -> tuple[int, ...]:
    """The ``count`` of ``of`` repeats to run again, in the order of drawing.

    Draw i is SHA-256 over "suite-replay/1", the Merkle root of the log's lines, the auditor's nonce (64
    hexadecimal digits each) and i in 4 bytes, as a number modulo ``of``; repeats drawn
    before are skipped. The root exists before the nonce, so that neither side can choose the repeats. Raises
    ValueError for a count out of range.
    """
    if not 1 <= count <= of:
        raise ValueError(f"repeats: expected 1 to {of} to run again, found {count}")
    drawn: list[int] = []
    draw = 0
    while len(drawn) < count:
        text = _DOMAIN + bytes.fromhex(root) + bytes.fromhex(nonce) + draw.to_bytes(4, "big")
        one = int.from_bytes(hashlib.sha256(text).digest(), "big") % of
        if one not in drawn:
            drawn.append(one)
        draw += 1
    return tuple(drawn)


def identity(submitted: Mapping[str, Any], again: Mapping[str, Any]) -> list[ComparedItem]:
    """The items that must be equal before a replay starts: container image, code, dataset, settings.

    Both arguments are the data of a header; ``again`` is that of the auditor's run.
    """
    return [
        _image(submitted["image"], again["image"]),
        exactly("code", submitted["code_digest"], again["code_digest"]),
        exactly("dataset", _dataset(submitted), _dataset(again)),
        _settings(submitted, again),
    ]


def _dataset(header: Mapping[str, Any]) -> str:
    return f"{header['dataset']['name']} {header['dataset']['digest']}"


def _image(submitted: Mapping[str, Any] | None, again: Mapping[str, Any] | None) -> ComparedItem:
    """Compare container images by every digest that both headers have; native runs have none."""
    if submitted is None or again is None:
        wanted, found = ("none: native" if one is None else "an image" for one in (submitted, again))
        return exactly("image", wanted, found)
    known = [name for name in _IMAGE if submitted[name] is not None and again[name] is not None]
    if not known:
        return incomparable("image", "the headers have no digest of the same kind")
    for name in (*known, *_IMAGE_TOO):
        if submitted[name] != again[name]:
            return ComparedItem("image", DIFFERENT, str(submitted[name]), str(again[name]), because=name)
    return exactly("image", submitted[known[0]], again[known[0]])


def _settings(submitted: Mapping[str, Any], again: Mapping[str, Any]) -> ComparedItem:
    """Compare benchmark key, settings and hyperparameters; reports the first that differs."""
    flat = [
        {name: header[name] for name in ("nonce", "run_id", "measured_steps")}
        | {"rules": header["rules"]["version"]}
        | {f"key.{name}": value for name, value in header["key"].items()}
        | {f"hyper.{name}": value for name, value in header["hyper"].items()}
        | {
            f"settings.{name}": value
            for name, value in header["settings"].items()
            if name not in FREE_SETTINGS
        }
        for header in (submitted, again)
    ]
    wanted, found = flat
    for name in sorted({*wanted, *found}):
        if wanted.get(name) != found.get(name) or (name in wanted) != (name in found):
            expected, actual = (f"{name} = {one.get(name, 'not there')}" for one in flat)
            return ComparedItem("settings", DIFFERENT, expected, actual)
    summary = f"{len(wanted)} settings"
    return ComparedItem("settings", EQUAL, summary, summary)


def compare(submitted: Record, again: Record, rules: Rules) -> list[ComparedItem]:
    """All items. Repeats are paired by their seeds, which are unique."""
    items = identity(submitted.header.data, again.header.data)
    pairs = list(_pairs(submitted, again))
    for wanted, found in pairs:
        items += _repeat(submitted, wanted, found, rules)
    items += _fingerprints(submitted, again, rules)
    items += [_time(submitted, again, rules), _energy(submitted, again, rules)]
    return items


def _pairs(submitted: Record, again: Record) -> Iterator[tuple[Repeat, Repeat]]:
    by_seed = {repeat.start["seed"]: repeat for repeat in submitted.repeats if repeat.start is not None}
    for repeat in again.repeats:
        wanted = None if repeat.start is None else by_seed.get(repeat.start["seed"])
        if wanted is not None and repeat.end is not None and wanted.end is not None:
            yield wanted, repeat


def seeds(record: Record) -> tuple[str, ...]:
    """The seeds of a record's completed repeats, in their order."""
    return tuple(
        str(repeat.start["seed"])
        for repeat in record.repeats
        if repeat.start is not None and repeat.end is not None
    )


def _repeat(record: Record, wanted: Repeat, found: Repeat, rules: Rules) -> Iterator[ComparedItem]:
    if wanted.end is None or found.end is None:
        return
    at = wanted.index
    yield systems.software(wanted, found)
    yield from systems.image_as_started(wanted, found)
    yield sequences("batches", wanted.column("batch_digest"), found.column("batch_digest"), at)
    submitted, again = wanted.reports[0], found.reports[0]
    theirs, ours = submitted["parameters"], again["parameters"]
    yield exactly("initial parameters", theirs["initial"], ours["initial"], at)
    yield exactly("types", _text(submitted["dtypes"]), _text(again["dtypes"]), at)
    exact = systems.bitwise(wanted, found)
    if record.key.phase != "train":
        yield _outputs(wanted, found, exact)
        return
    for rank in wanted.ranks:
        yield from _curves(record, rules, wanted, found, exact, rank)
    if exact:
        yield exactly("final parameters", theirs["final"], ours["final"], at)


def _curves(
    record: Record, rules: Rules, wanted: Repeat, found: Repeat, exact: str | None, rank: int
) -> Iterator[ComparedItem]:
    """The losses and gradient norms of one rank."""
    at, of_rank = wanted.index, f" of rank {rank}" if rank else ""
    losses, losses_again = (one.column("loss", rank) for one in (wanted, found))
    tolerances = None if exact else envelope(record, rules, record.key.precision, len(losses))
    why = exact or ""
    yield numbers(f"losses{of_rank}", losses, losses_again, tolerances, at, why)
    norms, norms_again = (one.column("grad_norm", rank) for one in (wanted, found))
    if None in norms or None in norms_again:
        yield incomparable(f"gradient norms{of_rank}", "a log has no gradient norms of the timed steps", at)
    else:
        looser = None if tolerances is None else [max(one, GRADIENTS_FP32) for one in tolerances]
        yield numbers(f"gradient norms{of_rank}", norms, norms_again, looser, at, why)


def _outputs(wanted: Repeat, found: Repeat, exact: str | None) -> ComparedItem:
    item = sequences("outputs", wanted.column("output_digest"), found.column("output_digest"), wanted.index)
    if item.outcome == DIFFERENT and exact is None:
        why = "different bits, which accelerators may produce; the fingerprint compares norms of outputs"
        return incomparable("outputs", why, wanted.index)
    return item


def _text(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(values.items()))


def _fingerprints(submitted: Record, again: Record, rules: Rules) -> Iterator[ComparedItem]:
    """Compare the fingerprints: bit for bit where systems.same_bits demands it, else by tolerances."""
    wanted, found = submitted.fingerprint, again.fingerprint
    if wanted is None or found is None:
        yield incomparable("fingerprint", "a log has no fingerprint")
        return
    deterministic = not wanted["nondeterministic"] and not found["nondeterministic"]
    exact = systems.same_bits(submitted, again) if deterministic else None
    yield from passes(submitted, wanted["passes"], found["passes"], rules, exact)


def allowed(cv_submitted: float, cv_again: float | None, count: int, of: int = 5) -> float:
    """The tolerance, as a logarithm, of the times of one machine with ``count`` of ``of`` repeats run again.

    All of five or more: 3.29 standard errors of the difference. Otherwise the 99 % prediction interval of
    their mean, from the submission's spread. At least 2 %.
    """
    if count >= of >= 5 and cv_again is not None:
        tolerance = T999 * math.sqrt((cv_submitted**2 + cv_again**2) / of)
    else:
        tolerance = T99[min(of, max(T99))] * cv_submitted * math.sqrt(1 / count + 1 / of)
    return max(LEAST_TOLERANCE, tolerance)


def time_item(
    submitted: float, again: float, tolerance: float, kinship: str, cv: float, repeats: str
) -> ComparedItem:
    """Times per unit of work (ns) of both, with ``tolerance`` as :func:`allowed` gives it.

    ``repeats``: how many were run again, as text.

    Not comparable where the times are further apart than ``MOST_TOLERANCE``, and the spread of the repeats
    explains it: then the replay neither confirms nor refutes the time.
    """
    apart = math.log(again / submitted)
    tolerance = max(tolerance, TOLERANCE_OF_A_MODEL) if kinship == systems.SAME_MODEL else tolerance
    faster = "slower" if apart > 0 else "faster"
    if MOST_TOLERANCE < abs(apart) <= tolerance:
        return incomparable(
            "time",
            f"time not confirmed: {100 * abs(math.expm1(apart)):.2f} % {faster} in the replay; more than "
            f"{100 * math.expm1(MOST_TOLERANCE):.2f} % confirms nothing, and refutes nothing where repeats "
            f"spread so much (CV of the submission {100 * cv:.2f} %, {repeats})",
        )
    tolerance = min(tolerance, MOST_TOLERANCE)
    return ComparedItem(
        "time",
        INSIDE if abs(apart) <= tolerance else DIFFERENT,
        f"{submitted:.6g} ns a unit",
        f"{again:.6g} ns a unit",
        f"{100 * math.expm1(tolerance):.2f} % on the {kinship} (CV of the submission {100 * cv:.2f} %, "
        f"{repeats})",
        f"{100 * abs(math.expm1(apart)):.2f} % {faster} in the replay",
    )


def _time(submitted: Record, again: Record, rules: Rules) -> ComparedItem:
    mine, theirs = again.throughput, submitted.throughput
    if mine is None or theirs is None:
        return incomparable("time", "a run has no completed repeats")
    if theirs.cv is None:
        return incomparable("time", "the submission has one repeat, whose spread is not known")
    kinship, why = systems.kinship(submitted, again)
    if kinship == systems.OTHER:
        return incomparable("time", f"another kind of system, whose times cannot be compared: {why}")
    gate = rules.limit("cv_reject")
    if submitted.division != "practice" and theirs.cv > gate:
        reason = f"the submission's CV is {100 * theirs.cv:.1f} %, above {100 * gate:.0f} %"
        return incomparable("time", f"{reason}: nearly any time would be inside")
    count, of = len(mine.means_ns), len(theirs.means_ns)
    tolerance = allowed(theirs.cv, mine.cv, count, of)
    wanted, found = (one.window_ns / one.units for one in (theirs, mine))
    return time_item(wanted, found, tolerance, kinship, theirs.cv, f"{count} of {of} repeats")


def _energy(submitted: Record, again: Record, rules: Rules) -> ComparedItem:
    kinship, why = systems.kinship(submitted, again)
    if kinship == systems.OTHER:
        return incomparable("energy per step", f"another kind of system: {why}")
    span = int(rules.limit("power_span_ns"))
    found = [systems.energy_per_step(record, span) for record in (submitted, again)]
    for number, because in found:
        if number is None:
            return incomparable("energy per step", because)
    wanted, actual = (float(number or 0.0) for number, _ in found)
    deviation = actual / wanted - 1 if wanted > 0 else math.inf
    return ComparedItem(
        "energy per step",
        INSIDE if abs(deviation) <= ENERGY else DIFFERENT,
        f"{wanted:.1f} mJ",
        f"{actual:.1f} mJ",
        f"{100 * ENERGY:.0f} %",
        f"{100 * deviation:+.1f} %",
    )


def lacking(items: Sequence[ComparedItem]) -> list[str]:
    """The items that level L3 needs and the replay did not compare."""
    compared = {item.name for item in items if item.outcome != NOT_COMPARABLE}
    missing = sorted(NEEDED - compared)
    return missing if compared & set(_RESULTS) else [*missing, " or ".join(_RESULTS)]


def level(items: Sequence[ComparedItem]) -> str | None:
    """``L3`` where nothing differs and everything needed was compared, else None."""
    return None if different(items) or lacking(items) else "L3"
