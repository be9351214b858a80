"""What the rounds of MLPerf Training require, as data: numbers of runs, targets, spellings.

Facts of the published rules (``training_policies``) and of the rule files of ``mlperf-logging`` 4.1.68
(``benchmark_meta.py``; ``training_*/closed_*.yaml``), as far as they state it. Nothing else is judged.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from suite.mllog.events import V05, V06, number

Round = tuple[int, int]
_NAME = re.compile(r"v?([0-9]{1,2})\.([0-9]{1,2})(?:\.0)?")
_REPOSITORY = re.compile(r"(?:training|hpc)_results_v([0-9]{1,2}\.[0-9]{1,2})")
FIRST_SEEDED: Round = (1, 0)  # the first round whose package checker compares seeds and batch sizes
FIRST_EXACT: Round = (0, 7)  # the first round whose checker compares evaluations with the target
FREE_TARGET_IN_OPEN: Round = (1, 0)  # the first round whose checker requires no target in open
# All published rounds, of training and of HPC.
ROUNDS: tuple[Round, ...] = (
    (0, 5), (0, 6), (0, 7), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 1), (4, 0), (4, 1), (5, 0), (5, 1),
    (6, 0), (6, 1),
)  # fmt: skip
_FLOAT32 = 1e-6  # relative: 21.79999 is 21.8 in float32
_PERCENT = 1.5  # a larger value is percent
_NUMBER = re.compile(r"([0-9]{1,6}(?:\.[0-9]{0,20})?(?:[eE]-?[0-9]{1,3})?) ?%?")
_PROGRESS = ("epoch", "epoch_num", "iteration", "step", "step_num", "samples_count")
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

# Benchmarks that train for a fixed number of samples and are evaluated afterwards, possibly offline.
FIXED_LENGTH = ("stable_diffusion", "minigo")
CONSTANT_PROGRESS = ("bert",)  # logs count samples, and the epoch stays the same
UNTIL_TARGET = ("bert",)  # train_samples counts the samples until the target, which differ between runs

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

    def met(self, value: object, benchmark: str, mlperf_round: Round | None) -> bool | None:
        """Whether ``value``, as logged, meets the target; None where a part is missing.

        From v0.7 on the checker of the round compares numbers exactly, and accepts neither percent nor an
        accuracy of 1. Before, logs hold fractions or percent, texts, and numbers rounded to float32.
        """
        exact = mlperf_round is not None and mlperf_round >= FIRST_EXACT
        names = list(dict.fromkeys((*self.least, *self.most)))
        texts = _parts(value, names)
        parts = {name: found for name, part in texts.items() if (found := _number(part, exact)) is not None}
        if len(parts) < len(names):
            return None
        if not exact and benchmark in FRACTIONS:
            parts = {name: part / 100 if part > _PERCENT else part for name, part in parts.items()}
        if exact and not all(0.0 <= parts[name] < (math.inf if name in self.most else 1.0) for name in names):
            return False
        slack = 0.0 if exact else _FLOAT32
        return all(parts[name] >= bound * (1 - slack) for name, bound in self.least.items()) and all(
            parts[name] <= bound * (1 + slack) for name, bound in self.most.items()
        )

    def __str__(self) -> str:
        parts = [f"{name} at least {bound:g}".strip() for name, bound in self.least.items()]
        return ", ".join(parts + [f"{name} at most {bound:g}".strip() for name, bound in self.most.items()])


def _parts(value: object, names: Sequence[str]) -> dict[str, object]:
    """The parts of a logged value, by name: of a number, a text, a list, or an object under any key."""
    if isinstance(value, Mapping):
        named = {str(key).casefold(): part for key, part in value.items()}
        if names != [""]:
            return {name: named.get(name.casefold()) for name in names}
        for key in ("value", "accuracy"):
            if key in named:
                return {"": named[key]}
        parts = [part for key, part in named.items() if key not in _PROGRESS and _number(part) is not None]
        return {"": parts[0]} if len(parts) == 1 else {}
    if isinstance(value, list):
        return dict(zip(names, value, strict=True)) if len(value) == len(names) else {}
    return {"": value} if names == [""] else {}


def _number(value: object, exact: bool = False) -> float | None:
    """A number, or unless ``exact`` the text of one ("21.80", "21.8%")."""
    if isinstance(value, str) and not exact:
        match = _NUMBER.fullmatch(value.strip())
        return float(match[1]) if match else None
    return number(value)


def _least(since: Round, bound: float) -> Bound:
    return Bound(since, {"": bound}, {})


def _most(since: Round, bound: float) -> Bound:
    return Bound(since, {}, {"": bound})


_BOXES = Bound((0, 5), {"BBOX": 0.377, "SEGM": 0.339}, {})
TARGETS: Mapping[str, tuple[Bound, ...]] = {
    "bert": (_least((0, 7), 0.706), _least((1, 0), 0.72)),
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
    "gpt3": (Bound((3, 0), {"": 2.6}, {"": 2.69}),),
    "llama2_70b_lora": (_most((4, 0), 0.925),),
    "llama31_405b": (_most((5, 0), 5.6),),
    "llama31_8b": (_most((5, 1), 3.3),),
    "flux1": (_most((5, 1), 0.586),),
    "gpt_oss_20b": (_most((6, 0), 3.34),),
    "deepseekv3_671b": (_most((6, 0), 3.6),),
    "cosmoflow": (_most((1, 0), 0.124),),
    "deepcam": (_least((1, 0), 0.82),),
    "oc20": (_most((1, 0), 0.036),),
    "openfold": (_least((3, 0), 0.8),),
}
_BERT_SMALL_BATCH = _least((0, 7), 0.712)  # of BERT in v0.7 with a batch under 8192
# Some early logs of these benchmarks hold percent (BLEU 24.0), some the fraction (0.24).
FRACTIONS = ("gnmt", "transformer", "ssd", "resnet", "ncf", "maskrcnn")


def parse_round(text: str) -> Round | None:
    """The round in ``text`` ("0.7", "v4.1", "2.0.0"); None for other text."""
    match = _NAME.fullmatch(text)
    return (int(match[1]), int(match[2])) if match else None


def known_round(text: str) -> Round | None:
    """The round in ``text``; None where no such round was published."""
    mlperf_round = parse_round(text)
    return mlperf_round if mlperf_round in ROUNDS else None


def is_repository(name: str) -> bool:
    """Whether a folder's name is that of a published repository (``training_results_v0.7``)."""
    return _REPOSITORY.search(name) is not None


