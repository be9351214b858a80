"""``python -m suite run``: run one workload in one framework five times, write the log and check it.

Hydra composes the options, the plan decides them, the harness measures, and the checker checks the log.
"""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from suite.cli.guard import INTERRUPTED, discard_output, progress, relative, storage_problems
from suite.containers.engines.native import PROJECT
from suite.contract import BENCHMARK, CONVERSION
from suite.plan.errors import BadConfiguration, Refusal
from suite.plan.settings import Settings, validate

if TYPE_CHECKING:
    from suite.harness.remote_node import RemoteNode
    from suite.launch.placement import Placement
    from suite.plan.plan import Plan
    from suite.plan.prepared import PreparedRun, Resources

NOTHING_MEASURED = "interrupted before anything was measured"
INTERNAL, OUT_OF_MEMORY = 2, 21


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

    from suite.cli.overrides import split_arguments

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
                raise KeyboardInterrupt  # an interrupted run ends the sweep
        except Refusal as error:
            codes.append(refuse(error))
        except BrokenPipeError:  # Hydra would print a traceback
            codes.append(discard_output())
        except Exception:  # noqa: BLE001 - a bug must not end with exit code 1, which means "rejected"
            traceback.print_exc()
            codes.append(INTERNAL)

    previous = sys.argv
    try:
        # A sweep writes multirun.yaml: not into the working directory.
        with tempfile.TemporaryDirectory(prefix="suite-sweep-") as folder:
            flags, options = split_arguments(argv)  # as in Hydra's own programs, -m may come first
            sys.argv = ["python -m suite run", *flags, *options, f"hydra.sweep.dir={folder}"]
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


def one_run(settings: Settings, measure: bool = True, here: Placement | None = None) -> int:
    """Plan, prepare, measure, check and print one run; without ``measure`` only convert the dataset.

    Over several nodes this process is node 0, at ``here``.
    """
    from suite.cli import conversion, dry
    from suite.harness.run import execute
    from suite.plan.machine import detect_machine
    from suite.plan.resolve import resolve

    if settings.slurm is not None and not settings.slurm.on_node:
        from suite.cli.on_slurm import submit_run

        return submit_run(settings, settings.slurm, measure)
    if settings.kubernetes is not None and not settings.kubernetes.in_pod:
        from suite.cli.on_kubernetes import write_run

        return write_run(settings, settings.kubernetes)
    if settings.nodes > 1 and here is None:
        raise BadConfiguration(
            f"nodes: expected a launcher that starts {settings.nodes} machines, found {settings.launcher}; "
            "use LAUNCHER=slurm or kubernetes, or start `python -m suite node` on each (docs/scaling.md)"
        )
    plan = resolve(settings, detect_machine())
    if settings.dry:
        return dry.show(plan)
    resources = prepare_resources(plan)
    if not measure:
        return conversion.finish(plan, resources)
    try:
        run = prepare_with_header(plan, resources)
    except KeyboardInterrupt:
        print(f"error: {NOTHING_MEASURED}", file=sys.stderr)
        return INTERRUPTED
    with other_nodes(run, here) as others:
        with storage_problems():
            outcome = execute(with_counted_attempt(run), others=others)
        if outcome.exit_code:
            print(f"error: {outcome.message}", file=sys.stderr)
            for path in sorted(plan.settings.results_dir.glob(f"{plan.run_id}.debug/**/*.log")):
                print(f"  output of the worker: {relative(path)}", file=sys.stderr)
        elif plan.kind == CONVERSION:
            return print_outcome(outcome.folder, conversion.finish(plan, resources))
        return print_outcome(outcome.folder, outcome.exit_code)


@contextmanager
def other_nodes(run: PreparedRun, here: Placement | None) -> Iterator[Sequence[RemoteNode]]:
    """The nodes of ``run`` but this one, node 0, for the length of the context; none with one node.

    They leave at the end, when this node has printed everything: launchers end a job soon after a node.
    """
    if here is None or run.nodes == 1:
        yield ()
        return
    from suite.harness.meeting import gather

    progress(f"waiting for {run.nodes - 1} more of {run.nodes} nodes")
    others = gather(run, run.nodes, here.port, here.token, here.join_s)
    try:
        yield others
    finally:
        for node in others:
            node.dismiss()


def prepare_resources(plan: Plan, name: str = "") -> Resources:
    """Prepare the bundle, the data and the workers of a run. Raises a Refusal.

    ``name`` is a prefix of the printed reasons and warnings of the plan.
    """
    from suite.cli.estimate import warnings_of
    from suite.harness.conversion import check_size
    from suite.plan import prepare

    prepare.check_path_options(plan)
    for line in (*plan.why, *(f"warning: {text}" for text in warnings_of(plan))):
        progress(f"{name}: {line}" if name else line)
    bundle = prepare.prepare_bundle(plan)
    dataset = prepare.prepare_data(plan, bundle)
    if plan.kind == CONVERSION:
        check_size(plan, dataset)
    return prepare.prepare_workers(plan, dataset, bundle)


def prepare_with_header(plan: Plan, resources: Resources) -> PreparedRun:
    """The run of ``plan`` with its checked header, after the search of batch=max and the pilot."""
    from suite.harness.attempts import next_attempt
    from suite.harness.largest import find_largest
    from suite.harness.pilot import fix_steps
    from suite.plan.prepare import prepare_run

    plan = fix_steps(find_largest(plan, resources, progress), resources, progress)
    with storage_problems():
        attempt = next_attempt(plan.settings.results_dir, plan.key)
    return prepare_run(plan, resources, attempt)


def with_counted_attempt(run: PreparedRun) -> PreparedRun:
    """``run`` after its attempt is in the ledger. Raises OSError.

    Its header is prepared again if another run of the same benchmark was counted meanwhile.
    """
    from suite.harness.attempts import count_attempt
    from suite.plan.prepare import prepare_run

    plan, settings = run.plan, run.plan.settings
    attempt = count_attempt(settings.results_dir, plan.key, settings.purpose, plan.run_id)
    return run if attempt == run.attempt else prepare_run(plan, run.resources, attempt)


def print_outcome(folder: os.PathLike[str], failed: int) -> int:
    """Print the table and the verdict of the result; returns the exit code."""
    from pathlib import Path

    from suite.checker import check_result
    from suite.cli.check import print_verdict
    from suite.report.remarks import print_remarks
    from suite.report.table import print_table

    path = Path(folder)
    verdict = check_result(path)
    if verdict.record is not None and failed in (0, OUT_OF_MEMORY):
        print_table(verdict.record)
        print_remarks(verdict.record, verdict.findings)
    print_verdict(verdict, brief=True)
    print(f"result: {relative(path)}")
    return failed or (0 if verdict.accepted else 1)
