"""Samples of every format version, written by hand from the published format, with its irregularities.

The expected minutes are those between run_start and run_stop in the sample. MLCommons' tools do not read
v0.5, whose outcomes follow from that round's published rules.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from suite.mllog.examine import examine
from suite.mllog.outcomes import ERROR, INFORMATION, WARNING
from suite.mllog.rounds import target_for
from tests.fixtures.mlperf_logs import changed, publish, run_v05, run_v07

SAMPLES = Path(__file__).parents[1] / "fixtures" / "mllog"
# Benchmark, minutes, and warnings; the sample is a log without an error, of a run that converged.
EXPECTED: dict[str, tuple[str, float, set[str]]] = {
    "v0.5_gnmt": ("gnmt", 10.0, set()),  # BLEU as text, in float32 at the target; run_stop without a value
    "v0.5_ssd": ("ssd", 800 / 60, set()),  # evaluations under another key; run_stop "success" as text
    "v0.6_mask": ("maskrcnn", 11.0, set()),  # a list of box and mask AP; success in the value; headers at 0.0
    "v0.7_dlrm": ("dlrm", 3.0, set()),  # ranks whose init_stop and run_start interleave; a progress bar
    "v2.0_bert": ("bert", 3.001, {"submission"}),  # constant epoch_num; an empty platform
    "v3.1_stable_diffusion": (
        "stable_diffusion",
        10.0,
        {"submission"},
    ),  # offline, one of two evaluations meets
    "v6.1_llama31_8b": (
        "llama31_8b",
        2.0,
        {"submission"},
    ),  # a loss; the last evaluation and run_stop at one time
    "hpc_v2.0_cosmoflow": ("cosmoflow", 2.0005, {"submission"}),  # eval_error
}


def of(value: dict[str, Any], severity: str) -> set[str]:
    return {one["check"] for one in value["outcomes"] if one["outcome"] == severity}


def round_of_sample(name: str) -> str:
    return name.removeprefix("hpc_").split("_", maxsplit=1)[0].removeprefix("v")


@pytest.mark.parametrize("name", EXPECTED)
def test_sample_of_each_format_is_a_run_that_converged(name: str) -> None:
    benchmark, minutes, warnings = EXPECTED[name]
    value = examine(SAMPLES / f"{name}.txt", round_of_sample(name))
    assert (of(value, ERROR), of(value, WARNING)) == (set(), warnings)
    (log,) = value["logs"]
    assert (log["benchmark"], log["converged"], log["malformed"]) == (benchmark, True, 0)
    assert log["minutes"] == pytest.approx(minutes, abs=1e-4)


def test_every_sample_is_expected() -> None:
    assert {path.stem for path in SAMPLES.glob("*.txt")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_sample_whose_evaluations_miss_the_target_did_not_converge(name: str, tmp_path: Path) -> None:
    """Every value that meets the target is replaced by one that does not."""
    text = (SAMPLES / f"{name}.txt").read_text()
    for good in ("21.79999", "0.2125", "0.3401", "0.8026", "0.7205", "88.1", "3.2999", "0.1239"):
        text = text.replace(
            good, "18.0" if good == "21.79999" else "99.0" if good in WORSE_IF_HIGHER else "0.1"
        )
    path = tmp_path / "result_0.txt"
    path.write_text(text)
    value = examine(path, round_of_sample(name))
    assert of(value, ERROR) == {"quality"}
    assert not value["logs"][0]["converged"]


WORSE_IF_HIGHER = ("88.1", "3.2999", "0.1239")


@pytest.mark.parametrize(
    ("benchmark", "mlperf_round", "value", "met"),
    [
        ("gnmt", (0, 5), 21.8, True), ("gnmt", (0, 5), "21.80", True), ("gnmt", (0, 5), 21.79999, True),
        ("gnmt", (0, 5), 21.79, False), ("gnmt", (0, 6), 0.24, True), ("gnmt", (0, 7), 24.0, False),
        ("gnmt", (0, 7), 0.2399999, False), ("gnmt", (0, 7), "0.25", None),
        ("resnet", (0, 6), [0.7591], True),
        ("resnet", (0, 6), {"epoch": 61, "top1": 0.7591}, True), ("resnet", (0, 6), "75.9%", True),
        ("resnet", (0, 6), {"top1": 0.76, "top5": 0.93}, None), ("resnet", (4, 0), 0.9999, True),
        ("resnet", (4, 0), 1.0, False), ("maskrcnn", (0, 6), [0.378, 0.34], True),
        ("maskrcnn", (0, 6), [0.378], None),
        ("maskrcnn", (0, 6), {"bbox": 0.378, "segm": 0.338}, False), ("gpt3", (3, 0), 2.5, False),
        ("rnnt", (1, 0), 0.0579, True), ("rnnt", (1, 0), -1.0, False), ("resnet", (4, 0), float("nan"), None),
        ("resnet", (0, 6), "not yet", None),
    ],
)  # fmt: skip
def test_target_is_met_as_the_round_compares(
    benchmark: str, mlperf_round: tuple[int, int], value: Any, met: bool | None
) -> None:
    bound = target_for(benchmark, mlperf_round)
    assert bound is not None
    assert bound.met(value, benchmark, mlperf_round) is met


def test_target_of_bert_in_v07_depends_on_the_batch() -> None:
    assert str(target_for("bert", (0, 7), 4096.0)) == "at least 0.712"
    assert str(target_for("bert", (0, 7), 8192.0)) == "at least 0.706"
    assert str(target_for("bert", (1, 0), 4096.0)) == "at least 0.72"


def test_train_samples_of_bert_until_the_target_differ(tmp_path: Path) -> None:
    runs = [changed(run_v07("bert", run), "train_samples", value=1_000_000 + run) for run in range(10)]
    value = examine(publish(tmp_path, runs, "bert"), "2.0")
    assert (of(value, ERROR), of(value, WARNING)) == (set(), set())
    resnet = [changed(run_v07("resnet", run), "train_samples", value=1_000_000 + run) for run in range(5)]
    assert of(examine(publish(tmp_path / "other", resnet), "2.0"), WARNING) == {"equal settings"}


def test_equal_seeds_in_all_runs_are_found_in_every_round(tmp_path: Path) -> None:
    """Though each is logged at another line; no rule before v1.0, an error of closed results since then."""
    early = [[line.replace(": 7000", ": 1") for line in run_v05("ncf", 0)] for _ in range(3)]
    value = examine(publish(tmp_path, early, "ncf", "0.5"), "any")
    assert "seeds" in of(value, WARNING)
    late = [changed(run_v07(run=run), "seed", value=1, metadata={"lineno": run}) for run in range(5)]
    value = examine(publish(tmp_path / "late", late), "any")
    assert of(value, ERROR) == {"seeds"}
    assert [one["found"] for one in value["outcomes"] if one["check"] == "seeds"] == ["1 in all 5 runs"]
    folder = publish(tmp_path / "bypass", late)
    (folder / "package_checker_params").write_text("seed-checker-bypass\n")
    assert of(examine(folder, "any"), WARNING) == {"seeds"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [("{", "expected JSON"), ("[1]", "expected {"), ('{"scaling_factor": "1.1"}', "expected {"),
     ('{"scaling_factor": -1}', "expected {"), ('{"scaling_factor": NaN}', "expected {")],
)  # fmt: skip
def test_scaling_that_cannot_be_read_gives_no_score(text: str, reason: str, tmp_path: Path) -> None:
    folder = publish(tmp_path, [run_v07(run=run) for run in range(5)])
    (folder / "scaling.json").write_text(text)
    value = examine(folder, "any")
    (row,) = [one for one in value["outcomes"] if one["check"] == "score"]
    assert (row["outcome"], row["location"]) == (ERROR, "scaling.json")
    assert row["found"].startswith(reason)
    assert value["score"]["minutes"] is None


def test_factor_below_one_is_a_warning(tmp_path: Path) -> None:
    folder = publish(tmp_path, [run_v07(run=run) for run in range(5)])
    (folder / "scaling.json").write_text('{"scaling_factor": 0.5}')
    value = examine(folder, "any")
    assert of(value, WARNING) == {"score"}
    assert value["score"]["minutes"] == pytest.approx(value["score"]["olympic_mean"] / 2)


def test_open_result_without_target_is_information(tmp_path: Path) -> None:
    runs = [changed(run_v07(run=run), "eval_accuracy", value=0.5) for run in range(5)]
    folder = publish(tmp_path, [changed(run, "submission_division", value="open") for run in runs])
    value = examine(folder, "any")
    assert "quality" in of(value, INFORMATION)
    assert value["score"]["converged"] == 5
