"""Options are declared once: every other list of them agrees with their declaration."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from suite.cli import verbs
from suite.cli.arguments import BUNDLE_FORMATS, METRICS, PLATFORMS, RULES, Verb
from suite.cli.parsing import parser_of
from suite.containers.engines.choice import ORDER
from suite.containers.images import bundling, lock
from suite.figures import curves, results
from suite.plan.options import RENAMED, RUN_OPTIONS, by_name
from suite.plan.settings import Settings
from suite.rules import VERSIONS
from tools.options_table import README, updated

ROOT = Path(__file__).resolve().parents[2]
TREE = yaml.safe_load((ROOT / "conf" / "run.yaml").read_text())
GROUPS = {
    name: value for entry in TREE["defaults"] if isinstance(entry, dict) for name, value in entry.items()
}
SCHEMA = json.loads((ROOT / "rules" / "1.0" / "schemas" / "header.json").read_text())


def test_configuration_has_every_option_with_its_default() -> None:
    groups = {"workload", "framework", "runtime", "launcher"}
    assert set(TREE) - {"defaults", "hydra"} | groups == set(by_name())
    for option in RUN_OPTIONS:
        if option.name in ("workload", "framework"):
            assert GROUPS[option.name] == "???"
        elif option.name in groups:
            assert GROUPS[option.name] == option.default
        else:
            assert TREE[option.name] == (bool(option.default) if option.switch else option.default)


@pytest.mark.parametrize("group", ["workload", "framework", "runtime", "launcher"])
def test_configuration_group_has_a_file_for_each_value(group: str) -> None:
    there = {path.stem for path in (ROOT / "conf" / group).glob("*.yaml")}
    assert there == set(by_name()[group].choices())


def test_settings_have_every_option() -> None:
    assert set(by_name()) <= {one.name for one in fields(Settings)}


def test_readme_has_the_current_table() -> None:
    text = README.read_text("utf-8")
    assert updated(text) == text, "run `make format`"
    for option in RUN_OPTIONS:
        assert f"| `{option.name.upper()}` |" in text


def test_value_lists_of_packages_equal_those_of_the_options() -> None:
    assert (*results.METRICS, *curves.METRICS) == METRICS
    assert (lock.PLATFORMS, bundling.FORMATS) == (PLATFORMS, BUNDLE_FORMATS)
    assert RULES.choices() == VERSIONS
    assert by_name()["runtime"].shown() == (*ORDER, "native")


@pytest.mark.parametrize("target", [name for name, verb in verbs.TARGETS.items() if not verb.hydra])
def test_parser_defaults_equal_the_shown_defaults(target: str) -> None:
    verb = verbs.TARGETS[target]
    parser = parser_of(verb)
    for option in verb.options:
        value = parser.get_default(option.name)
        if option.switch:
            assert value is bool(option.default)
        elif option.many:
            assert [str(one) for one in value or []] == ([] if option.default is None else [option.default])
        elif option.type is Path and option.default is not None:
            assert value == Path(option.default)
        else:
            assert value == option.default


@pytest.mark.parametrize("target", verbs.TARGETS)
def test_options_of_a_target_have_distinct_variables(target: str) -> None:
    verb: Verb = verbs.TARGETS[target]
    variables = [name for option in verb.options for name in option.variables]
    variables += [option.name.upper() for option in verb.overrides]
    assert len(variables) == len(set(variables))


def test_renamed_options_have_a_current_name() -> None:
    known = {option.name for verb in verbs.TARGETS.values() for option in (*verb.options, *verb.overrides)}
    assert set(RENAMED.values()) <= known
