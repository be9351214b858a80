"""``python -m suite fetch``: one pair with all it needs in a folder, for a machine without network.

pip and the container engine of this machine do the fetching, with the proxies and certificates that they are
configured with; nothing of that is written into the bundle. Exit codes: 0 the bundle is there, 2 usage, 13
what cannot be had, 15 a place that cannot be written, or its space.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from suite import rules
from suite.containers.images.lock import read_folder
from suite.environments import environments


def main(args: argparse.Namespace) -> int:
    """Make the bundle and say what is in it."""
    from suite.containers.images.build import CACHE
    from suite.containers.images.bundling import BundleRequest, make

    order = BundleRequest(
        args.workload,
        args.framework,
        args.rules or _rules(args.framework),
        _accelerator(args.framework, args.accelerator),
        args.platform,
        args.image_format,
        args.fetch,
    )
    made = make(order, args.dest.absolute(), args.cache_dir or CACHE, _say)
    _report(made, order.workload, order.framework)
    return 0


def _rules(framework: str) -> str:
    """Practice where the machine-made stand-ins are to be had and nothing here runs at reference scale."""
    stand_ins = read_folder(rules.load("practice").images_folder).values()
    practice = any(base.current and base.framework == framework for base in stand_ins)
    return "practice" if practice and environments.accelerator() == "cpu" else rules.LATEST


def _accelerator(framework: str, wanted: str) -> str:
    if wanted != "auto":
        return wanted
    found = environments.accelerator()
    return found if found in environments.accelerators(framework) else "cpu"


def _report(folder: Path, workload: str, framework: str) -> None:
    from suite.containers.images.bundle_manifest import read_manifest

    manifest = read_manifest(folder)
    size = sum(file["bytes"] for file in manifest["files"].values())
    print(
        f"bundle: {folder} ({len(manifest['files'])} files, {size / 1e9:.2f} GB, rules {manifest['rules']})"
    )
    print("not in it:")
    for row in manifest["elsewhere"]:
        print(f"  {row['name']}: {row['address'] or row['reason']}")
    print(f"where it is brought to: make run WORKLOAD={workload} FRAMEWORK={framework} BUNDLE={folder.name}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
