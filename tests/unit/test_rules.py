"""The rules as data: complete, agreeing with the specifications, and their schemas sound."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from suite.common import weights
from suite.rules import LATEST, VERSIONS, digest_of, load
from suite.rules.schemas import Schemas, schemas_for
from suite.workloads import names, specification
from tests.fixtures.forging import lines_of
from tests.fixtures.good_log import MINI, Good, reference, write_good

ROOT = Path(__file__).resolve().parents[2] / "rules"
SCHEMAS = schemas_for(LATEST)
# The keywords of the suite's schemas. Any other keyword is a misspelling: validators would ignore it.
KEYWORDS = {
    "$schema", "$id", "$ref", "$defs", "title", "description", "type", "enum", "const", "anyOf", "properties",
    "required", "additionalProperties", "propertyNames", "minProperties", "maxProperties", "items",
    "prefixItems", "minItems", "maxItems", "uniqueItems", "pattern", "minLength", "maxLength", "minimum",
    "maximum", "format", "if", "then", "else", "not", "allOf", "patternProperties",
}  # fmt: skip


def subschemas(schema: Any) -> Iterator[Mapping[str, Any]]:
    """A schema and everything inside it that is a schema."""
    if not isinstance(schema, dict):
        return
    yield schema
    for name in ("properties", "patternProperties", "$defs"):
        for inner in schema.get(name, {}).values():
            yield from subschemas(inner)
    for name in ("items", "additionalProperties", "propertyNames", "if", "then", "else", "not"):
        yield from subschemas(schema.get(name))
    for name in ("anyOf", "allOf", "prefixItems"):
        for inner in schema.get(name, []):
            yield from subschemas(inner)


@pytest.mark.parametrize("name", SCHEMAS.names)
def test_schemas_use_known_keywords(name: str) -> None:
    for schema in subschemas(SCHEMAS.schema(name)):
        assert set(schema) <= KEYWORDS
        if schema.get("type") == "object":
            assert "additionalProperties" in schema or schema == {"type": "object"}
        if schema.get("type") == "object" and "properties" in schema:
            assert set(schema.get("required", [])) <= set(schema["properties"])
        if "pattern" in schema:
            assert schema["pattern"].startswith("^")
            assert schema["pattern"].endswith("$")
            assert "maxLength" in schema


@pytest.mark.parametrize("name", SCHEMAS.names)
def test_schemas_are_valid_and_refer_only_to_common(name: str) -> None:
    from jsonschema import Draft202012Validator

    Draft202012Validator.check_schema(SCHEMAS.schema(name))
    common = SCHEMAS.schema("common")
    for schema in subschemas(SCHEMAS.schema(name)):
        if "$ref" in schema and not schema["$ref"].startswith("#"):
            base, _, part = schema["$ref"].partition("#/$defs/")
            assert base == common["$id"]
            assert part in common["$defs"]


def mutations(value: Any) -> Iterator[Any]:
    """Small changes of a value: fields dropped, added, and given other types.

    No control characters: the reader refuses them before a schema sees them (the validators differ about a
    line break at the end of a string).
    """
    for name in value:
        yield {other: value[other] for other in value if other != name}
        damages: tuple[Any, ...] = (None, -1, True, "x", "0" * 64, [], {}, 2**60, [None])
        for wrong in damages:
            yield {**value, name: wrong}
    yield {**value, "extra": 1}


def test_both_schema_validators_agree(tmp_path: Path) -> None:
    seen: set[tuple[str, bool]] = set()
    folders = [
        write_good(tmp_path / "a", Good()),
        write_good(tmp_path / "b", reference()),
        write_good(tmp_path / "c", Good(mode="quality")),
        write_good(tmp_path / "d", Good(out_of_memory_in=0)),
        write_good(tmp_path / "e", Good(key=replace(MINI, phase="infer"))),
    ]
    for folder in folders:
        done: set[str] = set()
        for event in lines_of(folder):
            kind = event["kind"]
            if kind in done:
                continue
            done.add(kind)
            pairs = [("envelope", event), (kind, event["data"])]
            for name, value in pairs:
                assert SCHEMAS.valid(name, value)
                for mutated in (value, *mutations(value)):
                    accepted = SCHEMAS.valid(name, mutated)
                    assert accepted == (not SCHEMAS.errors(name, mutated)), (name, mutated)
                    seen.add((name, accepted))
    assert {name for name, accepted in seen if not accepted} >= {
        "envelope",
        "header",
        "step",
        "footer",
        "abort",
    }


def test_schemas_never_fetch_references(tmp_path: Path) -> None:
    (tmp_path / "common.json").write_text(
        '{"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "urn:c"}'
    )
    (tmp_path / "far.json").write_text('{"$ref": "https://example.org/schema.json"}')
    schemas = Schemas({path.stem: path for path in tmp_path.iterdir()})
    with pytest.raises(Exception, match="within its rules version"):
        schemas.valid("far", {})
    with pytest.raises(Exception, match=r"example\.org|Unresolvable"):
        schemas.errors("far", {})


def test_versions_are_a_closed_list() -> None:
    for version in ("9.9", "../practice", "", "0.1/"):
        with pytest.raises(ValueError, match="expected one of"):
            load(version)
    assert sorted(path.name for path in ROOT.iterdir() if path.is_dir()) == sorted(VERSIONS)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("workload", names())
def test_workload_files_agree_with_the_specifications(version: str, workload: str) -> None:
    if not load(version).has("workloads", workload):
        pytest.skip(f"rules {version} have no {workload} yet")
    entry, spec = load(version).workload(workload), specification(workload)
    scale = entry["scale"]
    assert scale == ("mini" if version == "practice" else "reference")
    assert (entry["name"], entry["unit"], entry["metric"]) == (spec.NAME, spec.UNIT, spec.METRIC)
    assert entry["variants"] == list(spec.VARIANTS[scale])
    assert entry["batches"] == list(spec.BATCHES[scale])
    assert entry["precisions"] == list(spec.PRECISIONS)
    assert set(entry["quality"]) <= set(entry["variants"])
    for target in entry["quality"].values():
        assert target["metric"] == spec.METRIC
        assert target["max_epochs"] > 0
    assert set(entry["initial_parameters"]) == set(entry["variants"])


@pytest.mark.parametrize("workload", names())
def test_initial_parameters_are_those_of_the_frozen_stream(workload: str) -> None:
    spec = specification(workload)
    for version in VERSIONS:
        if not load(version).has("workloads", workload):
            continue
        entry = load(version).workload(workload)
        for variant, digest in entry["initial_parameters"].items():
            parameters = spec.parameters(spec.dimensions(entry["scale"], variant))
            if sum(parameter.size for parameter in parameters) < 5_000_000:  # larger ones take too long here
                assert digest == weights.digest(workload, parameters)


@pytest.mark.parametrize(
    ("workload", "measured"), [("googlenet", (1.507, 4.169)), ("inception_v3", (2.783, 7.621))]
)
def test_first_loss_of_untrained_network_with_auxiliary_heads_is_allowed(
    workload: str, measured: tuple[float, float]
) -> None:
    """The extremes of 75 and 39 seeds: several heads' losses scatter more than one's."""
    low, high = map(float, load("practice").workload(workload)["first_loss"])
    assert 1.5 * low < measured[0]
    assert measured[1] < high / 1.5


def test_stamp_lists_the_used_files() -> None:
    rules = load("practice")
    stamp = rules.stamp("ncf", "ml-1m-mini")
    assert stamp["digest"] == digest_of(stamp["files"])
    assert {"practice/limits.json", "1.0/checks.json", "practice/workloads/ncf.json"} <= set(stamp["files"])
    assert "practice/workloads/gnmt.json" not in stamp["files"]
    assert set(stamp["files"]) < set(rules.stamp()["files"])
    with pytest.raises(ValueError, match="expected one of"):
        rules.stamp("nothing")


def test_device_is_found_by_its_exact_name() -> None:
    device = load("1.0").device("NVIDIA H200")
    assert device is not None
    assert device == load("practice").device("NVIDIA H200")
    assert float(device["flops"]["bf16"]) == pytest.approx(2 * float(device["flops"]["tf32"]))
    assert load("1.0").device("NVIDIA H2000") is None


@pytest.mark.parametrize("version", VERSIONS)
def test_device_is_found_by_pci_id(version: str) -> None:
    """The name may be misspelt."""
    rules = load(version)
    by_name = rules.device("NVIDIA H200")
    assert by_name is not None
    assert rules.device("233510de") == by_name
    assert rules.devices({"NVIDIA  H200", "233510de"}) == (by_name,)
    assert rules.devices({"NVIDIA H200", "233510de"}) == (by_name,)
    assert rules.devices({"NVIDIA  H200"}) == rules.devices({"NVIDIA \u041d200"}) == (by_name,)
    assert rules.devices({"NVIDIA H200-SXM"}) == ()


def test_practice_reduces_listed_rules_to_information() -> None:
    practice, base = load("practice"), load(LATEST)
    assert set(practice.limits["information"]) <= set(base.checks)
    in_both = {name for name, check in base.checks.items() if check.severity == "info"}
    assert {name for name, check in practice.checks.items() if check.severity == "info"} == in_both | set(
        practice.limits["information"]
    )


def test_rule_files_contain_no_floats() -> None:
    floats: list[str] = []
    for path in ROOT.glob("**/*.json"):
        json.loads(path.read_text(), parse_float=floats.append)
    assert floats == []
