"""The list of pairs with their base images and whether closed runs accept them, as text, Markdown or JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from suite import rules, workloads
from suite.containers.images import lock
from suite.containers.images.lock import Base

if TYPE_CHECKING:
    from rich.console import Console

FORMATS = ("text", "md", "json")
WIDTH = 120  # columns of the text where no terminal has another width
_UNKNOWN = "–"
_SHORT = 12
_FOOTNOTE = "? the source of this digest did not state whether it is the index's or one platform's"


@dataclass(frozen=True, slots=True)
class ListedPair:
    """One workload in one framework, on its current base; ``why_not`` is None where closed runs accept it."""

    workload: str
    framework: str
    base: Base | None
    why_not: str | None

    @property
    def name(self) -> str:
        """The name of the pair, "gnmt-pytorch"."""
        return f"{self.workload}-{self.framework}"


@dataclass(frozen=True, slots=True)
class RanOn:
    """Where pairs of a framework have run: its submitted results on one device in one base image."""

    framework: str
    device: str
    image: str  # the name of the base in the lock; "native" outside a container
    results: int
    workloads: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Listing:
    """The pairs under one version of the rules, and the archived images, on one platform."""

    version: str
    platform: str
    pairs: tuple[ListedPair, ...]
    archived: tuple[Base, ...]
    ran: tuple[RanOn, ...] = ()


def collect(version: str, platform: str, code_digest: str, ran: Sequence[RanOn] = ()) -> Listing:
    """Every pair of the suite with its base under ``version``; ``code_digest`` is that of the images' code.

    ``ran`` are the devices of submitted results.
    Raises LockProblem or MalformedRules for an entry that cannot be used.
    """
    known = lock.bases(version)
    # The nearest version's entry comes first and replaces the others.
    current: dict[str, Base] = {}
    for base in known.values():
        if base.current:
            current.setdefault(base.framework, base)
    pairs = [
        _pair(version, workload, framework, current.get(framework), platform, code_digest)
        for workload in workloads.names()
        for framework in workloads.frameworks(workload)
    ]
    archived = tuple(base for base in known.values() if base.status == "archived")
    return Listing(version, platform, tuple(pairs), archived, tuple(ran))


def _pair(
    version: str, workload: str, framework: str, base: Base | None, platform: str, code_digest: str
) -> ListedPair:
    if base is None:
        return ListedPair(workload, framework, None, f"no base image of {framework} in rules {version}")
    why_not = base.why_not_closed
    if why_not is not None:
        return ListedPair(workload, framework, base, why_not)
    if platform not in base.platforms:
        return ListedPair(workload, framework, base, f"{base.name} does not exist for {platform}")
    if rules.load(version).published(workload, framework, code_digest, platform, base.name) is None:
        why_not = "no layers are published for this code (`python -m suite image publish`)"
    return ListedPair(workload, framework, base, why_not)


# json and Markdown: every pair in full


def to_json(listing: Listing) -> str:
    """The listing as JSON, digests whole; null is unknown."""
    return json.dumps(
        {
            "rules": listing.version,
            "platform": listing.platform,
            "pairs": [
                {
                    "workload": pair.workload,
                    "framework": pair.framework,
                    "closed_ready": pair.why_not is None,
                    "why_not": pair.why_not,
                    "base": None if pair.base is None else _facts(pair.base, listing.platform),
                }
                for pair in listing.pairs
            ],
            "archived": [_facts(base, listing.platform) for base in listing.archived],
            "ran": [asdict(one) for one in listing.ran],
        },
        indent=2,
    )


def _facts(base: Base, platform: str) -> dict[str, Any]:
    facts = base.entry()
    image = facts.pop("platforms").get(platform)
    return {**facts, "reference": base.reference, "platform": image}


_PAIR_COLUMNS = ("pair", "base", "digest", "status", "closed-ready")
_RAN_TITLE = "Where pairs have run, by the accepted results in submissions"
_RAN_COLUMNS = ("framework", "device", "image", "results", "workloads")
_BASE_COLUMNS = ("framework", "CUDA", "cuDNN", "NCCL", "Python", "GPU architectures", "minimum driver")


def to_markdown(listing: Listing) -> str:
    """Two Markdown tables: one row for each pair, then the archived images."""
    columns = [*_PAIR_COLUMNS[:3], *_BASE_COLUMNS, *_PAIR_COLUMNS[3:]]
    rows = []
    for pair in listing.pairs:
        name, base, digest, status, ready = _pair_cells(pair)
        rows.append([name, base, digest, *_base_cells(pair.base), status, ready])
    archived = [[base.tagged, _digest(base), *_base_cells(base)] for base in listing.archived]
    title = f"Pairs under rules {listing.version}, {listing.platform}"
    return "\n".join(
        [
            *_markdown(title, columns, rows),
            "",
            *_markdown("Archived, never current", ["image", "digest", *_BASE_COLUMNS], archived),
            "",
            *_markdown(_RAN_TITLE, _RAN_COLUMNS, _ran_rows(listing)),
            "",
        ]
    )


def _markdown(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"### {title}", "", f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
    cells = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    return lines + [f"| {' | '.join(row)} |" for row in cells]


# Text: two tables, because the pairs and the contents of their bases do not fit on one line


def print_text(listing: Listing, console: Console | None = None) -> None:
    """Print the listing as tables of 120 columns; without colour in a pipe or with NO_COLOR."""
    from rich.console import Console as RichConsole

    if console is None:
        console = RichConsole(highlight=False)
        if not console.is_terminal:
            console = RichConsole(highlight=False, width=WIDTH)
    title = f"Pairs under rules {listing.version}, {listing.platform}"
    rows = [_pair_cells(pair) for pair in listing.pairs]
    _table(
        console, title, _PAIR_COLUMNS, rows, _FOOTNOTE if any(row[2].endswith("?") for row in rows) else ""
    )
    bases = {pair.base.name: pair.base for pair in listing.pairs if pair.base}
    rows = [[base.name, *_base_cells(base)] for base in bases.values()]
    _table(console, "What the bases contain", ("base", *_BASE_COLUMNS), rows)
    rows = [[base.name, *_base_cells(base)] for base in listing.archived]
    _table(console, "Archived: listed for the record, never current", ("base", *_BASE_COLUMNS), rows)
    _table(console, _RAN_TITLE, _RAN_COLUMNS, _ran_rows(listing))


def _table(
    console: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], footnote: str = ""
) -> None:
    from rich.table import Table
    from rich.text import Text

    if not rows:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(Text(column), overflow="fold", no_wrap=column in ("pair", "digest", "base"))
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(Text(title, style="bold"))
    console.print(table)
    console.print(Text(footnote + "\n" if footnote else ""))


def _ran_rows(listing: Listing) -> list[list[str]]:
    """A row for each framework, device and image, and one for each framework without results."""
    rows = [
        [one.framework, one.device, one.image, str(one.results), ", ".join(one.workloads)]
        for one in listing.ran
    ]
    without = {pair.framework for pair in listing.pairs} - {one.framework for one in listing.ran}
    return sorted([*rows, *([name, _UNKNOWN, _UNKNOWN, "0", _UNKNOWN] for name in without)])


def _pair_cells(pair: ListedPair) -> list[str]:
    if pair.base is None:
        return [pair.name, _UNKNOWN, _UNKNOWN, _UNKNOWN, f"no: {pair.why_not}"]
    # The row names the base already.
    ready = "yes" if pair.why_not is None else f"no: {pair.why_not.removeprefix(pair.base.name + ': ')}"
    tagged = f"{pair.base.repository.rsplit('/', 1)[-1]}:{pair.base.tag}"
    return [pair.name, tagged, _digest(pair.base), pair.base.status, ready]


def _base_cells(base: Base | None) -> list[str]:
    contains: Mapping[str, str | None] = {} if base is None else base.contains
    known = [contains.get(name) or _UNKNOWN for name in ("framework", "cuda", "cudnn", "nccl", "python")]
    architectures = " ".join((base.architectures if base else None) or (_UNKNOWN,))
    driver = (base.minimum_driver if base else None) or _UNKNOWN
    if base and base.compat_driver:
        driver += f" ({base.compat_driver} data centre)"
    return [*known, architectures, driver]


def _digest(base: Base) -> str:
    """The first digits of the digest; followed by a question mark where its kind is unknown."""
    if base.digest is None:
        return _UNKNOWN
    short = base.digest.removeprefix("sha256:")[:_SHORT]
    return f"{short}?" if base.digest == base.digest_of_unknown_kind else short
