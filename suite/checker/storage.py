"""FORM: storage formats of image datasets, the bytes of conversions into them, and of loads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from suite.checker.context import KEY, WITH_KEY, Context, Fault, HeaderContext, end_of, header_rule, rule
from suite.contract import BENCHMARK, CONVERSION, LOAD, LOAD_PHASES
from suite.contract.traits import storage_formats
from suite.log.model import Repeat
from suite.workloads.storage import encoding_of

_BYTES = ("bytes_in", "bytes_out")


@header_rule("FORM-001", KEY)
def storage_fits(c: HeaderContext) -> Iterator[Fault]:
    """A conversion is of images, by the framework of its storage format; a run reads a known format."""
    if c.conversion is None:
        stated = c.header["settings"].get("storage")
        if stated is None:
            return
        if stated not in storage_formats() or not c.real:
            wanted = f"{', '.join(storage_formats())} of real data, or none"
            yield Fault("header, data.settings.storage", wanted, f"{stated} of {c.key.data} data")
    elif storage_formats().get(c.conversion.storage) != c.conversion.framework:
        wanted = " or ".join(name for name, by in storage_formats().items() if by == c.conversion.framework)
        yield Fault(f"{c.location}.storage", f"{wanted} in {c.conversion.framework}", c.conversion.storage)
    if c.conversion is not None:
        try:
            encoding_of(c.conversion.encoding)
        except ValueError as error:
            expected, found = str(error).removeprefix("expected ").split(", found ")
            yield Fault(f"{c.location}.encoding", expected, found)
    known = c.subject.workload in c.known_workloads
    name = c.spec.DATASETS.get(c.subject.scale, "") if known else ""
    if not c.rules.holds_images(name):
        yield Fault(f"{c.location}.workload", "one whose dataset is images in folders", c.subject.workload)


@rule("FORM-002", mode="throughput")
def bytes_of_steps(c: Context) -> Iterator[Fault]:
    """Shards and loaded batches state bytes in and out; a shard has more bytes than its stored images."""
    least = _least_bytes(c)
    for repeat in c.repeats:
        if c.kind == BENCHMARK and {*repeat.column(_BYTES[0]), *repeat.column(_BYTES[1])} <= {None}:
            continue
        for step, read, written in zip(repeat.steps, *map(repeat.column, _BYTES), strict=True):
            if c.kind == BENCHMARK:
                if (read, written) != (None, None):
                    yield Fault(step.location("bytes_in"), f"none in phase {c.phase}", f"{read}, {written}")
                    break
            elif (
                not read
                or not written
                or (c.kind == CONVERSION and written <= (read if least is None else least))
            ):
                more = f"more than {'these' if least is None else least} " if c.kind == CONVERSION else ""
                wanted = f"bytes read, and {more}bytes written"
                yield Fault(step.location("bytes_out"), wanted, f"{read} and {written}")
                break


def _least_bytes(c: Context) -> int | None:
    """The bytes of a shard's raw pixels, 0 for JPEGs that were made again; None for unchanged files."""
    encoding = None if c.conversion is None else encoding_of(c.conversion.encoding)
    if encoding is None or c.conversion is None:
        return None
    return 3 * encoding.size**2 * c.conversion.batch if encoding.kind == "raw" else 0


@rule("FORM-003", mode="throughput")
def bytes_of_repeat(c: Context) -> Iterator[Fault]:
    """The repeat's bytes are the sums over its measured steps."""
    for repeat in c.repeats:
        for kind in (CONVERSION, LOAD):
            stated = end_of(repeat).data.get(kind)
            if (stated is not None) != (c.kind == kind):
                wanted = "bytes in and out" if c.kind == kind else f"none in phase {c.phase}"
                yield Fault(end_of(repeat).location(kind), wanted, stated)
            elif stated is not None:
                yield from _sums(repeat, kind, stated)


def _sums(repeat: Repeat, kind: str, stated: Mapping[str, int]) -> Iterator[Fault]:
    for name in _BYTES:
        wanted = sum(step.data.get(name) or 0 for step in repeat.steps if step["phase"] == "measured")
        if stated[name] != wanted:
            yield Fault(end_of(repeat).location(f"{kind}.{name}"), wanted, stated[name])


@rule("FORM-004", mode="throughput", kind=CONVERSION)
def same_shards(c: Context) -> Iterator[Fault]:
    """Every repeat wrote the same shards: equal pixels, equal files."""
    names = ("batch_digest", "output_digest", *_BYTES)
    for repeat in c.repeats[1:]:
        for first, step in zip(c.repeats[0].steps, repeat.steps, strict=False):
            for name in names:
                if step.data.get(name) != first.data.get(name):
                    wanted = f"{first.data.get(name)} as in repeat {c.repeats[0].index}"
                    yield Fault(step.location(name), wanted, step.data.get(name))


@header_rule("FORM-005", KEY, kind=WITH_KEY)
def load_fits(c: HeaderContext) -> Iterator[Fault]:
    """A load has a phase of loads, and reads image files without a model; a benchmark has another phase."""
    if c.key.loads != (c.kind == LOAD):
        phases = f"a phase {'of' if c.kind == LOAD else 'other than'} {', '.join(LOAD_PHASES)}"
        yield Fault("header, data.key.phase", f"{phases} in a {c.kind}", c.key.phase)
    if c.kind != LOAD:
        return
    wanted = {"data": "real", "precision": "fp32", "scenario": "offline"}
    for name, value in wanted.items():
        if (found := getattr(c.key, name)) != value:
            yield Fault(f"header, data.key.{name}", f"{value} in a load", found)
    if c.mode != "throughput":
        yield Fault("header, data.mode", "throughput in a load", c.mode)
    if c.key.workload in c.known_workloads and len(c.spec.LOADERS) == 1:
        yield Fault("header, data.key.workload", "one that reads image files", c.key.workload)
