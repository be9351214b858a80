"""Runs a framework's image reader in the framework's interpreter.

``... batches FRAMEWORK LOADER FOLDER FILE`` writes batches, those of mutants, and the messages of bad input.
``... hold FRAMEWORK LOADER FOLDER`` reads some, prints what its processes have used, and waits to be killed.
``... leave FRAMEWORK LOADER FOLDER`` ends while images are still being decoded.
"""

from __future__ import annotations

import atexit
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

from suite.common.image_reader import Item, View
from suite.common.stream import Stream
from suite.contract import BadData, Job
from suite.contract.traits import traits_of
from suite.worker import children
from suite.workloads._classification import data, sources
from tests.fixtures import image_files, storage_formats

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = dict[str, NDArray[Any]]

BATCH = 4
STEPS = (0, 1, 2, 3, 9, 4, 1)  # of three steps an epoch, jumps among them
_OPENED: list[Any] = []  # by :func:`kept_open`


def job(framework: str, loader: str, folder: Path, phase: str = "train", **options: Any) -> Job:
    """A job of the classifiers on the images in ``folder``."""
    made = image_files.job(folder, batch=options.pop("batch", BATCH), phase=phase)
    return replace(made, loader=loader, key=replace(made.key, framework=framework, **options))


def batches(made: Callable[..., Job]) -> Arrays:
    """Batches of training and of inference, and those of the evaluation, stacked."""
    train, infer = data.open_data(made()), data.open_data(made(phase="infer"))
    found = [train.batch(step) for step in STEPS]
    shown = [infer.batch(step) for step in range(4)]
    evaluated = list(train.evaluation())
    after = train.batch(2)  # an evaluation comes between the steps
    return {
        "train": np.concatenate([batch["images"] for batch in found]),
        "infer": np.concatenate([batch["images"] for batch in shown]),
        "evaluation": np.concatenate([batch["images"] for batch in evaluated]),
        "after": after["images"],
        "labels": np.concatenate([batch["labels"] for batch in (*found, *shown, after)]),
        "index": np.concatenate([batch["index"] for batch in evaluated]),
    }


def shifted(view: View) -> View:
    """The box one pixel further to the left and up, or to the right and down."""
    left, upper, right, lower = view.box
    by = -1 if min(left, upper) > 0 else 1
    return view._replace(box=(left + by, upper + by, right + by, lower + by))


MUTANTS: dict[str, Callable[[View], View]] = {
    "shifted": shifted,
    "unflipped": lambda view: view._replace(flipped=not view.flipped),
}


def with_view(change: Callable[[View], View]) -> type[sources.Files]:
    """A source whose views ``change`` modifies."""

    class Changed(sources.Files):
        def view(self, item: Item, width: int, height: int) -> View:
            right = super().view(item, width, height)
            view = change(right)
            return view if view.box[2] <= width and view.box[3] <= height else right

    return Changed


FILL = (10, 200, 90)
SMALL = (50, 40)  # width and height


def bordered(made: Callable[..., Job]) -> NDArray[Any]:
    """Images that are smaller than their batch, as in object detection."""
    kind = with_view(lambda view: view._replace(size=SMALL, flipped=True))
    kind.fill = FILL
    with mock.patch.object(data, "Files", kind):
        found = data.open_data(made())
    return np.concatenate([found.batch(step)["images"] for step in range(2)])


def mutants(made: Callable[..., Job]) -> Iterator[tuple[str, NDArray[Any]]]:
    """The same training batches by readers that make a mistake."""
    for name, change in MUTANTS.items():
        with mock.patch.object(data, "Files", with_view(change)):
            found = data.open_data(made())
        yield name, np.concatenate([found.batch(step)["images"] for step in STEPS])


def cut(folder: Path) -> None:
    """Cut off the end of an image."""
    path = folder / "train/n00000002/train_1.JPEG"
    path.write_bytes(path.read_bytes()[:-300])


def nonsense(folder: Path) -> None:
    """Replace an image by text."""
    (folder / "train/n00000001/train_0.JPEG").write_bytes(b"no image")


def missing(folder: Path) -> None:
    """Remove a listed file."""
    (folder / "train/n00000001/train_0.JPEG").unlink()


def other_magic(folder: Path) -> None:
    """Damage the magic number of a RecordIO shard's second record."""
    path = folder / "train-00001-of-00003.rec"
    content = bytearray(path.read_bytes())
    content[int((folder / "train-00001-of-00003.idx").read_text().split()[3])] ^= 1
    path.write_bytes(bytes(content))


def other_length(folder: Path) -> None:
    """Damage the length of a TFRecord shard's second record."""
    path = folder / "train-00002-of-00003.tfrecord"
    content = bytearray(path.read_bytes())
    content[int((folder / f"{path.name}.idx").read_text().split()[2])] ^= 1
    path.write_bytes(bytes(content))


def other_hash(folder: Path) -> None:
    """Flip one bit in the second record of an ArrayRecord shard."""
    path = folder / "train-00001-of-00003.array_record"
    content = bytearray(path.read_bytes())
    second = content.index(b"\xff\xd8", content.index(b"\xff\xd8") + 1)  # a JPEG file begins there
    content[second + 100] ^= 16
    path.write_bytes(bytes(content))


def storages(framework: str) -> tuple[str, ...]:
    """The storage formats that ``framework`` reads; LMDB's reader has tests of its own."""
    return tuple(name for name in traits_of(framework).reads_storage if name not in ("files", "lmdb"))


BAD: dict[str, tuple[str, Callable[[Path], None]]] = {
    "cut": ("", cut),
    "nonsense": ("", nonsense),
    "missing": ("", missing),
    "magic": ("recordio", other_magic),
    "length": ("tfrecord", other_length),
    "hash": ("arrayrecord", other_hash),
}


