"""COCO's format: generated, read, batched and scored; errors name what is wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suite.common.stream import digest_arrays
from suite.contract import WARMUP_STEPS, BadData, Job, Key
from suite.datasets import catalogue as registry
from suite.datasets import coco_mini, prepare
from suite.datasets.errors import DatasetCorrupt, ScoringError
from suite.datasets.scores import Predictions, Score, box_ap
from suite.worker import main, record
from suite.workloads.faster_rcnn import data, spec
from suite.workloads.faster_rcnn.coco import read_instances
from suite.workloads.faster_rcnn.images import Images

MINI = spec.dimensions("mini", "r50-fpn")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The generated dataset, prepared."""
    return prepare.prepare("coco-mini", tmp_path_factory.mktemp("data")).path


def job(folder: Path, phase: str = "train", **changes: Any) -> Job:
    key = Key("faster_rcnn", "pytorch", phase, "offline", "fp32", 4, 1, "mini", "real", "warm", "r50-fpn")
    hyper = spec.hyperparameters("mini", "r50-fpn")
    made = Job(key, "throughput", 7, 0, hyper, "cpu", 2, True, 0, 0, str(folder), "", loader="pillow")
    return replace(made, **changes)


def test_generated_files_match_rules(folder: Path) -> None:
    entry = registry.entry("coco-mini")
    assert prepare.check(entry, folder, None, True).digest == entry.digest
    assert entry.count == len(list(folder.glob("*2017/*.jpg"))) + 4


