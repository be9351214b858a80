"""What a benchmark refuses: options that contradict each other, the machine, the pair or the rules."""

from __future__ import annotations

from suite import rules as rulebook
from suite.common.support import loaders, unsupported
from suite.contract import LOAD, Key
from suite.contract.traits import traits_of
from suite.plan.conversion import rules_of
from suite.plan.errors import BadConfiguration, RuleProblem, Unsupported
from suite.plan.load import require_loadable
from suite.plan.machine import Machine
from suite.plan.options import AUTO
from suite.plan.settings import Settings
from suite.workloads import specification

_RULES_OF_WORKLOAD = (  # the fields that harness and checker read of every workload
    *("batches", "precisions", "synthetic_cycle", "first_loss", "quality", "initial_parameters"),
    "fingerprint",
)
_RULES_OF_FINGERPRINT = ("batch", "losses", "tolerances")


def require_rules_of_workload(rules: rulebook.Rules, workload: str) -> None:
    """RuleProblem if the rules of a new workload are missing, cannot be read, or lack a field."""
    file, guide = f"rules/{rules.version}/workloads/{workload}.json", "docs/adding-a-workload.md, Rules"
    if not rules.has("workloads", workload):
        raise RuleProblem(
            f"workload: the rules {rules.version} have no file for {workload}: write {file} ({guide})"
        )
    try:
        held = rules.workload(workload)
    except ValueError as error:
        raise RuleProblem(f"{file}: expected JSON, found another text: {error}") from error
    lacking = [name for name in _RULES_OF_WORKLOAD if name not in held]
    fingerprint = held.get("fingerprint", {})
    lacking += [
        f"fingerprint.{name}" for name in _RULES_OF_FINGERPRINT if fingerprint and name not in fingerprint
    ]
    if lacking:
        raise RuleProblem(f"{file}: expected the fields {', '.join(lacking)}, found none of them ({guide})")


def require_possible(settings: Settings, key: Key, on_gpu: bool, machine: Machine) -> None:
    """Refuse what the workload, the pair or the machine cannot do, and options that exclude each other."""
    if settings.kind == LOAD:
        require_loadable(settings, key)
    if settings.mode == "quality" and settings.phase != "train":
        raise BadConfiguration(f"mode: quality trains to a target, found phase={settings.phase}")
    if key.precision not in specification(key.workload).PRECISIONS:
        raise Unsupported(f"precision: {key.workload} has no {key.precision}")
    capability = machine.gpus[0].capability if on_gpu else ""
    if reason := unsupported(key, "cuda:0" if on_gpu else "cpu", capability):
        raise Unsupported(reason)
    if settings.nodes > 1:
        _require_several_nodes_possible(settings)
    if settings.devices % settings.nodes:
        raise BadConfiguration(
            f"nodes: expected a divisor of the {settings.devices} devices, found {settings.nodes}"
        )
    if settings.devices > 1:
        _require_ranks(settings, key, on_gpu, machine)
    if settings.loader not in loaders(key):
        why = "synthetic data are not read" if key.data == "synthetic" else f"{key.workload} reads no images"
        raise Unsupported(f"loader: {why}: expected native, found {settings.loader}; use loader=native")
    if settings.storage != "files":
        _require_storage_readable(settings, key)
    if key.cache == "cold" and key.data == "synthetic":
        raise BadConfiguration("cache: expected warm with synthetic data, which no file holds, found cold")


def _require_ranks(settings: Settings, key: Key, on_gpu: bool, machine: Machine) -> None:
    """Refuse more devices than the machine has, and training without an exchange of gradients."""
    most, what = (len(machine.gpus), "GPUs") if on_gpu else (machine.cores, "cores, one for each rank")
    if settings.devices_per_node > most and (on_gpu or key.scale != "mini"):
        each = " on each node" if settings.nodes > 1 else ""
        raise Unsupported(f"devices: expected {settings.devices_per_node}{each}, found {most} {what}")
    if settings.mode == "quality" and not key.exchanges:
        raise BadConfiguration("strategy: quality trains one model on all devices, found independent")


