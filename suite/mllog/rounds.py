"""What the rounds of MLPerf Training require, as data: numbers of runs, targets, spellings.

Facts of the published rules (``training_policies``) and of the rule files of ``mlperf-logging`` 4.1.68
(``benchmark_meta.py``; ``training_*/closed_*.yaml``), as far as they state it. Nothing else is judged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath

from suite.mllog.events import V05, V06, number

Round = tuple[int, int]
_NAME = re.compile(r"v?([0-9]{1,2})\.([0-9]{1,2})(?:\.0)?")
_REPOSITORY = re.compile(r"(?:training|hpc)_results_v([0-9]{1,2}\.[0-9]{1,2})")
FIRST_SEEDED: Round = (1, 0)  # the first round whose package checker compares seeds
STATUSES = ("cloud", "onprem", "preview", "research")

RUNS: Mapping[str, int] = {
    "bert": 10, "dlrm": 5, "dlrm_dcnv2": 10, "dlrmv4": 10, "gnmt": 10, "gpt3": 3, "maskrcnn": 5, "minigo": 10,
    "resnet": 5, "ssd": 5, "retinanet": 5, "stable_diffusion": 10, "transformer": 10, "rnnt": 10,
    "unet3d": 40, "gnn": 10, "rgat": 10, "llama2_70b_lora": 10, "llama31_405b": 3, "llama31_8b": 10,
    "flux1": 10, "gpt_oss_20b": 10, "deepseekv3_671b": 3, "qwen35_397b_grpo": 3,
    "deepcam": 5, "cosmoflow": 10, "oc20": 5, "openfold": 10,
}  # fmt: skip
NCF_RUNS, NCF_COUNTED = 100, 50  # v0.5 only: the first 50 of 100 runs that converge count
DROPPED: Mapping[str, int] = {"unet3d": 4}  # fastest and slowest runs left out; one each of other benchmarks

# Other spellings of a benchmark, in folders of published rounds and in v0.5.
ALIASES: Mapping[str, str] = {"mask": "maskrcnn", "mask_rcnn": "maskrcnn", "resnet50": "resnet"}
# Keys of v0.5 and their names in later rounds.
V05_KEYS: Mapping[str, str] = {
    "run_set_random_seed": "seed", "input_batch_size": "global_batch_size", "run_clear_caches": "cache_clear",
    "input_size": "train_samples", "eval_size": "eval_samples", "train_epoch": "epoch_start",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bound:
    """A target from round ``since`` on: the least and the greatest allowed value of each part."""

    since: Round
    least: Mapping[str, float]  # by the name of the part; "" where the value is one number
    most: Mapping[str, float]

    def met(self, value: object) -> bool | None:
        """Whether ``value``, a number or numbers by name, meets the target; None where a part is missing."""
        parts = value if isinstance(value, Mapping) else {"": value}
        mlperf_round = {name: number(parts.get(name)) for name in (*self.least, *self.most)}
        if any(found is None for found in mlperf_round.values()):
            return None
        good = all((mlperf_round[name] or 0.0) >= bound for name, bound in self.least.items())
        return good and all((mlperf_round[name] or 0.0) <= bound for name, bound in self.most.items())

    def __str__(self) -> str:
        parts = [f"{name} at least {bound:g}".strip() for name, bound in self.least.items()]
        return ", ".join(parts + [f"{name} at most {bound:g}".strip() for name, bound in self.most.items()])


def _least(since: Round, bound: float) -> Bound:
    return Bound(since, {"": bound}, {})


def _most(since: Round, bound: float) -> Bound:
    return Bound(since, {}, {"": bound})


_BOXES = Bound((0, 5), {"BBOX": 0.377, "SEGM": 0.339}, {})
TARGETS: Mapping[str, tuple[Bound, ...]] = {
    "bert": (_least((0, 7), 0.706), _least((1, 0), 0.72)),  # 0.712 in v0.7 with a batch under 8192
    "dlrm": (_least((0, 7), 0.8025),),
    "dlrm_dcnv2": (_least((3, 0), 0.80275),),
    "gnmt": (_least((0, 5), 0.218), _least((0, 6), 0.24)),
    "maskrcnn": (_BOXES,),
    "minigo": (_least((0, 7), 0.5),),
    "ncf": (_least((0, 5), 0.635),),
    "resnet": (_least((0, 5), 0.749), _least((0, 6), 0.759)),
    "retinanet": (_least((5, 0), 0.34),),
    "rnnt": (_most((1, 0), 0.058),),
    "ssd": (_least((0, 5), 0.212), _least((0, 6), 0.23), _least((2, 0), 0.34)),
    "stable_diffusion": (Bound((3, 1), {"CLIP": 0.15}, {"FID": 90.0}),),
    "transformer": (_least((0, 5), 0.25),),
    "unet3d": (_least((1, 0), 0.908),),
    "gnn": (_least((4, 0), 0.72),),
    "rgat": (_least((5, 0), 0.72),),
    "gpt3": (_most((3, 0), 2.69),),
    "llama2_70b_lora": (_most((4, 0), 0.925),),
    "llama31_405b": (_most((5, 0), 5.6),),
    "llama31_8b": (_most((5, 1), 3.3),),
    "flux1": (_most((5, 1), 0.586),),
    "gpt_oss_20b": (_most((6, 0), 3.34),),
    "deepseekv3_671b": (_most((6, 0), 3.6),),
}
# Some logs of these benchmarks hold percent (BLEU 24.0), some the fraction (0.24): over 1.5 it is percent.
FRACTIONS = ("gnmt", "transformer", "ssd", "resnet", "ncf")


def parse_round(text: str) -> Round | None:
    """The round in ``text`` ("0.7", "v4.1", "2.0.0"); None for other text."""
    match = _NAME.fullmatch(text)
    return (int(match[1]), int(match[2])) if match else None


def is_repository(name: str) -> bool:
    """Whether a folder's name is that of a published repository (``training_results_v0.7``)."""
    return _REPOSITORY.search(name) is not None


