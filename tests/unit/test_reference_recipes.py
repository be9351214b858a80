"""The reference recipes: quality runs of every workload are planned, by the published schedules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from suite import workloads
from suite.cli import dry
from suite.datasets import catalogue as registry
from suite.datasets import fetch
from suite.plan import prepare
from suite.plan.errors import DatasetProblem
from suite.workloads import specification
from tests.fixtures import coco_site
from tests.unit.test_coco import job
from tests.unit.test_plan import SERVER, benchmark, planned, settings

TARGETS = {  # of the first variant: metric, target, epochs, batch
    "alexnet": ("top1", "0.56", 90, 256),
    "faster_rcnn": ("box_ap", "0.367", 26, 8),
    "gnmt": ("bleu", "24.0", 8, 128),
    "googlenet": ("top1", "0.693", 90, 256),
    "inception_bn_small": ("top1", "0.90", 50, 128),
    "inception_v3": ("top1", "0.768", 90, 128),
    "lstm_ptb": ("perplexity", "84", 39, 20),
    "ncf": ("hr10", "0.695", 20, 256),
    "resnet152": ("top1", "0.779", 90, 128),
    "resnet50": ("top1", "0.759", 90, 256),
    "resnet50_cifar10": ("top1", "0.933", 200, 128),
    "vgg16": ("top1", "0.71", 90, 64),
    "word2vec": ("analogy", "0.25", 15, 4000),
}


@pytest.mark.parametrize("workload", workloads.names())
def test_quality_run_is_planned_and_names_missing_data(
    workload: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = (f"data_root={tmp_path / 'data'}", f"results_dir={tmp_path / 'results'}")
    plan = planned(settings("mode=quality", "scale=reference", *paths, workload=workload), SERVER)
    metric, target, epochs, batch = TARGETS[workload]
    assert (plan.target, plan.max_epochs, plan.key.batch, benchmark(plan).data) == (
        target,
        epochs,
        batch,
        "real",
    )
    assert metric == specification(workload).METRIC
    assert dry.show(plan) == DatasetProblem.code
    out = capsys.readouterr().out
    dataset = registry.entry(specification(workload).DATASETS["reference"])
    assert f"{dataset.name} is not in {tmp_path / 'data' / dataset.name}" in out
    assert f"make data WORKLOAD={dataset.workload}" in out
    assert f"at most {epochs} epochs, to {target}" in out
    assert "hours" in out


def test_ncf_throughput_run_keeps_default_batch(tmp_path: Path) -> None:
    options = ("scale=reference", f"data_root={tmp_path}")
    assert planned(settings(*options), SERVER).key.batch == 1 << 20
    assert planned(settings(*options, "mode=quality", "batch=65536"), SERVER).key.batch == 65536
    assert planned(settings("mode=quality", f"data_root={tmp_path}")).key.scale == "mini"


def rate(workload: str, variant: str, epoch: float, steps: int) -> float:
    """The rate after so many epochs of ``steps`` steps, at the recipe's batch."""
    spec: Any = specification(workload)
    hyper = spec.hyperparameters("reference", variant)
    by_epoch = (steps,) if workload == "lstm_ptb" else ()  # its recipe counts epochs
    return float(spec.recipe_rate(hyper, int(epoch * steps), *by_epoch))


SCHEDULES = [  # workload, variant, steps of an epoch, rates in the middle of epochs counted from 0
    ("alexnet", "v1", 5004, {0: 0.01, 29: 0.01, 30: 0.001, 59: 0.001, 60: 1e-4, 89: 1e-4}),
    ("vgg16", "v1", 5004, {0: 0.01, 29: 0.01, 30: 0.001, 59: 0.001, 60: 1e-4, 89: 1e-4}),
    ("inception_bn_small", "v1", 390, {0: 0.1, 1: 0.094, 49: 0.1 * 0.94**49}),
    ("faster_rcnn", "r50-fpn", 7329, {1: 0.02, 15: 0.02, 16: 0.002, 21: 0.002, 22: 2e-4, 25: 2e-4}),
    ("gnmt", "v2", 27329, {1: 1e-3, 3: 1e-3, 4: 2.5e-4, 5: 6.25e-5}),  # halved twice an epoch from 4 on
    ("ncf", "f64", 19417, {0: 1e-3, 19: 1e-3}),
    ("lstm_ptb", "small", 2323, {3: 1, 4: 0.5, 12: 0.5**9}),
    ("lstm_ptb", "medium", 1327, {5: 1, 6: 0.8, 38: 0.8**33}),
    ("lstm_ptb", "large", 1327, {13: 1, 14: 1 / 1.15, 54: 1.15**-41}),
]


