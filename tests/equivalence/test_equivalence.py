"""Each workload is the same computation in all frameworks, every mutant breaks a bound, every pair passes."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from suite import rules as rulebook
from suite import workloads
from suite.environments import environments
from suite.frameworks.common import as_float32
from tests.equivalence import compare, digests, optimisers
from tests.equivalence.case import FRAMEWORKS, load, names
from tests.equivalence.interpreters import arrays_of, run
from tests.equivalence.shortened import WHOLE

PAIRS = list(combinations(FRAMEWORKS, 2))
Arrays = dict[str, NDArray[Any]]


class Runs:
    """The results of each framework, each run once. The arrays stay on disk, because they are gigabytes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of(self, case: str, framework: str, precision: str, *, whole: bool = False) -> Arrays:
        """What ``framework`` computed in ``precision``; ``whole``: with a network that is not shortened."""
        wanted = precision + WHOLE if whole and load(case).shortened else precision
        return arrays_in(self._run(case, framework, wanted) / f"{precision}.npz")

    def mutants(self, case: str) -> dict[str, tuple[str, float] | None]:
        """For each mutant of the PyTorch pair the first array beyond its bound, and its difference."""
        truth = self._run(case, "tensorflow", "fp64") / "fp64.npz"
        text = (self._run(case, "pytorch", f"mutants={truth}") / "mutants.json").read_text()
        found: dict[str, tuple[str, float] | None] = json.loads(text)
        return found

    def _run(self, case: str, framework: str, wanted: str) -> Path:
        name = wanted.partition("=")[0]
        folder = self._folder / case / framework / name
        if not folder.exists():
            made = folder.with_name(f"{name}.partial")
            made.mkdir(parents=True, exist_ok=True)
            done = run(framework, "tests.equivalence.runner", case, framework, str(made), wanted)
            assert done.returncode == 0, done.stderr[-4000:]
            made.rename(folder)
        return folder


def arrays_in(file: Path) -> Arrays:
    """The arrays of a file that the runner wrote."""
    with np.load(file) as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Shared by the module's tests."""
    return Runs(tmp_path_factory.mktemp("equivalence"))


def cases_of_all_pairs() -> list[str]:
    """Cases that run every pair. One pair computes all classifiers: one has normalisation, one dropout."""
    return [
        name
        for name in names()
        if name in ("alexnet", "resnet50") or not workloads.specification(load(name).workload).FAMILY
    ]


# fp64 for every case, fp32 for those that run every pair. `make equivalence` compares every case in both.
COMPARED = [(name, "fp64") for name in names()] + [(name, "fp32") for name in cases_of_all_pairs()]


@pytest.mark.parametrize(("case", "precision"), COMPARED)
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_frameworks_agree(runs: Runs, case: str, first: str, second: str, precision: str) -> None:
    a, b = runs.of(case, first, precision), runs.of(case, second, precision)
    found = compare.differences(a, b, precision)
    print(f"{case} {precision} {first} {second}: largest {max(found.items(), key=lambda item: item[1])}")
    assert compare.excesses(found, precision, load(case).update_bound) == {}


@pytest.mark.parametrize("case", names())
def test_first_loss_lies_in_band_of_rules(runs: Runs, case: str) -> None:
    """TRAIN-002 would reject every run of a workload whose first loss has left its band."""
    low, high = rulebook.load("practice").workload(load(case).workload)["first_loss"]
    assert float(low) <= runs.of(case, "pytorch", "fp32", whole=True)["losses"][0] <= float(high)


@pytest.mark.parametrize("case", names())
def test_every_mutant_breaks_a_bound(runs: Runs, case: str) -> None:
    mutants = runs.mutants(case)
    assert len(mutants) >= 8
    for name, excess in mutants.items():
        print(f"{case} {name:28} {'keeps every bound' if excess is None else excess}")
    assert [name for name, excess in mutants.items() if excess is None] == []


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("case", cases_of_all_pairs())
def test_pair_passes_contract_checks(case: str, framework: str) -> None:
    done = run(framework, "tests.equivalence.contract_checks", case, framework)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert "passed check_collect_is_in_order" in done.stdout