def round_of(path: PurePath, formats: tuple[str, ...]) -> Round | None:
    """The round by the name of a published repository in ``path``, else by a format that only one used."""
    for part in reversed(path.parts):
        match = _REPOSITORY.search(part)
        if match:
            return parse_round(match[1])
    only_format = formats[0] if len(formats) == 1 else ""
    return {V05: (0, 5), V06: (0, 6)}.get(only_format)


def target_for(benchmark: str, mlperf_round: Round | None) -> Bound | None:
    """The target of ``benchmark`` in ``mlperf_round``; None where the table has none.

    Without a round: the target of v0.7 and all later rounds, if they agree.
    """
    bounds = TARGETS.get(benchmark, ())
    if mlperf_round is not None:
        fitting = [bound for bound in bounds if bound.since <= mlperf_round]
        return fitting[-1] if fitting else None
    at_v07 = [bound for bound in bounds if bound.since <= (0, 7)][-1:]
    possible = [*at_v07, *(bound for bound in bounds if bound.since > (0, 7))]
    return possible[0] if len(possible) == 1 else None


def normalised(benchmark: str, value: object) -> object:
    """``value`` as a fraction where some logs of the benchmark hold percent."""
    size = number(value)
    return size / 100 if benchmark in FRACTIONS and size is not None and size > 1.5 else value


def benchmark_name(text: str) -> str:
    """The name of a benchmark in the tables of this module."""
    lower = text.casefold()
    return ALIASES.get(lower, lower)


def init_limit_minutes(mlperf_round: Round | None, division: str) -> int:
    """The longest allowed initialisation: 20 minutes before v1.0, then 30, and four hours in open."""
    if division == "open" and (mlperf_round is None or mlperf_round >= (1, 0)):
        return 240
    return 20 if mlperf_round is not None and mlperf_round < (1, 0) else 30
