"""What a load, the input pipeline alone, refuses beyond what a benchmark refuses."""

from __future__ import annotations

from suite.contract import Key
from suite.plan.errors import BadConfiguration, Unsupported
from suite.plan.settings import Settings
from suite.workloads import specification


def require_loadable(settings: Settings, key: Key) -> None:
    """Refuse data that are no image files, and options that need a model."""
    if key.data != "real":
        raise BadConfiguration(f"data: a load reads the dataset's files; expected real, found {key.data}")
    if len(specification(key.workload).LOADERS) == 1:
        raise Unsupported(
            f"phase: expected train or infer, found {key.phase}: {key.workload} reads no image files, its "
            "batches come from memory"
        )
    of_model: dict[str, object] = {
        "precision": "fp32",
        "pair": None,
        "fast": True,
        "hyper": {},
        "reuse_compiled": False,
    }
    for option, usual in of_model.items():
        if (found := getattr(settings, option)) != usual:
            raise BadConfiguration(f"{option}: a load has no model; leave it out, found {found}")
    for option in ("batch_max", "min_seconds"):
        if getattr(settings, option):
            raise BadConfiguration(f"{option.removesuffix('_max')}: a load has no probes; give a number")
