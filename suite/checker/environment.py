"""ENV: the log has the facts of machine and software, equal in every repeat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from suite.checker.context import WITH_KEY, Context, Fault, frameworks_of, rule
from suite.contract import BENCHMARK
from suite.contract.traits import traits_of
from suite.log.model import Event

# Facts of a device that change while it idles, sleeps or is reset.
_VOLATILE = (".nvlink_links", ".pcie_width", ".memory_free_bytes")
# The facts that rules read, by side: null with a reason if unknown, never absent.
_REQUIRED = {
    "outside": ("accelerators", "container", "kernel"),
    "inside": ("framework", "image_label", "injected"),
}
# The type of activations, and of the weights that inference stores, by precision. TF32 has no own type.
_COMPUTED = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16"}


@rule("ENV-001")
def facts_equal(c: Context) -> Iterator[Fault]:
    """The facts of each node, and those of each rank, are equal in all repeats.

    A repeat in which the driver did not answer has no facts about the devices. Each node has one boot.
    """
    boots: dict[int, Event] = {}
    for event in c.record.all("clock"):
        if event["boot"] != (first := boots.setdefault(event["node"], event))["boot"]:
            yield Fault(event.location("boot"), f"{first['boot']} as in line {first.line}", event["boot"])
    known: dict[tuple[str, int, int | None], Event] = {}
    for repeat in c.record.repeats:
        for event in repeat.envs:
            first = known.setdefault((event["side"], event["node"], event.data.get("rank")), event)
            wanted, facts = dict(first["facts"]), event["facts"]
            if repeat.end is None and facts.get("container") is None:
                wanted["container"] = None  # the harness cannot inspect a worker that did not start
            for path, value, found in differences(wanted, facts, "facts"):
                if path.startswith("facts.accelerators") and (
                    path.endswith(_VOLATILE) or value is None or found is None
                ):
                    continue  # DEV-008 flags devices that are missing
                yield Fault(event.location(path), f"{value} as in repeat {first.repeat}", found)


def _frameworks(c: Context) -> Iterator[tuple[Event, Event, Mapping[str, Any]]]:
    """:func:`frameworks_of` every completed repeat."""
    return chain.from_iterable(map(frameworks_of, c.repeats))


def differences(first: Any, found: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """(path, first value, value found) wherever two parsed JSON values differ."""
    if first == found:  # the usual case
        return
    if isinstance(first, Mapping) and isinstance(found, Mapping):
        for name in sorted({*first, *found}):
            yield from differences(first.get(name), found.get(name), f"{path}.{name}")
    elif isinstance(first, list) and isinstance(found, list) and len(first) == len(found):
        for index, (one, other) in enumerate(zip(first, found, strict=True)):
            yield from differences(one, other, f"{path}.{index}")
    else:
        yield path, first, found


@rule("ENV-002", mode="throughput")
def threads_constant(c: Context) -> Iterator[Fault]:
    """No thread starts or ends inside the window."""
    for report in c.reports:
        threads = report["threads"]
        if threads is not None and threads["before"] != threads["after"]:
            yield Fault(report.location("threads.after"), f"{threads['before']} as before", threads["after"])


@rule("ENV-003")
def code_constant(c: Context) -> Iterator[Fault]:
    """Every rank loaded the same modules of the suite in every repeat, and observed the same types.

    Its timestamps are of one kind.
    """
    for report in c.reports:
        for name in ("modules_digest", "dtypes", "timestamp_kind"):
            wanted, found = c.reports[0][name], report[name]
            if found != wanted:
                yield Fault(report.location(name), wanted, found)
        if report["modules_digest"] is None:
            yield Fault(report.location("modules_digest"), "a digest", None)


@rule("ENV-006", kind=BENCHMARK)
def types_of_the_precision(c: Context) -> Iterator[Fault]:
    """The observed types are those of the key's precision: mixed precision has fp32 master weights."""
    computed = _COMPUTED[c.key.precision]
    train = c.key.phase == "train"
    wanted = {"activations": {computed}, "weights": {"float32"} if train else {"float32", computed}}
    if train:
        wanted["gradients"] = {"float32"}
    for report, inside, described in _frameworks(c):
        found = report["dtypes"] or {}
        for name, allowed in wanted.items():
            if found.get(name) not in allowed:
                location = report.location(f"dtypes.{name}")
                yield Fault(location, f"{' or '.join(sorted(allowed))} in {c.key.precision}", found.get(name))
        stated = described.get("tf32")
        if stated is not None and stated != (c.key.precision == "tf32"):
            location = inside.location("facts.framework.tf32")
            yield Fault(location, f"{c.key.precision == 'tf32'} in {c.key.precision}", stated)


