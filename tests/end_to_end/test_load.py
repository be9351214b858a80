"""A load of two ranks is accepted, and counts the bytes of both."""

from __future__ import annotations

from pathlib import Path

from suite.log.reader import read_result
from tests.end_to_end.command import ROOT, run


def test_load_on_two_ranks_is_accepted(tmp_path: Path) -> None:
    options = ("phase=load", "devices=2", "repeats=1", "framework.threads=1")
    done = run(tmp_path, *options, workload="resnet50", framework="pytorch")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    record = read_result(ROOT / done.stdout.strip().splitlines()[-1].removeprefix("result: "))
    assert (record.kind, record.key.phase, record.key.devices) == ("load", "load", 2)
    for repeat in record.repeats:
        assert repeat.end is not None
        batches, delivered = repeat.column("batch_digest"), repeat.column("bytes_out")
        assert len(set(batches)) == 220
        assert set(delivered) == {16 * (64 * 64 * 3 + 4)}
        assert repeat.end["load"]["bytes_out"] == 200 * delivered[0]
        assert min(repeat.column("bytes_in")) > 16 * 500
    assert {report["input_wait_ns"] for report in record.all("rank_end")} == {None}
    assert "delivered" in done.stdout
