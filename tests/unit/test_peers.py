"""Comparison of pairs with plain scripts: verdicts from ratios, selection of cases, equal sizes."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from peers import __main__ as command
from peers import arm, bench, environments, ratios, saved, text
from peers.cases import BATCHES, FRAMEWORKS, GENSIM, PHASES, module_of, peers_of
from peers.ratios import MET, SLOWER, WITHIN_NOISE, Measurement
from suite import workloads
from suite.contract import WARMUP_STEPS
from suite.environments import environments as suite_environments
from suite.workloads.word2vec import spec as word2vec
from suite.workloads.word2vec.text import read_words, vocabulary
from tests.equivalence.case import UNOPTIMISED

ROOT = Path(__file__).resolve().parents[2]
QUICK = {"XLA_FLAGS": UNOPTIMISED}  # JAX compiles for longer than these programs compute


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        ((101, 103, 102), MET),
        ((100, 100, 100), MET),
        ((99, 104, 98), WITHIN_NOISE),  # 1 lies within the interval
        ((90, 91, 89), SLOWER),
        ((60, 140, 70), WITHIN_NOISE),
    ],
)
def test_verdict_follows_from_the_interval_and_the_limit(ours: tuple[float, ...], verdict: str) -> None:
    assert ratios.ratio(ours, (100, 100, 100)).verdict == verdict


def test_drifting_machine_favours_neither_side() -> None:
    speeds = (1.0, 0.5, 0.25)
    found = ratios.ratio([110 * speed for speed in speeds], [100 * speed for speed in speeds])
    assert (found.median, found.least, found.most, found.limit) == pytest.approx((1.1, 1.1, 1.1, 1.1))


def test_limit_is_the_one_sided_student_interval() -> None:
    # Logarithms -0.1, 0, 0.1: mean 0, standard error 0.1 / sqrt(3), and t(0.95; 2) = 2.91999.
    found = ratios.ratio([math.exp(log) for log in (-0.1, 0.0, 0.1)], [1.0, 1.0, 1.0])
    assert found.limit == pytest.approx(math.exp(2.91999 * 0.1 / math.sqrt(3)), rel=1e-5)


def test_two_rounds_are_too_few() -> None:
    with pytest.raises(ValueError, match="expected at least 3, found 2"):
        ratios.ratio((1, 1), (1, 1))


def test_processor_time_decides_on_busy_machine() -> None:
    alone = Measurement(100, 10.0, 19.0, 1.9)
    beside = Measurement(100, 20.0, 19.0, 4.1)
    assert ratios.deciding_clock([alone, alone], processors=2) == "wall"
    assert ratios.deciding_clock([alone, beside], processors=2) == "cpu"
    assert ratios.deciding_clock([Measurement(100, 10.0, 19.0, None)], processors=2) == "wall"
    assert [beside.rate("wall"), beside.rate("cpu")] == pytest.approx([5.0, 100 / 19])


def test_time_of_other_processes_excludes_this_process() -> None:
    def spin(first: int, steps: int) -> int:
        return sum(range(first, steps))

    times, found = arm.timed(spin, 0, 3_000_000)
    assert found == 2_999_999 * 1_500_000
    assert 0 < times.cpu <= times.wall * 1.5
    assert times.others is None or times.others <= times.wall * bench.PROCESSORS + 0.1


@pytest.mark.parametrize(("step", "steps"), [(60.0, 3), (1.0, 5), (0.7, 8), (1e-6, 100)])
def test_measured_steps_fill_the_window_within_limits(step: float, steps: int) -> None:
    assert arm.measured_steps(step, 5.0) == steps


def test_every_pair_with_a_peer_has_a_script_and_a_batch() -> None:
    found = [(w, f) for w in workloads.names() for f in FRAMEWORKS if set(peers_of(w, f)) - {GENSIM}]
    assert len(found) >= 20
    for workload, framework in found:
        assert (ROOT / f"{module_of(workload, framework).replace('.', '/')}.py").is_file()
        assert framework in workloads.frameworks(workload)
        assert workload in BATCHES


def test_options_select_the_compared_cases(capsys: pytest.CaptureFixture[str]) -> None:
    found = list(command.cases(command.arguments(["--workload", "word2vec", "--framework", "pytorch"])))
    assert [(case.phase, case.peer, case.variant) for case in found] == [
        ("train", "pytorch_word2vec", "d200"),
        ("train", GENSIM, "d200"),
        ("train", GENSIM, "d100"),
        ("infer", "pytorch_word2vec", "d200"),
        ("infer", GENSIM, "d200"),
        ("infer", GENSIM, "d100"),
    ]
    assert [case.reads_text for case in found] == [False, True, True, False, False, False]
    assert {case.scale for case in found} == {"reference"}
    mini = list(command.cases(command.arguments(["--scale", "mini", "--framework", "pytorch"])))
    assert {case.workload for case in mini} == {"gnmt", "lstm_ptb", "ncf", "word2vec"}
    assert {case.phase for case in mini} == set(PHASES)
    with pytest.raises(SystemExit):
        command.arguments(["--workload", "resnet51"])
    assert "found resnet51" in capsys.readouterr().err


@pytest.mark.parametrize(("workload", "later"), [("gnmt", 7), ("ncf", 0)])
def test_sides_are_interleaved_with_equal_steps(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, workload: str, later: int
) -> None:
    asked: list[tuple[str, int]] = []
    case = next(command.cases(command.arguments(["--workload", workload, "--framework", "pytorch"])))
    bencher = bench.PeerBench(bench.BenchSettings(4, 1.0, 1, "passive", tmp_path), print)

    def run(case: Any, side: str, scratch: Path, steps: int) -> dict[str, Any]:
        asked.append((side, steps))
        rate = 120 if side == "ours" else 100
        return {"steps": 7, "units": rate, "wall_s": 1.0, "cpu_s": 1.0, "others_s": 0.0, "parameters": 5}

    monkeypatch.setattr(bencher, "_run", run)
    row = bencher.row(case)
    assert [side[0] for side, _ in asked] == list("ottootto")
    assert [steps for _, steps in asked] == [0] + 7 * [later]
    record = row.record()
    assert (record["clock"], record["verdict"], record["ratios"]["wall"]["median"]) == ("wall", MET, 1.2)
    assert json.loads(json.dumps(record))["parameters"] == {"ours": 5, "theirs": 5}


def test_interrupted_series_continues(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run: list[str] = []
    reading = Measurement(100, 1.0, 1.0, 0.0)

    def row(self: bench.PeerBench, case: Any) -> bench.PeerRow:
        if case.phase == "infer" and len(run) == 1:
            raise bench.SideFailed("cut")
        run.append(case.phase)
        return bench.PeerRow(case, [reading] * 3, [reading] * 3, {"ours": 5, "theirs": 5})

    monkeypatch.setattr(bench.PeerBench, "row", row)
    arguments = ["peers", "--workload", "ncf", "--framework", "pytorch", "--out", str(tmp_path / "rows.json")]
    monkeypatch.setattr(sys, "argv", arguments)
    assert (command.main(), run) == (2, ["train"])
    run.append("between")
    assert (command.main(), run) == (0, ["train", "between", "infer"])
    assert "1 of 2 rows to run" in capsys.readouterr().out
    held = json.loads((tmp_path / "rows.json").read_text())
    assert [saved.row_of(record).record() for record in held["rows"]] == held["rows"]
    assert [record["case"]["phase"] for record in held["rows"]] == ["train", "infer"]
    assert (command.main(), len(run)) == (0, 3)  # nothing is left to run
    monkeypatch.setattr(sys, "argv", [*arguments, "--rounds", "5"])
    assert (command.main(), len(run)) == (2, 3)
    assert "name another OUT=FILE" in capsys.readouterr().err


def test_failed_side_reports_its_cause(tmp_path: Path) -> None:
    bencher = bench.PeerBench(bench.BenchSettings(3, 1.0, 1, "passive", tmp_path), print)
    code = "import sys; sys.exit('no such model')"
    with pytest.raises(bench.SideFailed, match="no such model"):
        bencher._process([sys.executable, "-c", code], tmp_path, [], {})


def test_generated_text_has_exactly_the_vocabulary(tmp_path: Path) -> None:
    text.write(tmp_path, "mini", "d100", 5_000)
    words = read_words(tmp_path / "text8")
    known = vocabulary(words, word2vec.MIN_COUNT)
    assert len(known) == word2vec.dimensions("mini", "d100").vocabulary
    assert len(words) == 5_000 + 5 * len(known)
    assert [text.spelled(rank) for rank in (0, 25, 26, 27, 701, 702)] == ["a", "z", "aa", "ab", "zz", "aaa"]


def environment(framework: str) -> Path:
    """The interpreter of a framework's environment; skips if it does not exist."""
    found = suite_environments.plan(framework, "cpu")
    if not found.ready:
        pytest.skip(f"no environment {found.name}: make environments FRAMEWORK={framework}")
    return found.python


