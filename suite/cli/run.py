"""``python -m suite run``: run one workload in one framework five times, write the log and check it.

Hydra composes the options, the plan decides, the harness measures, the checker judges.
"""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from suite.containers.engines.native import PROJECT
from suite.contract import BENCHMARK, CONVERSION
from suite.plan.errors import BadConfiguration, Refusal, StorageProblem
from suite.plan.settings import Settings, validate

if TYPE_CHECKING:
    from suite.plan.plan import Plan
    from suite.plan.prepared import PreparedRun, Resources

NOTHING_MEASURED = "interrupted before anything was measured"
INTERNAL, OUT_OF_MEMORY, INTERRUPTED = 2, 21, 130


def main(argv: list[str]) -> int:
    """Run what ``argv`` (Hydra overrides and flags) describes; returns the exit code of the command."""
    from suite.cli.overrides import check_overrides

    check_overrides(argv)
    return compose_and(argv, one_run)


def compose_and(argv: list[str], action: Callable[[Settings], int], kind: str = BENCHMARK) -> int:
    """Compose with Hydra as its users expect (-m, --cfg, --resolve, +experiment=) and call ``action``."""
    import hydra
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import DictConfig, OmegaConf

    codes: list[int] = []

    @hydra.main(version_base="1.3", config_path=str(PROJECT / "conf"), config_name="run")
    def task(config: DictConfig) -> None:
        overrides = tuple(HydraConfig.get().overrides.task)
        try:
            tree = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
            if not isinstance(tree, dict):
                raise BadConfiguration("the configuration must be a mapping")
            codes.append(action(validate({str(k): v for k, v in tree.items()}, overrides, kind)))
            if codes[-1] == INTERRUPTED:
                raise KeyboardInterrupt  # a sweep ends with the run that was interrupted
        except Refusal as error:
            codes.append(refuse(error))
        except Exception:  # noqa: BLE001 - a bug of ours must not read as "rejected", which is exit code 1
            traceback.print_exc()
            codes.append(INTERNAL)

    previous = sys.argv
    try:
        # A sweep leaves its multirun.yaml somewhere: not in the folder that the user stands in.
        with tempfile.TemporaryDirectory(prefix="suite-sweep-") as place:
            sys.argv = ["python -m suite run", f"hydra.sweep.dir={place}", *argv]
            task()
    except SystemExit as stop:
        if stop.code not in (0, None) and not codes:
            return BadConfiguration.code  # Hydra has printed what is wrong with the overrides
        raise
    finally:
        sys.argv = previous
    return max(codes, default=0)


def refuse(error: Refusal) -> int:
    """Print a refusal and return its exit code."""
    print(f"error: {error}", file=sys.stderr)
    return error.code


def one_run(settings: Settings, measure: bool = True) -> int:
    """Plan, prepare, measure, check and print one run; without ``measure`` only what a conversion makes."""
    from suite.cli import conversion, dry
    from suite.datasets import errors as dataset_errors
    from suite.harness.run import execute
    from suite.plan.machine import detect_machine
    from suite.plan.resolve import resolve

    if settings.slurm is not None and not settings.slurm.on_node:
        from suite.cli.on_slurm import submit_run

        return submit_run(settings, settings.slurm, measure)
    plan = resolve(settings, detect_machine())
    if settings.dry:
        return dry.show(plan)
    resources = prepare_resources(plan)
    if not measure:
        return conversion.finish(plan, resources)
    try:
        run = complete(plan, resources)
    except KeyboardInterrupt:
        print(f"error: {NOTHING_MEASURED}", file=sys.stderr)
        return INTERRUPTED
    try:
        outcome = execute(counted(run))
    except OSError as error:  # LogError, or the ledger of attempts
        raise StorageProblem(error.strerror or str(error)) from error
    except dataset_errors.StorageError as error:
        raise StorageProblem(str(error)) from error
    if outcome.exit_code:
        print(f"error: {outcome.message}", file=sys.stderr)
    elif plan.kind == CONVERSION:
        return conclude(outcome.folder, conversion.finish(plan, resources))
    return conclude(outcome.folder, outcome.exit_code)


def prepare_resources(plan: Plan, name: str = "") -> Resources:
    """Make what a run needs: folders, bundle, data and workers. Raises a Refusal.

    ``name`` stands before the reasons of what was decided by itself.
    """
    from suite.harness.conversion import check_size
    from suite.plan import prepare

    prepare.check_path_options(plan)
    for line in plan.why:
        _say(f"{name}: {line}" if name else line)
    bundle = prepare.prepare_bundle(plan)
    dataset = prepare.prepare_data(plan, bundle)
    if plan.kind == CONVERSION:
        check_size(plan, dataset)
    return prepare.prepare_workers(plan, dataset, bundle)


def complete(plan: Plan, resources: Resources) -> PreparedRun:
    """The run of ``plan``, with the largest batch where that is asked for, and its header checked."""
    from suite.harness.attempts import next_attempt
    from suite.harness.largest import find_largest
    from suite.plan.prepare import prepare_run

    plan = find_largest(plan, resources, _say)
    try:
        attempt = next_attempt(plan.settings.results_dir, plan.key)
    except OSError as error:
        raise StorageProblem(error.strerror or str(error)) from error
    return prepare_run(plan, resources, attempt)


def counted(run: PreparedRun) -> PreparedRun:
    """``run`` once the ledger has its attempt. OSError from the ledger.

    Prepared anew where another run of the same benchmark was counted since it was prepared.
    """
    from suite.harness.attempts import count_attempt
    from suite.plan.prepare import prepare_run

    plan, settings = run.plan, run.plan.settings
    attempt = count_attempt(settings.results_dir, plan.key, settings.purpose, plan.run_id)
    return run if attempt == run.attempt else prepare_run(plan, run.resources, attempt)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def conclude(folder: os.PathLike[str], failed: int) -> int:
    """Print the table and the verdict of what was written."""
    from pathlib import Path

    from suite.checker import check_result
    from suite.cli.check import print_verdict
    from suite.report.table import print_table

    path = Path(folder)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    verdict = check_result(path)
    if verdict.record is not None and failed in (0, OUT_OF_MEMORY):
        print_table(verdict.record)
    print_verdict(verdict, brief=True)
    print(f"result: {shown}")
    return failed or (0 if verdict.accepted else 1)
