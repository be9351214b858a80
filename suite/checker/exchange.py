"""EXCH: the sweep of the exchange between ranks."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from suite.checker.context import STRUCTURE, WITH_KEY, Context, Fault, end_of, rule
from suite.contract import BENCHMARK

_OPERATIONS = {"allreduce": "all_reduce", "parameter_server": "push_pull"}  # of each strategy
# As the worker sweeps: bytes, and sums of each size.
SMALLEST, GROWTH, ITERATIONS = 4, 4, 5
LARGEST = {"cpu": 64 << 20, "cuda": 1 << 30}


@rule("EXCH-001", STRUCTURE, kind=WITH_KEY)
def every_rank_swept(c: Context) -> Iterator[Fault]:
    """One sweep of each rank in repeat 0, all of one operation and the same sizes; none elsewhere.

    The sizes grow as in :mod:`suite.worker.exchange_sweep`, until the largest, time or memory ends them.
    """
    swept = c.mode == "throughput" and c.key.exchanges
    largest = LARGEST["cpu" if c.header["settings"].get("device") == "cpu" else "cuda"]
    for repeat in c.repeats:
        wanted = list(range(c.key.devices)) if swept and repeat.index == 0 else []
        found = [sweep["rank"] for sweep in repeat.sweeps]
        if found != wanted:
            yield Fault(f"repeat {repeat.index}, exchange_sweep of ranks", wanted, found)
            continue
        for sweep in repeat.sweeps:
            operation = _OPERATIONS.get(c.key.strategy)
            if sweep["operation"] != operation:
                yield Fault(sweep.location("operation"), operation, sweep["operation"])
            first = repeat.sweeps[0]
            shapes = [
                [(row["bytes"], len(row["times_ns"])) for row in one["sizes"]] for one in (first, sweep)
            ]
            if shapes[0] != shapes[1] or sweep["ended"] != first["ended"]:
                yield Fault(sweep.location("sizes"), f"{shapes[0]}, as rank 0", shapes[1])
            grown = [(SMALLEST * GROWTH**number, ITERATIONS) for number in range(len(shapes[1]))]
            if shapes[1] != grown:
                yield Fault(sweep.location("sizes"), f"(bytes, sums): {grown}", shapes[1])
            elif ((largest, ITERATIONS) in grown[-1:]) != (sweep["ended"] == "largest"):
                ends = f"largest at {largest} bytes, and only there"
                yield Fault(sweep.location("ended"), ends, f"{sweep['ended']} after {grown[-1:]}")


@rule("EXCH-002", kind=BENCHMARK)
def sums_exact(c: Context) -> Iterator[Fault]:
    """Every sum of the sweep had the exact value on every rank."""
    for repeat in c.repeats:
        for sweep in repeat.sweeps:
            for row in sweep["sizes"]:
                if not row["exact"]:
                    yield Fault(
                        sweep.location("sizes"), f"an exact sum of {row['bytes']} bytes", "another sum"
                    )


@rule("EXCH-003", kind=BENCHMARK)
def times_possible(c: Context) -> Iterator[Fault]:
    """A device reads and writes each byte of a sum at least once, and all sums follow the window.

    The rules have no bandwidth of a processor's memory: there only the whole time is limited.
    """
    rate = None if c.peaks[1] is None else c.peaks[1] / c.devices
    for repeat in c.repeats:
        closed = end_of(repeat)["window"]["close_ns"]
        for sweep in repeat.sweeps:
            for row in sweep["sizes"] if rate is not None else ():
                least, found = 2e9 * row["bytes"] / rate, median(row["times_ns"])
                if found < least:
                    wanted = f"at least {least:.0f} ns for {row['bytes']} bytes, read and written once"
                    yield Fault(sweep.location("sizes"), wanted, f"a median of {found:.0f} ns")
            whole, passed = sum(sum(row["times_ns"]) for row in sweep["sizes"]), sweep.mono_ns - closed
            if whole > passed:
                wanted = f"sums of at most {passed} ns together, the time since the window closed"
                yield Fault(sweep.location("sizes"), wanted, f"{whole} ns")
