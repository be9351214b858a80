"""Training steps without an update are accepted, with losses and gradient norms, and change no weight."""

from __future__ import annotations

from pathlib import Path

import pytest

from suite.log.reader import read_result
from tests.end_to_end.command import ROOT, run


@pytest.mark.parametrize(("workload", "framework"), [("ncf", "pytorch"), ("lstm_ptb", "jax")])
def test_steps_without_an_update_are_accepted(workload: str, framework: str, tmp_path: Path) -> None:
    options = ("scenario=forward_backward", "framework.threads=1", "repeats=1")
    done = run(tmp_path, *options, workload=workload, framework=framework)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert f", {framework}, train forward_backward, fp32" in done.stdout.replace("\n", " ")
    record = read_result(ROOT / done.stdout.strip().splitlines()[-1].removeprefix("result: "))
    for name in ("loss", "grad_norm"):
        assert None not in record.repeats[0].column(name)
    assert len(set(record.all("rank_end")[0]["parameters"].values())) == 1
