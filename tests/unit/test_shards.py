"""Ranks share a global batch: together they have the rows that one device would have, in every workload."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suite.common.image_reader import Images, Item
from suite.common.pillow_images import render
from suite.contract import STEPS, Data, Job, Key
from suite.contract.workloads import names, specification
from suite.datasets.prepare import prepare
from suite.workloads import open_data
from suite.workloads.word2vec import spec as word2vec

WORLDS = (2, 3)
# Small batches whose global batches leave rows over at the end of an epoch; that of word2vec's is a multiple
# of 8, so that the ranks' kept words are as many as the global batch's.
BATCHES = {"ncf": 256, "word2vec": 328, "gnmt": 14, "lstm_ptb": 5}
Arrays = dict[str, Any]
Folders = Callable[[str], Path]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    root = tmp_path_factory.mktemp("data")
    return lambda name: prepare(name, root).path


def job(workload: str, batch: int, folder: Path | str, phase: str = "train") -> Job:
    """A job of one device. Readers read nothing ahead, because the tests jump from step to step."""
    spec, source = specification(workload), "real" if folder else "synthetic"
    variant = spec.VARIANTS["mini"][0]
    hyper = spec.hyperparameters("mini", variant)
    key = Key(workload, "pytorch", phase, "single_stream", "fp32", batch, 1, "mini", source, "warm", variant)
    loader = "pillow" if "pillow" in spec.LOADERS else "native"
    return Job(key, "throughput", 7, 0, hyper, "cpu", 1, True, 0, 0, str(folder), "", loader=loader)


def of_rank(whole: Job, rank: int, world_size: int) -> Job:
    """The job of one rank, whose ranks together have the batch of ``whole``."""
    key = replace(whole.key, batch=whole.key.batch // world_size, devices=world_size)
    return replace(whole, key=key, rank=rank, world_size=world_size, local_rank=rank)


def joined(parts: Sequence[Arrays]) -> Arrays:
    """The rows of all ranks; word2vec's ``words`` continue into the next rank's by two windows."""
    beside = 2 * word2vec.dimensions("mini", "d100").window
    found = {}
    for name in parts[0]:
        arrays = [part[name] for part in parts]
        if name in ("words", "word_share"):
            arrays = [*(array[:-beside] for array in arrays[:-1]), arrays[-1]]
        found[name] = np.concatenate(arrays)
    return found


def equal(one: Arrays, other: Arrays) -> bool:
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and np.array_equal(one[name], other[name]) for name in one
    )


def steps_of(data: Data) -> list[int]:
    """Steps in the first epoch, over its end, and in the tail."""
    end = data.steps_per_epoch
    return sorted({0, 1, 12, end - 1, end, end + 1, STEPS + 3})


def check(whole: Job, world_size: int) -> None:
    """Every rank has its rows of the global batch; ranks that all read rank 0's rows are noticed."""
    one, ranks = open_data(whole), [open_data(of_rank(whole, at, world_size)) for at in range(world_size)]
    assert {rank.steps_per_epoch for rank in ranks} == {one.steps_per_epoch}
    for step in steps_of(one):
        wanted, parts = one.batch(step), [rank.batch(step) for rank in ranks]
        shapes = [{name: array.shape for name, array in part.items()} for part in parts]
        assert shapes == shapes[:1] * world_size, step
        assert equal(joined(parts), wanted), step
        assert not equal(joined(parts[:1] * world_size), wanted), step
        assert [rank.slot(step) for rank in ranks] == [one.slot(step)] * world_size
    again = open_data(of_rank(whole, world_size - 1, world_size)).batch(steps_of(one)[-1])
    assert equal(again, parts[-1]), "a batch is a pure function of its step"


@pytest.mark.parametrize("world_size", WORLDS)
@pytest.mark.parametrize("workload", names())
def test_ranks_have_rows_of_synthetic_batch(workload: str, world_size: int) -> None:
    check(job(workload, BATCHES.get(workload, 3) * world_size, ""), world_size)


@pytest.mark.parametrize("world_size", WORLDS)
@pytest.mark.parametrize("workload", names())
def test_ranks_have_rows_of_batch_that_is_read(workload: str, world_size: int, folders: Folders) -> None:
    folder = folders(specification(workload).DATASETS["mini"])
    check(job(workload, BATCHES.get(workload, 3) * world_size, folder), world_size)


@pytest.mark.parametrize("workload", ["faster_rcnn", "resnet50", "word2vec"])
def test_ranks_have_rows_of_inference_batch(workload: str, folders: Folders) -> None:
    folder = folders(specification(workload).DATASETS["mini"])
    for source in (folder, ""):
        check(job(workload, 2 * BATCHES.get(workload, 3), source, "infer"), 2)


def test_ranks_have_rows_of_gnmts_epochs_in_quality_mode(folders: Folders) -> None:
    check(replace(job("gnmt", 28, folders("wmt16-mini")), mode="quality"), 2)


def test_capacity_of_ranks_beyond_the_global_batch_is_padding() -> None:
    whole = job("word2vec", 60, "")
    one = open_data(whole).batch(0)
    found = joined([open_data(of_rank(whole, rank, 3)).batch(0) for rank in range(3)])
    assert (len(one["live"]), len(found["live"])) == (53, 3 * 18)
    assert equal({name: found[name][: len(one[name])] for name in one}, one)
    assert not found["live"][53:].any()
    assert not found["contexts"][53:].any()


@pytest.mark.parametrize(("source", "batch", "world_size"), [("wmt16-mini", 32, 2), ("", 32, 3), ("", 1, 3)])
def test_units_of_gnmt_are_those_of_the_ranks_batches(
    source: str, batch: int, world_size: int, folders: Folders
) -> None:
    whole = job("gnmt", batch * world_size, source and folders(source))
    ranks = [of_rank(whole, rank, world_size) for rank in range(world_size)]
    opened = [open_data(rank) for rank in ranks]
    wanted = specification("gnmt").units(ranks[0].key, whole.seed)
    lengths = ("source_lengths", "target_lengths")
    for step in range(0, STEPS, 7):
        batches = [data.batch(step) for data in opened]
        assert sum(int(one[name].sum()) for one in batches for name in lengths) == wanted[step]


@pytest.mark.parametrize("workload", names())
def test_units_and_costs_are_those_of_all_devices(workload: str) -> None:
    spec = specification(workload)
    batch = spec.BATCHES["mini"][0]
    for phase in ("train", "infer"):
        for scale in ("mini", "reference"):
            one = replace(job(workload, batch, "", phase).key, scale=scale, variant=spec.VARIANTS[scale][0])
            two = replace(one, devices=2)
            assert spec.units(two, 1) == spec.units(replace(one, batch=2 * batch), 1)
            assert spec.window_flop(two) == 2 * spec.window_flop(one)
            assert spec.window_bytes(two) == 2 * spec.window_bytes(one)


@pytest.mark.parametrize(
    ("workload", "dataset"), [("resnet50", "imagenet-mini"), ("faster_rcnn", "coco-mini")]
)
def test_rank_decodes_only_its_images(
    workload: str, dataset: str, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[int] = []

    def noting(images: Images, item: Item, shape: tuple[int, int]) -> Any:
        decoded.append(item.sample)
        return render(images, item, shape)

    monkeypatch.setattr("suite.common.pillow_images.render", noting)
    whole = job(workload, 4, folders(dataset))
    open_data(whole).batch(1)
    wanted = decoded.copy()
    for rank in (0, 1):
        decoded.clear()
        open_data(of_rank(whole, rank, 2)).batch(1)
        assert decoded == wanted[2 * rank : 2 * rank + 2]
