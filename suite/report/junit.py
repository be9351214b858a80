"""Outcomes as JUnit XML, in the form that Jenkins, GitLab and GitHub's readers share. No host name is in it.

Elements and attributes are those of Jenkins' junit-10.xsd; whatever is written is escaped first, because XML
has no way to hold control characters.
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
    """Write ``cases`` to ``path`` as one test suite. OSError where that is impossible."""
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
    for word, value in (("suite.version", __version__), ("rules.version", rules.LATEST)):
        ET.SubElement(properties, "property", {"name": word, "value": value})
    for case in cases:
        _add(suite, name, case)
    ET.indent(root)
    ET.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def _add(suite: ET.Element, name: str, case: JunitCase) -> None:
    words = {"name": safe(case.name), "classname": f"suite.{name}", "time": f"{case.seconds:.3f}"}
    found = ET.SubElement(suite, "testcase", words)
    message = safe(case.message, _LONGEST)
    details = "\n".join(safe(line, _LONGEST) for line in case.details.splitlines())
    if case.outcome == FAILED:
        ET.SubElement(found, "failure", {"message": message, "type": case.kind}).text = details
    elif case.outcome == SKIPPED:
        ET.SubElement(found, "skipped", {"message": message})
    else:
        ET.SubElement(found, "system-out").text = f"{message}\n{details}" if details else message
