"""Helpers of the image readers: parts of batches, jumps between steps, truncated files."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator

import numpy as np
import pytest
from PIL import Image

from suite.common.decoder import size_of
from suite.common.image_reader import U8, Batches, Item, Request, cut_off, jpeg_header
from suite.common.loader_parts import PartItem, Parts, first_error, parts_and_workers
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


def write(parts: Parts, part: list[PartItem]) -> BadData | None:
    """What a worker process does: every image shows the number of its sample."""
    for at in part:
        parts.room(at)[:] = at.item.sample
    return first_error([None] * len(part))


@pytest.mark.parametrize(("count", "sizes"), [(1, [10]), (4, [3, 3, 2, 2]), (20, [1] * 10)])
def test_parts_split_each_batch_and_join_it_again(count: int, sizes: list[int]) -> None:
    parts = Parts(10, min(count, 10), 1)
    parts.begin([request(0, 10), request(1, 10)])
    split = list(parts)
    assert [len(part) for part in split] == sizes * 2
    assert [at.item.sample for part in split for at in part] == list(range(20))
    assert {at.shape for part in split for at in part} == {(2, 2)}
    batches = list(parts.join(write(parts, part) for part in split))
    assert [batch.shape for batch in batches] == [(10, 2, 2, 3)] * 2
    assert np.concatenate(batches)[:, 0, 0, 0].tolist() == list(range(20))


def test_parts_that_a_loader_has_queued_never_share_memory() -> None:
    """The loader queues two parts a process; while it does so, the part before them is being copied."""
    _, workers = parts_and_workers(4, 2, 8)
    parts = Parts(4, 1, workers)
    parts.begin(request(step, 4) for step in range(30))
    slots = [part[0].slot for part in parts]
    queued = 2 * workers + 1
    assert all(len(set(slots[at : at + queued])) == queued for at in range(len(slots) - queued))


def test_request_larger_than_a_batch_has_more_parts() -> None:
    """An evaluation's requests: they must fit into the memory that was made for a batch."""
    parts = Parts(4, 2, 1)
    parts.begin([request(0, 4)])
    list(parts)
    parts.begin([request(0, 9), Request(request(0, 2).items, (4, 2))])
    split = list(parts)
    assert [len(part) for part in split] == [2, 2, 2, 2, 1, 1, 1]
    parts.begin([Request(request(0, 2).items, (4, 4))])
    with pytest.raises(ValueError, match="expected images of at most 24 bytes"):
        list(parts)


def test_join_raises_the_error_of_a_part() -> None:
    parts = Parts(2, 2, 1)
    parts.begin([request(0, 2)])
    bad = BadData("an image")
    assert first_error([None, bad, BadData("another")]) is bad
    assert len(list(parts)) == 2
    with pytest.raises(BadData, match="an image"):
        list(parts.join([None, bad]))


def test_ended_parts_hand_out_nothing_more() -> None:
    parts = Parts(2, 1, 1)
    parts.begin(request(step, 2) for step in range(100))
    running = iter(parts)
    next(running)
    parts.end()
    assert list(running) == []


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
    [
        *(encoded(), encoded(progressive=True), with_thumbnail(), encoded() + b"\0" * 40),
        *(encoded()[:2] + b"\xff" * 3 + encoded()[2:], encoded(format="PNG")),
    ],
    ids=["baseline", "progressive", "thumbnail", "bytes after the end", "fill bytes", "another format"],
)
def test_cut_off_accepts_a_whole_image(content: bytes) -> None:
    assert not cut_off(content)
    assert size_of(content, "a") == (70, 50)
    header = jpeg_header(content)
    assert (header is None) == content.startswith(b"\x89PNG")
    assert header is None or header[:2] == (70, 50)


@pytest.mark.parametrize("missing", [2, 300, 2000])
@pytest.mark.parametrize("make", [encoded, lambda: encoded(progressive=True), with_thumbnail])
def test_cut_off_detects_an_image_without_its_end(make: object, missing: int) -> None:
    assert cut_off(make()[:-missing])  # type: ignore[operator]


def test_size_of_rejects_bytes_that_are_no_image() -> None:
    with pytest.raises(BadData, match="a: expected a whole image, found no image of a known format"):
        size_of(b"no image", "a")
    assert cut_off(encoded()[:100]), "no scan at all"
    assert jpeg_header(encoded()[:100]) is None
