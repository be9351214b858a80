"""What a mutant changes about the score: time, units, key, identity, counts, order or nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from suite.rules import VERSIONS, load
from tests.fixtures.forging import Events
from tests.sweep.mutants import variant

MOVES = 0.001  # of time or units, from which a mutant moves the score
_KEY = ("mode", "division")
_IDENTITY = (
    "run_id", "nonce", "code_digest", "image", "dataset", "initial_parameters", "hyper",
)  # fmt: skip
_COUNTS = ("repeats", "warmup_steps", "measured_steps")


def stakes(old: dict[str, Any], after: Events) -> set[str]:
    """Which of the six a mutant changes; ``old`` is the :func:`summary` of the honest log."""
    new = summary(after)
    found = {name for name in ("key", "identity", "counts", "order") if old[name] != new[name]}
    for name in ("time", "units"):
        if any(_moved(a, b) for a, b in zip(old[name], new[name], strict=False)):
            found.add(name)
    return found


def _moved(old: Any, new: Any) -> bool:
    if old is None and new is None:
        return False
    if not isinstance(old, int | float) or not isinstance(new, int | float) or isinstance(new, bool):
        return True
    return abs(new - old) > MOVES * abs(old)


def summary(events: Events) -> dict[str, Any]:
    """The values of the six in a log, as far as it can be read."""
    header = _dict(events[0].get("data"))
    ends = [_dict(event.get("data")) for event in events if event.get("kind") == "repeat_end"]
    reports = [_dict(event.get("data")) for event in events if event.get("kind") == "rank_end"]
    starts = [_dict(event.get("data")) for event in events if event.get("kind") == "repeat_start"]
    steps = [_dict(event.get("data")) for event in events if event.get("kind") == "step"]
    claims = _dict(_dict(events[-1].get("data")).get("claims"))
    return {
        "key": [header.get("key"), *(header.get(name) for name in _KEY)],
        "identity": [
            *(header.get(name) for name in _IDENTITY),
            _rules(_dict(header.get("rules"))),
            [start.get("seed") for start in starts],
            [(_dict(one.get("parameters")).get("initial"), one.get("modules_digest")) for one in reports],
            [step.get("batch_digest") for step in steps],
            list(_containers(events)),
        ],
        "counts": [
            *(header.get(name) for name in _COUNTS),
            Counter((event.get("kind"), str(event.get("repeat")), variant(event)) for event in events),
            [start.get("world_size") for start in starts],
            [end.get("steps") for end in ends],
            [(step.get("rank"), step.get("phase")) for step in steps],
        ],
        "order": [
            [(event.get("kind"), event.get("repeat"), variant(event)) for event in events],
            [step.get("step") for step in steps],
            [_dict(e.get("data")).get("epoch") for e in events if e.get("kind") == "evaluation"],
        ],
        "time": [_number(claims.get("throughput")), claims.get("window_ns"), claims.get("time_to_quality_ns")]
        + [_dict(end.get("window")).get("ns") for end in ends],
        "units": [claims.get("units"), *(end.get("units") for end in ends)],
    }


def _rules(stated: dict[str, Any]) -> Any:
    """What decides which rules judge a log: not the stated digests of files that may change (ID-018)."""
    files = _dict(stated.get("files"))
    fixed = {name: None if _may_change(name) else digest for name, digest in files.items()}
    return [stated.get("version"), fixed, stated.get("digest") if files == {} else None]


def _may_change(name: str) -> bool:
    return any(load(version).may_change(name) for version in VERSIONS)


def _containers(events: Events) -> Iterator[Any]:
    """The container image in the events."""
    for event in events:
        data = _dict(event.get("data"))
        facts = _dict(data.get("facts"))
        for container in (facts.get("container"), data.get("container")):
            if container is not None:
                yield _dict(container).get("image")
        if "image_label" in facts:
            yield facts["image_label"]


def _number(text: Any) -> Any:
    try:
        return float.fromhex(text)
    except (TypeError, ValueError):
        return text


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