def round_of(path: PurePath, formats: tuple[str, ...]) -> Round | None:
    """The round by the name of a published repository in ``path``, else by a format that only one used."""
    for part in reversed(path.parts):
        match = _REPOSITORY.search(part)
        if match:
            return known_round(match[1])
    only_format = formats[0] if len(formats) == 1 else ""
    return {V05: (0, 5), V06: (0, 6)}.get(only_format)


def target_for(benchmark: str, mlperf_round: Round | None, batch: float | None = None) -> Bound | None:
    """The target of ``benchmark`` in ``mlperf_round``; None where the table has none.

    ``batch`` is the global batch size. Without a round: the target of v0.7 and all later ones, if they agree.
    """
    bounds = TARGETS.get(benchmark, ())
    if mlperf_round is not None:
        if benchmark == "bert" and mlperf_round == (0, 7) and batch is not None and batch < 8192:
            return _BERT_SMALL_BATCH
        fitting = [bound for bound in bounds if bound.since <= mlperf_round]
        return fitting[-1] if fitting else None
    at_v07 = [bound for bound in bounds if bound.since <= (0, 7)][-1:]
    possible = [*at_v07, *(bound for bound in bounds if bound.since > (0, 7))]
    return possible[0] if len(possible) == 1 else None


def benchmark_name(text: str) -> str:
    """The name of a benchmark in the tables of this module."""
    lower = text.casefold()
    return ALIASES.get(lower, lower)


def init_limit_minutes(mlperf_round: Round | None, division: str) -> int:
    """The longest allowed initialisation: 20 minutes before v1.0, then 30; since v2.0 four hours in open."""
    if division == "open" and (mlperf_round is None or mlperf_round >= (2, 0)):
        return 240
    return 20 if mlperf_round is not None and mlperf_round < (1, 0) else 30
