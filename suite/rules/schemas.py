"""The log's schemas: two validators, nothing ever fetched.

jsonschema is the validator of record: its word explains a rejection. jsonschema-rs, some sixty times faster,
says which events need explaining. Both know the schemas of one version and no way to get another.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NoReturn

import jsonschema_rs

from suite.rules.root import SHIPPED, RulesRoot

_COMMON = "common"


class Schemas:
    """Schemas by name: envelope, one for each kind of event, system, and those of rule files."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = dict(files)
        self.names = tuple(sorted(files))
        self._fast: dict[tuple[str, bool], Callable[[Any], bool]] = {}

    def schema(self, name: str) -> dict[str, Any]:
        """One schema as parsed JSON; KeyError for an unknown name."""
        loaded: dict[str, Any] = json.loads(self._files[name].read_text())
        return loaded

    def valid(self, name: str, value: Any) -> bool:
        """Whether ``value`` fits schema ``name`` (the fast validator)."""
        return self._validator(name, many=False)(value)

    def all_valid(self, name: str, values: Sequence[Any]) -> bool:
        """Whether each of ``values``, a list, fits schema ``name``: one question for all of them."""
        return self._validator(name, many=True)(values)

    def _validator(self, name: str, many: bool) -> Callable[[Any], bool]:
        if (name, many) not in self._fast:
            schema = self.schema(name)
            made = jsonschema_rs.Draft202012Validator(
                {"type": "array", "items": schema} if many else schema,
                registry=self._registry,
                retriever=_deny,
            )
            self._fast[name, many] = made.is_valid
        return self._fast[name, many]

    @cached_property
    def _registry(self) -> jsonschema_rs.Registry:
        """What schemas may refer to: the common one, which is read once for all of them."""
        common = self.schema(_COMMON)
        return jsonschema_rs.Registry([(common["$id"], common)], retriever=_deny)

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
    raise ValueError(f"schemas refer to nothing outside their version, found {uri}")


def schemas_for(version: object, root: RulesRoot = SHIPPED) -> Schemas:
    """The schemas of a version; of the one in use where ``version`` is unknown (ID-001 reports that)."""
    return _schemas(root.lineage(version)[0], root)


@cache
def _schemas(version: str, root: RulesRoot) -> Schemas:
    return Schemas(root.files(version, "schemas"))
