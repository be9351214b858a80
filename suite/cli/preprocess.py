"""``python -m suite preprocess``: measure the conversion of a workload's images, then convert them all.

The conversion is measured like any run, 110 shards five times; then the whole dataset is converted on all
cores, to a folder under data_root. An interrupted conversion continues; measure=false skips the measurement.
``to=`` stands for the options framework and storage of ``run``.

``resize=256 encode=raw`` stores squares of 256 pixels instead of the unchanged files, as rows of RGB or
(``encode=jpeg``) as JPEG files. No run reads such a dataset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from suite.cli import run
from suite.cli.overrides import check_overrides
from suite.contract import CONVERSION
from suite.contract.traits import storage_formats
from suite.plan.errors import BadConfiguration, one_of
from suite.plan.settings import Settings
from suite.workloads.storage import KINDS, LARGEST

_IMPLIED = ("phase", "framework", "storage")  # what to= stands for


def main(argv: list[str]) -> int:
    """Run the conversion that ``argv`` describes; returns the exit code of the command."""
    options, measure, encoding = translate(argv)
    check_overrides(options, verb="preprocess")

    def action(settings: Settings) -> int:
        return run.one_run(replace(settings, encoding=encoding), measure=measure)

    return run.compose_and(options, action, CONVERSION)


def translate(argv: list[str]) -> tuple[list[str], bool, str]:
    """The options of ``run`` for those of ``preprocess``, the value of ``measure``, and the encoding."""
    given = dict(option.split("=", 1) for option in argv if "=" in option)
    if "to" not in given:
        raise BadConfiguration(f"to: expected to=<one of {', '.join(storage_formats())}>, found nothing")
    for name in _IMPLIED:
        if name in given:
            raise BadConfiguration(
                f"{name}: expected to=<one of {', '.join(storage_formats())}> instead, which sets it"
            )
    rest = [option for option in argv if option.split("=", 1)[0] not in ("to", "measure", "resize", "encode")]
    storage = one_of("to", given["to"], storage_formats())
    rest += [f"storage={storage}", f"framework={storage_formats()[storage]}"]
    measure = one_of("measure", given.get("measure", "true"), ("true", "false")) == "true"
    return rest, measure, _encoding(given)


def _encoding(given: Mapping[str, str]) -> str:
    """The encoding of the stored images that ``resize`` and ``encode`` describe together."""
    if "resize" not in given and "encode" not in given:
        return "file"
    if missing := {"resize", "encode"} - given.keys():
        raise BadConfiguration(
            f"{missing.pop()}: expected resize=<pixels> and encode=<{' or '.join(KINDS)}> together, found one"
        )
    size = given["resize"]
    if not size.isdecimal() or not 1 <= int(size) <= LARGEST:
        raise BadConfiguration(f"resize: expected a number of pixels from 1 to {LARGEST}, found {size}")
    return f"{one_of('encode', given['encode'], KINDS)}-{int(size)}"
