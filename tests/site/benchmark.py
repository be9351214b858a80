"""``python -m tests.site.benchmark``: times and sizes of a site of 1,000 generated results."""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from tests.fixtures.good_log import MINI, Good, write_good
from tests.site import browser

FRAMEWORKS = ("pytorch", "tensorflow", "mxnet", "jax")


def good(index: int) -> Good:
    """The imagined run of one index: four frameworks, three batches, training and inference."""
    phase = ("train", "infer")[index // 12 % 2]
    key = replace(MINI, framework=FRAMEWORKS[index % 4], batch=256 << (index // 4 % 3), phase=phase)
    return Good(key=key, run_hex=f"{index:08x}", step_ns=2_000_000 + 137 * index)


def timed_build(what: str, folder: Path) -> None:
    """Build the site in a process of its own; print how long it took, and its processor time."""
    command = [
        sys.executable,
        "-m",
        "suite",
        "site",
        "--from",
        str(folder / "results"),
        "--to",
        str(folder / "site"),
    ]
    start, before = time.monotonic(), os.times()
    subprocess.run([*command, "--cache-dir", str(folder / "cache")], check=True, stdout=subprocess.DEVNULL)
    took, after = time.monotonic() - start, os.times()
    processor = sum(after[2:4]) - sum(before[2:4])  # of ended children: user and system
    print(f"{what}: {took:.1f} s, processor {processor:.2f} s", flush=True)


def in_browser(index: Path) -> None:
    """Load the index, and time a filter and an order with the layout that follows."""
    timed = (
        "const [act, done] = [arguments[0], arguments[arguments.length - 1]];"
        "const start = performance.now();"
        "if (act === 'filter') { const select = document.querySelectorAll('.filters select')[1];"
        "  select.selectedIndex = 1; select.dispatchEvent(new Event('change')); }"
        "else { [...document.querySelectorAll('thead button')].find(b => b.textContent === 'score').click();}"
        "document.body.offsetHeight; done(performance.now() - start);"
    )
    with browser.browser() as driver:
        browser.opened(driver, index)
        loaded = (
            "const t = performance.getEntriesByType('navigation')[0]; return t.loadEventEnd - t.startTime"
        )
        print(f"index.html in chromium, loaded with filters: {driver.execute_script(loaded):.0f} ms")
        for act in ("filter", "order"):
            print(f"{act}, with layout: {driver.execute_async_script(timed, act):.0f} ms")


def main() -> None:
    """Generate, build four times, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=int, default=1000)
    count = parser.parse_args().results
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for index in range(count):
            write_good(folder / "results", good(index))
        timed_build(f"{count} results, nothing in the cache", folder)
        shutil.rmtree(folder / "site")
        timed_build("again into an empty folder, verdicts in the cache", folder)
        timed_build("again, nothing changed", folder)
        write_good(folder / "results", good(count))
        timed_build("one result more", folder)
        for page in ("index.html", "compare.html"):
            data = (folder / "site" / page).read_bytes()
            print(
                f"{page}: {len(data) / 1000:.0f} kB, compressed {len(gzip.compress(data, 9)) / 1000:.0f} kB"
            )
        if not browser.MISSING:
            in_browser(folder / "site" / "index.html")


if __name__ == "__main__":
    main()
