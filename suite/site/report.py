"""Reports: the page of one result, or a table of several, as one file that needs no other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from suite.log.units import count
from suite.site import parts
from suite.site.cache import Cache
from suite.site.collect import Result, collect
from suite.site.html import Node, tag
from suite.site.pages.result import result_page
from suite.site.shell import page


def report_of_result(folder: Path, submissions: Path, cache: Cache) -> tuple[Result, str]:
    """The checked result in ``folder``, and its report; ``submissions`` has the registry.

    It is not compared with the other submissions: the report states no assurance level, nor the sentence that
    may be published.
    """
    collection = collect(submissions, cache, [folder])
    result = replace(collection.results[0], level=None)
    return result, result_page(result, site=False)


def report_of_folder(folder: Path, submissions: Path, cache: Cache) -> tuple[Sequence[Result], str]:
    """The checked results below ``folder``, and a report with one table of them."""
    results = collect(folder, cache, registry_root=submissions).results
    links = parts.Links(site=False)
    body: list[Node] = [
        tag("h1", "Results"),
        tag("p", f"{count(len(results), 'result')} of one folder.", class_="lead"),
        parts.results_table(results, links, "All results, the newest first", filters=True),
        tag("h2", "Use of the machine"),
        parts.resources_table(results, links, "Means over soaks, windows and tail"),
    ]
    watermark = all(one.row.group[0] == "practice" for one in results)
    return results, page("Results", body, watermark=watermark, site=False)