@pytest.mark.parametrize(("workload", "variant", "steps", "rates"), SCHEDULES)
def test_rates_match_publications(workload: str, variant: str, steps: int, rates: dict[int, float]) -> None:
    found = {epoch: rate(workload, variant, epoch + 0.5, steps) for epoch in rates}
    assert found == pytest.approx(rates)


@pytest.mark.parametrize(
    ("workload", "epochs", "steps", "highest", "warm"),
    [
        ("resnet50", 90, 5004, 0.256, 8),
        ("resnet152", 90, 5004, 0.256, 8),
        ("googlenet", 90, 5004, 0.1, 0),
        ("inception_v3", 90, 5004, 0.1, 0),
        ("resnet50_cifar10", 200, 390, 0.1, 0),
    ],
)
def test_cosine_ends_with_last_epoch(
    workload: str, epochs: int, steps: int, highest: float, warm: int
) -> None:
    """An epoch at rate zero would be another chance to reach the target by luck."""
    variant = specification(workload).VARIANTS["reference"][0]
    assert TARGETS[workload][2] == epochs
    assert rate(workload, variant, warm, steps) == pytest.approx(highest)
    assert rate(workload, variant, warm / 2, steps) == pytest.approx(
        highest / 2 if warm else highest, rel=1e-3
    )
    middle = warm + (epochs - warm) / 2
    assert rate(workload, variant, middle, steps) == pytest.approx(highest / 2, rel=1e-3)
    assert 0 < rate(workload, variant, epochs - 0.5, steps) < highest / 1000
    assert rate(workload, variant, epochs, steps) == pytest.approx(0, abs=1e-12)


def test_word2vec_rate_falls_until_end_of_last_epoch() -> None:
    spec: Any = specification("word2vec")
    hyper = spec.hyperparameters("reference", "d200")
    words = int(hyper["decay_words"])
    assert words == 15 * 16_718_000
    assert spec.recipe_rate(hyper, 0, 4000) == pytest.approx(0.025)
    assert spec.recipe_rate(hyper, words // 4000 // 2, 4000) == pytest.approx(0.0125, rel=1e-3)
    assert spec.recipe_rate(hyper, words // 4000, 4000) == pytest.approx(2.5e-6, rel=0.2)


@pytest.mark.parametrize("workload", ["alexnet", "vgg16", "resnet50", "inception_v3", "faster_rcnn"])
def test_steps_and_rates_scale_with_batch(workload: str) -> None:
    """Twice the batch: twice the rate, half the steps."""
    spec: Any = specification(workload)
    variant = spec.VARIANTS["reference"][0]
    hyper = spec.hyperparameters("reference", variant)
    usual = int(hyper["rate_batch"])

    def at(batch: int, step: int) -> float:
        made = job(Path(), mode="quality", hyper=hyper)
        key = replace(made.key, workload=workload, batch=batch)
        return float(spec.learning_rate(replace(made, key=key), step, 1))

    for step in (100_000, 160_000):
        assert at(2 * usual, step // 2) == pytest.approx(2 * at(usual, step))


def test_detector_without_backbone_is_refused_before_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = coco_site.folders(tmp_path / "site")
    real = registry.entry
    small = replace(coco_site.official(theirs), weights=real("coco-2017").weights)
    monkeypatch.setattr(registry, "entry", lambda name: small if name == "coco-2017" else real(name))
    fetch.fetch(small, tmp_path / "data", None, theirs)
    options = ("scale=reference", "data=real", f"data_root={tmp_path / 'data'}")
    throughput = planned(settings(*options, workload="faster_rcnn"), SERVER)
    assert prepare.prepare_data(throughput).path is not None
    quality = planned(settings(*options, "mode=quality", workload="faster_rcnn"), SERVER)
    with pytest.raises(DatasetProblem, match=r"quality runs start from resnet50-0676ba61\.pth.*fetches it"):
        prepare.prepare_data(quality)