def test_changed_image_is_detected(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "coco-mini"
    copy.mkdir()
    for path in folder.rglob("*"):
        if path.is_file() and not path.name.startswith("."):
            target = copy / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(path)
    first, second = copy / "train2017/000000000001.jpg", copy / "train2017/000000000002.jpg"
    content = second.read_bytes()
    first.unlink()
    first.write_bytes(content)
    with pytest.raises(DatasetCorrupt, match=r"000000000001\.jpg"):
        prepare.check(registry.entry("coco-mini"), copy, None, True)
    first.write_bytes(content[:400])
    with pytest.raises(DatasetCorrupt, match=r"000000000001\.jpg"):
        prepare.check(registry.entry("coco-mini"), copy, None, True)


def test_generated_scenes_match_annotations() -> None:
    seen = set()
    for number in range(1, 30):
        pixels, shapes = coco_mini.scene((coco_mini.VERSION, 1, number))
        height, width = pixels.shape[:2]
        assert 1 <= len(shapes) <= coco_mini.MOST
        for category, (left, top, wide, high) in shapes:
            assert 0 <= left <= width - wide
            assert 0 <= top <= height - high
            middle = pixels[top + high // 2, left + wide // 2]
            assert middle.argmax() == category - 1  # its channel is the brightest
            seen.add(category)
    assert seen == {1, 2, 3}


def test_batches_depend_only_on_seed_and_step(folder: Path) -> None:
    first, other = (data.open_data(job(folder, threads=threads)) for threads in (1, 3))
    assert first.steps_per_epoch == 100
    for step in (0, 99, 100, 3):
        batch = first.batch(step)
        assert digest_arrays(batch) == digest_arrays(other.batch(step))
        assert batch["images"].shape == (4, 128, 128, 3)
        assert (batch["boxes"] >= 0).all()
        assert (batch["boxes"] <= np.tile(batch["sizes"][:, None, ::-1], 2)).all()
        assert (batch["labels"][:, 0] > 0).all()
    assert digest_arrays(first.batch(5)) != digest_arrays(data.open_data(job(folder, seed=8)).batch(5))
    assert first.slot(0) is None


def test_epoch_has_every_image_once_and_mirrors_half(folder: Path) -> None:
    source = data.open_data(job(folder))
    images = {p.number: p for p in read_instances(folder / "annotations/instances_train2017.json", 4).images}
    found, mirrored = [], 0
    for step in range(source.steps_per_epoch):
        batch = source.batch(step)
        for boxes, labels, size in zip(batch["boxes"], batch["labels"], batch["sizes"], strict=True):
            for number, image in images.items():
                count = len(image.labels)
                scale = size[1] / image.width
                if labels.tolist() != image.labels.tolist() + [0] * (4 - count):
                    continue
                plain = np.allclose(boxes[:count], image.boxes * scale, atol=0.6)
                turned = image.boxes.copy()
                turned[:, [0, 2]] = image.width - turned[:, [2, 0]]
                flipped = np.allclose(boxes[:count], turned * scale, atol=0.6)
                if plain or flipped:
                    found.append(number)
                    mirrored += flipped and not plain
    assert set(found) == set(images)
    assert len(found) < 1.05 * len(images)  # small scenes may be alike
    assert 150 < mirrored < 250


def test_every_shape_of_the_window_runs_at_set_up(folder: Path) -> None:
    """The validation's landscape images come first, at reference scale in a shape of their own."""
    wide = replace(job(folder, "infer"), key=replace(job(folder, "infer").key, scale="reference"))
    source = data.open_data(wide)
    assert isinstance(source, Images)
    shapes = [source._request(step).shape for step in range(source.steps_per_epoch)]
    portrait = shapes.index(shapes[-1])
    assert portrait > 0
    assert compiled(wide) == [0, portrait]
    assert compiled(replace(wide, measured_steps=portrait - WARMUP_STEPS)) == [0]
    assert compiled(job(folder)) == [0]  # mini has one shape


def test_set_up_with_a_cold_cache_reads_no_file_of_the_window(folder: Path) -> None:
    wide = replace(job(folder), measured_steps=10)
    wide = replace(wide, key=replace(wide.key, scale="reference", cache="cold"))
    chosen = compiled(wide)
    assert len(chosen) == 2
    assert min(chosen) >= wide.steps


def compiled(job: Job) -> list[int]:
    """The steps that the worker of ``job`` runs before its warm-up."""
    recording: Any = record.RecordingData(data.open_data(job))
    unused: Any = None
    return main.Bench(job, unused, unused, unused, recording).steps_to_compile()


def test_evaluation_has_every_image_once(folder: Path) -> None:
    parts = list(data.open_data(job(folder)).evaluation())
    assert np.concatenate([part["image"] for part in parts]).tolist() == list(range(401, 461))
    assert set(parts[0]) == {"images", "sizes", "image"}
    inference = data.open_data(job(folder, "infer"))
    assert (inference.batch(0)["images"] == parts[0]["images"][:4]).all()


def test_synthetic_batches_hold_boxes_inside_images() -> None:
    for dims in (MINI, spec.dimensions("reference", "r50-fpn")):
        batch = data.random_batch(dims, 1, 7, "test")
        height, width = batch["sizes"][0]
        assert ((batch["labels"] > 0) == (batch["boxes"][..., 2] > batch["boxes"][..., 0])).all()
        assert batch["boxes"].max() <= max(height, width)
        assert (batch["boxes"][..., 3] <= height).all()
    with pytest.raises(ValueError, match="synthetic"):
        data.Synthetic(job(Path())).evaluation()


def written(folder: Path, change: Any) -> Path:
    image = {"id": 1, "file_name": "1.jpg", "height": 20, "width": 30}
    box = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [5, 5, 10, 10], "iscrowd": 0}
    content: dict[str, Any] = {"images": [image], "annotations": [box], "categories": []}
    change(content)
    path = folder / "instances_val2017.json"
    path.write_text(json.dumps(content))
    return path


BAD = {
    "no images": (lambda c: c.update(images=[]), "expected images, found none"),
    "no annotations": (lambda c: c.pop("annotations"), "KeyError"),
    "an image twice": (lambda c: c["images"].append(c["images"][0]), "image 1: expected a unique id"),
    "no height": (lambda c: c["images"][0].pop("height"), "image 0: expected id"),
    "a path": (
        lambda c: c["images"][0].update(file_name="../1.jpg"),
        "image 0: expected a size and the name",
    ),
    "an unknown image": (lambda c: c["annotations"][0].update(image_id=9), "annotation 0: expected the id"),
    "an unknown category": (lambda c: c["annotations"][0].update(category_id=4), "category in 1..3, found 4"),
    "too wide": (lambda c: c["annotations"][0].update(bbox=[5, 5, 27, 3]), "inside 1.jpg of 30x20"),
    "left of the image": (
        lambda c: c["annotations"][0].update(bbox=[-2, 5, 7, 3]),
        "annotation 0: expected a box",
    ),
    "negative": (lambda c: c["annotations"][0].update(bbox=[5, 5, -1, 3]), "annotation 0: expected a box"),
    "not finite": (lambda c: c["annotations"][0].update(bbox=[5, float("nan"), 1, 3]), "expected a box"),
    "not of the list": (
        lambda c: c.update(categories=[{"id": 2}]),
        "a category of this file's list, found 1",
    ),
    "three numbers": (lambda c: c["annotations"][0].update(bbox=[5, 5, 3]), "four numbers"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_annotations_are_named(case: str, tmp_path: Path) -> None:
    change, message = BAD[case]
    with pytest.raises(BadData) as error:
        read_instances(written(tmp_path, change), 4)
    assert message in str(error.value)
    assert "instances_val2017.json" in str(error.value)


def test_crowds_and_empty_boxes_are_left_out(tmp_path: Path) -> None:
    def change(content: dict[str, Any]) -> None:
        box = content["annotations"][0]
        content["annotations"] += [
            {**box, "iscrowd": 1},
            {**box, "bbox": [3, 3, 0, 5]},
            {**box, "bbox": [25, 0, 5.9, 9]},
        ]

    found = read_instances(written(tmp_path, change), 4)
    assert (found.annotations, found.crowds, found.empty) == (4, 1, 1)
    (image,) = found.images
    assert image.boxes.tolist() == [[5, 5, 15, 15], [25, 0, 30, 9]]


def test_image_of_another_size_than_annotated_is_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "annotations").mkdir()
    text = (folder / "annotations/instances_train2017.json").read_text()
    content = json.loads(text)
    content["images"][0]["width"] += 1
    (tmp_path / "annotations/instances_train2017.json").write_text(json.dumps(content))
    (tmp_path / "train2017").symlink_to(folder / "train2017")
    source = data.open_data(job(tmp_path))
    with pytest.raises(BadData, match=r"000000000001\.jpg: expected \d+x\d+ as in its annotations"):
        [source.batch(step) for step in range(source.steps_per_epoch)]


# Scoring


def perfect(folder: Path) -> dict[str, Any]:
    images = read_instances(folder / "annotations/instances_val2017.json", 4).images
    boxes, labels = np.zeros((60, 16, 4), np.float32), np.zeros((60, 16), np.int32)
    for row, image in enumerate(images):
        height, width = spec.resized(MINI, image.height, image.width)
        count = len(image.labels)
        boxes[row, :count] = image.boxes * np.tile((width / image.width, height / image.height), 2)
        labels[row, :count] = image.labels
    scores = (labels > 0).astype(np.float32)
    return {
        "boxes": boxes,
        "scores": scores,
        "labels": labels,
        "image": np.array([p.number for p in images]),
    }


def scored(folder: Path, arrays: dict[str, np.ndarray]) -> Score:
    return box_ap.score(Predictions("faster_rcnn", "mini", folder, arrays))


def test_right_boxes_score_one_and_wrong_ones_less(folder: Path) -> None:
    found = perfect(folder)
    best = scored(folder, found)
    assert (best.metric, round(best.value, 6), round(best.others["ap50"], 6)) == ("box_ap", 1.0, 1.0)
    shifted = {**found, "boxes": found["boxes"] + 5}
    less = scored(folder, shifted)
    assert less.value < 0.5 < less.others["ap50"]
    wrong = {**found, "labels": np.where(found["labels"], 1 + found["labels"] % 3, 0).astype(np.int32)}
    assert scored(folder, wrong).value < 0.05
    nothing = {**found, "scores": found["scores"] * 0}
    assert scored(folder, nothing).value == 0.0


HOSTILE = {
    "an image is missing": lambda a: {name: array[1:] for name, array in a.items()},
    "an image twice": lambda a: {**a, "image": np.concatenate((a["image"][:1], a["image"][:-1]))},
    "not finite": lambda a: {**a, "boxes": a["boxes"] * np.float32("nan")},
    "score above one": lambda a: {**a, "scores": a["scores"] * 2},
    "unknown label": lambda a: {**a, "labels": a["labels"] * 9},
    "shapes": lambda a: {**a, "labels": a["labels"][:, 1:]},
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_predictions_are_refused(case: str, folder: Path) -> None:
    with pytest.raises(ScoringError):
        scored(folder, HOSTILE[case](perfect(folder)))
