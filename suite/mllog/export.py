"""A result as ``:::MLLOG`` lines: one file per repeat, since a run in MLPerf is a repeat here.

The keys, their order and the six fields of a line are those that ``mlperf_logging.mllog`` writes and its
parser reads. ``metadata`` names the source line in run.jsonl as ``file`` and ``lineno``. The translation is
for tools and is no submission to MLPerf: no rule of MLPerf was applied (docs/mllog.md).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from suite.checker import check_result
from suite.log.files import LOG, folder_of, read_in
from suite.log.finding import RecordError
from suite.log.model import Event, Record, Repeat
from suite.log.safe import safe
from suite.metrics.machine import devices
from suite.mllog.events import END, POINT, START
from suite.submissions import system
from suite.submissions.registry.withdrawals import withdrawal_of

NOTICE = "Translated from a dl-benchmark-suite log. Not a submission to MLPerf, and not an MLPerf result."
_BENCHMARKS = {
    "gnmt": "gnmt",
    "ncf": "ncf",
    "resnet50": "resnet",
}  # workloads that MLPerf has, with its names
_STATUSES = {
    "available_cloud": "cloud", "available_on_premise": "onprem", "preview": "preview", "rdi": "research",
}  # fmt: skip
_HYPER = {
    "rate": "opt_base_learning_rate", "weight_decay": "opt_weight_decay", "momentum": "opt_momentum",
    "warmup_steps": "opt_learning_rate_warmup_steps", "clip": "opt_gradient_clip_norm",
    "beta1": "opt_adam_beta_1", "beta2": "opt_adam_beta_2", "epsilon": "opt_adam_epsilon",
}  # fmt: skip
SYSTEM = "system.json"
_NUMBER = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,15})?(?:[eE][+-]?[0-9]{1,2})?")
_NO_SYSTEM = "the result has no system.json: `make submit` writes it"
_NOT_COUNTED = "the log contains the digest of the dataset, not its number of samples"
_NO_TARGET = "a window of steps was timed, without a quality target"
_PERCENT = ("bleu",)  # MLPerf's logs contain the fraction since v0.7


def export(path: Path) -> dict[str, Any]:
    """The verdict on the result in ``path``, and under "mllog" the lines of each repeat.

    "mllog" is null where the result is rejected, withdrawn or has no score; ``why_not`` states the reason.
    """
    verdict = check_result(path)
    value = verdict.as_dict()
    record = verdict.record
    folder = folder_of(path)
    if (withdrawal := withdrawal_of(folder, verdict.digest)) is not None:
        return value | {"mllog": None, "withdrawn": True, "why_not": f"the result is {withdrawal}"}
    if not verdict.accepted or record is None:
        return value | {"mllog": None, "why_not": "the result is rejected"}
    if not verdict.scored:
        return value | {"mllog": None, "why_not": "the result has no score"}
    if not record.computes:
        return value | {"mllog": None, "why_not": f"the result is a {record.kind}, and MLPerf has none"}
    description: dict[str, Any] = {}
    if SYSTEM in record.files:
        try:
            description = _read_description(folder)
        except (system.SystemProblem, RecordError) as error:
            return value | {"mllog": None, "why_not": f"its {SYSTEM} cannot be read ({safe(error)})"}
    return value | {"mllog": [list(lines(record, repeat, description)) for repeat in record.repeats]}


def _read_description(folder: Path) -> dict[str, Any]:
    """The system description beside a log; SystemProblem or RecordError unless it is complete."""
    description = system.parse(read_in(folder, SYSTEM, system.MAX_BYTES))
    for defect in system.defects(description):
        raise system.SystemProblem(str(defect))
    return description


def lines(record: Record, repeat: Repeat, description: Mapping[str, Any]) -> Iterator[str]:
    """The lines of one completed repeat; ``description`` is its system.json, empty without one."""
    writer = _Writer(record, repeat)
    yield from writer.submission(description)
    yield from writer.start()
    yield from writer.evaluations() if record.mode == "quality" else writer.steps()
    yield from writer.stop()


class _Writer:
    """The parts of one repeat's log. Times: the wall clock at its start, plus monotonic time from there."""

    def __init__(self, record: Record, repeat: Repeat) -> None:
        self.record, self.repeat = record, repeat
        self.first, self.last, clock = repeat.start, repeat.end, repeat.clocks[0]
        assert self.first is not None and self.last is not None  # noqa: PT018 - of a completed repeat
        self.window = self.last["window"]
        seconds, nanoseconds = clock["realtime"]
        self.origin_ns = seconds * 1_000_000_000 + nanoseconds - clock.mono_ns

    def line(self, kind: str, at_ns: int, key: str, value: Any, source: Event, **metadata: Any) -> str:
        """One line; ``at_ns`` is nanoseconds from the run's first event, as in our log."""
        event = {
            "namespace": "",
            "time_ms": (self.origin_ns + at_ns) // 1_000_000,
            "event_type": kind,
            "key": key,
            "value": value,
            "metadata": {"file": LOG, "lineno": source.line, **metadata},
        }
        # Parsers search for the last token of a line, so no text inside may contain one.
        return ":::MLLOG " + json.dumps(event, allow_nan=False).replace(":::", "\\u003a::")

    def submission(self, description: Mapping[str, Any]) -> Iterator[str]:
        """The submission_ lines. The division is always open: MLPerf's closed rules were not applied."""
        header, at = self.record.header, self._start_ns()
        key = self.record.key
        result = {
            "notice": NOTICE,
            "run_id": self.record.run_id,
            "sha256": self.record.digest,
            "rules": header["rules"]["version"],
            "division": self.record.division,
            "mode": self.record.mode,
            "repeat": self.repeat.index,
            **{name: getattr(key, name) for name in ("workload", "framework", "phase", "precision", "scale")},
        }
        submission = {
            "org": description.get("submitter"),
            "status": _STATUSES.get(str(description.get("status"))),
            "platform": description.get("system_name"),
        }
        yield self.line(POINT, at, "suite_result", result, header)
        benchmark = _BENCHMARKS.get(key.workload, key.workload)
        yield self.line(POINT, at, "submission_benchmark", benchmark, header)
        yield self.line(POINT, at, "submission_division", "open", header, suite_division=self.record.division)
        for name, value in submission.items():
            why = {} if value is not None else {"reason": _NO_SYSTEM}
            yield self.line(POINT, at, f"submission_{name}", value, header, **why)

    def start(self) -> Iterator[str]:
        """Initialisation, with the settings; it includes compilation, soak and warm-up steps."""
        first, header, at = self._first(), self.record.header, self._start_ns()
        key = self.record.key
        evicted = first["evicted_bytes"]
        metadata = (
            {"evicted_bytes": evicted}
            if evicted is not None
            else {"reason": first["reasons"]["evicted_bytes"]}
        )
        yield self.line(POINT, at, "cache_clear", evicted is not None, first, **metadata)
        yield self.line(START, at, "init_start", None, first)
        yield self.line(POINT, at, "seed", int(first["seed"], 16), first)
        batch = key.batch * key.devices
        yield self.line(POINT, at, "global_batch_size", batch, header)
        yield self.line(POINT, at, "gradient_accumulation_steps", 1, header)
        for name in ("train_samples", "eval_samples"):
            yield self.line(POINT, at, name, None, header, reason=_NOT_COUNTED)
        yield self.line(POINT, at, "accelerators_per_node", len(devices(self.record)), header)
        for name, text in sorted(header["hyper"].items()):
            yield self.line(POINT, at, _HYPER.get(name, f"suite_{name}"), _value(text), header, text=text)
        opened = self.window["open_ns"]
        yield self.line(END, opened, "init_stop", None, self._last())
        yield self.line(START, opened, "run_start", None, self._last(), mono_ns=opened)

    def steps(self) -> Iterator[str]:
        """The measurement window as one block; each measured step at its timestamp, with a training loss."""
        opened, closed = self.window["open_ns"], self.window["close_ns"]
        samples = self.record.key.batch * self.record.key.devices
        ranks = self.repeat.ranks
        steps = sorted((e for rank in ranks for e in self.repeat.steps_of(rank, "measured")), key=_step_order)
        first = steps[0]["step"]
        count = len(self.repeat.steps_of(ranks[0], "measured"))
        last = self._last()
        yield self.line(
            START, opened, "block_start", None, last, samples_count=0, first_step=first, step_count=count
        )
        for event in steps:
            value: dict[str, Any] = {"units": event["units"]}
            if event["loss"] is not None:
                value["loss"] = float.fromhex(event["loss"])
            at = min(opened + event["step_end_ns"], closed)
            done = (event["step"] - first + 1) * samples
            progress = {"step": event["step"], "rank": event["rank"], "samples_count": done}
            yield self.line(
                POINT, at, "tracked_stats", value, event, **progress, step_end_ns=event["step_end_ns"]
            )
        yield self.line(
            END, closed, "block_stop", None, last, samples_count=count * samples, first_step=first
        )

    def evaluations(self) -> Iterator[str]:
        """One block per evaluation, from the last one's end to its own: our log contains only these ends."""
        at, epoch = self.window["open_ns"], 0
        for event in self.repeat.evaluations:
            block = {"first_epoch_num": epoch + 1, "epoch_count": event["epoch"] - epoch}
            yield self.line(START, at, "block_start", None, event, **block)
            at, epoch = self.window["open_ns"] + event["elapsed_ns"], event["epoch"]
            value = float.fromhex(event["value"])
            metric = event["metric"]
            metadata = {
                "epoch_num": epoch,
                "step": event["step"],
                "metric": metric,
                "target": event["target"],
            }
            shown = value / 100 if metric in _PERCENT else value
            yield self.line(POINT, at, "eval_accuracy", shown, event, **metadata, suite_value=value)
            yield self.line(END, at, "block_stop", None, event, **block)

    def stop(self) -> Iterator[str]:
        """The end: ``success`` as in MLPerf, a reached target. A window of steps has no target."""
        reached = any(event["reached"] for event in self.repeat.evaluations)
        metadata: dict[str, Any] = {
            "status": "success" if reached else "aborted",
            "window_ns": self.window["ns"],
        }
        if self.record.mode != "quality":
            metadata |= {"reason": _NO_TARGET, "units": self.repeat.units}
        closed = self.window["close_ns"]
        yield self.line(END, closed, "run_stop", None, self._last(), **metadata, mono_ns=closed)

    def _start_ns(self) -> int:
        return self._first().mono_ns

    def _first(self) -> Event:
        assert self.first is not None
        return self.first

    def _last(self) -> Event:
        assert self.last is not None
        return self.last


def _step_order(event: Event) -> tuple[int, int]:
    return int(event["step_end_ns"]), int(event["rank"])


def _value(text: str) -> int | float | str:
    """A hyperparameter as a number where its text is a number."""
    if not _NUMBER.fullmatch(text):
        return text
    return int(text) if text.lstrip("-").isdigit() else float(text)
