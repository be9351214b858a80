"""Conversions of pictures: whose form it is, that every byte is accounted for, that repeats made the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from suite.checker.context import WORDS, Context, Fault, HeaderContext, end_of, header_rule, rule
from suite.record.model import Repeat
from suite.workloads.forms import FRAMEWORK

_BYTES = ("bytes_in", "bytes_out")


@header_rule("FORM-001", WORDS)
def form_fits(c: HeaderContext) -> Iterator[Fault]:
    """A conversion is of pictures, without a model, into its framework's form; a run reads a known form."""
    stated = c.header["settings"].get("form")
    if stated is None and not c.converts:
        return
    if not c.converts and (stated not in FRAMEWORK or c.key.data != "real"):
        wanted = f"{', '.join(FRAMEWORK)} of real data, or none"
        yield Fault("header, data.settings.form", wanted, f"{stated} of {c.key.data} data")
    if c.converts and FRAMEWORK.get(stated) != c.key.framework:
        wanted = " or ".join(form for form, owner in FRAMEWORK.items() if owner == c.key.framework)
        yield Fault("header, data.settings.form", f"{wanted} in {c.key.framework}", str(stated))
    name = c.spec.DATASETS.get(c.key.scale, "") if c.key.workload in c.known_workloads else ""
    if not c.rules.pictures(name):
        yield Fault("header, data.key.workload", "one whose dataset is pictures in folders", c.key.workload)
    if not c.converts:
        return
    words = {"scenario": "offline", "precision": "fp32", "data": "real"}
    for word, value in words.items():
        if (found := getattr(c.key, word)) != value:
            yield Fault(f"header, data.key.{word}", f"{value} in a conversion", found)
    for name, value in (("mode", "throughput"), ("loader", "native")):
        if c.header[name] != value:
            yield Fault(f"header, data.{name}", f"{value} in a conversion", c.header[name])


@rule("FORM-002", mode="throughput")
def bytes_of_steps(c: Context) -> Iterator[Fault]:
    """Every shard says what was read and written, and no form keeps a file's bytes in fewer."""
    for repeat in c.repeats:
        if not c.converts and {*repeat.column(_BYTES[0]), *repeat.column(_BYTES[1])} <= {None}:
            continue
        for step, read, written in zip(repeat.steps, *map(repeat.column, _BYTES), strict=True):
            if not c.converts:
                if (read, written) != (None, None):
                    yield Fault(step.place("bytes_in"), f"none in phase {c.key.phase}", f"{read}, {written}")
                    break
            elif not read or written is None or written <= read:
                wanted = "bytes that were read, and more that were written"
                yield Fault(step.place("bytes_out"), wanted, f"{read} and {written}")
                break


@rule("FORM-003", mode="throughput")
def bytes_of_repeat(c: Context) -> Iterator[Fault]:
    """The repeat's bytes are the sums over its measured steps."""
    for repeat in c.repeats:
        stated = end_of(repeat).data.get("conversion")
        if (stated is not None) != c.converts:
            wanted = "bytes in and out" if c.converts else f"none in phase {c.key.phase}"
            yield Fault(end_of(repeat).place("conversion"), wanted, str(stated))
        elif stated is not None:
            yield from _sums(repeat, stated)


def _sums(repeat: Repeat, stated: Mapping[str, int]) -> Iterator[Fault]:
    for name in _BYTES:
        wanted = sum(step.data.get(name) or 0 for step in repeat.steps if step["phase"] == "measured")
        if stated[name] != wanted:
            yield Fault(end_of(repeat).place(f"conversion.{name}"), str(wanted), str(stated[name]))


@rule("FORM-004", mode="throughput")
def same_shards(c: Context) -> Iterator[Fault]:
    """Every repeat made the same shards: equal pixels, equal files."""
    if not c.converts or not c.repeats:
        return
    names = ("batch_digest", "output_digest", *_BYTES)
    for repeat in c.repeats[1:]:
        for first, step in zip(c.repeats[0].steps, repeat.steps, strict=False):
            for name in names:
                if step.data.get(name) != first.data.get(name):
                    wanted = f"{first.data.get(name)} as in repeat {c.repeats[0].index}"
                    yield Fault(step.place(name), wanted, str(step.data.get(name)))
