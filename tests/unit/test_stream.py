"""The stream's normal and uniform numbers, compared with their definition."""

from __future__ import annotations

import os
import threading
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suite.common import weights
from suite.common.stream import Stream
from suite.contract import Parameter
from suite.contract.workloads import specification

COUNTS = (0, 1, 8_191, 8_192, 8_193, 98_304, 200_000)


@pytest.mark.parametrize("count", COUNTS)
def test_normal_sums_twelve_draws(count: int) -> None:
    stream = Stream("test", "normal")
    draws = stream.unit(12 * count).reshape(count, 12)
    total = np.zeros(count)
    for column in draws.T:
        total += column
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the intended overflow must not warn
        numbers = stream.normal(count, 0.02)
    assert numbers.tobytes() == ((total - 6.0) * 0.02).astype(np.float32).tobytes()


@pytest.mark.parametrize("count", COUNTS)
def test_uniform_scales_one_draw(count: int) -> None:
    stream = Stream("test", "uniform")
    expected = ((stream.unit(count) * 2.0 - 1.0) * 0.3).astype(np.float32)
    assert stream.uniform(count, 0.3).tobytes() == expected.tobytes()


@pytest.mark.parametrize("init", ["normal", "uniform"])
def test_weights_are_drawn_in_parts_by_several_threads(init: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parameter = Parameter("w", (30_000,), init, "0.1")
    draw = getattr(Stream, init)
    alone = draw(Stream("weights", "toy", "w"), parameter.size, 0.1)
    threads: set[int] = set()

    def noted(*arguments: Any) -> Any:
        threads.add(threading.get_ident())
        time.sleep(0.05)  # one thread alone could otherwise draw all parts
        return draw(*arguments)

    monkeypatch.setattr(Stream, init, noted)
    monkeypatch.setattr(weights, "_PART", 1000)  # not a multiple of the blocks
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(3))
    ((name, together),) = weights.initial("toy", [parameter])
    assert name == "w"
    assert len(threads) == 3
    assert threading.get_ident() not in threads
    np.testing.assert_array_equal(together, alone)


def test_large_tensors_are_drawn_once_and_then_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "_KEPT", 1000)
    parameters = [
        Parameter("large", (40, 50), "normal", "0.1"),
        Parameter("small", (10, 50), "normal", "0.1"),
        Parameter("even", (40, 50), "uniform", "0.1"),
    ]
    drawn = dict(weights.initial("toy", parameters))
    folder = tmp_path / "weights"
    first = dict(weights.initial("toy", parameters, folder))
    (file,) = folder.iterdir()
    drawing = Stream.normal
    sizes: list[int] = []

    def noted(stream: Stream, count: int, *arguments: Any) -> Any:
        sizes.append(count)
        return drawing(stream, count, *arguments)

    monkeypatch.setattr(Stream, "normal", noted)
    read = dict(weights.initial("toy", parameters, folder))
    assert sizes == [500]  # of the small tensor only
    file.write_bytes(file.read_bytes()[:-4])  # as a full disk leaves it
    again = dict(weights.initial("toy", parameters, folder))
    assert sizes[1:] == [2000, 500]
    for found in (first, read, again):
        assert {name: array.tobytes() for name, array in found.items()} == {
            name: array.tobytes() for name, array in drawn.items()
        }
    changed = [replace(parameters[0], scale="0.2")]
    np.testing.assert_array_equal(
        dict(weights.initial("toy", changed, folder))["large"], dict(weights.initial("toy", changed))["large"]
    )


def test_later_repeats_draw_few_numbers_of_a_network_of_small_kernels() -> None:
    spec: Any = specification("resnet50")
    parameters = spec.parameters(spec.dimensions("reference", spec.VARIANTS["reference"][0]))
    sizes = [parameter.size for parameter in parameters if parameter.init == "normal"]
    drawn = sum(size for size in sizes if size < weights._KEPT)
    assert drawn < sum(sizes) / 50  # each takes some ten times as long as reading it


def test_folder_that_cannot_be_written_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "_KEPT", 1000)
    parameters = [Parameter("large", (40, 50), "normal", "0.1")]
    (tmp_path / "file").write_text("")
    found = dict(weights.initial("toy", parameters, tmp_path / "file"))
    np.testing.assert_array_equal(found["large"], dict(weights.initial("toy", parameters))["large"])
