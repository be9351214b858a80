"""The plans of a scaling set: the runs of each group, and what is refused before anything is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from suite.compare.scaling_set import INDEPENDENT, SINGLE, SYNCHRONOUS, Arm, Group, read_set
from suite.contract import Key
from suite.plan.errors import BadConfiguration, Refusal, StorageProblem, Unsupported
from suite.plan.machine import Machine
from suite.sweep import scaling
from suite.sweep.results import FinishedResult
from suite.sweep.scaling import PlannedSet, plan_set, stored_set, write_set

MACHINE = Machine(cores=4, gpus=(), visible=None)
COMMON = ("workload=ncf", "framework=pytorch", "runtime=native", "scale=mini")


KUBERNETES = (
    "launcher=kubernetes",
    f"launcher.image=r.example/suite@sha256:{'a' * 64}",
    "launcher.claim=results",
)


def planned(
    results: Path,
    *options: str,
    counts: Sequence[int] = (1, 2, 4),
    scaling: str = "weak",
    cause: str | None = None,
) -> PlannedSet:
    given = [*COMMON, *options, f"results_dir={results}"]
    return plan_set(given, counts, scaling, cause, "code", MACHINE)


def keys(found: PlannedSet, devices: int) -> dict[str, tuple[int, str, int]]:
    plans = {name: plan.key for name, plan in found.plans[devices].items()}
    assert all(isinstance(key, Key) for key in plans.values())
    return {
        name: (key.devices, key.strategy, key.batch) for name, key in plans.items() if isinstance(key, Key)
    }


def test_weak_scaling_keeps_the_batch_per_device(tmp_path: Path) -> None:
    found = planned(tmp_path, "batch=128")
    assert found.content.devices == (2, 4)
    assert keys(found, 4) == {
        SINGLE: (1, "independent", 128),
        INDEPENDENT: (4, "independent", 128),
        SYNCHRONOUS: (4, "allreduce", 128),
    }


def test_single_device_starts_from_what_a_replica_compiled(tmp_path: Path) -> None:
    assert list(planned(tmp_path).plans[2]) == [SINGLE, INDEPENDENT, SYNCHRONOUS]
    reused = planned(tmp_path, "reuse_compiled=true", "division=open", "scale=reference")
    assert list(reused.plans[2]) == [INDEPENDENT, SYNCHRONOUS, SINGLE]


def test_strong_scaling_divides_the_batch(tmp_path: Path) -> None:
    found = planned(tmp_path, "batch=512", scaling="strong")
    assert [keys(found, 4)[name][2] for name in found.content.arms] == [512, 128, 128]
    with pytest.raises(BadConfiguration, match="expected a multiple of 3, found 512"):
        planned(tmp_path, "batch=512", counts=(2, 3), scaling="strong")


def test_inference_has_two_arms_and_no_strategy(tmp_path: Path) -> None:
    found = planned(tmp_path, "phase=infer")
    assert list(keys(found, 2)) == [SINGLE, INDEPENDENT]
    with pytest.raises(BadConfiguration, match="inference exchanges nothing"):
        planned(tmp_path, "phase=infer", "strategy=allreduce")


def test_options_of_the_exchange_are_those_of_the_synchronous_arm(tmp_path: Path) -> None:
    found = planned(tmp_path, "collective=gloo", "bucket_mib=64")
    assert [plan.settings.bucket_mib for plan in found.plans[2].values()] == [None, None, 64]
    collectives = {name: plan.collective for name, plan in found.plans[2].items()}
    assert collectives == {SINGLE: "", INDEPENDENT: "", SYNCHRONOUS: "gloo"}


def test_equal_options_share_a_folder_and_others_do_not(tmp_path: Path) -> None:
    folder = planned(tmp_path).folder
    assert planned(tmp_path, counts=(2, 8)).folder == folder
    assert planned(tmp_path, cause="a cause").folder == folder
    others = [
        planned(tmp_path, "batch=128").folder,
        planned(tmp_path, scaling="strong").folder,
        planned(tmp_path, "collective=gloo").folder,
        plan_set([*COMMON, f"results_dir={tmp_path}"], (2,), "weak", None, "other code", MACHINE).folder,
    ]
    assert len({folder, *others}) == 5


@pytest.mark.parametrize(
    ("options", "counts", "cause", "error", "message"),
    [
        ((), (1,), None, BadConfiguration, "at least one number above 1"),
        (("batch=max",), (2,), None, BadConfiguration, "expected a number, found max"),
        (("mode=quality",), (2,), None, BadConfiguration, "measures throughput"),
        (("purpose=submission",), (2,), None, BadConfiguration, "expected trial"),
        (("launcher=slurm",), (2,), None, Unsupported, "expected local, found slurm"),
        (KUBERNETES, (2,), None, Unsupported, "expected local, found kubernetes"),
        (("strategy=independent",), (2,), None, BadConfiguration, "found independent, an arm of every set"),
        (("min_seconds=5",), (2,), None, BadConfiguration, "min_seconds: .* choose STEPS"),
        ((), range(2, 19), None, BadConfiguration, "at most 16 numbers"),
        ((), (2,), "  ", BadConfiguration, "cause: expected up to 500 printable .*, not all blank"),
        ((), (2,), "caf\u00e9", BadConfiguration, "cause: expected up to 500 printable ASCII characters"),
    ],
)
def test_what_no_set_can_measure_is_refused(
    options: Sequence[str],
    counts: Sequence[int],
    cause: str | None,
    error: type[Refusal],
    message: str,
    tmp_path: Path,
) -> None:
    with pytest.raises(error, match=message):
        planned(tmp_path, *options, counts=counts, cause=cause)


def test_a_load_has_no_scaling_set(tmp_path: Path) -> None:
    options = ("workload=resnet50", *COMMON[1:], "phase=load", "data=real", f"results_dir={tmp_path}")
    with pytest.raises(BadConfiguration, match="trains or infers, found load"):
        plan_set(options, (2,), "weak", None, "code", MACHINE)


def test_common_time_of_interleaved_runs_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The logs of a group's runs begin and end together."""
    start = datetime(2026, 12, 1, tzinfo=UTC)
    later = iter((0, 1, 2, 300))

    def last(*_: object) -> FinishedResult:
        return FinishedResult(tmp_path, start + timedelta(seconds=next(later)), {}, "code", 100.0)

    monkeypatch.setattr(scaling, "last_run", last)
    found = planned(tmp_path, counts=(2,))
    assert found.seconds(2) == pytest.approx(102)
    later = iter((0, 300, 1))
    assert found.seconds(2) == pytest.approx(201)


def test_earlier_groups_and_devices_stay_in_the_set(tmp_path: Path) -> None:
    first = planned(tmp_path, counts=(2, 4), cause="a cause")
    group = Group(2, {name: Arm(f"20261123T2200Z-ncf-pytorch-train-fp32-mini-{at:08x}", "0" * 64)
                      for at, name in enumerate(first.content.arms)})  # fmt: skip
    write_set(first.folder, first.content.with_group(group))
    again = stored_set(planned(tmp_path, counts=(8,)))
    assert again == replace(first.content, devices=(2, 4, 8), groups=(group,))
    write_set(first.folder, again)
    assert read_set(first.folder)["devices"] == [2, 4, 8]
    (first.folder / "set.json").write_text("{}")
    with pytest.raises(StorageProblem, match="remove the folder"):
        stored_set(first)
