"""The system description: taken from the log, completed by a person, never guessed."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from suite.cli.submit import ask
from suite.log.model import Event, Record
from suite.metrics.machine import machine_facts
from suite.submissions import system
from suite.submissions.plausible import implausible
from tests.fixtures.report_records import throughput_record

MLPERF_NAMES = [
    "submitter",
    "division",
    "status",
    "system_name",
    "number_of_nodes",
    "host_processors_per_node",
    "host_processor_model_name",
    "host_processor_core_count",
    "host_processor_vcpu_count",
    "host_processor_frequency",
    "host_processor_caches",
    "host_processor_interconnect",
    "host_memory_capacity",
    "host_memory_configuration",
    "host_storage_type",
    "host_storage_capacity",
    "host_networking",
    "host_networking_topology",
    "accelerators_per_node",
    "accelerator_model_name",
    "accelerator_host_interconnect",
    "accelerator_frequency",
    "accelerator_on-chip_memories",
    "accelerator_memory_configuration",
    "accelerator_memory_capacity",
    "accelerator_interconnect",
    "accelerator_interconnect_topology",
    "cooling",
    "hw_notes",
    "framework",
    "other_software_stack",
    "operating_system",
    "sw_notes",
]
STATED: dict[str, Any] = {
    "status": "available_on_premise",
    "system_name": "Example Box 1",
    "host_processor_caches": "L3 32 MiB",
    "host_processor_interconnect": "none",
    "host_memory_configuration": "8 x 32 GB DDR5",
    "host_storage_type": "NVMe SSD",
    "host_storage_capacity": 3_840_000_000_000,
    "host_networking": "none",
    "host_networking_topology": "none",
    "cooling": "air",
    "hw_notes": "none",
    "sw_notes": "none",
}
OF_ACCELERATOR = {
    "accelerator_on-chip_memories": "L2 50 MB",
    "accelerator_memory_configuration": "HBM3e",
    "accelerator_interconnect_topology": "NVSwitch, all to all",
    "compat_driver": "none",
}


# What a person states where the log has no facts of processor, memory and accelerators.
OF_MACHINE: dict[str, Any] = {
    "host_processors_per_node": 1,
    "host_processor_model_name": "Example CPU",
    "host_processor_core_count": 32,
    "host_processor_vcpu_count": 64,
    "host_processor_frequency": 2100,
    "host_memory_capacity": 2**38,
    "host_driver": "580.1",
    "accelerators_per_node": 2,
    "accelerator_model_name": "NVIDIA H200",
    "accelerator_host_interconnect": "PCIe 5.0 x16",
    "accelerator_frequency": 1980,
    "accelerator_memory_capacity": 150_754_820_096,
    "accelerator_interconnect": "none",
    "accelerator_clocks": {"compute_max_mhz": 1980, "memory_max_mhz": 3201, "offsets": "none"},
    "accelerator_ecc": "enabled",
    "accelerator_power_limit": 700_000,
}


def test_schema_requires_the_33_names_of_mlperf() -> None:
    assert len(MLPERF_NAMES) == 33
    assert set(MLPERF_NAMES) <= set(system.schema()["required"])
    assert set(system.schema()["required"]) == set(system.names())


def test_every_field_has_a_meaning() -> None:
    assert all(len(system.meaning(name)) > 10 for name in system.names())


def test_person_states_only_facts_missing_from_log() -> None:
    with pytest.raises(system.MissingFacts) as caught:
        system.describe(throughput_record(), "example", {})
    assert set(caught.value.names) == set(STATED)
    with pytest.raises(system.MissingFacts) as caught:
        system.describe(throughput_record(gpus=1), "example", STATED)
    assert set(caught.value.names) == set(OF_ACCELERATOR)


def test_complete_description_is_valid_and_decoded_from_its_bytes() -> None:
    for record, stated in (
        (throughput_record(), STATED),
        (throughput_record(gpus=4), STATED | OF_ACCELERATOR),
    ):
        made = system.describe(record, "example", stated)
        assert system.defects(made) == []
        assert system.parse(system.encode(made)) == made
        assert tuple(made) == system.names()


def test_accelerator_facts_without_accelerator_are_null_with_a_reason() -> None:
    made = system.describe(throughput_record(), "example", STATED)
    assert made["accelerators_per_node"] == 0
    for name in ("accelerator_model_name", "accelerator_power_limit", "host_driver", "accelerator_clocks"):
        assert made[name] is None
        assert made["reasons"][name] == "the run used no accelerator"
    assert "container" in made["reasons"]["container_digest"]


def test_machine_facts_of_the_log_are_typed() -> None:
    known, reasons = machine_facts(throughput_record(gpus=4))
    assert known["host_processor_core_count"] == 32
    assert known["host_processor_frequency"] == 3500
    assert known["accelerators_per_node"] == 4
    assert known["accelerator_clocks"] == {"compute_max_mhz": 1980, "memory_max_mhz": 3201, "offsets": "none"}
    assert known["accelerator_ecc"] == "enabled"
    assert known["framework"] == "pytorch 2.13.0"
    assert known["other_software_stack"] == {"python": "3.11.7", "numpy": "2.3.1", "libc": "glibc 2.36"}
    assert set(reasons) == {"container_digest"}


def without_facts(record: Record, *names: str) -> Record:
    """The record of a run that could read none of these facts of the machine."""

    def blind(event: Event) -> Event:
        if event.data.get("side") != "outside":
            return event
        return replace(event, data={**event.data, "facts": event.data["facts"] | dict.fromkeys(names)})

    events = tuple(map(blind, record.repeats[0].events))
    return replace(record, repeats=(replace(record.repeats[0], events=events),))


def test_unreadable_accelerator_is_not_described_as_absent() -> None:
    blinded = without_facts(throughput_record((10,)), "accelerators")
    known, reasons = machine_facts(blinded)
    assert "accelerators_per_node" not in known
    assert set(reasons) == {"container_digest"}
    made = system.describe(blinded, "example", {**STATED, "accelerators_per_node": 0})
    assert made["reasons"]["accelerator_ecc"] == "no accelerator, as stated"


def test_statement_that_contradicts_the_log_is_refused() -> None:
    with pytest.raises(system.SystemProblem, match=r"host_memory_capacity: expected [0-9]+ as in the log"):
        system.describe(throughput_record(), "example", {**STATED, "host_memory_capacity": 1})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("status", "onprem"),
        ("system_name", ""),
        ("system_name", " padded "),
        ("system_name", "line\n"),
        ("cooling", "\x1b[31m"),
        ("host_storage_capacity", "3.84 TB"),
        ("host_storage_capacity", 0),
        ("host_storage_capacity", True),
        ("cooling", None),
        ("submitter", "Example Inc."),
        ("accelerator_model_name", "invented"),
        ("reasons", {}),
        ("other_software_stack", {}),
        ("other_software_stack", {"nccl": "2.20\n"}),
        ("extra", "field"),
    ],
)
def test_invalid_field_is_a_defect(name: str, value: Any) -> None:
    made = system.describe(throughput_record(), "example", STATED)
    assert system.defects({**made, name: value})


def test_every_missing_name_is_a_defect() -> None:
    made = system.describe(throughput_record(), "example", STATED)
    for name in system.names():
        rest = {key: value for key, value in made.items() if key != name}
        assert any(name in fault.found for fault in system.defects(rest)), name


def test_null_requires_a_reason() -> None:
    made = system.describe(throughput_record(), "example", STATED)
    more = {**made, "reasons": {**made["reasons"], "cooling": "unknown"}}
    assert [fault.field for fault in system.defects(more)] == ["reasons.cooling"]
    fewer = {**made, "reasons": {k: v for k, v in made["reasons"].items() if k != "host_driver"}}
    assert [fault.field for fault in system.defects(fewer)] == ["host_driver"]


@pytest.fixture(scope="module")
def blinded() -> Record:
    """The record of a run on two GPUs, 1 GB of data and 4 GiB of memory that states nothing else of them."""
    record = without_facts(throughput_record((10,), gpus=2), "accelerators", "cpu", "memory")

    def used(event: Event) -> Event:
        data = dict(event.data)
        if event.kind == "rank_end":
            data["memory"] = data["memory"] | {"peak_rss_bytes": 2**32}
        elif data.get("side") == "inside":
            data["facts"] = {**data["facts"], "framework": data["facts"]["framework"] | {"device": "cuda"}}
        return replace(event, data=data)

    header = dict(record.header.data)
    header |= {"dataset": {"bytes": 10**9}, "key": {**header["key"], "devices": 2}}
    repeat = replace(record.repeats[0], events=tuple(map(used, record.repeats[0].events)))
    return replace(record, header=replace(record.header, data=header), repeats=(repeat,))


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("host_memory_capacity", 7, "at least 1073741824 (memory of one node in bytes)"),
        ("host_memory_capacity", 2 * 2**30, "at least 4294967296, which the run used"),
        ("host_storage_capacity", 3840, "at least 100000000 ("),
        ("host_storage_capacity", 10**9 - 1, "at least 1000000000, which the run used"),
        ("host_processor_frequency", 3, "at least 100 (highest clock of the processor in MHz)"),
        ("accelerator_frequency", 1, "at least 100 ("),
        ("accelerator_memory_capacity", 141, "at least 1073741824 ("),
        ("accelerator_power_limit", 700, "at least 1000 ("),
        ("accelerator_clocks", OF_MACHINE["accelerator_clocks"] | {"memory_max_mhz": 3}, "at least 100 ("),
        ("accelerators_per_node", 1, "at least 2, which the run used"),
        ("system_name", "1x H200", "at least 2x H200, as accelerators_per_node"),
        ("system_name", "Unknown", "name of the system"),
        ("host_processor_model_name", "none", "processor model"),
        ("cooling", "TODO", "cooling, such as"),
        ("hw_notes", "...", "what else matters"),
        ("sw_notes", "tbd: ask", "what else matters"),
        ("cooling", system.meaning("cooling"), "cooling, such as"),
    ],
)
def test_what_cannot_be_true_is_named_with_what_was_expected(
    blinded: Record, name: str, value: Any, expected: str
) -> None:
    stated = {**STATED, **OF_ACCELERATOR, **OF_MACHINE}
    assert list(implausible(blinded, system.describe(blinded, "example", stated))) == []
    (fault,) = implausible(blinded, {**system.describe(blinded, "example", stated), name: value})
    assert fault.field.partition(".")[0] == name
    assert fault.expected.startswith(expected)
    assert str(fault).startswith(f"{fault.field}: expected {expected}")


def test_facts_of_the_log_are_taken_as_they_are() -> None:
    """Nobody could correct them: the result would be impossible to submit."""
    record = throughput_record(gpus=1)
    described = system.describe(record, "example", STATED | OF_ACCELERATOR)
    odd = {"memory": {"total_bytes": 7}, "cpu": {"model": "none"}}
    facts = tuple(
        replace(event, data={**event.data, "facts": event.data["facts"] | odd})
        if event.data.get("side") == "outside"
        else event
        for event in record.repeats[0].events
    )
    changed = replace(record, repeats=(replace(record.repeats[0], events=facts),))
    described |= {"host_memory_capacity": 7, "host_processor_model_name": "none"}
    assert list(implausible(changed, described)) == []


def test_clocks_as_in_the_template_are_not_filled_in(blinded: Record) -> None:
    clocks = tomllib.loads(system.template(["accelerator_clocks"]))
    stated = {**STATED, **OF_ACCELERATOR, **OF_MACHINE}
    with pytest.raises(system.SystemProblem, match="found none yet for accelerator_clocks"):
        system.describe(blinded, "example", stated | clocks)
    clocks["accelerator_clocks"]["compute_max_mhz"] = 1980
    with pytest.raises(system.SystemProblem, match="accelerator_clocks: expected a table such as "):
        system.describe(blinded, "example", stated | clocks)


@pytest.mark.parametrize(
    ("name", "value"), [("host_processor_core_count", -3), ("accelerators_per_node", -1)]
)
def test_negative_numbers_are_explained(blinded: Record, name: str, value: int) -> None:
    stated = {**STATED, **OF_ACCELERATOR, **OF_MACHINE, name: value}
    with pytest.raises(system.SystemProblem, match=rf"{name}: expected at least [01], found {value}"):
        system.describe(blinded, "example", stated)


@pytest.mark.parametrize(
    "content",
    [
        b'{"a": 1, "a": 2}',
        b'{"a": 1.5}',
        b'{"a": NaN}',
        b'{"a": 12345678901234567}',
        b"[]",
        b"",
        b"\xff",
        b"\xef\xbb\xbf{}",
        b"[" * 100_000,
        b'{"a": "' + b"x" * 70_000 + b'"}',
    ],
)
def test_hostile_json_is_refused_with_a_message(content: bytes) -> None:
    with pytest.raises(system.SystemProblem, match=r"system\.json: expected"):
        system.parse(content)


def test_unfilled_template_is_refused(tmp_path: Path) -> None:
    text = system.template([*STATED, *OF_ACCELERATOR])
    assert set(tomllib.loads(text)) == set(STATED) | set(OF_ACCELERATOR)
    file = tmp_path / "system.toml"
    file.write_text(text)
    with pytest.raises(system.SystemProblem, match="status"):
        system.describe(throughput_record(gpus=1), "example", system.read_statement(file))


def test_unknown_field_is_refused_with_a_hint(tmp_path: Path) -> None:
    file = tmp_path / "system.toml"
    file.write_text('coolign = "air"\n')
    with pytest.raises(system.SystemProblem, match="did you mean cooling"):
        system.read_statement(file)
    with pytest.raises(system.SystemProblem, match="`make system` writes a file to fill in"):
        system.read_statement(tmp_path / "absent.toml")
    file.write_text("not toml")
    with pytest.raises(system.SystemProblem, match="expected TOML"):
        system.read_statement(file)


def test_earlier_description_is_accepted_as_statement(tmp_path: Path) -> None:
    made = system.describe(throughput_record(), "example", STATED)
    file = tmp_path / "system.json"
    file.write_text(json.dumps(made))
    assert system.describe(throughput_record(), "example", system.read_statement(file)) == made


def test_answers_are_read_by_type() -> None:
    assert system.read_answer("host_storage_capacity", "3_840_000") == 3_840_000
    assert system.read_answer("cooling", "air") == "air"
    assert system.read_answer("other_software_stack", '{ nccl = "2.20" }') == {"nccl": "2.20"}
    for name, answer in (
        ("host_storage_capacity", "a lot"),
        ("status", "soon"),
        ("cooling", ""),
        ("hw_notes", "é"),
    ):
        with pytest.raises(system.SystemProblem, match="expected"):
            system.read_answer(name, answer)


def test_slug_has_only_lower_case_ascii() -> None:
    assert system.slug("DGX H200 (8 x)") == "dgx-h200-8-x"
    assert system.slug("../../etc") == "etc"
    assert system.slug("日本") == ""


def test_prompt_repeats_until_answer_is_valid(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = iter(["soon", "preview", "lots", "12", "512000000000", "?", "air"])
    monkeypatch.setattr("builtins.input", lambda _: next(answers))
    assert ask(["status", "host_storage_capacity", "cooling"]) == {
        "status": "preview",
        "host_storage_capacity": 512_000_000_000,
        "cooling": "air",
    }
    text = capsys.readouterr().err
    assert "available_cloud, available_on_premise, preview, rdi" in text
    assert system.meaning("host_storage_capacity") in text
    assert "host_storage_capacity: expected at least 100000000 (" in text
    assert f"cooling: expected {system.meaning('cooling')}, found '?'" in text


def test_end_of_input_at_prompt_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(_: str) -> str:
        raise EOFError

    monkeypatch.setattr("builtins.input", ended)
    with pytest.raises(system.SystemProblem, match="ended before status"):
        ask(["status"])
