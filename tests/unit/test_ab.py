"""The options of both sides, the order of the rounds, and what is refused before anything is measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from suite.cli import ab, main
from suite.harness.run import interleaved_order
from suite.plan.errors import BadConfiguration

PAIR = ("workload=ncf", "framework=pytorch")


@pytest.mark.parametrize(
    ("argv", "a", "b"),
    [
        (["x=1 y=2", "--", "x=3"], ["x=1", "y=2"], ["x=3"]),
        (["c=0", "--", "x=1", "--", "x=2"], ["c=0", "x=1"], ["c=0", "x=2"]),
        (["c=0 d=1", "e=2", "--", "--", "x=2"], ["c=0", "d=1", "e=2"], ["c=0", "d=1", "e=2", "x=2"]),
        (["x=1", "--", "--fail"], None, None),
        ([], None, None),
        (["x=1", "x=2"], None, None),
        (["--", "--", "--"], None, None),
        (["-m", "x=1", "--", "x=2"], None, None),
        (['x="open', "--", "x=2"], None, None),
    ],
)
def test_parse_splits_options_of_each_side(argv: list[str], a: list[str] | None, b: list[str] | None) -> None:
    if a is None:
        with pytest.raises(BadConfiguration):
            ab.parse(argv)
        return
    _, sides = ab.parse(argv)
    assert sides == [a, b]


def test_ab_takes_common_options_before_the_sides() -> None:
    args, sides = ab.parse(["--fail-slower", "2%", "c=0", "--junit=x.xml", "--", "a=1", "--", "a=2"])
    assert (args.fail_slower, args.junit, args.format) == (0.02, Path("x.xml"), "text")
    assert sides == [["c=0", "a=1"], ["c=0", "a=2"]]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("a=1 b=2", ["a=1", "b=2"]),
        ("  a=1\n b=2 ", ["a=1", "b=2"]),
        ('data_root="/a b"', ['data_root="/a b"']),
        ('data_root="/a b" x=1', ['data_root="/a b"', "x=1"]),
        ("data_root='/a b'", ["data_root='/a b'"]),
        ('data_root="say \\" b"', ['data_root="say \\" b"']),
        ("", []),
    ],
)
def test_side_argument_contains_one_or_many_options(text: str, options: list[str]) -> None:
    assert ab.split(text) == options


def test_interleaved_order_favours_neither_side() -> None:
    assert interleaved_order([5, 5]) == [0, 1, 1, 0, 0, 1, 1, 0, 0, 1]
    assert interleaved_order([5]) == [0] * 5
    assert interleaved_order([1, 1]) == [0, 1]
    assert interleaved_order([2, 4]) == [0, 1, 1, 0, 1, 1]
    assert interleaved_order([0, 2]) == [1, 1]
    drift = list(range(10))  # a machine that gets slower with every repeat
    order = interleaved_order([5, 5])
    means = [sum(at for at, side in zip(drift, order, strict=True) if side == which) / 5 for which in (0, 1)]
    assert abs(means[0] - means[1]) <= 0.2  # five repeats each cannot be in balance to the last one


@pytest.mark.parametrize(
    ("common", "a", "b", "code", "message"),
    [
        (PAIR, "phase=train", "phase=infer", 10, "not comparable: A and B differ in phase: train and infer"),
        (("framework=pytorch",), "workload=ncf", "workload=gnmt", 10, "differ in workload: ncf and gnmt"),
        (PAIR, "mode=throughput", "mode=quality", 10, "differ in mode: throughput and quality"),
        (PAIR, "variant=f8", "variant=f64 scale=reference data=synthetic", 10, "scale: mini and reference"),
        (PAIR, "purpose=submission", "purpose=trial", 10, "A: purpose: expected trial"),
        (PAIR, "precison=fp32", "precision=fp32", 10, "did you mean precision?"),
        (PAIR, "batch=1", "batch=none_such", 10, "batch"),
        (
            ("workload=vgg16",),
            "framework=pytorch phase=preprocess",
            "framework=mxnet phase=preprocess",
            10,
            "phase",
        ),
        (PAIR, "launcher=slurm", "launcher=local", 11, "A: launcher: expected local, found slurm"),
        (PAIR, "cache=cold", "cache=warm", 10, "cache: expected the same on both sides, found cold and warm"),
        (PAIR, "devices=2 nodes=2", "devices=2", 11, "A: nodes: expected 1, found 2"),
        (("workload=ncf",), "framework=pytorch", "", 10, "framework: expected framework="),
    ],
)
def test_incomparable_sides_are_refused_before_preparation(
    common: tuple[str, ...], a: str, b: str, code: int, message: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path_options = [f"{option}={tmp_path / option}" for option in ("results_dir", "data_root", "cache_dir")]
    assert main(["ab", *common, *path_options, "--", a, "--", b]) == code
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_dry_run_prints_both_plans_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path_options = [f"{option}={tmp_path / option}" for option in ("results_dir", "data_root", "cache_dir")]
    options = [*PAIR, *path_options, "dry=true", "scale=mini"]
    assert main(["ab", *options, "--", "framework.threads=1", "--", "framework.threads=2"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("A:\n")
    assert "\nB:\n" in out
    assert list(tmp_path.iterdir()) == []


def test_help_shows_the_syntax(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ab", "--help"]) == 0
    out = capsys.readouterr().out
    assert "-- framework.threads=1 -- framework.threads=2" in out
    assert "--fail-slower" in out