def messages(
    made: Callable[..., Job], framework: str, folder: Path, scratch: Path
) -> Iterator[tuple[str, str]]:
    """The error message for each kind of bad input that ``framework`` can read."""
    for name, (storage, damage) in BAD.items():
        if storage and storage not in storages(framework):
            continue
        bad = scratch / name
        if storage:
            storage_formats.convert(folder, bad, storage)
        else:
            shutil.copytree(folder, bad)
        damage(bad)
        try:
            data.open_data(made(folder=bad, batch=12)).batch(0)
        except BadData as error:
            yield name, str(error)
        else:
            yield name, "nothing"


def ahead(made: Callable[..., Job], scratch: Path) -> Iterator[tuple[str, int]]:
    """The number of images read until three batches of one have been requested, by scenario."""
    for scenario in ("offline", "single_stream"):
        seen = scratch / scenario

        def note(view: View, seen: Path = seen) -> View:
            with seen.open("a") as file:  # in any process
                file.write(".")
            return view

        with mock.patch.object(data, "Files", with_view(note)):
            found = data.open_data(made(phase="infer", batch=1, scenario=scenario))
        time.sleep(0.3)
        begun = len(seen.read_text()) if seen.exists() else 0
        for step in range(3):
            found.batch(step)
        time.sleep(0.3)
        yield f"{scenario}, before", begun
        yield scenario, len(seen.read_text())


def of_ranks(made: Callable[..., Job], scratch: Path) -> Arrays:
    """The first batch, and that of each of two ranks, each from a folder with the files of its rows only."""
    whole = made(phase="infer", scenario="single_stream")  # no other batch is read ahead
    found = {"ranks/whole": data.open_data(whole).batch(0)["images"]}
    names = Path(whole.data_dir, "val.txt").read_text().split()[1::2]
    order = Stream("order", "classification", whole.seed, 0).permutation(len(names))[:BATCH].tolist()
    for rank, rows in enumerate((order[: BATCH // 2], order[BATCH // 2 :])):
        folder = scratch / f"rank{rank}"
        shutil.copytree(whole.data_dir, folder)
        for at in set(range(len(names))) - set(rows):
            (folder / names[at]).unlink()
        key = replace(whole.key, batch=BATCH // 2, devices=2)
        of_rank = replace(whole, key=key, rank=rank, world_size=2, data_dir=str(folder))
        found[f"ranks/{rank}"] = data.open_data(of_rank).batch(0)["images"]
    return found


@contextmanager
def kept_open() -> Iterator[None]:
    """Data that are opened in this block stay open until the process ends, as in a worker.

    A DataLoader that is dropped earlier waits up to five seconds for each of its processes.
    """
    opening = data.open_data

    def keep(made: Job) -> Any:
        _OPENED.append(opening(made))
        return _OPENED[-1]

    with mock.patch.object(data, "open_data", keep):
        yield


def write(framework: str, loader: str, folder: Path, file: Path) -> None:
    """See this module."""

    def made(folder: Path = folder, **options: Any) -> Job:
        return job(framework, loader, folder, **options)

    arrays = batches(made) | {"bordered": bordered(made)}
    with tempfile.TemporaryDirectory() as scratch:
        report = {
            "bad": dict(messages(made, framework, folder, Path(scratch))),
            "ahead": dict(ahead(made, Path(scratch))),
            "decoder": data.decoder(made()),
            "pages": pages_of_an_array(),
        }
        for storage in storages(framework):
            other = storage_formats.convert(folder, Path(scratch) / storage, storage)
            for name, value in batches(lambda other=other, **options: made(other, **options)).items():
                arrays[f"{storage}/{name}"] = value
        arrays |= of_ranks(made, Path(scratch))
    arrays |= {f"mutant/{name}": images for name, images in mutants(made)}
    arrays["report"] = np.array(json.dumps(report))
    np.savez(file, **arrays)  # type: ignore[arg-type]


def pages_of_an_array() -> float:
    """Page faults for an array of 2 MiB after such arrays were freed."""

    def made(count: int) -> int:
        for _ in range(count):
            np.ones(1 << 18)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    return (-made(4) + made(20)) / 20


def hold(framework: str, loader: str, folder: Path) -> None:
    """See this module."""
    found = data.open_data(job(framework, loader, folder))
    for step in range(60):
        found.batch(step)
    used = children.cpu_time_ns() - time.process_time_ns()
    print(json.dumps({"pids": list(children.descendants()), "used_ns": used}), flush=True)
    time.sleep(120)


def busy(seconds: float) -> None:
    """Keep other threads from running Python for ``seconds``."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def leave(framework: str, loader: str, folder: Path) -> None:
    """See this module. The reader's threads wait for the interpreter's lock until the interpreter ends."""
    atexit.register(busy, 0.1)  # runs last: registered before the framework's handlers
    sys.setswitchinterval(3600)

    def slowly(view: View) -> View:
        busy(0.02)
        return view

    with mock.patch.object(data, "Files", with_view(slowly)):
        found = data.open_data(job(framework, loader, folder))
    found.batch(0)


if __name__ == "__main__":
    if "SUITE_PACKAGES" in os.environ:  # as suite/worker/__main__.py does
        sys.path.append(os.environ["SUITE_PACKAGES"])
    command, framework_name, loader_name, *paths = sys.argv[1:]
    commands: dict[str, Callable[..., None]] = {"batches": kept_open()(write), "hold": hold, "leave": leave}
    commands[command](framework_name, loader_name, *map(Path, paths))
