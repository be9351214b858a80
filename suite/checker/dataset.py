"""DATA and SEED: the dataset, its cache, the batches, and the seeds that order them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import ceil
from operator import eq

from suite.checker.context import WITH_KEY, Context, Fault, HeaderContext, header_rule, rule, start_of
from suite.contract import MEASURED_STEPS, STEPS
from suite.contract.seeds import seed_hex
from suite.log.model import Repeat
from suite.rules import synthetic_digest

CUSTOM_DATASET = "custom"
SYNTHETIC = "synthetic/1"  # the generator of synthetic data


@header_rule("DATA-001")
def dataset_is_the_workloads(c: HeaderContext) -> Iterator[Fault]:
    """The dataset is the one of workload and scale, or the synthetic stream.

    At reference scale it may be a custom dataset: DIV-013.
    """
    found = c.header["dataset"]
    if not c.real:
        wanted = (f"{c.spec.NAME}-synthetic", "synthetic")
    else:
        name = c.spec.DATASETS[c.subject.scale]
        kind = c.rules.dataset(name)["kind"] if c.rules.has("datasets", name) else "official"
        wanted = (name, kind)
    if found["kind"] == CUSTOM_DATASET and c.division != "practice" and c.real:
        wanted = (wanted[0], CUSTOM_DATASET)
    if (found["name"], found["kind"]) != wanted:
        yield Fault("header, data.dataset", " ".join(wanted), f"{found['name']} {found['kind']}")


@header_rule("DATA-002")
def dataset_digest(c: HeaderContext) -> Iterator[Fault]:
    """The digest of the dataset's files is the rules'; so are their number and size."""
    found = c.header["dataset"]
    if not c.real:
        made = {"digest": synthetic_digest(c.key), "bytes": 0, "files": 0, "generator": SYNTHETIC}
        for field, value in made.items():
            if found[field] != value:
                yield Fault(f"header, data.dataset.{field}", value, found[field])
        return
    name = c.spec.DATASETS[c.subject.scale]
    if not c.rules.has("datasets", name):
        yield Fault("header, data.dataset.name", "a dataset of the rules", name)
        return
    entry = c.rules.dataset(name)
    if found["kind"] == CUSTOM_DATASET:  # the rules know nothing but its digest
        if found["digest"] is None:
            yield Fault("header, data.dataset.digest", "the digest of the dataset", "null")
        return
    if found["generator"] != entry["generator"]:
        yield Fault("header, data.dataset.generator", entry["generator"], found["generator"])
    files = entry.get("count", len(entry["files"]))  # the rules do not list each file of images
    wanted = {"digest": entry["digest"], "bytes": entry["bytes"], "files": files}
    for field, value in wanted.items():
        if value is None and c.division == "closed":
            yield Fault(
                f"header, data.dataset.{field}", "a value in the rules, as closed requires", found[field]
            )
        elif value is not None and found[field] != value:
            yield Fault(f"header, data.dataset.{field}", value, found[field])


@rule("SEED-001")
def seeds_derived(c: Context) -> Iterator[Fault]:
    """The seed of each repeat is derived from nonce, run id and repeat."""
    for repeat in c.record.repeats:
        wanted = seed_hex(c.header["nonce"], c.record.run_id, repeat.index)
        start = start_of(repeat)
        if start["seed"] != wanted:
            yield Fault(start.location("seed"), wanted, start["seed"])


@rule("DATA-003", mode="throughput")
def batches_distinct(c: Context) -> Iterator[Fault]:
    """Real batches all differ; synthetic ones are exactly the workload's cycle.

    In a window of more than 100 steps an epoch may end and the dataset begin again: there the real batches of
    each hundred steps differ.

    Real batches of a single sample may recur, because some samples do: ncf draws a user's negatives with
    replacement, and translated sentences occur twice in a corpus. At least nine in ten of these must differ.
    """
    for repeat in c.repeats:
        for rank in repeat.ranks:
            for digests in _compared(repeat.column("batch_digest", rank), c.real):
                distinct = len(set(digests))
                wanted = len(digests) if c.real else c.workload_rules["synthetic_cycle"]
                least = ceil(0.9 * wanted) if c.real and c.subject.batch == 1 else wanted
                if not least <= distinct <= wanted:
                    bound = "" if least == wanted else "at least "
                    yield Fault(
                        f"repeat {repeat.index}, rank {rank}, batch_digest of its steps",
                        f"{bound}{least} distinct batches ({'real' if c.real else 'synthetic'} data)",
                        distinct,
                    )
                    break


def _compared(digests: Sequence[str], real: bool) -> Iterator[Sequence[str]]:
    """The batches that are compared with each other: of real data the first 110, then each hundred."""
    first = STEPS if real else len(digests)
    yield digests[:first]
    for at in range(first, len(digests), MEASURED_STEPS):
        yield digests[at : at + MEASURED_STEPS]


@rule("DATA-004", mode="throughput")
def batches_hold_their_units(c: Context) -> Iterator[Fault]:
    """Equal batches have equal units of work."""
    for repeat in c.repeats:
        seen: dict[tuple[int, str], int] = {}
        columns = [repeat.column(name) for name in ("rank", "batch_digest", "units")]
        if len(set(columns[1])) == len(columns[1]):
            continue  # all batches differ, as in real data
        if len(set(zip(*columns, strict=True))) == len(set(zip(*columns[:2], strict=True))):
            continue  # each batch has one number of units
        for step, rank, digest, units in zip(repeat.steps, *columns, strict=True):
            known = seen.setdefault((rank, digest), units)
            if known != units:
                yield Fault(step.location("units"), f"{known}, as in the earlier equal batch", units)


@rule("DATA-005")
def cache_as_stated(c: Context) -> Iterator[Fault]:
    """A cold run evicted the whole dataset before each repeat, a warm one nothing."""
    size = c.header["dataset"]["bytes"] or 0
    for repeat in c.record.repeats:
        start = start_of(repeat)
        evicted = start["evicted_bytes"]
        if c.subject.cache == "warm" and evicted is not None:
            yield Fault(start.location("evicted_bytes"), "null with cache warm", evicted)
        if c.subject.cache == "cold" and (evicted is None or evicted < size):
            yield Fault(start.location("evicted_bytes"), f"at least the dataset's {size} bytes", evicted)


@rule("DATA-006", mode="throughput")
def cold_reads_storage(c: Context) -> Iterator[Fault]:
    """A cold run fetches from storage what its batches are read from, since the eviction of the dataset.

    Of images half their bytes or more, because files differ in size; of other data, read as a whole, a byte.
    What was read before the window counts too: readers read ahead, and a process reads its own files.
    """
    if c.subject.cache != "cold" or not c.real:
        return
    for repeat in c.repeats:
        nodes = [repeat.counters("window_open", node) for node in range(c.nodes)]
        opened = [event for event in nodes if event is not None and event["processes"] is not None]
        before = [event["processes"]["read_bytes"] for event in opened]
        if not before or None in before:
            continue
        read = sum(before) + sum(report["storage_bytes"] or 0 for report in repeat.reports)
        needed = max(1, int(c.rules.limit("cold_share") * _bytes_of_steps(c, repeat)))
        if read < needed:
            wanted = f"with data.storage_bytes of the ranks, {needed} bytes or more fetched from storage"
            yield Fault(opened[0].location("processes.read_bytes"), wanted, read)


def _bytes_of_steps(c: Context, repeat: Repeat) -> float:
    """Bytes of the images that the steps of a repeat read, each counted once; 0 where they are unknown.

    Loads and conversions state them; a benchmark reads files of the mean size of the dataset.
    """
    dataset, images = c.header["dataset"], int(sum(repeat.column("units")))
    name = dataset["name"]
    if not c.rules.holds_images(name) or not dataset["files"] or not images:
        return 0
    stated = [size for size in repeat.column("bytes_in") if size is not None]
    read: float = sum(stated) if stated else images * (dataset["bytes"] or 0) / dataset["files"]
    if c.conversion is not None:
        return read
    split = "train" if c.key.of_batches.phase == "train" else "val"
    held = int(c.rules.dataset(name)["images"][split])
    return read * min(1.0, held / images)


@rule("DATA-007", mode="throughput", kind=WITH_KEY)
def batches_follow_the_seed(c: Context) -> Iterator[Fault]:
    """Where the seed orders the data, repeats have different batches; otherwise they have the same.

    The checker cannot compute the digests of batches, because it does not have their bytes.
    """
    seeded = c.workload_rules.get("batches_by_seed", {}).get(c.key.data)
    if seeded is None:
        return
    for first, second in pairwise(c.repeats):
        for rank in first.ranks:
            ours, theirs = (repeat.column("batch_digest", rank) for repeat in (first, second))
            same = sum(map(eq, ours, theirs))
            location = f"repeat {second.index}, rank {rank}, batch_digest of its steps"
            if seeded and 2 * same > len(ours):
                yield Fault(
                    location,
                    f"batches that differ from those of repeat {first.index}",
                    f"{same} equal batches",
                )
            elif not seeded and same < len(ours):
                yield Fault(
                    location, f"the batches of repeat {first.index}", f"{len(ours) - same} other batches"
                )
