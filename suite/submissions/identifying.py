"""The facts of a submission that identify its submitter or machine: shown before anything is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from suite.log.files import BASELINE
from suite.log.model import Record
from suite.submissions.signing.keys import PublicKey


def identifying_facts(
    record: Record, description: Mapping[str, Any], key: PublicKey | None
) -> list[tuple[str, str]]:
    """(name, value) of every fact that may distinguish one submitter or machine from another.

    They are the system description, and from the log the facts of the machine, the hashes of its devices and
    boots, the commit, and the submitter's reasons for differences. A log contains no host name, user, path,
    serial number or raw UUID (rule ID-012 and suite/telemetry); the rest of it is timings and counters.
    """
    described = {name: value for name, value in description.items() if name != "reasons"}
    rows = list(_flat(described, "system.json"))
    header = record.header
    rows += [
        ("log run_id", record.run_id),
        ("log wall, first and last", f"{record.events[0].wall} to {record.events[-1].wall}"),
    ]
    rows += [(f"log {name}", value) for name, value in _flat(header["git"], "git")]
    rows += [(f"log {name}", value) for name, value in _flat(header["image"], "image")]
    rows += [("log overrides", " ".join(header["overrides"]))]
    rows += [(f"log difference {row['rule']}", row["reason"]) for row in header["differences"]]
    if record.changes is not None:
        rows.append(
            ("changes.patch", f"{record.changes.bytes} bytes of your code: read it before you publish")
        )
    if (cited := header.data.get("baseline")) is not None:
        rows.append((BASELINE, f"the baseline {cited['log']} of the machine, with all its windows"))
    boots = sorted({str(event["boot"]) for event in record.events if event.kind == "clock"})
    rows += [("log boot (hashed)", boot) for boot in boots]
    for side in ("outside", "inside"):
        first = next((e for repeat in record.repeats if (e := repeat.env(side)) is not None), None)
        if first is not None:
            rows += [(f"log {name}", value) for name, value in _flat(first["facts"], side)]
    if key is not None:
        rows.append(("signature by key", key.key_id))
    return rows


def _flat(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """The known scalar values inside ``value``, by dotted name."""
    if isinstance(value, Mapping):
        for inner, found in value.items():
            yield from _flat(found, f"{name}.{inner}")
    elif isinstance(value, list) and any(isinstance(one, Mapping) for one in value):
        for at, one in enumerate(value):
            yield from _flat(one, f"{name}.{at}")
    elif value not in (None, [], ""):
        yield name, _text(value)


def _text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