def numbers(workload: str, scale: str) -> int:
    """The number of trained parameters in the specification."""
    spec = workloads.specification(workload)
    return sum(p.size for p in spec.parameters(spec.dimensions(scale, spec.VARIANTS[scale][0])))


# Runs one command line per argument as ``python -m`` does, but starts and imports once for all.
COMMANDS = """
import runpy, sys
for line in sys.argv[1:]:
    sys.argv = line.split()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_plain_script_has_specified_number_of_parameters(framework: str) -> None:
    """For models with free sizes, at mini scale, in three steps."""
    names = ("ncf", "lstm_ptb", *(("faster_rcnn", "gnmt", "word2vec") if framework == "jax" else ()))
    shared = f"--framework {framework} --scale mini --steps 3 --threads 1"
    lines = [f"peers.arm theirs --workload {workload} {shared}" for workload in names]
    command = [str(environment(framework)), "-c", COMMANDS, *lines]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | QUICK, capture_output=True, text=True, check=True
    )
    reports = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"side"')]
    for workload, line, found in zip(names, lines, reports, strict=True):
        # PyTorch's and Gluon's LSTMs train a second bias in each of the two layers.
        second = 2 * 4 * 96 if workload == "lstm_ptb" and framework in ("pytorch", "mxnet") else 0
        assert found["parameters"] == numbers(workload, "mini") + second
        assert math.isfinite(found["last"])
        spec, key = workloads.specification(workload), arm.job_of(arm.options_of(line.split()[1:])).key
        assert (found["steps"], found["units"]) == (3, sum(spec.units(key, 1)[WARMUP_STEPS:][:3]))


@pytest.mark.parametrize("steps", [-1, 111])
def test_more_steps_than_batches_are_refused(steps: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Their rate would be that of the units of fewer steps."""
    options = ["ours", "--workload=ncf", "--framework=pytorch"]
    assert arm.options_of([*options, "--steps=110"]).steps == 110
    with pytest.raises(SystemExit):
        arm.options_of([*options, f"--steps={steps}"])
    assert f"--steps: expected at most 110, found {steps}" in capsys.readouterr().err


