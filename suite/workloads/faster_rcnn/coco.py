"""COCO's annotations: which objects an image shows. BadData names the file and the record that is wrong."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.workloads.contract import BadData

OUTSIDE = 1.0  # pixels: the publisher's boxes are rounded outlines


@dataclass(frozen=True, slots=True)
class Picture:
    """One image: ``boxes`` float64 [n, 4] (x1, y1, x2, y2 in its own pixels) and ``labels`` int32 [n]."""

    number: int
    file: str
    height: int
    width: int
    boxes: NDArray[np.float64]
    labels: NDArray[np.int32]


def read_instances(path: Path, classes: int) -> list[Picture]:
    """Every image of ``instances_<split>.json`` by its number, with its objects.

    Crowds and boxes without an area are left out, as the published recipes do. BadData for a file that is not
    as COCO's, a category that is not in 1..``classes`` - 1, and a box outside its image.
    """
    name = path.name
    try:
        content = json.loads(path.read_text("utf-8"))
        images, annotations = list(content["images"]), list(content["annotations"])
    except FileNotFoundError:
        raise BadData(
            f"{name}: expected annotations, found no such file; prepare the dataset again"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise BadData(f"{name}: expected COCO's images and annotations, found {error!r}") from error
    found: dict[int, Picture] = {}
    objects: dict[int, list[tuple[tuple[float, ...], int]]] = {}
    for place, record in enumerate(images):
        picture = _picture(record, f"{name}: image {place}")
        if picture.number in found:
            raise BadData(f"{name}: image {place}: expected an id of its own, found {picture.number} again")
        found[picture.number], objects[picture.number] = picture, []
    if not found:
        raise BadData(f"{name}: expected images, found none; prepare the dataset again")
    for place, record in enumerate(annotations):
        _object(record, f"{name}: annotation {place}", found, objects, classes)
    return [_filled(found[number], objects[number]) for number in sorted(found)]


def _picture(record: Any, where: str) -> Picture:
    try:
        number, file = int(record["id"]), str(record["file_name"])
        height, width = int(record["height"]), int(record["width"])
    except (KeyError, TypeError, ValueError) as error:
        raise BadData(f"{where}: expected id, file_name, height and width, found {error!r}") from error
    if min(height, width) < 1 or "/" in file or file.startswith("."):
        raise BadData(f"{where}: expected a size and the name of a file, found {height}x{width}, {file!r}")
    return Picture(number, file, height, width, np.zeros((0, 4)), np.zeros(0, np.int32))


def _object(
    record: Any,
    where: str,
    pictures: dict[int, Picture],
    objects: dict[int, list[tuple[tuple[float, ...], int]]],
    classes: int,
) -> None:
    try:
        number, label = int(record["image_id"]), int(record["category_id"])
        crowd = bool(record.get("iscrowd", 0))
        x, y, wide, high = (float(part) for part in record["bbox"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadData(f"{where}: expected image_id, category_id and four numbers, found {error!r}") from error
    if number not in pictures:
        raise BadData(f"{where}: expected the id of an image of this file, found {number}")
    if not 0 < label < classes:
        raise BadData(f"{where}: expected a category in 1..{classes - 1}, found {label}")
    picture = pictures[number]
    edges = (x, y, picture.width - x - wide, picture.height - y - high)
    if not all(map(math.isfinite, (x, y, wide, high))) or min(edges) <= -OUTSIDE or min(wide, high) < 0:
        size = f"{picture.width}x{picture.height}"
        raise BadData(f"{where}: expected a box inside {picture.file} of {size}, found {record['bbox']}")
    box = (max(x, 0.0), max(y, 0.0), min(x + wide, picture.width), min(y + high, picture.height))
    if not crowd and box[2] > box[0] and box[3] > box[1]:
        objects[number].append((box, label))


def _filled(picture: Picture, objects: list[tuple[tuple[float, ...], int]]) -> Picture:
    boxes = np.array([box for box, _ in objects], np.float64).reshape(-1, 4)
    labels = np.array([label for _, label in objects], np.int32)
    return Picture(picture.number, picture.file, picture.height, picture.width, boxes, labels)
