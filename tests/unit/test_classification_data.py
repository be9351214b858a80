"""Batches of images: crops, flips and orders by dataset, seed and step alone; bad files are named."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from suite.common.decoder import DECODER, decode
from suite.common.image_reader import AHEAD, Batches, Item, ReadAhead, Request, View
from suite.common.pillow_images import Reader, render
from suite.common.stream import digest_arrays
from suite.contract import BadData
from suite.worker.main import _describe, _fault_code
from suite.workloads._classification import augment, data, sources
from suite.workloads._classification.augment import Draws, random_resized_crop
from tests.fixtures import image_files


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return image_files.with_lists(image_files.folders(tmp_path_factory.mktemp("files")))


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return image_files.records(tmp_path_factory.mktemp("records"))


def digests(found: Any, steps: Any) -> list[str]:
    return [digest_arrays(found.batch(step)) for step in steps]


# Draws


def test_draws_depend_on_seed_epoch_and_sample() -> None:
    keys = {Draws.of(*key).key for key in ((1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 0))}
    assert len(keys) == 4
    first, again = Draws.of(1, 2, 3), Draws.of(1, 2, 3)
    assert [first.bits() for _ in range(3)] == [again.bits() for _ in range(3)]
    counts = Counter(Draws.of(0, 0, sample).below(3) for sample in range(3000))
    assert all(900 < count < 1100 for count in counts.values())


def test_crops_have_published_areas_and_ratios() -> None:
    width, height, areas, ratios = 400, 300, [], []
    for sample in range(2000):
        left, upper, right, lower = random_resized_crop(width, height, Draws.of(1, 0, sample))
        assert 0 <= left < right <= width
        assert 0 <= upper < lower <= height
        areas.append((right - left) * (lower - upper) / (width * height))
        ratios.append(math.log((right - left) / (lower - upper)) / math.log(4 / 3))
    assert 0.07 < min(areas) < 0.1
    assert max(areas) > 0.9
    # The same distribution by another method: a uniform area and logarithm of the ratio, kept where it fits.
    numbers = np.random.RandomState(0)
    area, ratio = numbers.uniform(0.08, 1, 40_000), np.exp(numbers.uniform(-1, 1, 40_000) * math.log(4 / 3))
    fits = (area * width * height * ratio <= width**2) & (area * width * height / ratio <= height**2)
    assert abs(np.mean(areas) - area[fits].mean()) < 0.015
    assert abs(np.std(areas) - area[fits].std()) < 0.015
    assert -1.05 < min(ratios) < -0.9
    assert 1.05 > max(ratios) > 0.9
    assert abs(np.mean(ratios) - np.log(ratio[fits]).mean() / math.log(4 / 3)) < 0.05


def test_aspect_ratio_is_power_of_sixteen_ninths() -> None:
    class Fixed(Draws):
        def below(self, bound: int) -> int:
            return self.key * bound // 1000

    for thousandth in (0, 1, 250, 500, 999):
        wanted = 0.75 * (16 / 9) ** (math.floor(thousandth * 65536 / 1000) / 65536)
        assert math.isclose(augment.aspect(Fixed(thousandth)), wanted, rel_tol=1e-12)


@pytest.mark.parametrize(
    ("width", "height", "wanted"), [(10, 1000, (0, 493, 10, 506)), (1000, 9, (494, 0, 506, 9))]
)
def test_image_too_narrow_for_crops_gives_centre(width: int, height: int, wanted: object) -> None:
    assert random_resized_crop(width, height, Draws.of(0, 0, 0), least=0.9) == wanted


def test_short_side_before_centre_crop() -> None:
    assert [augment.short_side(side) for side in (224, 299, 64, 80)] == [256, 342, 73, 91]


# Files


def test_batch_depends_only_on_step(files: Path) -> None:
    wanted = digests(data.open_data(image_files.job(files, threads=1)), range(8))
    assert len(set(wanted)) == 8
    found = data.open_data(image_files.job(files, threads=3))
    assert found.steps_per_epoch == 3
    assert digests(found, (5, 0, 7, 1, 1, 2)) == [wanted[step] for step in (5, 0, 7, 1, 1, 2)]
    other = data.open_data(image_files.job(files, seed=8))
    assert not set(digests(other, range(8))) & set(wanted)


def test_epoch_has_each_image_once_in_new_order(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    found: Any = data.open_data(image_files.job(files))
    files_read = found._batches._reader._images
    view = files_read.view

    def noted(item: Item, width: int, height: int) -> View:
        asked.append(item.sample)
        return view(item, width, height)

    monkeypatch.setattr(files_read, "view", noted)
    reader = Reader(files_read, 4, 1, 0)  # one after the other
    found._batches = Batches(reader, found._request)
    labels = [found.batch(step)["labels"] for step in range(6)]
    assert sorted(asked[:12]) == sorted(asked[12:]) == list(range(12))
    assert asked[:12] != asked[12:]
    assert np.concatenate(labels).tolist() == [sample // 3 for sample in asked]
    assert labels[0].dtype == np.int32


def test_training_draws_new_crops_and_flips_each_epoch(files: Path) -> None:
    source = sources.Files(files, 64, 4, 0.08, seed=1)
    seen = [render(source, Item("train", 0, epoch), (64, 64)) for epoch in range(6)]
    assert len({image.tobytes() for image in seen}) == 6
    name = source.name(Item("train", 0, 0))
    original = decode((files / name).read_bytes(), name)
    flips = 0
    for epoch, image in enumerate(seen):
        draws = Draws.of(1, epoch, 0)
        flipped = draws.below(2)
        box = random_resized_crop(original.width, original.height, draws)
        part = original.crop(box).resize((64, 64), Image.Resampling.BILINEAR)
        wanted = np.asarray(part)[:, ::-1] if flipped else np.asarray(part)
        assert np.abs(image.astype(int) - wanted.astype(int)).max() == 0
        flips += flipped
    assert 0 < flips < 6


def test_evaluation_has_centre_crop_of_every_image_in_order(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "EVALUATION_IMAGES", 3)
    found = data.open_data(image_files.job(files))
    parts = list(found.evaluation())
    assert [part["index"].tolist() for part in parts] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert {part["images"].shape[1:] for part in parts} == {(64, 64, 3)}
    path = sorted((files / "val").glob("*/*"))[4]
    original = Image.open(path)
    scale = 73 / min(original.size)
    wide, high = int(original.width * scale + 1e-9), int(original.height * scale + 1e-9)
    resized = np.asarray(original.resize((wide, high), Image.Resampling.BILINEAR))
    left, upper = (wide - 64) // 2, (high - 64) // 2
    assert (parts[1]["images"][1] == resized[upper : upper + 64, left : left + 64]).all()
    again = data.open_data(image_files.job(files, seed=99, threads=1))
    assert [digest_arrays(part) for part in again.evaluation()] == [digest_arrays(part) for part in parts]


def test_inference_reads_evaluation_images(files: Path) -> None:
    found = data.open_data(image_files.job(files, phase="infer"))
    images = np.concatenate([part["images"] for part in found.evaluation()])
    assert found.steps_per_epoch == 2
    batches = [found.batch(step) for step in (0, 1)]
    pixels_of_batches = {image.tobytes() for batch in batches for image in batch["images"]}
    assert pixels_of_batches == {image.tobytes() for image in images}
    assert digests(found, (0, 1)) != digests(found, (2, 3))


def test_reader_begins_at_most_ahead_batches() -> None:
    started_samples: list[int] = []

    def begin(request: Request) -> Future[Any]:
        started_samples.append(request.items[0].sample)
        made: Future[Any] = Future()
        made.set_result(np.zeros((1, 1, 1, 3), np.uint8))
        return made

    def requests(count: int) -> Iterator[Request]:
        return (Request((Item("train", at, 0),), (1, 1)) for at in range(count))

    reader = ReadAhead(begin, 2)
    made = reader.run(requests(10))
    next(made)
    assert started_samples == [0, 1, 2]
    next(made)
    assert started_samples == [0, 1, 2, 3]
    assert len(list(reader.run(requests(3)))) == 3
    assert started_samples[4:] == [0, 1, 2]
    assert AHEAD <= 10, "what a cold run may have"


def test_decoder_is_none_for_raw_pixels(files: Path, records: Path) -> None:
    assert data.decoder(image_files.job(files)) == DECODER
    assert data.decoder(image_files.job(records)) is None


# Records


def test_records_are_cropped_with_black_border(records: Path) -> None:
    source = sources.Records(records, 32, 10, seed=5)
    content = np.fromfile(records / "cifar-10-batches-bin/data_batch_2.bin", np.uint8).reshape(30, 3073)
    image = content[3, 1:].reshape(3, 32, 32).transpose(1, 2, 0)
    assert source.labels["train"][33] == content[3, 0]
    bordered = np.pad(image, ((4, 4), (4, 4), (0, 0)))
    crops = set()
    for epoch in range(200):
        draws = Draws.of(5, epoch, 33)
        flipped, down, right = draws.below(2), draws.below(9), draws.below(9)
        wanted = bordered[down : down + 32, right : right + 32]
        found = source.training(33, Draws.of(5, epoch, 33))
        assert (found == (wanted[:, ::-1] if flipped else wanted)).all()
        crops.add((flipped, down, right))
    assert len(crops) > 100
    test = np.fromfile(records / "cifar-10-batches-bin/test_batch.bin", np.uint8).reshape(30, 3073)
    assert (source.evaluation(7) == test[7, 1:].reshape(3, 32, 32).transpose(1, 2, 0)).all()


def test_network_of_28_pixels_crops_within_image(records: Path) -> None:
    whole = sources.Records(records, 32, 10, seed=5)
    part = sources.Records(records, 28, 10, seed=5)
    assert (part.evaluation(3) == whole.evaluation(3)[2:30, 2:30]).all()
    image = np.fromfile(records / "cifar-10-batches-bin/data_batch_1.bin", np.uint8)[1:3073]
    image = image.reshape(3, 32, 32).transpose(1, 2, 0)
    windows = {
        view.tobytes()
        for down in range(5)
        for right in range(5)
        for view in (image[down : down + 28, right : right + 28],)
    }
    for epoch in range(20):
        found = part.training(0, Draws.of(1, epoch, 0))
        assert {found.tobytes(), found[:, ::-1].tobytes()} & windows
    with pytest.raises(ValueError, match="at most 32 pixels, found 64"):
        sources.Records(records, 64, 10, seed=5)


# Images


@pytest.mark.parametrize("mode", ["L", "CMYK", "RGB", "P", "RGBA", "1"])
def test_images_of_every_mode_become_rgb(tmp_path: Path, mode: str) -> None:
    path = tmp_path / ("a.png" if mode in ("P", "RGBA", "1") else "a.jpg")
    pixels = np.tile(np.arange(48, dtype=np.uint8)[:, None, None] * 5, (1, 32, 3))
    Image.fromarray(pixels).convert(mode).save(path)
    found = decode(path.read_bytes(), "a")
    assert (found.mode, found.size) == ("RGB", (32, 48))
    if mode == "L":
        assert (np.ptp(np.asarray(found), axis=2) == 0).all()


def test_exif_orientation_is_ignored(tmp_path: Path) -> None:
    notes = Image.Exif()
    notes[0x0112] = 6  # turned by a quarter
    Image.new("RGB", (40, 20)).save(tmp_path / "a.jpg", exif=notes)
    assert decode((tmp_path / "a.jpg").read_bytes(), "a").size == (40, 20)


# Bad data


def broken(root: Path, damage: object) -> Any:
    """The first batch of a folder that ``damage`` was done to."""
    folder = image_files.with_lists(image_files.folders(root, 2, 1))
    damage(folder)  # type: ignore[operator]
    return data.open_data(image_files.job(folder, batch=8)).batch(0)


def cut(folder: Path) -> None:
    path = folder / "train/n00000002/train_1.JPEG"
    path.write_bytes(path.read_bytes()[:-300])


def extra_class(folder: Path) -> None:
    (folder / "train/n00000009").mkdir()
    (folder / "train/n00000002/train_1.JPEG").rename(folder / "train/n00000009/a.JPEG")
    image_files.with_lists(folder)


def strange_class(folder: Path) -> None:
    (folder / "val/n00000002").rename(folder / "val/n00000009")
    image_files.with_lists(folder)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut, r"train/n00000002/train_1\.JPEG: expected a whole image, found .*truncated"),
        (
            lambda folder: (folder / "train/n00000001/train_0.JPEG").write_bytes(b"no image"),
            r"train/n00000001/train_0\.JPEG: expected a whole image, found no image of a known format",
        ),
        (
            lambda folder: (folder / "train/n00000001/train_0.JPEG").unlink(),
            r"train/n00000001/train_0\.JPEG: expected an image, found no such file",
        ),
        (extra_class, r"train: expected 4 classes, found 5"),
        (strange_class, r"val/n00000009/val_0\.JPEG: expected a class that train has"),
        (lambda folder: (folder / "val.txt").write_text(""), r"val: expected images, found none"),
        (lambda folder: (folder / "train.txt").write_text("x\n"), r"train\.txt: line 1: expected a digest"),
        (lambda folder: (folder / "train.txt").unlink(), r"train\.txt: expected a list"),
    ],
)
def test_bad_folder_is_named(tmp_path: Path, damage: object, message: str) -> None:
    with pytest.raises(BadData, match=message):
        broken(tmp_path, damage)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda content: content[:-5],
            r"data_batch_3\.bin: expected records of 3073 bytes, found 3068 bytes as record 29",
        ),
        (
            lambda content: content[: 3073 * 4] + b"\x0b" + content[3073 * 4 + 1 :],
            r"data_batch_3\.bin: record 4: .*0\.\.9, found 11",
        ),
    ],
)
def test_bad_record_is_named(tmp_path: Path, damage: object, message: str) -> None:
    path = image_files.records(tmp_path) / "cifar-10-batches-bin/data_batch_3.bin"
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(BadData, match=message):
        sources.Records(tmp_path, 32, 10, seed=5)


def test_missing_records_and_classes_are_named(tmp_path: Path) -> None:
    folder = image_files.records(tmp_path / "a", count=9) / "cifar-10-batches-bin"
    with pytest.raises(BadData, match="train: expected 10 classes, found 9"):
        sources.Records(tmp_path / "a", 32, 10, seed=5)
    (folder / "test_batch.bin").unlink()
    (folder / "test_batch.bin").write_bytes(b"")
    image_files.records(tmp_path / "b")
    (tmp_path / "b/cifar-10-batches-bin/test_batch.bin").write_bytes(b"")
    with pytest.raises(BadData, match="val: expected images, found none"):
        sources.Records(tmp_path / "b", 32, 10, seed=5)
    (tmp_path / "b/cifar-10-batches-bin/test_batch.bin").unlink()
    with pytest.raises(BadData, match=r"test_batch\.bin: expected a file of records, found none"):
        sources.Records(tmp_path / "b", 32, 10, seed=5)


def test_batch_larger_than_dataset_is_refused(files: Path) -> None:
    with pytest.raises(BadData, match="at least 16 images for a global batch, found 12"):
        data.open_data(image_files.job(files, batch=16))


def test_worker_reports_bad_data_with_file_name() -> None:
    error = BadData("train/n1/a.JPEG: expected a whole image, found /home/somebody/x")
    assert _fault_code(error, "window") == "dataset"
    assert _describe(error) == "BadData: train/n1/a.JPEG: expected a whole image, found <path>"
    assert "train/n1" not in _describe(ValueError("train/n1/a.JPEG"))
