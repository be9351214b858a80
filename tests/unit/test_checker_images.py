"""The rules of images against hostile headers and attestations: claims are compared, no value raises."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from suite.checker import check_header, check_result
from suite.checker.context import RULE_FUNCTIONS, Context
from suite.checker.images import _same_limit
from suite.log.model import Event, Record
from suite.log.reader import read_result
from tests.fixtures.forged import put
from tests.fixtures.forging import rewrite
from tests.fixtures.good_container import Container, rules_of
from tests.fixtures.good_log import Good, header_of, write_good

ODD: tuple[Any, ...] = (
    None, True, 0, 1, 2**53 - 1, "", "x", "../../lock", "0-999999999", "1e9999", "sha256:" + "e" * 64,
    "e" * 64, "linux/arm64", "base", [], {},
    ["sha256:" + "e" * 64], {"workload": None}, [[]], {"a": {"b": []}},
)  # fmt: skip


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of everything inside nested mappings, mappings included."""
    for name, inner in value.items():
        yield (*path, name)
        if isinstance(inner, dict):
            yield from leaves(inner, (*path, name))


def replaced(data: Any, path: tuple[str, ...], value: Any) -> Any:
    made = copy.deepcopy(data)
    parent = made
    for name in path[:-1]:
        parent = parent[name]
    parent[path[-1]] = value
    return made


def new_rules(record: Record, good: Good) -> set[str]:
    """The rules of images and custom code that the record breaks; an exception is a fault of the checker."""
    context = Context(record.header.data, rules_of(good.version), record)
    chosen = [
        one for name, one in RULE_FUNCTIONS.items() if name.startswith(("IMG-", "DIV-", "ENV-001", "ID-002"))
    ]
    return {one.id for one in chosen for _ in one.check(context)}


def with_event(record: Record, old: Event, data: Any) -> Record:
    """The record with the data of one event replaced."""
    new = replace(old, data=data)
    swap = tuple(new if event is old else event for event in record.events)
    repeats = tuple(
        replace(repeat, events=tuple(new if event is old else event for event in repeat.events))
        for repeat in record.repeats
    )
    return replace(record, events=swap, repeats=repeats, header=swap[0])


@pytest.mark.parametrize(
    "container",
    [
        Container(),
        Container(image_kind="base", runtime="enroot", worth="file"),
        Container(limits={"cpus": "2"}),
    ],
    ids=["engine", "file", "limits"],
)
def test_checker_survives_every_value_that_the_schemas_allow(container: Container, tmp_path: Path) -> None:
    good = Good(container=container)
    record, schemas = read_result(write_good(tmp_path, good)), rules_of(good.version).schemas
    check_header(header_of(good), rules_of(good.version))  # the rule functions are imported when first needed
    assert new_rules(record, good) == set()
    header = record.header
    outside, inside = (record.repeats[1].env(side) for side in ("outside", "inside"))
    assert outside is not None
    assert inside is not None
    locations = [(header, "header", ("image", *path)) for path in leaves(header["image"])]
    locations += [
        (header, "header", ("settings", n)) for n in ("cpus", "memory_bytes", "custom_pair", "changes_digest")
    ]
    locations += [(outside, "env", ("facts", "container"))]
    locations += [
        (outside, "env", ("facts", "container", *path)) for path in leaves(outside["facts"]["container"])
    ]
    locations += [(inside, "env", ("facts", "image_label"))]
    tried = 0
    for event, schema, path in locations:
        for value in ODD:
            data = replaced(event.data, path, value)
            if schemas.valid(schema, data):
                tried += 1
                found = new_rules(with_event(record, event, data), good)
                assert isinstance(found, set)
    assert tried > 150


@pytest.mark.parametrize(
    ("name", "asked", "found", "same"),
    [
        ("cpus", "2", "2.0", True),
        ("cpus", "1.5", "1.50", True),
        ("cpus", "2", "1", False),
        ("cpus", "2", None, False),
        ("cpus", None, "2", False),
        ("cpus", None, None, True),
        ("cpuset", "0-1", "0-1", True),
        ("cpuset", "0-1", "0", False),
        ("memory_bytes", 8 << 30, 8 << 30, True),
        ("memory_bytes", 100_000_000, 99_999_744, True),  # whole pages
        ("memory_bytes", 8 << 30, 9 << 30, False),
        ("memory_bytes", 8 << 30, (8 << 30) + 1, False),
        ("memory_bytes", "8g", 8 << 30, False),
    ],
)
def test_limit_in_force_is_compared_with_the_limit_set(name: str, asked: Any, found: Any, same: bool) -> None:
    assert _same_limit(name, asked, found) is same


@pytest.mark.parametrize(
    "options",
    [
        *(("cpus=2", "memory=8g"), ("cpus=2.0", "memory=8GiB"), ("cpus=2e0", "memory=8_589_934_592")),
        *(("cpuset=[0,1]",), ("cpuset=1-1,0",), ("cpuset='0-1'",), (r"cpuset=0\,1",), ('cpuset=["0", 1]',)),
        *(("memory=+8589934592",), ("memory=8589934.592e3",), ("shm_size=auto",), ("shm_size=1024m",)),
    ],
)
def test_limits_of_the_command_line_agree_with_the_settings(options: tuple[str, ...], tmp_path: Path) -> None:
    limits = {"cpus": "2", "cpuset": "0-1", "memory_bytes": 8 << 30, "shm_bytes": 1 << 30}
    folder = write_good(tmp_path, Good(container=Container(limits=limits)))
    rewrite(folder, put("header", "overrides", [f"runtime.{option}" for option in options]))
    assert check_result(folder, rules_of).findings == ()


def test_header_alone_breaks_most_image_rules_before_the_run() -> None:
    """What is wrong with an image is refused before anything runs: only what is attested comes after."""
    good = Good(container=Container())
    rules = rules_of("practice")
    for change, rule in (
        ({"diff_ids": ["sha256:" + "e" * 64]}, "IMG-005"),
        ({"code_digest": "e" * 64}, "IMG-006"),
        ({"lock": "seen"}, "IMG-009"),
        ({"index_digest": "sha256:" + "e" * 64}, "IMG-010"),
        ({"lock": None}, "IMG-001"),
    ):
        header = header_of(good)
        header["image"] = {**header["image"], **change}
        assert rule in {finding.rule for finding in check_header(header, rules)}


def test_platform_missing_in_the_lock_is_refused() -> None:
    header = header_of(Good(container=Container()))
    header["image"]["platform"] = "linux/arm64"
    found = {finding.rule for finding in check_header(header, rules_of("practice"))}
    assert {"IMG-001", "IMG-006"} <= found


def test_lock_is_never_read_by_a_path_from_a_log() -> None:
    header = header_of(Good(container=Container()))
    for name in ("../imagined", "imagined.json", "pairs/x", ""):
        header["image"]["lock"] = name
        found = check_header(header, rules_of("practice"))
        assert {finding.rule for finding in found} & {"LOG-014", "IMG-001"}
