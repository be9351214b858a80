"""BASE: the baseline of the machine that a result cites, and what it allows.

These rules find mistakes, such as a step that left work out or a cold run that read from memory. They find
no forger: who writes a log can write a baseline too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from suite.checker.context import Context, Fault, HeaderContext, end_of, header_rule, rule
from suite.checker.devices import devices_of
from suite.checker.physics import window_flop
from suite.contract import BENCHMARK, MEASURED_STEPS

_WINDOWS = "windows of the repeats"
_WALL = "%Y-%m-%dT%H:%M:%S.%fZ"


def _cited(c: HeaderContext) -> Mapping[str, Any] | None:
    """The baseline in the header; None where none is cited."""
    found: Mapping[str, Any] | None = c.header.get("baseline")
    return found


def _rate(cited: Mapping[str, Any], name: str) -> int | None:
    """A figure of the baseline in units per second; None where it was not measured."""
    figure = cited["series"].get(name)
    return None if figure is None else int(figure["rate"])


@header_rule("BASE-001", kind=BENCHMARK)
def closed_cites_a_baseline(c: HeaderContext) -> Iterator[Fault]:
    """A closed result on GPUs cites a baseline of its machine."""
    if c.division == "closed" and c.header["settings"].get("device") != "cpu" and _cited(c) is None:
        yield Fault(
            "header, data.baseline", "a baseline of the machine", c.header["reasons"].get("baseline", "none")
        )


@rule("BASE-002", kind=BENCHMARK)
def baseline_is_of_this_machine(c: Context) -> Iterator[Fault]:
    """The cited baseline is of the machine of the run, and began at most 24 hours before it."""
    cited = _cited(c)
    if cited is None:
        return
    yield from _age(c, cited)
    machine = c.repeats[0].env("outside") if c.repeats else None
    if machine is None:
        return
    cpu = machine["facts"].get("cpu")
    cpu = cpu if isinstance(cpu, Mapping) else {}
    model, threads = cpu.get("model"), cpu.get("threads")
    if isinstance(model, str) and model.encode("ascii", "replace").decode() != cited["cpu"]:
        yield Fault("header, data.baseline.cpu", f"{model}, the processor of the run", cited["cpu"])
    if type(threads) is int and threads != cited["threads"]:
        yield Fault("header, data.baseline.threads", f"{threads}, as in the facts", cited["threads"])
    measured = set(cited["gpus"].values())
    for number, uuid in enumerate(_gpus(c)):
        if uuid not in measured:
            wanted = f"the GPUs of the run, among them device {number} ({uuid})"
            yield Fault("header, data.baseline.gpus", wanted, f"{len(measured)} other GPUs")


def _age(c: Context, cited: Mapping[str, Any]) -> Iterator[Fault]:
    began, oldest = c.record.events[0].wall, int(c.rules.limit("baseline_age_s"))
    try:
        age = datetime.strptime(began, _WALL) - datetime.strptime(cited["when"], _WALL)  # noqa: DTZ007
    except ValueError:
        yield Fault("header, data.baseline.when", "a date that exists", cited["when"])
        return
    if not timedelta() <= age <= timedelta(seconds=oldest):
        wanted = f"at most {oldest // 3600} hours before the run, which began at {began}"
        yield Fault("header, data.baseline.when", wanted, cited["when"])


def _gpus(c: Context) -> tuple[str, ...]:
    """The digests of the UUIDs of node 0's GPUs; empty where the facts have none."""
    listed = devices_of(c.repeats[0]) if c.repeats else ()
    return tuple(str(row.get("uuid")) for event, _, row in listed if event["node"] == 0)


@rule("BASE-003", mode="throughput", kind=BENCHMARK)
def below_measured_gemm(c: Context) -> Iterator[Fault]:
    """The devices compute at most 5 % faster than their own products of matrices in the baseline.

    An fp32 convolution may need fewer operations than counted (Winograd), so that only physical limits apply.
    """
    cited, seconds = _cited(c), _seconds(c)
    if cited is None or c.on_processor or seconds <= 0 or (c.key.precision == "fp32" and _convolves(c)):
        return
    names = {uuid: name for name, uuid in cited["gpus"].items()}
    peak = 0
    for uuid in (gpus := _gpus(c)):
        kinds = (f"{names.get(uuid)}.gemm_{c.key.precision}_{part}" for part in ("first", "plateau"))
        rates = [rate for name in kinds if (rate := _rate(cited, name)) is not None]
        if not rates:
            return  # of a GPU that the baseline did not measure in this precision
        peak += max(rates)
    most, found = c.rules.limit("baseline_share") * peak, window_flop(c.key) * _hundreds(c) / seconds
    if len(gpus) == c.devices and found > most:
        wanted = f"at most {most:.4g} FLOP/s, {c.rules.limit('baseline_share'):.0%} of the cited baseline"
        yield Fault(_WINDOWS, wanted, f"{found:.4g} FLOP/s")


@rule("BASE-004", mode="throughput", kind=BENCHMARK)
def below_measured_input(c: Context) -> Iterator[Fault]:
    """Images are read at most 5 % faster than the baseline reads the page cache (warm) or the disk (cold).

    Files count with their mean size. The page cache was read by one thread: its rate counts for each core.
    What a loader read ahead of a window, of at most ten batches, is not counted.
    """
    cited, seconds, files = _cited(c), _seconds(c), c.header["dataset"]["files"]
    if cited is None or not c.real or seconds <= 0 or not files or c.nodes > 1:
        return
    if not c.rules.holds_images(c.header["dataset"]["name"]):
        return
    source, readers = ("disk.read", 1) if c.key.cache == "cold" else ("cpu.page_cache_read", c.cores)
    rate = _rate(cited, source)
    if rate is None:
        return
    steps = c.counts["measured_steps"]
    ahead = int(c.rules.limit("baseline_ahead_steps"))
    images = sum(end_of(repeat)["units"] or 0 for repeat in c.repeats) * (steps - ahead) / steps
    found = images * (c.header["dataset"]["bytes"] or 0) / files / seconds
    most = c.rules.limit("baseline_share") * rate * readers
    if found > most:
        wanted = f"at most {most:.4g} bytes/s, by {source} of the cited baseline"
        yield Fault(_WINDOWS, wanted, f"{found:.4g} bytes/s")


def _seconds(c: Context) -> float:
    """The time of all windows."""
    return sum(repeat.window_ns or 0 for repeat in c.repeats) / 1e9


def _hundreds(c: Context) -> float:
    """The measured steps of all windows in hundreds, which analytic work counts."""
    return len(c.repeats) * c.counts["measured_steps"] / MEASURED_STEPS


def _convolves(c: Context) -> bool:
    """Whether the model has convolutions: parameters with four dimensions."""
    shapes = (one.shape for one in c.spec.parameters(c.spec.dimensions(c.key.scale, c.key.variant)))
    return any(len(shape) == 4 for shape in shapes)
