"""What readers of pictures share: parts of batches, jumps between steps, files whose end is missing."""

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
    """A reader whose pictures show their own number; it notes where each run began."""

    def __init__(self) -> None:
        self.runs: list[int] = []

    def run(self, requests: Iterable[Request]) -> Iterator[U8]:
        for number, one in enumerate(requests):
            if number == 0:
                self.runs.append(one.items[0].sample)
            yield np.array([np.full((*one.shape, 3), item.sample, np.uint8) for item in one.items])


def first(images: U8) -> int:
    return int(images[0, 0, 0, 0])


def test_steps_in_a_row_are_one_run_and_a_jump_begins_another() -> None:
    reader = Counting()
    batches = Batches(reader, request).begin()
    assert [first(batches.of(step)) for step in (0, 1, 2, 7, 8, 8, 0)] == [0, 3, 6, 21, 24, 24, 0]
    assert reader.runs == [0, 21, 24, 0]
    evaluated = batches.all([request(5), request(6)])
    assert [first(images) for images in evaluated] == [15, 18]
    assert first(batches.of(1)) == 3  # where the steps had been
    assert reader.runs == [0, 21, 24, 0, 15, 3]


def test_a_run_that_failed_is_not_gone_on_with() -> None:
    class Failing(Counting):
        def run(self, requests: Iterable[Request]) -> Iterator[U8]:
            for images in super().run(requests):
                if first(images) == 3 and len(self.runs) == 1:
                    raise BadData("a picture")
                yield images

    batches = Batches(Failing(), request)
    assert first(batches.of(0)) == 0
    with pytest.raises(BadData):
        batches.of(1)
    assert first(batches.of(2)) == 6


@pytest.mark.parametrize(("parts", "sizes"), [(1, [10]), (4, [3, 3, 2, 2]), (20, [1] * 10)])
def test_a_batch_comes_in_parts_that_keep_its_order(parts: int, sizes: list[int]) -> None:
    sampler = Parts(parts)
    sampler.begin([request(0, 10), request(1, 10)])
    found = list(sampler)
    assert [len(part) for part in found] == sizes * 2
    assert [item.sample for part in found for item, _ in part] == list(range(20))
    assert {shape for part in found for _, shape in part} == {(2, 2)}
    assert list(sampler.counts) == [len(sizes)] * 2


def picture(**words: object) -> bytes:
    numbers = np.random.RandomState(0).randint(0, 256, (50, 70, 3)).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(numbers).save(file, **({"format": "JPEG"} | words))
    return file.getvalue()


def with_thumbnail() -> bytes:
    """A picture that has another one, end marker and all, in front of its own data."""
    note = b"\xff\xe1" + (2 + len(picture())).to_bytes(2, "big") + picture()
    whole = picture()
    return whole[:2] + note + whole[2:]


@pytest.mark.parametrize(
    "content",
    [picture(), picture(progressive=True), with_thumbnail(), picture() + b"\0" * 40, picture(format="PNG")],
    ids=["baseline", "progressive", "thumbnail", "something behind it", "another format"],
)
def test_a_whole_picture_is_not_cut_off(content: bytes) -> None:
    assert not cut_off(content)
    assert size_of(content, "a") == (70, 50)


@pytest.mark.parametrize("missing", [2, 300, 2000])
@pytest.mark.parametrize("make", [picture, lambda: picture(progressive=True), with_thumbnail])
def test_a_picture_whose_end_is_missing_is_cut_off(make: object, missing: int) -> None:
    assert cut_off(make()[:-missing])  # type: ignore[operator]


def test_what_is_no_picture_has_no_size() -> None:
    with pytest.raises(BadData, match="a: expected a whole image, found no picture of a known format"):
        size_of(b"no picture", "a")
    assert cut_off(picture()[:100]), "no scan at all"
