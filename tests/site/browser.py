"""Debian's chromium, driven by selenium: opens pages, and records what they request and report."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

AXE = Path(__file__).parents[1] / "fixtures" / "axe" / "axe.min.js"
CHROMIUM, DRIVER = (shutil.which(name) for name in ("chromium", "chromedriver"))
MISSING = "" if CHROMIUM and DRIVER else "chromium and chromium-driver are not installed"
_OWN = ("file:", "data:", "about:", "chrome:")
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET of sched.h


@contextmanager
def without_network() -> Iterator[bool]:
    """A network namespace with nothing but a loopback device, for this thread and what it starts.

    Yields whether the kernel allowed it, as it does to root.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    with Path(f"/proc/self/task/{libc.gettid()}/ns/net").open("rb") as before:
        if libc.unshare(_NEW_NETWORK):
            yield False
            return
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            yield True
        finally:
            if libc.setns(before.fileno(), _NEW_NETWORK):
                raise OSError(ctypes.get_errno(), "cannot return to the network of the tests")


@contextmanager
def browser(*, scripts: bool = True, width: int = 1280) -> Iterator[webdriver.Chrome]:
    """A browser with an empty profile, with or without JavaScript."""
    options = Options()
    assert CHROMIUM is not None
    options.binary_location = CHROMIUM
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        f"--window-size={width},900",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    if not scripts:
        options.add_experimental_option("prefs", {"profile.managed_default_content_settings.javascript": 2})
    driver = webdriver.Chrome(
        options=options, service=Service(DRIVER, env={**os.environ, "SE_OFFLINE": "true"})
    )
    try:
        yield driver
    finally:
        driver.quit()


def _entries(driver: webdriver.Chrome, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = driver.get_log(name)  # type: ignore[no-untyped-call]
    return found


def opened(driver: webdriver.Chrome, path: Path, fragment: str = "") -> None:
    """Open a page in a fresh document, without what earlier pages requested and reported."""
    driver.get("about:blank")
    _entries(driver, "performance")
    _entries(driver, "browser")
    driver.get(path.as_uri() + fragment)


def requests(driver: webdriver.Chrome) -> list[str]:
    """The addresses that the page requested, without those within the machine's own files."""
    events = [json.loads(entry["message"])["message"] for entry in _entries(driver, "performance")]
    asked = [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]
    return [url for url in asked if not url.startswith(_OWN)]


def console(driver: webdriver.Chrome) -> list[str]:
    """What the page wrote to the console: errors, warnings, refusals of the content security policy."""
    return [entry["message"] for entry in _entries(driver, "browser")]


def serious(driver: webdriver.Chrome) -> list[str]:
    """The serious and critical findings of axe-core about the open page."""
    # DevTools evaluate outside of the page's content security policy, which stays as it is.
    driver.execute_cdp_cmd("Runtime.evaluate", {"expression": AXE.read_text("utf-8")})
    answer: dict[str, Any] = driver.execute_async_script(
        "const done = arguments[arguments.length - 1];"
        "const failed = error => done({violations: [{impact: 'critical', id: String(error), nodes: []}]});"
        "axe.run(document, {resultTypes: ['violations']}).then(done, failed);"
    )
    return [
        f"{one['id']}: {[node['html'][:160] for node in one['nodes'][:3]]}"
        for one in answer["violations"]
        if one["impact"] in ("serious", "critical")
    ]