def test_contract_checks_fail_for_broken_custom_pair() -> None:
    broken = str(Path(__file__).parents[1] / "fixtures" / "pairs" / "broken.py")
    done = run("pytorch", "tests.equivalence.contract_checks", "ncf", "pytorch", broken)
    failed = {line.split()[1] for line in done.stdout.splitlines() if line.startswith("FAILED")}
    expected = {"collect_is_in_order", "reset_starts_again", "inference_returns_one_array_per_step"}
    assert failed == {f"check_{name}" for name in expected}, done.stdout
    assert done.returncode == len(expected)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "framework", [name for name in FRAMEWORKS if "cuda" in environments.accelerators(name)]
)
@pytest.mark.parametrize("case", names())
def test_fast_path_on_a_gpu(case: str, framework: str) -> None:
    if environments.accelerator() != "cuda":
        pytest.skip("no NVIDIA GPU answers")
    done = run(framework, "tests.equivalence.gpu_check", case, framework, accelerator="cuda")
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_weights_and_batches_are_equal_in_all_interpreters(framework: str) -> None:
    done = run(framework, "tests.equivalence.digests")
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines() == digests.lines()


@pytest.fixture(scope="module")
def updated(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Optimisers' results by framework."""
    return arrays_of("tests.equivalence.optimisers", tmp_path_factory.mktemp("optimisers"))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_optimisers_of_all_frameworks_agree(updated: Any, framework: str) -> None:
    """Against the formulas, written out in numpy, with the rate as a float32 where fused kernels take one."""
    weight, mean, square = optimisers.start(), np.zeros((4, 3)), np.zeros((4, 3))
    plain, velocity, steepest = optimisers.start(), np.zeros((4, 3)), optimisers.start()
    for step in range(optimisers.STEPS):
        g, given, t = optimisers.gradient(step), optimisers.rate(step), step + 1
        rate = as_float32(given)
        mean, square = 0.9 * mean + 0.1 * g, 0.999 * square + 0.001 * g * g
        weight = weight - rate * (mean / (1 - 0.9**t)) / (np.sqrt(square / (1 - 0.999**t)) + 1e-8)
        velocity = 0.9 * velocity + g
        plain = plain - rate * velocity
        steepest = steepest - given * g
    found, start = updated(framework), optimisers.start()
    assert compare.in_norm(found["adam"] - start, weight - start) < 1e-9
    assert compare.in_norm(found["momentum"] - start, plain - start) < 1e-9
    assert compare.in_norm(found["descent"] - start, steepest - start) < 1e-9
    gradients = np.concatenate([optimisers.gradient(0).ravel(), optimisers.gradient(1)[0]])
    norm = float(np.linalg.norm(gradients))
    assert norm > 1e-8
    np.testing.assert_allclose(found["norms"], [norm, norm], rtol=1e-12)
    np.testing.assert_allclose(found["clipped"], gradients * (1e-8 / norm), rtol=1e-12)
    np.testing.assert_array_equal(found["kept"], gradients)
    long = np.linalg.norm(optimisers.long_gradient().astype(np.float64))
    np.testing.assert_allclose(found["long norm"], [long], rtol=5e-7)


@pytest.mark.parametrize("name", ["clipped", "kept", "skipped"])
def test_clipping_in_the_update_equals_clipping_before_it(updated: Any, name: str) -> None:
    found = updated("pytorch")
    np.testing.assert_allclose(found[f"{name} in update"], found[f"{name} before"], rtol=1e-14)
    moved = not np.array_equal(found[f"{name} before"][:12], optimisers.start().ravel())
    assert moved == (name != "skipped")


@pytest.mark.parametrize("shape", [(2, 3, 2, 4), (4, 3, 1, 1)])
def test_momentum_accepts_gradient_of_any_memory_layout(updated: Any, shape: tuple[int, ...]) -> None:
    """A fused update reads tensors in memory order: another layout would give another element's number."""
    weight = np.arange(48.0)[: int(np.prod(shape))].reshape(shape)
    start, velocity = weight, np.zeros(shape)
    for scale in (1, 2):
        velocity = 0.9 * velocity + start * scale + 0.1 * weight
        weight = weight - as_float32(0.1) * velocity
    for name in ("last", "plain", "same"):
        np.testing.assert_allclose(updated("pytorch")[f"layout {name} {shape}"], weight, rtol=1e-12)
