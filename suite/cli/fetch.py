"""``python -m suite fetch``: write a bundle, a folder with all that one pair needs without a network.

pip and the container engine of this machine download the files, with their configured proxies and
certificates, which the bundle does not contain. Exit codes: 0 the bundle is complete, 2 usage, 13 a download
failed, 15 a folder cannot be written or the disk is full.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from suite import rules
from suite.cli.guard import UsageError, progress
from suite.containers.engines.container import CannotRun, parse_bytes
from suite.containers.images.lock import read_folder
from suite.environments import environments

_SMALLEST_PART = 1 << 20  # bytes


def main(args: argparse.Namespace) -> int:
    """Make the bundle and print its content."""
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
        None if args.part_size is None else _part_bytes(args.part_size),
    )
    made = make(order, args.dest.absolute(), args.cache_dir or CACHE, progress)
    _report(made, order.workload, order.framework)
    return 0


def _part_bytes(text: str) -> int:
    """The bytes of PART_SIZE; UsageError if it is no size, or one that no medium needs."""
    try:
        size = parse_bytes("part_size", text)
    except CannotRun as error:
        raise UsageError(str(error)) from error
    if size < _SMALLEST_PART:
        raise UsageError(f"part_size: expected at least 1m, found {text}")
    return size


def _rules(framework: str) -> str:
    """The practice rules if stand-in images exist and this machine has no GPU, else the latest rules."""
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
    from suite.containers.images.bundle_parts import LIST

    manifest = read_manifest(folder)
    size = sum(file["bytes"] for file in manifest["files"].values())
    print(
        f"bundle: {folder} ({len(manifest['files'])} files, {size / 1e9:.2f} GB, rules {manifest['rules']})"
    )
    if (folder / LIST).exists():
        count = len((folder / LIST).read_text("utf-8").splitlines())
        print(f"{count} parts: a run joins and verifies them; without the suite: sha256sum -c {LIST}")
    print("not in it:")
    for row in manifest["elsewhere"]:
        print(f"  {row['name']}: {row['address'] or row['reason']}")
    print(f"on the other machine: make run WORKLOAD={workload} FRAMEWORK={framework} BUNDLE={folder.name}")
