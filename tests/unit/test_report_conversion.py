"""Tables and figures of a conversion."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from suite.compare.result_row import checked_rows
from suite.figures.results import METRICS
from suite.log.model import Record
from suite.log.reader import read_result
from suite.metrics.run import metrics_of, title
from suite.report.explanation import explain_speed
from suite.report.markdown import to_markdown
from suite.report.summary import tables_of
from suite.report.table import print_table
from tests.fixtures.forged import Forged
from tests.fixtures.forged_storage import CONVERSION
from tests.fixtures.forging import Events
from tests.fixtures.good_log import write_good
from tests.fixtures.good_run import IMAGE_BYTES, SHARD_BYTES


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """An honest conversion, to RecordIO."""
    return read_result(write_good(tmp_path, CONVERSION))


def shown(record: Record) -> str:
    out = io.StringIO()
    print_table(record, Console(file=out, width=200))
    return out.getvalue()


def test_bytes_are_counted_in_the_windows_of_all_repeats(record: Record) -> None:
    found = metrics_of(record)
    windows = sum(repeat.window_ns or 0 for repeat in record.repeats) / 1e9
    for name, each in (("files_read", 20 * IMAGE_BYTES), ("shards_written", SHARD_BYTES)):
        assert found[f"{name}_bytes"].value == 100 * each
        assert found[f"{name}_mb_per_s"].value == pytest.approx(5 * 100 * each / 1e6 / windows)
        assert found[f"{name}_mb_per_s"].unit == "MB/s"
    assert found["throughput_per_s"].unit == "images/s"
    assert "loss_first" not in found
    assert found["step_p50_ms"].value is None
    assert "in parallel" in found["step_p50_ms"].reason


def test_table_shows_storage_format_reads_and_writes(record: Record) -> None:
    text = shown(record)
    assert "conversion to recordio" in title(record)
    assert "files read" in text
    assert "shards written" in text
    read = metrics_of(record)["files_read_mb_per_s"].value
    assert f"{read:,.4g} MB/s read" in explain_speed(record)


def test_missing_byte_counts_have_a_reason(tmp_path: Path) -> None:
    def without(events: Events) -> None:
        for event in events[1:]:
            event["data"].pop("conversion", None)

    forged = read_result(Forged("FORM-003", without, CONVERSION).make(tmp_path))
    figure = metrics_of(forged)["files_read_mb_per_s"]
    assert (figure.value, figure.reason) == (None, "the log has no number of bytes for a repeat")
    assert "null (the log has no number" in shown(forged)


def test_summary_and_plot_show_conversion_metrics(record: Record, tmp_path: Path) -> None:
    (table,) = tables_of(checked_rows([tmp_path]))
    cells = table.cells(table.rows[0])
    assert (table.mode, cells["storage"], cells["images_per_shard"]) == ("conversion", "recordio", 20)
    assert not {"phase", "precision", "variant"} & set(table.cells(table.rows[0]))
    shown = to_markdown([table])
    assert "## practice division, conversions" in shown
    assert "resnet50 mini warm to recordio 20 images a shard" in shown
    assert "MB/s" in shown
    for metric in ("files_read", "shards_written"):
        assert cells[METRICS[metric].name] > 0
