"""The schemas of the log, applied by two validators; neither fetches a schema.

jsonschema-rs, about sixty times faster, decides which events are valid. jsonschema, the validator of record,
explains the violations. Both have the schemas of one rules version only.
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
    """Schemas by name: the envelope, each kind of event, system.json, and rule files."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = dict(files)
        self.names = tuple(sorted(files))
        self._fast: dict[tuple[str, bool], Callable[[Any], bool]] = {}
        self._of_record: dict[str, Any] = {}

    def schema(self, name: str) -> dict[str, Any]:
        """One schema as parsed JSON; KeyError for an unknown name."""
        loaded: dict[str, Any] = json.loads(self._files[name].read_text())
        return loaded

    def valid(self, name: str, value: Any) -> bool:
        """Whether ``value`` fits schema ``name`` (the fast validator)."""
        return self._validator(name, many=False)(value)

    def all_valid(self, name: str, values: Sequence[Any]) -> bool:
        """Whether each of ``values``, a list, fits schema ``name``, in one call of the fast validator."""
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
        """The schemas that others may refer to: the common one, read once."""
        common = self.schema(_COMMON)
        return jsonschema_rs.Registry([(common["$id"], common)], retriever=_deny)

    def explain(self, name: str, value: Any, limit: int = 10) -> list[tuple[str, str]]:
        """(dotted path, message) of each violation of schema ``name``, by the validator of record.

        Raises RuntimeError if there is none, because then the two validators disagree.
        """
        violations = [(".".join(map(str, e.absolute_path)), e.message) for e in self.errors(name, value)]
        if not violations:
            raise RuntimeError(f"schema {name}: expected violations, as of jsonschema-rs, found none")
        return sorted(violations)[:limit]

    def errors(self, name: str, value: Any) -> list[Any]:
        """All errors that jsonschema reports for ``value`` and schema ``name``."""
        if name not in self._of_record:
            self._of_record[name] = self._validator_of_record(name)
        return list(self._of_record[name].iter_errors(value))

    def _validator_of_record(self, name: str) -> Any:
        from jsonschema import Draft202012Validator
        from referencing import Registry, Resource

        common = self.schema(_COMMON)
        registry: Any = Registry().with_resource(common["$id"], Resource.from_contents(common))
        return Draft202012Validator(self.schema(name), registry=registry)


def _deny(uri: str) -> NoReturn:
    raise ValueError(f"schema: expected references within its rules version, found {uri}")


def schemas_for(version: object, root: RulesRoot = SHIPPED) -> Schemas:
    """The schemas of a version; those of LATEST for an unknown ``version``, which ID-001 reports."""
    return _schemas(root.lineage(version)[0], root)


@cache
def _schemas(version: str, root: RulesRoot) -> Schemas:
    return Schemas(root.files(version, "schemas"))
