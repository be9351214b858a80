"""Signals: one interruption a run, never in the middle of a line of the log."""

from __future__ import annotations

import itertools
import json
import os
import signal
import threading
from pathlib import Path

import pytest

from suite.harness.interrupts import SIGNALS, Interrupted, Interrupts
from suite.harness.log import LogWriter
from suite.log.canonical import ZERO, sha256_hex
from tests.fixtures.good_log import Good, header_of


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_interrupts_once_and_previous_handlers_are_restored(number: signal.Signals) -> None:
    before = [signal.getsignal(each) for each in SIGNALS]
    with Interrupts() as interrupts:
        interrupts.release()
        with pytest.raises(Interrupted) as caught:
            os.kill(os.getpid(), number)
        assert caught.value.number == number
        for again in SIGNALS:
            os.kill(os.getpid(), again)  # being ended already: nothing happens
    assert [signal.getsignal(each) for each in SIGNALS] == before


def test_signal_is_delayed_while_held() -> None:
    steps = []

    def nested(interrupts: Interrupts) -> None:
        with interrupts.held():
            with interrupts.held():
                os.kill(os.getpid(), signal.SIGINT)
                steps.append("inner")
            steps.append("outer")

    with Interrupts() as interrupts:
        interrupts.release()
        with pytest.raises(Interrupted):
            nested(interrupts)
    assert steps == ["inner", "outer"]


def test_signals_do_not_interrupt_before_release_or_after_stop() -> None:
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Interrupted):
            interrupts.release()
    with Interrupts() as interrupts:
        interrupts.release()
        interrupts.stop()
        os.kill(os.getpid(), signal.SIGTERM)


def test_hangup_ignored_by_nohup_stays_ignored() -> None:
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            interrupts.release()
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, previous)


def interrupted_log(results: Path, delay: float) -> Path:
    """A log that was interrupted after ``delay`` seconds of writing, with the reason in its footer."""
    header = header_of(Good())
    signaller = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
    with Interrupts() as interrupts:
        log = LogWriter(results / header["run_id"], header, interrupts.held)
        with pytest.raises(Interrupted):
            write_until_interrupted(interrupts, log, signaller)
        log.event("footer", {}, None)
        log.abandon()
    return log.partial / "run.jsonl"


def write_until_interrupted(interrupts: Interrupts, log: LogWriter, signaller: threading.Timer) -> None:
    interrupts.release()
    signaller.start()
    for number in itertools.count():
        log.event("clock", {"number": number}, 0)


def test_interruption_keeps_the_hash_chain_of_the_log_valid(tmp_path: Path) -> None:
    for trial in range(60):
        results = tmp_path / str(trial)
        lines = interrupted_log(results, 0.001 + trial * 1e-4).read_bytes().splitlines(keepends=True)
        previous = ZERO
        for number, line in enumerate(lines):
            event = json.loads(line)
            assert (event["seq"], event["prev"]) == (number, previous)
            previous = sha256_hex(line)
