"""Processes read encoded images into shared memory; of a batch on a device a worker records a sample."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suite.common import encoded_images
from suite.common.encoded_images import EncodedImages
from suite.common.image_reader import DeviceImages, Item
from suite.common.stream import Stream, digest_arrays
from suite.contract import BadData
from suite.frameworks.common import KEPT_IMAGES, BaseFramework
from suite.worker import children, record
from suite.workloads._classification.sources import Files
from tests.fixtures import image_files

ITEMS = [Item("train", sample, 0) for sample in range(12)]


@pytest.fixture
def images(tmp_path: Path) -> Files:
    return Files(image_files.with_lists(image_files.folders(tmp_path)), 64, 4, 0.08, 7)


@pytest.mark.parametrize("processes", [0, 2])
@pytest.mark.parametrize("room", [256 << 10, 4 << 10], ids=["all fit", "some do not fit"])
def test_content_and_views_are_those_of_the_images(
    processes: int, room: int, images: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoded_images, "_ROOM", room)
    monkeypatch.setattr(encoded_images, "_CHUNK", 5)
    sizes = [len(images.content(item)) for item in ITEMS]
    assert min(sizes) < 5 * (4 << 10) < sum(sizes[:5])
    reader = EncodedImages(images, len(ITEMS), processes, slots=2)
    first, other = reader.read(ITEMS, 0), reader.read(ITEMS[::-1], 1)
    assert [one.content.tobytes() for one in first] == [images.content(item) for item in ITEMS]
    assert [one.content.tobytes() for one in other] == [images.content(item) for item in ITEMS[::-1]]
    assert [one.view for one in first] == [one.view for one in other[::-1]]
    assert len({one.view.box for one in first}) > 6


def test_broken_file_is_named(images: Files, tmp_path: Path) -> None:
    reader = EncodedImages(images, len(ITEMS), 2, slots=1)
    path = Path(images.file(ITEMS[4]) or "")
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(
        BadData, match=rf"{path.relative_to(tmp_path)}: expected a whole image, found its end"
    ):
        reader.read(ITEMS, 0)
    assert len(reader.read(ITEMS[:4], 0)) == 4


def test_killed_process_ends_the_reader(images: Files) -> None:
    others = {*children.descendants()}  # such as a docker engine that tests of containers have started
    reader = EncodedImages(images, len(ITEMS), 1, slots=1)
    its = {*children.descendants()} - others
    assert its
    reader.read(ITEMS, 0)
    assert its == {*children.descendants()} - others, "the first read starts no process"
    for child in its:
        os.kill(child, signal.SIGKILL)
    with pytest.raises(BrokenProcessPool):
        reader.read(ITEMS, 0)


class OnDevice:
    """Batches in the memory of a device, here the processor's: numpy arrays export DLPack too."""

    steps_per_epoch = 50

    def __init__(self) -> None:
        self.changed, self.copies = 0, 0

    def slot(self, step: int) -> None:
        del step

    def evaluation(self) -> Iterator[Any]:
        yield from ()

    def batch(self, step: int) -> dict[str, DeviceImages]:
        pixels = Stream("batches", step).bits(6 * 8 * 8 * 3 // 8).view(np.uint8).reshape(6, 8, 8, 3)
        pixels = pixels ^ np.uint8(self.changed)

        def to_host() -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
            self.copies += 1
            return pixels.copy()

        row = pixels[:, step % 8][:, None].copy()
        return {"images": DeviceImages(pixels, pixels.shape, to_host, row)}


def test_batches_on_a_device_come_to_the_host_only_for_their_digests() -> None:
    source = OnDevice()
    data = record.RecordingData(source)
    for step in range(5):
        assert np.from_dlpack(data.batch(step)["images"]).shape == (6, 8, 8, 3)
    assert source.copies == 0
    expected = [digest_arrays({"images": np.asarray(source.batch(step)["images"])}) for step in range(5)]
    assert data.digests(range(5)) == expected
    assert len(set(expected)) == 5


def test_changed_batch_on_a_device_is_found() -> None:
    source = OnDevice()
    data = record.RecordingData(source)
    data.batch(3)
    source.changed = 1
    with pytest.raises(BadData, match="images of step 3"):
        data.digests([3])


def test_few_copies_of_a_readers_batches_are_pending() -> None:
    class Framework(BaseFramework):
        def tensor(self, array: Any) -> Any:
            return array

    framework, waited = Framework(), list[int]()
    for step in range(9):
        framework.keep_until(partial(waited.append, step), object())
    assert waited == list(range(9 - KEPT_IMAGES))
