"""The checks as JUnit XML, in the form that Jenkins and GitLab read. No host name is in it."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from suite import __version__, rules
from suite.doctor.examine import Outcome
from suite.doctor.model import FAIL, SKIP, WARN

_CLASS = "suite.doctor"


def write(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Write ``outcomes`` to ``path``: a test case a check. OSError where that is impossible."""
    states = Counter(outcome.check.state for outcome in outcomes)
    counts = {
        "tests": str(len(outcomes)),
        "failures": str(states[FAIL]),
        "errors": "0",
        "skipped": str(states[SKIP]),
        "time": f"{sum(outcome.seconds for outcome in outcomes):.3f}",
    }
    root = ET.Element("testsuites", counts)
    suite = ET.SubElement(root, "testsuite", {"name": "doctor", **counts})
    properties = ET.SubElement(suite, "properties")
    for name, value in (("suite.version", __version__), ("rules.version", rules.LATEST)):
        ET.SubElement(properties, "property", {"name": name, "value": value})
    for outcome in outcomes:
        _case(suite, outcome)
    ET.indent(root)
    ET.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def _case(suite: ET.Element, outcome: Outcome) -> None:
    check = outcome.check
    words = {"name": check.name, "classname": _CLASS, "time": f"{outcome.seconds:.3f}"}
    case = ET.SubElement(suite, "testcase", words)
    remedy = f"→ {check.remedy}" if check.remedy else ""
    if check.state == FAIL:
        ET.SubElement(case, "failure", {"message": check.found, "type": "fail"}).text = remedy
    elif check.state == SKIP:
        ET.SubElement(case, "skipped", {"message": check.found})
    else:
        prefix = "warning: " if check.state == WARN else ""
        text = prefix + check.found
        ET.SubElement(case, "system-out").text = f"{text}\n{remedy}" if remedy else text
