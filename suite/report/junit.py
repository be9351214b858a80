"""Outcomes as JUnit XML, in the subset that Jenkins, GitLab and GitHub read. It contains no host name.

Elements and attributes are those of Jenkins' junit-10.xsd. All text is escaped first, because XML cannot
contain control characters.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from suite import __version__, rules
from suite.log.safe import safe

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
_LONGEST = 1000  # characters of a line


@dataclass(frozen=True, slots=True)
class JunitCase:
    """One test case. ``kind`` is the type of a failure, ``details`` further lines."""

    name: str
    outcome: str
    message: str
    details: str = ""
    kind: str = "fail"
    seconds: float = 0.0


def write(path: Path, name: str, cases: Sequence[JunitCase]) -> None:
    """Write ``cases`` to ``path`` as one test suite. Raises OSError."""
    outcomes = [case.outcome for case in cases]
    counts = {
        "tests": str(len(cases)),
        "failures": str(outcomes.count(FAILED)),
        "errors": "0",
        "time": f"{sum(case.seconds for case in cases):.3f}",
    }
    root = ET.Element("testsuites", counts)
    suite = ET.SubElement(
        root, "testsuite", {"name": name, **counts, "skipped": str(outcomes.count(SKIPPED))}
    )
    properties = ET.SubElement(suite, "properties")
    for key, value in (("suite.version", __version__), ("rules.version", rules.LATEST)):
        ET.SubElement(properties, "property", {"name": key, "value": value})
    for case in cases:
        _add(suite, name, case)
    ET.indent(root)
    ET.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def _add(suite: ET.Element, name: str, case: JunitCase) -> None:
    attributes = {"name": safe(case.name), "classname": f"suite.{name}", "time": f"{case.seconds:.3f}"}
    element = ET.SubElement(suite, "testcase", attributes)
    message = safe(case.message, _LONGEST)
    details = "\n".join(safe(line, _LONGEST) for line in case.details.splitlines())
    if case.outcome == FAILED:
        ET.SubElement(element, "failure", {"message": message, "type": case.kind}).text = details
    elif case.outcome == SKIPPED:
        ET.SubElement(element, "skipped", {"message": message})
    else:
        ET.SubElement(element, "system-out").text = f"{message}\n{details}" if details else message
