"""All readers return the same images: order, boxes and flips exactly, grey levels within a bound."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suite.common.image_reader import AHEAD
from suite.containers.engines.native import PACKAGES
from suite.environments.environments import tools_plan
from tests.end_to_end.command import all_ended
from tests.equivalence.image_readers import BATCH, FILL, SMALL, STEPS, storages
from tests.equivalence.interpreters import ROOT, interpreter, run
from tests.fixtures import image_files

MODULE = "tests.equivalence.image_readers"
# Mean absolute difference of an image's pixels (0 to 255) to Pillow's. On imagenet-mini it is at most 0.20
# for TensorFlow, 0.22 for DALI and 2.0 for MXNet, whose OpenCV averages areas to shrink. An image that is
# shifted by one pixel differs by 7.2 or more.
BOUNDS = {"pytorch": 0.0, "tensorflow": 0.5, "mxnet": 3.0, "jax": 0.0, "dali": 0.5}
DECODERS = {
    "pytorch": "pillow ",
    "tensorflow": "tensorflow ",
    "mxnet": "opencv of mxnet ",
    "jax": "pillow ",
    "dali": "nvidia.dali ",
}
BATCHES = ("train", "infer", "evaluation", "after")
READERS = tuple(BOUNDS)
DALI = tools_plan("dali")


def python_of(reader: str) -> Path:
    """The interpreter; skips the test if there is none."""
    if reader != "dali":
        return interpreter(reader)
    if not DALI.ready:
        pytest.skip("no environment for DALI: python -m suite environments dali")
    return interpreter("pytorch")


def framework_of(reader: str) -> str:
    return "pytorch" if reader == "dali" else reader


def command(reader: str, what: str, *paths: Path) -> list[str]:
    loader = "dali" if reader == "dali" else "native"
    return [str(python_of(reader)), "-m", MODULE, what, framework_of(reader), loader, *map(str, paths)]


def environment(reader: str) -> dict[str, str]:
    """The variables of the reader's process, which finds DALI as a worker does."""
    packages = {PACKAGES: str(DALI.packages_folder)} if reader == "dali" else {}
    quiet = {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    return kept | quiet | packages | {"PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return image_files.with_lists(image_files.folders(tmp_path_factory.mktemp("images")))


@pytest.fixture(scope="module")
def made(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    scratch = tmp_path_factory.mktemp("batches")

    @cache
    def of(reader: str) -> dict[str, Any]:
        file = scratch / f"{reader}.npz"
        argv = command(reader, "batches", folder, file)
        done = subprocess.run(
            argv, cwd=ROOT, env=environment(reader), capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr[-4000:]
        with np.load(file) as arrays:
            return dict(arrays)

    return of


@pytest.fixture(scope="module")
def wanted(folder: Path) -> dict[str, Any]:
    """The batches read by Pillow, which is the same with every framework."""
    from tests.equivalence import image_readers

    def job(**options: Any) -> Any:
        return image_readers.job("pytorch", "pillow", folder, **options)

    return image_readers.batches(job) | {"bordered": image_readers.bordered(job)}


def apart(one: Any, other: Any) -> Any:
    """The mean absolute difference of each image."""
    assert (one.shape, one.dtype) == (other.shape, other.dtype)
    return np.abs(one.astype(np.int16) - other).mean(axis=(1, 2, 3))


@pytest.mark.parametrize("reader", READERS)
def test_readers_return_same_images(reader: str, made: Any, wanted: dict[str, Any]) -> None:
    found = made(reader)
    for storage in ("", *(f"{name}/" for name in storages(framework_of(reader)))):
        for name in ("labels", "index"):
            assert (found[storage + name] == wanted[name]).all()
            assert found[storage + name].dtype == wanted[name].dtype
        for name in BATCHES:
            assert apart(found[storage + name], wanted[name]).max() <= BOUNDS[reader], storage + name


@pytest.mark.parametrize("reader", READERS)
def test_reader_returns_same_bytes_again_and_from_every_storage_format(reader: str, made: Any) -> None:
    found = made(reader)
    again = found["train"].reshape(-1, BATCH, 64, 64, 3)[[at for at, step in enumerate(STEPS) if step == 1]]
    assert len(again) == 2
    assert (again[0] == again[1]).all()
    for storage in storages(framework_of(reader)):
        for name in BATCHES:
            assert (found[f"{storage}/{name}"] == found[name]).all()


@pytest.mark.parametrize("reader", READERS)
def test_padding_has_fill_colour(reader: str, made: Any, wanted: dict[str, Any]) -> None:
    found, (width, height) = made(reader)["bordered"], SMALL
    assert (found[:, height:] == FILL).all()
    assert (found[:, :, width:] == FILL).all()
    assert apart(found, wanted["bordered"]).max() <= BOUNDS[reader]


@pytest.mark.parametrize("mutant", ["shifted", "unflipped", "bgr"])
@pytest.mark.parametrize("reader", READERS)
def test_wrong_reader_exceeds_bound(reader: str, mutant: str, made: Any, wanted: dict[str, Any]) -> None:
    found = made(reader)
    images = found["train"][..., ::-1] if mutant == "bgr" else found[f"mutant/{mutant}"]
    differences = apart(images, wanted["train"])
    # A crop of the whole image cannot be shifted: some images are right.
    assert np.median(differences) > BOUNDS[reader] + 1
    assert np.mean(differences > BOUNDS[reader]) > 0.7


@pytest.mark.parametrize("reader", READERS)
def test_rank_reads_only_its_rows(reader: str, made: Any) -> None:
    found = made(reader)
    halves = [found["ranks/0"], found["ranks/1"]]
    assert (np.concatenate(halves) == found["ranks/whole"]).all()
    assert not (halves[0] == halves[1]).all()


MESSAGES = {
    "cut": "train/n00000002/train_1.JPEG: expected a whole image",
    "nonsense": "train/n00000001/train_0.JPEG: expected a whole image",
    "missing": "train/n00000001/train_0.JPEG: expected an image, found no such file",
    "magic": "train-00001-of-00003.rec: record 1: expected the magic number",
    "length": "train-00002-of-00003.tfrecord: record 1: expected the length ",
    "hash": "train-00001-of-00003.array_record: record 1: expected a content that matches its hash",
}


@pytest.mark.parametrize("reader", READERS)
def test_error_names_bad_input(reader: str, made: Any) -> None:
    found = json.loads(str(made(reader)["report"]))["bad"]
    assert set(MESSAGES) - set(found) == ({"hash"} if reader != "jax" else set())
    for bad, message in found.items():
        assert message.startswith(MESSAGES[bad])


@pytest.mark.parametrize("reader", READERS)
def test_single_stream_reads_no_request_early(reader: str, made: Any) -> None:
    report = json.loads(str(made(reader)["report"]))
    assert (report["ahead"]["single_stream, before"], report["ahead"]["single_stream"]) == (0, 3)
    assert 3 < report["ahead"]["offline"] <= 3 + AHEAD
    assert AHEAD <= 10


@pytest.mark.parametrize("reader", READERS)
def test_decoder_is_named(reader: str, made: Any) -> None:
    assert json.loads(str(made(reader)["report"]))["decoder"].startswith(DECODERS[reader])


@pytest.mark.parametrize("reader", ["pytorch", "mxnet"])
def test_reader_processes_are_counted_and_end_with_reader(reader: str, folder: Path, tmp_path: Path) -> None:
    argv = command(reader, "hold", folder)
    # As for a worker: TMPDIR is its folder, whose path may be too long for a socket.
    scratch = tmp_path / ("long" * 30)
    scratch.mkdir()
    settings = environment(reader) | {"TMPDIR": str(scratch)}
    with subprocess.Popen(argv, cwd=scratch, env=settings, stdout=subprocess.PIPE, text=True) as holding:
        try:
            assert holding.stdout is not None
            report = json.loads(holding.stdout.readline())
            assert len(report["pids"]) == 2
            assert report["used_ns"] > 50_000_000  # 240 images were decoded there
        finally:
            holding.send_signal(signal.SIGKILL)
    assert all_ended(report["pids"], timeout=30)


@pytest.mark.parametrize("reader", READERS)
def test_process_ends_while_images_are_being_decoded(reader: str, folder: Path) -> None:
    """A reader thread that needs the interpreter's lock after its end would hang for ever."""
    argv = command(reader, "leave", folder)
    done = subprocess.run(
        argv, cwd=ROOT, env=environment(reader), capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize("reader", READERS)
def test_reader_does_not_change_allocator(reader: str, made: Any) -> None:
    """tf.data's from_generator makes malloc map every large array anew: training steps take twice as long."""
    assert json.loads(str(made(reader)["report"]))["pages"] < 50, "of 512"


def test_threads_read_one_lmdb_shard_at_the_same_time(tmp_path: Path) -> None:
    done = run("pytorch", "tests.equivalence.lmdb_threads", str(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]


def test_resizing_by_matrix_products_is_that_of_pillow(folder: Path) -> None:
    done = run("pytorch", "tests.equivalence.resized_images", str(folder))
    found = json.loads(done.stdout)
    # One large image does not take the memory of 128 such ones.
    assert found.pop("chunks") == [[0, 2], [2, 3], [3, 131], [131, 259], [259, 304]]
    assert {split: one["padded"] for split, one in found.items()} == {
        "train": False,
        "val": False,
        "bordered": True,
    }
    assert 5 < found["train"]["flipped"] < found["train"]["images"] - 5
    for one in found.values():
        assert one["largest"] < 0.2, "grey levels"
