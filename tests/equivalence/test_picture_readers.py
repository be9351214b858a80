"""Every reader gives the same pictures: order, boxes and flips exactly, grey levels nearly."""

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
from tests.end_to_end.command import all_gone
from tests.equivalence.interpreters import ROOT, interpreter
from tests.equivalence.picture_readers import BATCH, FILL, SMALL, STEPS
from tests.fixtures import pictures

MODULE = "tests.equivalence.picture_readers"
# Mean absolute difference of a picture's pixels (0 to 255) to Pillow's. On imagenet-mini at most 0.20 by
# TensorFlow and 0.22 by DALI; 2.0 by MXNet, whose OpenCV shrinks by means of areas. A picture that is shifted
# by one pixel differs by 7.2 or more.
BOUNDS = {"pytorch": 0.0, "tensorflow": 0.5, "mxnet": 3.0, "dali": 0.5}
DECODERS = {
    "pytorch": "pillow ",
    "tensorflow": "tensorflow ",
    "mxnet": "opencv of mxnet ",
    "dali": "nvidia.dali ",
}
PICTURES = ("train", "infer", "evaluation", "after")
READERS = tuple(BOUNDS)


def python_of(reader: str) -> Path:
    """The interpreter; skips the test where there is none."""
    if reader != "dali":
        return interpreter(reader)
    if (given := os.environ.get("SUITE_PYTHON_DALI")) is None:
        pytest.skip("no interpreter with nvidia.dali: set SUITE_PYTHON_DALI")
    return Path(given)


def command(reader: str, what: str, *paths: Path) -> list[str]:
    framework, loader = ("pytorch", "dali") if reader == "dali" else (reader, "native")
    return [str(python_of(reader)), "-m", MODULE, what, framework, loader, *map(str, paths)]


