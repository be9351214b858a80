"""``python -m suite fetch``: one pair with all it needs in a folder, for a machine without network.

pip and the container engine of this machine do the fetching, with the proxies and certificates that they are
configured with; nothing of that is written into the bundle.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from suite import rules, workloads
from suite.images.lock import PLATFORMS, LockProblem, read_folder
from suite.runtime import environments

USAGE, MISSING, STORAGE = 2, 13, 15
VERSIONS = tuple(version for version in rules.VERSIONS if version != "0.1")  # which knows no image


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    from suite.images.bundling import FORMATS

    known = sorted({one for name in workloads.names() for one in workloads.frameworks(name)})
    parser.add_argument("--workload", required=True, choices=workloads.names())
    parser.add_argument("--framework", required=True, choices=known)
    parser.add_argument(
        "--dest", required=True, type=Path, metavar="DIR", help="a folder that is not there yet"
    )
    parser.add_argument(
        "--image-format",
        choices=FORMATS,
        default="oci",
        help="oci: the pair's image; sif, sqsh: its base for apptainer, enroot; none: no image",
    )
    parser.add_argument(
        "--rules", choices=VERSIONS, help="practice where a stand-in image is to be had, and no GPU"
    )
    parser.add_argument(
        "--accelerator", choices=("auto", "cpu", "cuda"), default="auto", help="of the wheels"
    )
    parser.add_argument("--platform", choices=PLATFORMS, default=PLATFORMS[0], help="of the image")
    parser.add_argument("--fetch", action="store_true", help="allow downloads over 1 GB")
    parser.add_argument("--cache", type=Path, metavar="DIR", help="where wheels and logs are kept")


def main(args: argparse.Namespace) -> int:
    """0 when the bundle is there; 2 is wrong usage, 13 what cannot be had, 15 a place or its space."""
    from suite.datasets.errors import DatasetError
    from suite.images.build import CACHE
    from suite.images.bundle_manifest import BundleProblem
    from suite.images.bundling import Order, make
    from suite.images.errors import ImageProblem
    from suite.runtime.attestation import EngineProblem
    from suite.runtime.environment_errors import EnvironmentMissing, LargeDownload

    try:
        order = Order(
            args.workload,
            args.framework,
            args.rules or _rules(args.framework),
            _accelerator(args.framework, args.accelerator),
            args.platform,
            args.image_format,
            args.fetch,
        )
        made = make(order, args.dest.absolute(), args.cache or CACHE, _say)
    except (ImageProblem, EngineProblem, EnvironmentMissing, LargeDownload) as error:
        return _refuse(str(error), MISSING)
    except (BundleProblem, LockProblem, rules.MalformedRules) as error:
        return _refuse(str(error), USAGE)
    except DatasetError as error:
        return _refuse(str(error), error.exit_code)
    except OSError as error:
        return _refuse(f"{error.filename or args.dest}: {error.strerror or error}", STORAGE)
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
    from suite.images.bundle_manifest import read_manifest

    manifest = read_manifest(folder)
    size = sum(file["bytes"] for file in manifest["files"].values())
    print(
        f"bundle: {folder} ({len(manifest['files'])} files, {size / 1e9:.2f} GB, rules {manifest['rules']})"
    )
    print("not in it:")
    for row in manifest["elsewhere"]:
        print(f"  {row['name']}: {row['address'] or row['reason']}")
    print(f"where it is brought to: make run WORKLOAD={workload} FRAMEWORK={framework} BUNDLE={folder.name}")


def _refuse(message: str, code: int) -> int:
    print(f"fetch: {message}", file=sys.stderr)
    return code


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
