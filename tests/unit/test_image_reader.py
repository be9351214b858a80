"""Helpers of the image readers: parts of batches, jumps between steps, truncated files."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator

import numpy as np
import pytest
from PIL import Image

from suite.common.decoder import size_of
from suite.common.image_reader import U8, Batches, Item, Parts, Request, cut_off
from suite.contract import BadData


def request(step: int, count: int = 3) -> Request:
    return Request(tuple(Item("train", step * count + at, 0) for at in range(count)), (2, 2))


class Counting:
    """A reader whose images show their sample's number; it notes the first sample of each run."""

    def __init__(self) -> None:
        self.runs: list[int] = []

    def run(self, requests: Iterable[Request]) -> Iterator[U8]:
        for number, one in enumerate(requests):
            if number == 0:
                self.runs.append(one.items[0].sample)
            yield np.array([np.full((*one.shape, 3), item.sample, np.uint8) for item in one.items])


def first(images: U8) -> int:
    return int(images[0, 0, 0, 0])


def test_batches_read_consecutive_steps_in_one_run_and_restart_at_a_jump() -> None:
    reader = Counting()
    batches = Batches(reader, request).begin()
    assert [first(batches.of(step)) for step in (0, 1, 2, 7, 8, 8, 0)] == [0, 3, 6, 21, 24, 24, 0]
    assert reader.runs == [0, 21, 24, 0]
    evaluation = batches.all([request(5), request(6)])
    assert [first(images) for images in evaluation] == [15, 18]
    assert first(batches.of(1)) == 3  # an evaluation ends the run, although step 1 follows step 0
    assert reader.runs == [0, 21, 24, 0, 15, 3]


def test_batches_restart_after_an_error() -> None:
    class Failing(Counting):
        def run(self, requests: Iterable[Request]) -> Iterator[U8]:
            for images in super().run(requests):
                if first(images) == 3 and len(self.runs) == 1:
                    raise BadData("an image")
                yield images

    batches = Batches(Failing(), request)
    assert first(batches.of(0)) == 0
    with pytest.raises(BadData):
        batches.of(1)
    assert first(batches.of(2)) == 6


@pytest.mark.parametrize(("parts", "sizes"), [(1, [10]), (4, [3, 3, 2, 2]), (20, [1] * 10)])
def test_parts_split_each_batch_and_keep_its_order(parts: int, sizes: list[int]) -> None:
    sampler = Parts(parts)
    sampler.begin([request(0, 10), request(1, 10)])
    split = list(sampler)
    assert [len(part) for part in split] == sizes * 2
    assert [item.sample for part in split for item, _ in part] == list(range(20))
    assert {shape for part in split for _, shape in part} == {(2, 2)}
    assert list(sampler.counts) == [len(sizes)] * 2


def encoded(**options: object) -> bytes:
    pixels = np.random.RandomState(0).randint(0, 256, (50, 70, 3)).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, **({"format": "JPEG"} | options))
    return file.getvalue()


def with_thumbnail() -> bytes:
    """A JPEG file with another complete JPEG file, end marker included, in front of its data."""
    whole = encoded()
    note = b"\xff\xe1" + (2 + len(whole)).to_bytes(2, "big") + whole
    return whole[:2] + note + whole[2:]


@pytest.mark.parametrize(
    "content",
    [encoded(), encoded(progressive=True), with_thumbnail(), encoded() + b"\0" * 40, encoded(format="PNG")],
    ids=["baseline", "progressive", "thumbnail", "bytes after the end", "another format"],
)
def test_cut_off_accepts_a_whole_image(content: bytes) -> None:
    assert not cut_off(content)
    assert size_of(content, "a") == (70, 50)


@pytest.mark.parametrize("missing", [2, 300, 2000])
@pytest.mark.parametrize("make", [encoded, lambda: encoded(progressive=True), with_thumbnail])
def test_cut_off_detects_an_image_without_its_end(make: object, missing: int) -> None:
    assert cut_off(make()[:-missing])  # type: ignore[operator]


def test_size_of_rejects_bytes_that_are_no_image() -> None:
    with pytest.raises(BadData, match="a: expected a whole image, found no image of a known format"):
        size_of(b"no image", "a")
    assert cut_off(encoded()[:100]), "no scan at all"
