"""COCO's annotations: the objects of each image. BadData names the file and the record that is wrong."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.contract import BadData

OUTSIDE = 1.0  # pixels a box may exceed its image: the publisher's boxes are rounded outlines


@dataclass(frozen=True, slots=True)
class AnnotatedImage:
    """One image: ``boxes`` float64 [n, 4] (x1, y1, x2, y2 in pixels of the file) and ``labels`` int32 [n].

    ``number`` is COCO's image id.
    """

    number: int
    file: str
    height: int
    width: int
    boxes: NDArray[np.float64]
    labels: NDArray[np.int32]


@dataclass(slots=True)
class Instances:
    """The content of a file of annotations: its images by number, and counts.

    ``annotations`` counts all annotations, ``crowds`` (groups of objects) and ``empty`` (boxes without an
    area) those that are left out. ``categories`` are the ids of the file's list of categories.
    """

    categories: frozenset[int]
    annotations: int
    images: list[AnnotatedImage] = field(default_factory=list)
    crowds: int = 0
    empty: int = 0


def read_instances(path: Path, classes: int, empty: bool = True) -> Instances:
    """The images of ``instances_<split>.json`` with their objects.

    Crowds and boxes without an area are left out, as in the published recipes: the publisher's file has a few
    of both. BadData for a file of another format, a category that is not in the file's list or not in
    1..``classes`` - 1, a box outside its image and, unless ``empty``, a box without an area.
    """
    name = path.name
    images, annotations, categories = _parsed(path)
    by_number: dict[int, AnnotatedImage] = {}
    for index, record in enumerate(images):
        image = _image(record, f"{name}: image {index}")
        if image.number in by_number:
            raise BadData(f"{name}: image {index}: expected a unique id, found {image.number} again")
        by_number[image.number] = image
    if not by_number:
        raise BadData(f"{name}: expected images, found none; prepare the dataset again")
    result = Instances(_category_ids(categories, name), len(annotations))
    objects: dict[int, list[tuple[Box, int]]] = {number: [] for number in by_number}
    reader = _Reader(by_number, result.categories or frozenset(range(1, classes)), classes)
    for index, record in enumerate(annotations):
        number, label, box, crowd = reader.object(record, f"{name}: annotation {index}")
        flat = box[2] <= box[0] or box[3] <= box[1]
        if crowd or flat:
            result.crowds += crowd
            result.empty += flat and not crowd
            if flat and not empty:
                where = f"{name}: annotation {index}"
                raise BadData(f"{where}: expected a box with an area, found {record['bbox']}")
            continue
        objects[number].append((box, label))
    result.images = [_with_objects(by_number[number], objects[number]) for number in sorted(by_number)]
    return result


Box = tuple[float, float, float, float]


def _parsed(path: Path) -> tuple[list[Any], list[Any], list[Any]]:
    try:
        content = json.loads(path.read_text("utf-8"))
        return list(content["images"]), list(content["annotations"]), list(content.get("categories", ()))
    except FileNotFoundError:
        raise BadData(
            f"{path.name}: expected annotations, found no such file; prepare the dataset again"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        found = f"{type(error).__name__}: {error}"
        raise BadData(f"{path.name}: expected COCO's images and annotations, found {found}") from error


def _category_ids(categories: list[Any], name: str) -> frozenset[int]:
    try:
        return frozenset(int(record["id"]) for record in categories)
    except (KeyError, TypeError, ValueError) as error:
        raise BadData(f"{name}: categories: expected an id for each, found {error!r}") from error


def _image(record: Any, where: str) -> AnnotatedImage:
    try:
        number, file = int(record["id"]), str(record["file_name"])
        height, width = int(record["height"]), int(record["width"])
    except (KeyError, TypeError, ValueError) as error:
        raise BadData(f"{where}: expected id, file_name, height and width, found {error!r}") from error
    if min(height, width) < 1 or "/" in file or file.startswith(".") or not file.isprintable():
        raise BadData(f"{where}: expected a size and the name of a file, found {height}x{width}, {file!r}")
    return AnnotatedImage(number, file, height, width, np.zeros((0, 4)), np.zeros(0, np.int32))


@dataclass(frozen=True, slots=True)
class _Reader:
    images: dict[int, AnnotatedImage]
    known: frozenset[int]
    classes: int

    def object(self, record: Any, where: str) -> tuple[int, int, Box, bool]:
        """Image, category, corners within the image, and whether it is a crowd, of one annotation."""
        try:
            number, label = int(record["image_id"]), int(record["category_id"])
            crowd = bool(record.get("iscrowd", 0))
            x, y, wide, high = (float(part) for part in record["bbox"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            expected = "image_id, category_id and four numbers"
            raise BadData(f"{where}: expected {expected}, found {error!r}") from error
        image = self.images.get(number)
        if image is None:
            raise BadData(f"{where}: expected the id of an image of this file, found {number}")
        if not 0 < label < self.classes:
            raise BadData(f"{where}: expected a category in 1..{self.classes - 1}, found {label}")
        if label not in self.known:
            raise BadData(f"{where}: expected a category of this file's list, found {label}")
        edges = (x, y, image.width - x - wide, image.height - y - high)
        if not all(map(math.isfinite, (x, y, wide, high))) or min(edges) <= -OUTSIDE or min(wide, high) < 0:
            size = f"{image.width}x{image.height}"
            raise BadData(f"{where}: expected a box inside {image.file} of {size}, found {record['bbox']}")
        box = (max(x, 0.0), max(y, 0.0), min(x + wide, image.width), min(y + high, image.height))
        return number, label, box, crowd


def _with_objects(image: AnnotatedImage, objects: list[tuple[Box, int]]) -> AnnotatedImage:
    boxes = np.array([box for box, _ in objects], np.float64).reshape(-1, 4)
    return replace(image, boxes=boxes, labels=np.array([label for _, label in objects], np.int32))
