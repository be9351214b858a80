"""Facts in a log are free JSON: any shape gives a valid part of a system description."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suite.log.model import Record
from suite.log.reader import read_result
from suite.metrics.machine import device_name, machine_facts
from suite.submissions import system
from tests.fixtures.good_container import Container
from tests.fixtures.good_log import Good, write_good
from tests.fixtures.report_records import INSIDE, OUTSIDE, throughput_record

RECORD = throughput_record((10,), gpus=2)
JUNK = st.sampled_from([None, [], {}, [1], {"a": 1}, "", " ", "\x1b[1m\n", "é", "x" * 301, -1, 0, 1, True])


OUTSIDE_GPUS: dict[str, Any] = {
    **OUTSIDE,
    "accelerators": RECORD.repeats[0].events[0]["facts"]["accelerators"],
}


def damaged(value: Any) -> st.SearchStrategy[Any]:
    """``value`` with any of its parts replaced."""
    if isinstance(value, dict):
        whole: st.SearchStrategy[Any] = st.fixed_dictionaries(
            {name: damaged(part) for name, part in value.items()}
        )
    elif isinstance(value, list) and value:
        whole = st.tuples(*map(damaged, value)).map(list)
    else:
        whole = st.just(value)
    return st.one_of(whole, whole, whole, JUNK)


def with_facts(record: Record, outside: Any, inside: Any) -> Record:
    facts = {"outside": outside, "inside": inside}
    repeat = record.repeats[0]
    events = tuple(
        replace(event, data={**event.data, "facts": facts[event["side"]]}) if event.kind == "env" else event
        for event in repeat.events
    )
    return replace(record, repeats=(type(repeat)(0, events),))


def test_two_devices_with_long_names_still_fit_the_schema() -> None:
    first, second = OUTSIDE_GPUS["accelerators"]["devices"]
    devices = [first, {**second, "name": "x" * 301}]
    outside = {**OUTSIDE_GPUS, "accelerators": {**OUTSIDE_GPUS["accelerators"], "devices": devices}}
    known, _ = machine_facts(with_facts(RECORD, outside, INSIDE))
    assert known["accelerator_model_name"].startswith("mixed: NVIDIA H200, xxx")
    assert "accelerator_model_name" not in {fault.field.split(".")[0] for fault in system.defects(known)}


def parts(facts: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({name: damaged(value) for name, value in facts.items()})


@settings(max_examples=60, deadline=None)
@given(outside=parts(OUTSIDE_GPUS), inside=parts(INSIDE))
def test_any_machine_facts_fit_the_schema(outside: dict[str, Any], inside: dict[str, Any]) -> None:
    record = with_facts(RECORD, outside, inside)
    known, reasons = machine_facts(record)
    assert not set(known) & set(reasons)
    assert None not in known.values()
    assert device_name(record).isprintable()
    # The facts from the log must fit the schema together with any statement.
    wrong = {fault.field.split(".")[0] for fault in system.defects(known)} & set(known)
    assert not wrong


@pytest.mark.parametrize(
    ("pinned", "field"), [(("manifest_digest",), "manifest"), (("index_digest",), "index"), ((), "")]
)
def test_container_is_described_by_the_digest_of_its_base(
    pinned: tuple[str, ...], field: str, tmp_path: Path
) -> None:
    container = Container(pinned=pinned)
    facts, reasons = machine_facts(read_result(write_good(tmp_path, Good(container=container))))
    if field:
        assert facts["container_digest"] == container.image()[0][f"{field}_digest"]
    else:
        assert "tag alone" in reasons["container_digest"]
