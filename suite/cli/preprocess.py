"""``python -m suite preprocess``: measure the conversion of a workload's images, then convert them all.

The conversion is measured like any run, 110 shards five times; then the whole dataset is made in that
storage format under data_root, on all cores. Cut off, it goes on where it was; measure=false leaves the
measurement out. ``to=`` says what ``run`` calls framework and storage.
"""

from __future__ import annotations

from functools import partial

from suite.cli import run
from suite.cli.overrides import check_overrides
from suite.contract import CONVERSION
from suite.contract.traits import storage_formats
from suite.plan.errors import BadConfiguration, one_of

_OURS = ("phase", "framework", "storage")  # what to= stands for


def main(argv: list[str]) -> int:
    """Run what ``argv`` describes; returns the exit code of the command."""
    options, measure = translate(argv)
    check_overrides(options)
    return run.compose_and(options, partial(run.one_run, measure=measure), CONVERSION)


def translate(argv: list[str]) -> tuple[list[str], bool]:
    """The options of ``run`` for those of ``preprocess``, and whether the repeats are wanted."""
    given = dict(option.split("=", 1) for option in argv if "=" in option)
    if "to" not in given:
        raise BadConfiguration(f"to: expected to=<one of {', '.join(storage_formats())}>, found nothing")
    for name in _OURS:
        if name in given:
            raise BadConfiguration(
                f"{name}: expected to=<one of {', '.join(storage_formats())}> alone, which says it"
            )
    rest = [option for option in argv if option.split("=", 1)[0] not in ("to", "measure")]
    storage = one_of("to", given["to"], storage_formats())
    rest += [f"storage={storage}", f"framework={storage_formats()[storage]}"]
    return rest, one_of("measure", given.get("measure", "true"), ("true", "false")) == "true"
