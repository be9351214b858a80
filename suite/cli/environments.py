"""``python -m suite environments [FRAMEWORK…]``: make the environments of frameworks and tools."""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from suite.cli.guard import progress
from suite.environments import environments


def main(args: argparse.Namespace) -> int:
    """Make the missing ones, two at a time, and print every interpreter. Exit 13 if one cannot be made."""

    def interpreter(framework: str) -> Path:
        if framework in environments.TOOLS:
            return environments.ensure_tools(framework, progress)
        accel = environments.accelerator() if args.accelerator == "auto" else args.accelerator
        if args.accelerator == "auto" and accel not in environments.accelerators(framework):
            accel = "cpu"
        return environments.ensure(framework, accel, allow_large=args.fetch, progress=progress)

    def make(framework: str) -> tuple[str, int]:
        try:
            path = interpreter(framework)
        except (environments.EnvironmentMissing, environments.LargeDownload) as error:
            return f"{framework}: {error}", 13
        except OSError as error:
            return f"{framework}: {error.strerror or error}", 15
        return f"{framework}: {path}", 0

    tools = [name for name in environments.TOOLS if name not in environments.ON_DEMAND]
    wanted = args.framework or (*environments.frameworks(), *tools)
    with ThreadPoolExecutor(max_workers=2) as pool:
        answers = list(pool.map(make, wanted))
    for line, code in answers:
        print(line, file=sys.stderr if code else sys.stdout)
    return max(code for _, code in answers)