COUNTS = {
    "pytorch": """
from peers.pytorch_images import network
def count(name):
    return sum(parameter.numel() for parameter in network(name).parameters())
""",
    "tensorflow": """
import math
from peers.tensorflow_images import network
def count(name):
    return sum(math.prod(variable.shape) for variable in network(name).trainable_variables)
""",
    "mxnet": """
import math, mxnet as mx
from peers.mxnet_images import network
def count(name):
    net, side = network(name), {"inception_v3": 299, "resnet50_cifar10": 32}.get(name, 224)
    net.infer_shape(mx.nd.zeros((1, 3, side, side)))
    return sum(math.prod(p.shape) for p in net.collect_params().values() if p.grad_req != "null")
""",
    "jax": """
import jax, jax.numpy as jnp, numpy as np
from peers import jax_detection, jax_images
from suite.workloads.faster_rcnn import spec
class Shapes:
    standard_normal = staticmethod(jnp.zeros)  # NumPy would draw all values
np.random.default_rng = lambda seed: Shapes()
def initial(name):
    if name == "faster_rcnn":
        return jax_detection.initial(spec.dimensions("reference", "r50-fpn"))
    return jax_images.initial(name)
def count(name):
    weights, _ = jax.eval_shape(lambda: initial(name))
    return sum(weight.size for weight in weights.values())
""",
}
STOCK = ["alexnet", "googlenet", "inception_v3", "resnet50", "resnet152", "vgg16", "resnet50_cifar10"]


def counted(framework: str, names: list[str], *folders: Path) -> dict[str, int]:
    """The number of trained parameters of a framework's plain networks, by name."""
    code = f"{COUNTS[framework]}\nimport json\nprint(json.dumps({{name: count(name) for name in {names}}}))"
    found: dict[str, int] = json.loads(printed(framework, code, *folders))
    return found


