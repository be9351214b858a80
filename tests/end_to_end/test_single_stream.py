"""Single-stream runs with real and synthetic data are accepted and report latency percentiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from suite.log.model import Record
from suite.log.reader import read_result
from tests.end_to_end.command import ROOT, run


@pytest.mark.parametrize(
    ("workload", "framework", "data"),
    [("alexnet", "pytorch", "real"), ("word2vec", "mxnet", "real"), ("lstm_ptb", "mxnet", "synthetic")],
)
def test_single_stream_is_accepted(workload: str, framework: str, data: str, tmp_path: Path) -> None:
    options = ("phase=infer", "scenario=single_stream", f"data={data}", "framework.threads=1", "repeats=1")
    done = run(tmp_path, *options, workload=workload, framework=framework)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "step time      p50" in done.stdout
    assert "(of 100 steps" in done.stdout
    record = read_result(ROOT / done.stdout.strip().splitlines()[-1].removeprefix("result: "))
    assert record.header["key"]["batch"] == 1
    assert batches(record) == (110 if data == "real" else 1)
    input_waits = [report["input_wait_ns"] for report in record.all("rank_end")]
    assert len(input_waits) == 1
    assert all(input_waits) if data == "real" else not any(input_waits)


def batches(record: Record) -> int:
    """The number of different batches in the steps of the first repeat."""
    return len({step["batch_digest"] for step in record.repeats[0].steps})
