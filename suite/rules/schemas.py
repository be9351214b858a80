"""The log's schemas: two validators, nothing ever fetched.

jsonschema is the validator of record: its word explains a rejection. jsonschema-rs, some sixty times faster,
says which events need explaining. Both know the schemas of one folder and no way to get another.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import jsonschema_rs

from suite.rules.places import base_of, folder_of

_COMMON = "common"


class Schemas:
    """The schemas in one folder, by name: envelope, one for each kind of event, system."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.names = tuple(sorted(path.stem for path in folder.glob("*.json")))
        self._fast: dict[str, jsonschema_rs.Draft202012Validator] = {}

    def schema(self, name: str) -> dict[str, Any]:
        """One schema as parsed JSON; KeyError for a name that the folder does not hold."""
        if name not in self.names:
            raise KeyError(name)
        loaded: dict[str, Any] = json.loads((self._folder / f"{name}.json").read_text())
        return loaded

    def valid(self, name: str, value: Any) -> bool:
        """Whether ``value`` fits schema ``name`` (the fast validator)."""
        if name not in self._fast:
            common = self.schema(_COMMON)
            registry = jsonschema_rs.Registry([(common["$id"], common)], retriever=_deny)
            self._fast[name] = jsonschema_rs.Draft202012Validator(
                self.schema(name), registry=registry, retriever=_deny
            )
        return self._fast[name].is_valid(value)

    def explain(self, name: str, value: Any, limit: int = 10) -> list[tuple[str, str]]:
        """(dotted path, message) of what does not fit schema ``name``, by the validator of record.

        Raises RuntimeError if it finds nothing to object to: the two validators must never differ.
        """
        found = [
            (".".join(map(str, error.absolute_path)), error.message) for error in self.errors(name, value)
        ]
        if not found:
            raise RuntimeError(f"the validators differ about schema {name}")
        return sorted(found)[:limit]

    def errors(self, name: str, value: Any) -> list[Any]:
        """All errors of jsonschema against schema ``name``."""
        from jsonschema import Draft202012Validator
        from referencing import Registry, Resource

        common = self.schema(_COMMON)
        registry: Any = Registry().with_resource(common["$id"], Resource.from_contents(common))
        return list(Draft202012Validator(self.schema(name), registry=registry).iter_errors(value))


def _deny(uri: str) -> NoReturn:
    raise ValueError(f"schemas refer to nothing outside their folder, found {uri}")


def schemas_for(version: object) -> Schemas:
    """The schemas of a rules' version; of the newest where ``version`` is unknown (a rule reports that)."""
    return _schemas(base_of(version))


@cache
def _schemas(version: str) -> Schemas:
    return Schemas(folder_of(version) / "schemas")
