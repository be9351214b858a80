"""What is derived from the log of a run on several nodes counts the devices of all nodes."""

from __future__ import annotations

from pathlib import Path

from suite.audit.systems import energy_per_step
from suite.compare.comparable import compared_metrics
from suite.log.model import Record
from suite.log.reader import read_result
from suite.metrics.machine import machine_facts
from tests.fixtures.forged_ranks import TWO_GPU_NODES, TWO_GPUS
from tests.fixtures.good_log import Good, write_good


def record(folder: Path, good: Good) -> Record:
    return read_result(write_good(folder, good))


def test_two_devices_have_the_same_energy_on_one_node_and_on_two(tmp_path: Path) -> None:
    one, two = (record(tmp_path / str(at), good) for at, good in enumerate((TWO_GPUS, TWO_GPU_NODES)))
    assert energy_per_step(one, 0)[0] == energy_per_step(two, 0)[0] is not None
    energy = [compared_metrics(each)["energy"] for each in (one, two)]
    assert energy[0] == energy[1]
    described = [machine_facts(each)[0] for each in (one, two)]
    shapes = [(each["number_of_nodes"], each["accelerators_per_node"]) for each in described]
    assert shapes == [(1, 2), (2, 1)]
