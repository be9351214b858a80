"""``python -m suite preprocess``: measure the conversion of a workload's images, then convert them all.

The conversion is measured like any run, 110 shards five times; then the whole dataset is converted on all
cores, to a folder under data_root. An interrupted conversion continues; measure=false skips the measurement.
``to=`` stands for the options framework and storage of ``run``.
"""

from __future__ import annotations

from functools import partial

from suite.cli import run
from suite.cli.overrides import check_overrides
from suite.contract import CONVERSION
from suite.contract.traits import storage_formats
from suite.plan.errors import BadConfiguration, one_of

_IMPLIED = ("phase", "framework", "storage")  # what to= stands for


def main(argv: list[str]) -> int:
    """Run the conversion that ``argv`` describes; returns the exit code of the command."""
    options, measure = translate(argv)
    check_overrides(options, verb="preprocess")
    return run.compose_and(options, partial(run.one_run, measure=measure), CONVERSION)


def translate(argv: list[str]) -> tuple[list[str], bool]:
    """The options of ``run`` for those of ``preprocess``, and the value of ``measure``."""
    given = dict(option.split("=", 1) for option in argv if "=" in option)
    if "to" not in given:
        raise BadConfiguration(f"to: expected to=<one of {', '.join(storage_formats())}>, found nothing")
    for name in _IMPLIED:
        if name in given:
            raise BadConfiguration(
                f"{name}: expected to=<one of {', '.join(storage_formats())}> instead, which sets it"
            )
    rest = [option for option in argv if option.split("=", 1)[0] not in ("to", "measure")]
    storage = one_of("to", given["to"], storage_formats())
    rest += [f"storage={storage}", f"framework={storage_formats()[storage]}"]
    return rest, one_of("measure", given.get("measure", "true"), ("true", "false")) == "true"
