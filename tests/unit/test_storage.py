"""How a dataset is cut into shards, how its shards are named, and the reason why one is too small."""

from __future__ import annotations

import pytest

from suite import rules as rulebook
from suite.contract.traits import storage_formats, traits_of
from suite.rules import load
from suite.workloads import specification
from suite.workloads._conversion import datum
from suite.workloads.storage import BATCHES, Shard, layout, too_small

IMAGENET = {"train": 1_281_167, "val": 50_000}
MINI = {"train": 2000, "val": 200}


@pytest.mark.parametrize(
    ("scale", "image_counts", "shards"), [("reference", IMAGENET, 1152), ("mini", MINI, 110)]
)
def test_datasets_fill_a_shard_for_every_step_of_a_repeat(
    scale: str, image_counts: dict[str, int], shards: int
) -> None:
    batch = BATCHES[scale][0]
    found = layout(image_counts, batch)
    assert len(found) == shards
    assert too_small(image_counts, batch) is None
    assert {shard.count for shard in found[:110]} == {batch}
    name = specification("resnet50").DATASETS[scale]
    images = load("practice" if scale == "mini" else rulebook.LATEST).dataset(name)["images"]
    assert {split: images[split] for split in image_counts} == image_counts


@pytest.mark.parametrize("image_counts", [MINI, {"train": 90, "val": 40}, {"train": 105, "val": 4000}])
def test_dataset_is_large_enough_if_its_first_shards_are_full(image_counts: dict[str, int]) -> None:
    answers = []
    for size in range(1, 31):
        first = layout(image_counts, size)[:110]
        answers.append(len(first) < 110 or any(shard.count != size for shard in first))
        assert (too_small(image_counts, size) is not None) == answers[-1]
    assert {True, False} == set(answers)


def test_imagenet_has_as_many_shards_as_its_published_tfrecords() -> None:
    found = layout(IMAGENET, BATCHES["reference"][0])
    assert found[0].name("tfrecord") == "train-00000-of-01024"
    assert found[-1].name("tfrecord") == "validation-00127-of-00128"
    assert found[-1].name("recordio") == "val-00127-of-00128"


@pytest.mark.parametrize("image_counts", [IMAGENET, MINI, {"train": 7, "val": 1}, {"train": 5, "val": 41}])
@pytest.mark.parametrize("batch", [1, 2, 5, 20, 1252])
def test_every_image_is_in_one_shard_and_in_order(image_counts: dict[str, int], batch: int) -> None:
    if batch < 20 and image_counts is IMAGENET:
        batch = 600
    found = layout(image_counts, batch)
    for split, total in image_counts.items():
        at = 0
        of_split = [shard for shard in found if shard.split == split]
        for number, shard in enumerate(of_split):
            assert (shard.number, shard.of, shard.first) == (number, len(of_split), at)
            assert 1 <= shard.count <= batch
            at += shard.count
        assert at == total


@pytest.mark.parametrize(("batch", "advice"), [(30, "set batch=20"), (21, "set batch=20")])
def test_too_few_images_are_refused_with_a_batch_that_would_do(batch: int, advice: str) -> None:
    reason = too_small(MINI, batch)
    assert reason is not None
    assert f"expected 110 shards of {batch} images, found 2200" in reason
    assert advice in reason
    assert (
        too_small({"train": 80, "val": 20}, 1) == "expected 110 shards of 1 images, found 100 images in all"
    )


@pytest.mark.parametrize(
    ("storage_format", "files"),
    [
        ("recordio", ("val-00003-of-00009.rec", "val-00003-of-00009.idx")),
        ("tfrecord", ("validation-00003-of-00009.tfrecord", "validation-00003-of-00009.tfrecord.idx")),
        ("lmdb", ("val-00003-of-00009.lmdb/data.mdb",)),
        ("arrayrecord", ("val-00003-of-00009.array_record",)),
    ],
)
def test_shard_file_names_depend_on_the_storage_format(storage_format: str, files: tuple[str, ...]) -> None:
    assert Shard("val", 3, 9, 60, 20).files(storage_format) == files
    assert traits_of(storage_formats()[storage_format]).storage == storage_format


def test_rules_list_the_default_batches() -> None:
    assert load("practice").limits["conversion"]["batches"] == list(BATCHES["mini"])
    assert load(rulebook.LATEST).limits["conversion"]["batches"] == list(BATCHES["reference"])


def test_datum_has_the_bytes_of_the_protocol_buffer() -> None:
    assert datum.encoded(300, b"ab") == b"\x22\x02ab\x28\xac\x02\x38\x01"
    for label, content in ((0, b""), (999, b"\x22\xff" * 9000)):
        assert datum.decoded(datum.encoded(label, content)) == (label, content)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x22\x02ab\x28\x01",  # without the flag "encoded"
        b"\x22\x05ab\x28\x01\x38\x01",  # cut off
        b"\x22\x02ab\x28\x80",  # a number without an end
        b"\x25\x00\x00\x00\x00\x38\x01",  # a field of another type
    ],
)
def test_invalid_datum_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="expected"):
        datum.decoded(value)