def _require_several_nodes_possible(settings: Settings) -> None:
    """Refuse what only one node can do."""
    if settings.device_selection:
        found = ",".join(settings.device_selection)
        raise BadConfiguration(f"devices: expected a number with several nodes, found [{found}]")
    if settings.batch_max:
        raise BadConfiguration("batch: expected a number with several nodes, found max; search on one node")
    if settings.min_seconds is not None:
        raise BadConfiguration(
            "min_seconds: a pilot on one node decides the steps; with several nodes choose STEPS"
        )


def _require_storage_readable(settings: Settings, key: Key) -> None:
    """Refuse a storage format for data that have none, and one that the framework cannot read."""
    if key.data == "synthetic":
        raise BadConfiguration(f"storage: expected files with synthetic data, found {settings.storage}")
    name = specification(key.workload).DATASETS[key.scale]
    if not rules_of(key.scale).holds_images(name):
        raise BadConfiguration(
            f"storage: expected files, found {settings.storage}: only datasets of images in folders have "
            f"storage formats, and {key.workload} reads {name}"
        )
    able = traits_of(key.framework).reads_storage
    if settings.storage not in able and settings.python is None:
        raise Unsupported(
            f"storage: the environment of {key.framework} cannot read {settings.storage}; use "
            f"{' or '.join(able)}"
        )


def require_exchange_options(settings: Settings, key: Key) -> None:
    """Refuse options of an exchange where there is none, and buckets that the framework does not have."""
    for name, found in (("collective", settings.collective), ("bucket_mib", settings.bucket_mib)):
        if not key.exchanges and found not in (AUTO, None):
            raise BadConfiguration(f"{name}: the ranks exchange nothing, found {found}; leave it out")
    if settings.bucket_mib is not None and not traits_of(key.framework).buckets:
        raise Unsupported(f"bucket_mib: {key.framework} has no buckets of gradients whose size can be chosen")


def require_batch_search_allowed(settings: Settings, key: Key, division: str) -> None:
    """BadConfiguration if ``batch=max`` is not allowed."""
    if division == "closed":
        listed = ", ".join(map(str, specification(key.workload).BATCHES[key.scale]))
        raise BadConfiguration(f"batch: closed takes one of {listed}, found max; use division=open")
    if key.scenario == "single_stream":
        raise BadConfiguration("batch: single_stream has batch 1, found max")
    if settings.mode == "quality":
        raise BadConfiguration(
            "batch: max requires mode=throughput, found mode=quality: another batch changes the training"
        )


def require_counts_allowed(settings: Settings, division: str, rules: rulebook.Rules) -> None:
    """BadConfiguration for numbers of repeats and steps that the rules do not allow."""
    given = {name: getattr(settings, name) for name in ("repeats", "steps", "min_seconds")}
    given = {name: value for name, value in given.items() if value is not None}
    if not given:
        return
    first, value = next(iter(given.items()))
    if division == "closed":
        raise BadConfiguration(
            f"{first}: closed has the counts of the rules, found {value}; leave it out, or use division=open"
        )
    if settings.mode == "quality" and (of_window := [name for name in given if name != "repeats"]):
        raise BadConfiguration(
            f"{of_window[0]}: a quality run has no window of fixed steps, found {given[of_window[0]]}"
        )
    if settings.steps is not None and settings.min_seconds is not None:
        raise BadConfiguration(
            f"min_seconds: expected steps or min_seconds, found steps={settings.steps} and "
            f"min_seconds={settings.min_seconds}"
        )
    bounds = rules.limits["declared_counts"]
    least, most = bounds["repeats"]
    if settings.repeats is not None and not least <= settings.repeats <= most:
        raise BadConfiguration(f"repeats: expected {least} to {most}, found {settings.repeats}")
    (low, high), multiple = bounds["measured_steps"], bounds["multiple"]
    if settings.steps is not None and (not low <= settings.steps <= high or settings.steps % multiple):
        raise BadConfiguration(
            f"steps: expected a multiple of {multiple} from {low} to {high}, found {settings.steps}"
        )
    repeats = settings.repeats or rules.limits["modes"][settings.mode]["repeats"]
    steps = repeats * settings.devices * (settings.steps or low)
    if steps > bounds["steps"]:
        raise BadConfiguration(
            f"steps: expected at most {bounds['steps']:,} in all repeats and ranks together, which is what a "
            f"log can hold, found {steps:,}"
        )
