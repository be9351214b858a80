"""Copies of logs are found if their times are shifted, scaled or jittered; honest runs are no copies."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from suite.mllog import copies
from suite.mllog.copies import Candidate, find_copies
from suite.mllog.examine import _log_values
from suite.mllog.parse import parse
from suite.mllog.runs import mllog_run
from tests.fixtures.mlperf_logs import changed, moved, run_v07, without

Lines = list[str]
Edit = Callable[[Lines, random.Random], Lines]


def candidates(runs: list[Lines], folder: str = "a") -> list[Candidate]:
    values = []
    for index, lines in enumerate(runs):
        data = "\n".join(lines).encode()
        values.append(_log_values(mllog_run(f"result_{index}.txt", data, parse(data)), True))
    return [Candidate.of(f"{folder}/{value['name']}", json.loads(json.dumps(value))) for value in values]


def honest(epochs: int, count: int = 5, first: int = 0) -> list[Lines]:
    return [run_v07(run=run, epochs=epochs) for run in range(first, first + count)]


def shifted(lines: Lines, _: random.Random) -> Lines:
    """A day later, with another seed and other accuracies."""
    lines = changed(changed(lines, "seed", value=4711), "eval_accuracy", value=0.7702)
    return moved(lines, lambda event: event["time_ms"] + 86_400_000)


def jittered(by_ms: int) -> Edit:
    def edit(lines: Lines, noise: random.Random) -> Lines:
        shifted_lines = shifted(lines, noise)
        return moved(shifted_lines, lambda event: event["time_ms"] + noise.randint(-by_ms, by_ms))

    return edit


def faster(lines: Lines, noise: random.Random) -> Lines:
    """All times compressed by a fifth, and jittered."""
    lines = moved(lines, lambda event: round(event["time_ms"] * 0.8))
    return jittered(5)(lines, noise)


def shortened(lines: Lines, noise: random.Random) -> Lines:
    """Without events that no rule requires, and jittered."""
    return jittered(5)(without(without(lines, "eval_start"), "eval_stop"), noise)


EDITS: dict[str, tuple[Edit, int]] = {
    "shifted": (shifted, 4),
    "jitter of 2 ms": (jittered(2), 4),
    "jitter of 4 ms": (jittered(4), 4),
    "jitter of 20 ms": (jittered(20), 12),
    "compressed": (faster, 12),
    "shortened": (shortened, 12),
}


@pytest.mark.parametrize("name", EDITS)
def test_copy_among_honest_runs_is_found(name: str) -> None:
    edit, epochs = EDITS[name]
    noise = random.Random(name)
    for _ in range(5):
        runs = honest(epochs)
        runs[3] = edit(runs[1], noise)
        found = find_copies([candidates(runs)])
        assert set(found) == {"a/result_3.txt"}
        assert "a/result_1.txt" in found["a/result_3.txt"]


@pytest.mark.parametrize(("by_ms", "epochs"), [(0, 4), (2, 4), (20, 12), (30, 40)])
def test_folder_that_holds_copies_of_one_run_only_is_found(by_ms: int, epochs: int) -> None:
    noise = random.Random(by_ms)
    (original,) = honest(epochs, 1)
    runs = [original, *(jittered(by_ms)(original, noise) for _ in range(4))]
    assert set(find_copies([candidates(runs)])) == {f"a/result_{index}.txt" for index in range(1, 5)}


@pytest.mark.parametrize("by_ms", [0, 2, 20])
def test_copy_of_a_log_in_another_folder_is_found(by_ms: int) -> None:
    runs, others = honest(12), honest(12, first=5)
    others[2] = jittered(by_ms)(runs[4], random.Random(by_ms))
    found = find_copies([candidates(runs), candidates(others, "b")])
    assert set(found) == {"b/result_2.txt"}
    assert "a/result_4.txt" in found["b/result_2.txt"]


@pytest.mark.parametrize(("epochs", "count"), [(1, 5), (2, 10), (4, 10), (12, 10), (60, 5)])
def test_honest_runs_are_no_copies(epochs: int, count: int) -> None:
    for trial in range(8):
        folders = [candidates(honest(epochs, count, first=100 * trial + 20 * at), str(at)) for at in range(2)]
        assert find_copies(folders) == {}


def test_pattern_of_a_system_is_no_copy() -> None:
    """Every second epoch takes 3 % longer in all runs, which makes their deviations correlate."""

    def alternating(lines: Lines) -> Lines:
        late = 0

        def time_of(event: dict[str, Any]) -> int:
            nonlocal late
            if event["key"] == "epoch_stop" and event["metadata"]["epoch_num"] % 2:
                late += 1800
            return int(event["time_ms"]) + late

        return moved(lines, time_of)

    runs = [alternating(lines) for lines in honest(20)]
    assert find_copies([candidates(runs)]) == {}
    runs[4] = jittered(2)(runs[0], random.Random(4))
    assert set(find_copies([candidates(runs)])) == {"a/result_4.txt"}


def test_equal_evaluations_alone_are_named_as_such() -> None:
    runs = honest(4, 2)
    values = iter([0.612345, 0.712345, 0.732345, 0.761234] * 2)
    runs = [
        [
            changed([line], "eval_accuracy", value=next(values))[0] if '"eval_accuracy"' in line else line
            for line in run
        ]
        for run in runs
    ]
    assert find_copies([candidates(runs)]) == {"a/result_1.txt": "the evaluations of a/result_0.txt"}


def test_each_log_is_compared_with_few_logs_of_other_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the logs of 40 folders take equally long, the comparisons do not grow with their square."""
    compared = 0

    def counted(one: Candidate, other: Candidate) -> Any:
        nonlocal compared
        compared += 1
        return likeness(one, other)

    likeness = copies._likeness
    monkeypatch.setattr(copies, "_likeness", counted)
    logs = candidates(honest(1))
    find_copies([[replace(log, path=f"{at}/{log.path}", digests={}) for log in logs] for at in range(40)])
    assert compared <= 40 * (10 + 5 * 20)
