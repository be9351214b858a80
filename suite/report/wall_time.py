"""Where the wall time of a run went, from its log."""

from __future__ import annotations

from collections import Counter

from suite.log.model import Record, Repeat

# Fields of rank 0's report, in ns, with the names of their parts of the wall time.
_REPORTED = (
    ("import_ns", "import"),
    ("setup_ns", "set-up"),
    ("compile_ns", "compile"),
    ("soak_ns", "soak"),
    ("warmup_ns", "warm-up"),
)
_LEAST_SHARE = 0.01  # smaller parts are added to "other"


def wall_time(record: Record) -> str:
    """One line: seconds from the first event to the last, seconds measured, and the other parts by size.

    A part is the sum over the repeats. ``other`` holds all that the log does not time: starts of processes
    and containers, resets, digests, reports. Empty for a log without an end or without a finished repeat.
    """
    if not record.completed or not record.repeats:
        return ""
    total = record.events[-1].mono_ns
    measured = sum(repeat.window_ns or 0 for repeat in record.repeats)
    parts = _parts(record)
    shown = {name: ns for name, ns in parts.items() if ns > _LEAST_SHARE * total}
    rest = total - measured - sum(shown.values())
    texts = [f"{name} {ns / 1e9:.1f}" for name, ns in sorted(shown.items(), key=lambda part: -part[1])]
    return f"{total / 1e9:.1f} s for {measured / 1e9:.1f} s measured: " + ", ".join(
        [*texts, f"other {rest / 1e9:.1f}"]
    )


def _parts(record: Record) -> Counter[str]:
    parts: Counter[str] = Counter()
    for repeat in record.repeats:
        # The time to quality contains all but the import.
        for field, name in _REPORTED[:1] if repeat.evaluations else _REPORTED:
            length = repeat.reports[0].data.get(field) if repeat.reports else None
            parts[name] += length or 0
        if repeat.reports and repeat.reports[0].data.get("tail_steps"):
            at = repeat.clock_at
            parts["telemetry tail"] += at["repeat_end"].mono_ns - at["window_close"].mono_ns
        parts["fingerprint"] += _fingerprint(repeat)
    return parts


def _fingerprint(repeat: Repeat) -> int:
    """From the end of the repeat to the fingerprint that another process computed after it."""
    found = repeat.all("fingerprint")
    return max(0, found[0].mono_ns - repeat.end.mono_ns) if found and repeat.end is not None else 0