def printed(framework: str, code: str, *folders: Path) -> str:
    """The last line that ``code`` prints in a framework's environment."""
    path = ":".join(map(str, (ROOT, *folders)))
    done = subprocess.run(
        [environment(framework), "-c", code],
        cwd=ROOT,
        env=os.environ
        | {**QUICK, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("framework", "names"),
    [
        ("pytorch", ["inception_bn_small"]),
        ("tensorflow", ["alexnet", "inception_v3", "resnet50"]),
        ("mxnet", ["alexnet", "inception_v3", "resnet50", "resnet152", "vgg16", "resnet50_cifar10"]),
        ("jax", [*STOCK, "inception_bn_small", "faster_rcnn"]),
    ],
)
def test_plain_network_equals_the_specification(framework: str, names: list[str]) -> None:
    expected = {name: numbers(name, "reference") for name in names}
    if framework == "tensorflow":  # keras.applications trains no scale in its normalisations
        spec = workloads.specification("inception_v3")
        parameters = spec.parameters(spec.dimensions("reference", "v1"))
        expected["inception_v3"] -= sum(p.size for p in parameters if p.name.endswith(".gamma"))
    assert counted(framework, names) == expected


def test_torchvision_networks_equal_the_specifications() -> None:
    folder = environments.torchvision_folder(ROOT / ".envs")
    if not folder.is_dir():
        pytest.skip("torchvision for the peers is not there: make bench-peers WORKLOAD=resnet50")
    assert counted("pytorch", STOCK, folder) == {name: numbers(name, "reference") for name in STOCK}


BOXES = """
import jax.numpy as jnp, json, numpy as np
from peers import jax_boxes, jax_detection
from suite.workloads.faster_rcnn import boxes, regions, spec, tables
from suite.workloads.faster_rcnn.jax_ops import Ops
dims, o, draw = spec.dimensions("mini", "r50-fpn"), Ops(jnp.float32), np.random.default_rng(0)
table = tables.tables(dims, *dims.shapes[0])
near = draw.uniform(0, 90, (300, 2))
rois = np.concatenate((near, near + draw.uniform(6, 38, (300, 2))), axis=1).astype(np.float32)
other, size, grids = rois[::-1], jnp.array([128.0, 128.0]), table.grids[: spec.POOLED_LEVELS]
found, wanted = {}, {}
found["anchors"] = jax_detection.Stages(dims, *dims.shapes[0], True).anchors
wanted["anchors"] = table.anchors
moves = jax_boxes.encode(rois, other)
found["encoded"], wanted["encoded"] = moves, boxes.encode(o, rois, other, regions.UNIT_WEIGHTS)
found["decoded"], wanted["decoded"] = jax_boxes.decode(moves, other, size), rois
overlap = jax_boxes.overlaps(rois, rois)
found["overlaps"], wanted["overlaps"] = overlap, boxes.overlaps(o, rois[None], rois[None])[0] / boxes.GRID
there = draw.random(300) < 0.9
kept = np.zeros(300, bool)
for at in range(300):
    kept[at] = there[at] and not np.any(kept[:at] & (np.array(overlap)[:at, at] > 0.5))
found["surviving"], wanted["surviving"] = jax_boxes.surviving(rois, there, 0.5), kept
levels = [draw.standard_normal((*grid, 8)).astype(np.float32) for grid in grids]
strides = spec.STRIDES[: spec.POOLED_LEVELS]
pooled = jax_boxes.pooled(levels, rois, strides, dims.canonical, dims.pool)
constants = regions.Constants(table.grids, table.levels, table.anchors, table.order)
index, weight = regions.taps(o, constants, dims, rois[None])
rows = np.concatenate([level.reshape(-1, 8) for level in levels])
found["pooled"] = pooled.reshape(300, -1, 8)
wanted["pooled"] = jnp.sum(rows[index[0]] * weight[0][..., None], axis=-2)
print(json.dumps({name: float(np.abs(1.0 * found[name] - wanted[name]).max()) for name in found}))
"""


def test_boxes_of_the_plain_script_equal_those_of_the_suite() -> None:
    """Anchors, encoding, overlaps (the suite rounds them), suppression one by one, and pooling."""
    errors: dict[str, float] = json.loads(printed("jax", BOXES))
    limits = dict.fromkeys(errors, 1e-5) | {"decoded": 1e-3}
    assert set(errors) == {"anchors", "encoded", "decoded", "overlaps", "surviving", "pooled"}
    assert all(errors[name] <= limits[name] for name in errors), errors