@rule("ENV-007")
def no_injected_libraries(c: Context) -> Iterator[Fault]:
    """No library was injected into the worker by environment variables of the loader."""
    for repeat in c.repeats[:1]:  # ENV-001 compares the others with it
        for inside in repeat.envs_of("inside"):
            if found := inside["facts"].get("injected"):
                names = ", ".join(map(str, found)) if isinstance(found, list) else str(found)
                yield Fault(inside.location("facts.injected"), "nothing", names)


@rule("ENV-008")
def hardware_clock_source(c: Context) -> Iterator[Fault]:
    """The kernel's clock source is a hardware counter, not one of milliseconds."""
    for repeat in c.repeats[:1]:
        for outside in repeat.envs_of("outside"):
            kernel = outside["facts"].get("kernel")
            found = kernel.get("clocksource") if isinstance(kernel, Mapping) else None
            if found is not None and "jiffies" in str(found):
                location = outside.location("facts.kernel.clocksource")
                yield Fault(location, "a hardware counter, such as tsc", found)


@rule("ENV-009")
def facts_reported(c: Context) -> Iterator[Fault]:
    """Every fact that a rule reads is in the log: without it, the rule would find nothing."""
    for repeat in c.record.repeats:
        for event in repeat.envs:
            for name in _REQUIRED[event["side"]]:
                if name not in event["facts"]:
                    yield Fault(
                        event.location(f"facts.{name}"), "a fact, or null with its reason", "not there"
                    )


@rule("ENV-010")
def computed_as_observed(c: Context) -> Iterator[Fault]:
    """The compute type that the framework reports is the one observed."""
    for report, inside, described in _frameworks(c):
        observed, found = (report["dtypes"] or {}).get("activations"), described.get("compute_dtype")
        if None not in (observed, found) and found != observed:
            yield Fault(inside.location("facts.framework.compute_dtype"), f"{observed}, as observed", found)


@rule("ENV-011", mode="throughput", kind=WITH_KEY)
def timestamps_of_the_framework(c: Context) -> Iterator[Fault]:
    """The suite's pairs have the timestamp kind of their framework."""
    if c.header["settings"].get("custom_pair") is not None:
        return
    for report, _, described in _frameworks(c):
        device = described.get("device")
        kinds = traits_of(c.key.framework).timestamp_kind
        kind = device.partition(":")[0] if isinstance(device, str) else ""
        if kind not in kinds:
            continue
        wanted = "host_completion" if c.key.scenario == "single_stream" else kinds[kind]
        if report["timestamp_kind"] != wanted:
            location, found = report.location("timestamp_kind"), str(report["timestamp_kind"])
            yield Fault(location, f"{wanted} in {c.key.framework} on {device}", found)


@rule("ENV-012", kind=WITH_KEY)
def framework_reported(c: Context) -> Iterator[Fault]:
    """The framework reports its version and ran on the device of the settings."""
    for _, inside, described in _frameworks(c):
        if not described:
            instead = str(inside["facts"].get("framework"))
            yield Fault(inside.location("facts.framework"), "the framework's facts", instead)
            continue
        if not isinstance(described.get("version"), str):
            yield Fault(inside.location("facts.framework.version"), "a version", described.get("version"))
        wanted, found = c.header["settings"].get("device"), described.get("device")
        if wanted is None or found != wanted:
            location = inside.location("facts.framework.device")
            yield Fault(location, f"{wanted}, as in the header's settings.device", found)


@rule("ENV-013")
def version_of_the_image(c: Context) -> Iterator[Fault]:
    """The framework's version is the one that the lock states for the container image."""
    contains = None if c.locked is None else c.locked["contains"].get("framework")
    if contains is None:
        return
    for _, inside, described in _frameworks(c):
        found = described.get("version")
        if isinstance(found, str) and not found.startswith(contains):
            wanted = f"{contains}, as in the container image {c.image['lock'] if c.image else ''}"
            yield Fault(inside.location("facts.framework.version"), wanted, found)