def environment() -> dict[str, str]:
    quiet = {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    return kept | quiet | {"PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pictures.with_lists(pictures.folders(tmp_path_factory.mktemp("pictures")))


@pytest.fixture(scope="module")
def made(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = tmp_path_factory.mktemp("batches")

    @cache
    def of(reader: str) -> dict[str, Any]:
        file = place / f"{reader}.npz"
        argv = command(reader, "batches", folder, file)
        done = subprocess.run(
            argv, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr[-4000:]
        with np.load(file) as arrays:
            return dict(arrays)

    return of


@pytest.fixture(scope="module")
def wanted(folder: Path) -> dict[str, Any]:
    """By Pillow, the reader that is the same everywhere."""
    from tests.equivalence import picture_readers

    def made(**words: Any) -> Any:
        return picture_readers.job("pytorch", "pillow", folder, **words)

    return picture_readers.batches(made) | {"bordered": picture_readers.bordered(made)}


def apart(one: Any, other: Any) -> Any:
    """The mean absolute difference of each picture."""
    assert (one.shape, one.dtype) == (other.shape, other.dtype)
    return np.abs(one.astype(np.int16) - other).mean(axis=(1, 2, 3))


@pytest.mark.parametrize("form", ["", "recordio/", "tfrecord/"])
@pytest.mark.parametrize("reader", READERS)
def test_readers_give_the_same_pictures(reader: str, form: str, made: Any, wanted: dict[str, Any]) -> None:
    found = made(reader)
    for name in ("labels", "index"):
        assert (found[form + name] == wanted[name]).all()
        assert found[form + name].dtype == wanted[name].dtype
    for name in PICTURES:
        assert apart(found[form + name], wanted[name]).max() <= BOUNDS[reader], name


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_gives_the_same_bytes_again_and_from_every_form(reader: str, made: Any) -> None:
    found = made(reader)
    again = found["train"].reshape(-1, BATCH, 64, 64, 3)[[at for at, step in enumerate(STEPS) if step == 1]]
    assert len(again) == 2
    assert (again[0] == again[1]).all()
    for form in ("recordio", "tfrecord"):
        for name in PICTURES:
            assert (found[f"{form}/{name}"] == found[name]).all()


@pytest.mark.parametrize("reader", READERS)
def test_what_is_beyond_a_picture_s_edges_has_the_colour_for_it(
    reader: str, made: Any, wanted: dict[str, Any]
) -> None:
    found, (width, height) = made(reader)["bordered"], SMALL
    assert (found[:, height:] == FILL).all()
    assert (found[:, :, width:] == FILL).all()
    assert apart(found, wanted["bordered"]).max() <= BOUNDS[reader]


@pytest.mark.parametrize("mutant", ["shifted", "unflipped", "bgr"])
@pytest.mark.parametrize("reader", READERS)
def test_a_reader_that_errs_would_be_found(
    reader: str, mutant: str, made: Any, wanted: dict[str, Any]
) -> None:
    found = made(reader)
    images = found["train"][..., ::-1] if mutant == "bgr" else found[f"mutant/{mutant}"]
    differences = apart(images, wanted["train"])
    # A whole picture cannot be shifted: some are as they should be.
    assert np.median(differences) > BOUNDS[reader] + 1
    assert np.mean(differences > BOUNDS[reader]) > 0.7


SAYS = {
    "cut": "train/n00000002/train_1.JPEG: expected a whole image",
    "nonsense": "train/n00000001/train_0.JPEG: expected a whole image",
    "missing": "train/n00000001/train_0.JPEG: expected an image, found no such file",
    "magic": "train-00001-of-00003.rec: record 1: expected the magic number",
    "bit": "train-00002-of-00003.tfrecord: record 1: expected a content that matches its checksum",
}


@pytest.mark.parametrize("bad", SAYS)
@pytest.mark.parametrize("reader", READERS)
def test_bad_input_is_named(reader: str, bad: str, made: Any) -> None:
    told = json.loads(str(made(reader)["told"]))
    assert told["bad"][bad].startswith(SAYS[bad])


@pytest.mark.parametrize("reader", READERS)
def test_no_request_is_read_before_it_is_made(reader: str, made: Any) -> None:
    told = json.loads(str(made(reader)["told"]))
    assert (told["ahead"]["single_stream, before"], told["ahead"]["single_stream"]) == (0, 3)
    assert 3 < told["ahead"]["offline"] <= 3 + AHEAD
    assert AHEAD <= 10


@pytest.mark.parametrize("reader", READERS)
def test_what_decodes_is_named(reader: str, made: Any) -> None:
    assert json.loads(str(made(reader)["told"]))["decoder"].startswith(DECODERS[reader])


@pytest.mark.parametrize("reader", ["pytorch", "mxnet"])
def test_a_reader_s_processes_are_counted_and_end_with_it(reader: str, folder: Path, tmp_path: Path) -> None:
    argv = command(reader, "hold", folder)
    # As a worker's: where it is, which may be a place with a name too long for a socket.
    place = tmp_path / ("long" * 30)
    place.mkdir()
    settings = environment() | {"TMPDIR": str(place)}
    with subprocess.Popen(argv, cwd=place, env=settings, stdout=subprocess.PIPE, text=True) as holding:
        try:
            assert holding.stdout is not None
            told = json.loads(holding.stdout.readline())
            assert len(told["pids"]) == 2
            assert told["used_ns"] > 50_000_000  # 240 pictures were decoded there
        finally:
            holding.send_signal(signal.SIGKILL)
    assert all_gone(told["pids"], timeout=3)


@pytest.mark.parametrize("reader", READERS)
def test_a_process_ends_while_pictures_are_in_the_making(reader: str, folder: Path) -> None:
    """A thread that asks for Python when the interpreter has ended never comes back."""
    argv = command(reader, "leave", folder)
    done = subprocess.run(argv, cwd=ROOT, env=environment(), capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_leaves_the_allocator_as_it_is(reader: str, made: Any) -> None:
    """tf.data's from_generator makes malloc map every large array anew, and a training step twice as long."""
    assert json.loads(str(made(reader)["told"]))["pages"] < 50, "of 512"
