"""``python -m suite preprocess``: measure the conversion of a workload's pictures, then convert them all.

The words are those of ``run``, with ``to=recordio|tfrecord|lmdb`` in place of the phase and the framework:
``run`` measures 110 shards five times, and what is said here makes the dataset.
"""

from __future__ import annotations

import sys
from functools import partial

from suite.harness.conversion import check_size, convert
from suite.plan.errors import BadConfiguration, one_of
from suite.plan.plan import Plan
from suite.workloads.forms import FRAMEWORK

__all__ = ["check_size", "finish", "main"]
_OURS = ("phase", "framework")  # what to= stands for
_HELP = """\
usage: python -m suite preprocess workload=NAME to=recordio|tfrecord|lmdb [measure=false] [WORD=VALUE …]

Measures the conversion of the workload's pictures like any run, then makes the whole dataset in that form
under data_root, on all cores. Cut off, it goes on where it was; measure=false leaves the measurement out.
Further words are those of `python -m suite run`: scale, batch (pictures of a shard), cache, data_root …"""


def main(argv: list[str]) -> int:
    """Run what ``argv`` describes; returns the exit code of the command."""
    from suite.cli import run

    if {"--help", "-h"} & set(argv):
        print(_HELP)
        return 0
    try:
        words, measure = translate(argv)
        from suite.cli.words import check_words

        check_words(words)
    except BadConfiguration as error:
        return run.refuse(error)
    return run.compose_and(words, partial(run.one_run, measure=measure))


def translate(argv: list[str]) -> tuple[list[str], bool]:
    """The words of ``run`` for those of ``preprocess``, and whether the repeats are wanted."""
    given = dict(word.split("=", 1) for word in argv if "=" in word)
    if "to" not in given:
        raise BadConfiguration(f"to: expected to=<one of {', '.join(FRAMEWORK)}>, found nothing")
    for word in _OURS:
        if word in given:
            raise BadConfiguration(
                f"{word}: expected to=<one of {', '.join(FRAMEWORK)}> alone, which says it"
            )
    rest = [word for word in argv if word.split("=", 1)[0] not in ("to", "measure")]
    rest += ["phase=preprocess", f"framework={FRAMEWORK[one_of('to', given['to'], FRAMEWORK)]}"]
    return rest, one_of("measure", given.get("measure", "true"), ("true", "false")) == "true"


def finish(plan: Plan) -> int:
    """Make the whole conversion of a prepared ``plan``, say where it lies; the exit code of what failed."""
    from suite.datasets.errors import DatasetError
    from suite.harness.run import EXIT_CODES
    from suite.harness.worker_process import WorkerFailure

    debug = plan.settings.results_dir / f"{plan.run_id}.debug" / "conversion.log"
    try:
        folder = convert(plan, debug)
    except WorkerFailure as failure:
        print(
            f"error: {failure.code} in the conversion, phase {failure.phase}: {failure.message}",
            file=sys.stderr,
        )
        return EXIT_CODES[failure.code]
    except DatasetError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(f"converted: {folder}")
    return 0
