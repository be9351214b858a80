"""What was read: the dataset, the seed, the batches."""

from __future__ import annotations

from collections.abc import Iterator

from suite.checker.context import Context, Fault, HeaderContext, departs, end_of, header_rule, rule, start_of
from suite.record.seeds import seed_hex
from suite.rules import synthetic_digest

OWN = "own"
SYNTHETIC = "synthetic/1"  # the generator of the stream


@header_rule("DATA-001")
def dataset_is_the_workloads(c: HeaderContext) -> Iterator[Fault]:
    """The dataset is the one of workload and scale, or the synthetic stream.

    At reference scale it may be somebody's own: DIV-013.
    """
    found = c.header["dataset"]
    if c.key.data == "synthetic":
        wanted = (f"{c.spec.NAME}-synthetic", "synthetic")
    else:
        name = c.spec.DATASETS[c.key.scale]
        kind = c.rules.dataset(name)["kind"] if c.rules.has("datasets", name) else "official"
        wanted = (name, kind)
    if found["kind"] == OWN and c.division != "practice" and c.key.data != "synthetic":
        wanted = (wanted[0], OWN)
    if (found["name"], found["kind"]) != wanted:
        yield Fault("header, data.dataset", " ".join(wanted), f"{found['name']} {found['kind']}")


@header_rule("DIV-013")
def published_dataset(c: HeaderContext) -> Iterator[Fault]:
    """The dataset is the published one, not somebody's own under its name."""
    if c.header["dataset"]["kind"] == OWN:
        yield from departs(c, "DIV-013", Fault("header, data.dataset.kind", "official", OWN))


@header_rule("DATA-002")
def dataset_digest(c: HeaderContext) -> Iterator[Fault]:
    """The digest of the dataset's files is the rules'; so are their number and size."""
    found = c.header["dataset"]
    if c.key.data == "synthetic":
        made = {"digest": synthetic_digest(c.key), "bytes": 0, "files": 0, "generator": SYNTHETIC}
        for field, value in made.items():
            if found[field] != value:
                yield Fault(f"header, data.dataset.{field}", str(value), str(found[field]))
        return
    name = c.spec.DATASETS[c.key.scale]
    if not c.rules.has("datasets", name):
        yield Fault("header, data.dataset.name", "a dataset of the rules", name)
        return
    entry = c.rules.dataset(name)
    if found["kind"] == OWN:  # known by its digest alone
        if found["digest"] is None:
            yield Fault("header, data.dataset.digest", "the digest of the dataset", "null")
        return
    if found["generator"] != entry["generator"]:
        yield Fault("header, data.dataset.generator", str(entry["generator"]), str(found["generator"]))
    files = entry.get("count", len(entry["files"]))  # of images, the rules have no file for each
    wanted = {"digest": entry["digest"], "bytes": entry["bytes"], "files": files}
    for field, value in wanted.items():
        if value is None and c.division == "closed":
            yield Fault(
                f"header, data.dataset.{field}", "settled by the rules before closed runs", str(found[field])
            )
        elif value is not None and found[field] != value:
            yield Fault(f"header, data.dataset.{field}", str(value), str(found[field]))


@rule("SEED-001")
def seeds_derived(c: Context) -> Iterator[Fault]:
    """The seed of each repeat is derived from nonce, run id and repeat."""
    for repeat in c.record.repeats:
        wanted = seed_hex(c.header["nonce"], c.record.run_id, repeat.index)
        start = start_of(repeat)
        if start["seed"] != wanted:
            yield Fault(start.place("seed"), wanted, start["seed"])


@rule("DATA-003", mode="throughput")
def batches_distinct(c: Context) -> Iterator[Fault]:
    """Real batches all differ; synthetic ones are exactly the workload's cycle."""
    cycle = c.workload_rules["synthetic_cycle"]
    for repeat in c.repeats:
        for worker in repeat.workers:
            digests = repeat.column("batch_digest", worker)
            distinct = len(set(digests))
            wanted = cycle if c.key.data == "synthetic" else len(digests)
            if distinct != wanted:
                place = f"repeat {repeat.index}, worker {worker}, batch_digest of its steps"
                yield Fault(place, f"{wanted} distinct batches ({c.key.data} data)", str(distinct))


@rule("DATA-004", mode="throughput")
def batches_hold_their_units(c: Context) -> Iterator[Fault]:
    """Equal batches hold equal work."""
    for repeat in c.repeats:
        seen: dict[tuple[int, str], int] = {}
        columns = [repeat.column(name) for name in ("worker", "batch_digest", "units")]
        if len(set(columns[1])) == len(columns[1]):
            continue  # no two are equal: real data
        if len(set(zip(*columns, strict=True))) == len(set(zip(*columns[:2], strict=True))):
            continue  # each batch with one number of units
        for step, worker, digest, units in zip(repeat.steps, *columns, strict=True):
            known = seen.setdefault((worker, digest), units)
            if known != units:
                yield Fault(step.place("units"), f"{known} as in its equal batch", str(units))


@rule("DATA-005")
def cache_as_stated(c: Context) -> Iterator[Fault]:
    """A cold run evicted the whole dataset before each repeat, a warm one nothing."""
    size = c.header["dataset"]["bytes"] or 0
    for repeat in c.record.repeats:
        start = start_of(repeat)
        evicted = start["evicted_bytes"]
        if c.key.cache == "warm" and evicted is not None:
            yield Fault(start.place("evicted_bytes"), "null with cache warm", str(evicted))
        if c.key.cache == "cold" and (evicted is None or evicted < size):
            yield Fault(start.place("evicted_bytes"), f"at least the dataset's {size} bytes", str(evicted))


@rule("DATA-006", mode="throughput")
def cold_reads_storage(c: Context) -> Iterator[Fault]:
    """A cold run that reads its batches from files fetches bytes from storage."""
    if c.key.cache != "cold" or c.key.data != "real":
        return
    for repeat in c.repeats:
        opened, read = repeat.counters("window_open"), 0
        if opened is None or opened["worker"] is None or opened["worker"]["read_bytes"] is None:
            continue
        read = opened["worker"]["read_bytes"] + (end_of(repeat)["storage_bytes"] or 0)
        if read == 0:
            yield Fault(opened.place("worker.read_bytes"), "bytes fetched from storage", "0")
