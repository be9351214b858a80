"""The verbs that prepare a machine and test pairs: data, environments, images, bundles; part of verbs.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from suite.cli.arguments import (
    ACCELERATOR,
    BUILD,
    BUNDLE_FORMATS,
    CONVERSION,
    JUNIT,
    LOCK_NAME,
    PLATFORM,
    RULES,
    SEVERAL,
    THREADS,
    Verb,
    format_of,
    positional,
)
from suite.plan import options as run
from suite.plan.options import Option

SETUP_VERBS = (
    Verb(
        "data", "suite.cli.data", (
            replace(run.WORKLOAD, help="whose dataset", required=True),
            Option(
                "scale", "the published data, or generated", ("reference", "mini"), default="reference"
            ),
            Option("from", "take this copy (zip, file or folder)", metavar="PATH", type=Path),
            Option(
                "custom", "the copy contains custom images, for runs in division open", switch=True
            ),
            Option("verify", "only compute and compare all checksums", switch=True),
            run.DATA_ROOT,
        ),
        storage_code=15,
    ),
    Verb(
        "preprocess", "suite.cli.preprocess",
        overrides=CONVERSION, hydra=True,
    ),
    Verb(
        "baseline", "suite.cli.baseline", (
            Option("quick", "shorter windows: the group cpu takes less than a minute", switch=True),
            Option("group", "measure only this group", ("all", "cpu", "gpu", "disk"), default="all"),
            Option(
                "disk", "measure the disk of this folder, by fio on files that are removed afterwards",
                metavar="DIR", type=Path,
            ),
            Option(
                "log", "measure nothing: check and show this log", metavar="DIR", type=Path,
            ),
            replace(run.BASELINES, help="where baselines are kept"),
            run.FETCH,
        ),
        storage_code=15,
    ),
    Verb(
        "doctor", "suite.cli.doctor", (
            replace(run.WORKLOAD, help="whose data and images (default: all)"),
            replace(run.FRAMEWORK, help="whose images must fit (default: all, as hints)", many=True),
            replace(run.RUNTIME, default="auto", usual=""),
            Option("start", "start a container to test it", switch=True, default=True),
            JUNIT,
            *run.PATHS,
        ),
    ),
    Verb(
        "environments", "suite.cli.environments", (
            positional(
                Option("framework", "which (default: all, and the tools of the data)", metavar="NAME"),
                many=True,
            ),
            replace(ACCELERATOR, help="of the environments"),
            run.FETCH,
        ),
        storage_code=15,
    ),
    Verb(
        "image list", "suite.cli.image",
        (RULES, format_of(), PLATFORM), function="show", storage_code=15,
    ),
    Verb(
        "image build", "suite.cli.image",
        (*BUILD, run.FETCH, replace(run.CACHE_DIR, default=None)), function="build", storage_code=15,
    ),
    Verb(
        "image publish", "suite.cli.image", BUILD,
        function="publish", storage_code=15,
    ),
    Verb(
        "image lock", "suite.cli.image", (
            *(RULES, LOCK_NAME),
            Option("repin", "replace pinned values that differ from the image registry", switch=True),
        ),
        function="write", storage_code=15,
    ),
    Verb(
        "image lock-check", "suite.cli.image", (RULES, LOCK_NAME), function="verify", storage_code=15,
    ),
    Verb(
        "fetch", "suite.cli.fetch", (
            replace(run.WORKLOAD, required=True),
            replace(run.FRAMEWORK, required=True),
            Option(
                "dest", "a folder that is not there yet", metavar="DIR", type=Path, required=True
            ),
            Option(
                "image_format",
                "oci: the pair's image; sif, sqsh: its base for apptainer, enroot; none: no image",
                BUNDLE_FORMATS, default="oci",
            ),
            Option(
                "part_size", "split larger files into parts of this size, which a run joins and verifies",
                metavar="57m",
            ),
            replace(
                RULES, help="practice where a stand-in image is to be had, and no GPU", default=None
            ),
            *(ACCELERATOR, PLATFORM, run.FETCH, replace(run.CACHE_DIR, default=None)),
        ),
        storage_code=15,
    ),
    Verb(
        "equivalence", "tests.equivalence.table",
        (
            replace(run.WORKLOAD, help=SEVERAL, values=(), metavar="A,B", default=""),
            Option("scale", "of the models", ("mini", "reference"), default="mini"),
            Option("precision", "which of the two (default: both)", ("fp64", "fp32")),
            Option(
                "world", "compare so many ranks with one process instead of frameworks", metavar="N,N",
                default="",
            ),
            Option("out", "the page to write", metavar="FILE.md", type=Path),
            run.CACHE_DIR,
            THREADS,
        ),
    ),
    Verb(
        "test-pair", "tests.equivalence.custom_pair", (
            positional(run.WORKLOAD, required=True),
            positional(run.FRAMEWORK, required=True),
            positional(run.PAIR, help="your pair", required=True),
        ),
    ),
)  # fmt: skip
