"""``python -m peers``: time the suite's pairs against plain scripts and gensim; exit 1 if one is slower."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from peers import saved
from peers.bench import PROCESSORS, BenchSettings, PeerBench, PeerRow, measured_rows
from peers.cases import BATCHES, GENSIM, HAS_MINI_PEER, PHASES, PeerCase, peers_of
from peers.ratios import MIN_ROUNDS, SLOWER
from suite import workloads
from suite.cli.parsing import parser_of
from suite.cli.verbs import VERBS
from suite.environments import environments

FOOTNOTE = """\
ratio: ours over theirs, the median of the rounds. Rates are units per second of the clock in the last column:
wall, or cpu if other processes used more than a tenth of the machine. SLOWER: even the one-sided 95 % upper
limit of the ratio is below 1."""


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The parsed and completed options."""
    parser = parser_of(VERBS["bench-peers"], __doc__ or "")
    options = parser.parse_args(argv)
    options.threads = options.threads or PROCESSORS
    options.rounds = options.rounds or MIN_ROUNDS
    options.environments = options.environments or environments.ROOT / ".envs"
    allowed_values = {"workload": workloads.names(), "framework": environments.frameworks(), "phase": PHASES}
    for name, allowed in allowed_values.items():
        values = [value for value in getattr(options, name).split(",") if value] or list(allowed)
        if unknown := sorted(set(values) - set(allowed)):
            parser.error(f"{name}: expected some of {', '.join(allowed)}, found {unknown[0]}")
        setattr(options, name, values)
    if options.rounds < MIN_ROUNDS:
        parser.error(f"rounds: expected at least {MIN_ROUNDS}, found {options.rounds}")
    return options


def cases(options: argparse.Namespace) -> Iterator[PeerCase]:
    """The selected comparisons. At mini scale only models with free sizes have a peer."""
    precision_and_scale = (options.precision, options.scale)
    for workload in options.workload:
        if options.scale == "mini" and workload not in HAS_MINI_PEER:
            continue
        spec = workloads.specification(workload)
        batch = options.batch or (spec.BATCHES["mini"][0] if options.scale == "mini" else BATCHES[workload])
        for framework in options.framework:
            for phase in options.phase:
                for peer in peers_of(workload, framework):
                    variants = spec.VARIANTS[options.scale]
                    for variant in variants if peer == GENSIM else variants[:1]:
                        yield PeerCase(workload, framework, phase, *precision_and_scale, variant, batch, peer)


def main() -> int:
    """Print the table; returns 1 if a pair is slower, 2 if a side failed or nothing was selected."""
    options = arguments()
    selected = list(cases(options))
    if not selected:
        print("bench-peers: the selection has no peer: see peers/README.md", file=sys.stderr)
        return 2

    def report(line: str) -> None:
        print(line, flush=True)

    settings = BenchSettings(
        options.rounds, options.seconds, options.threads, options.wait_policy, options.environments
    )
    rows: list[PeerRow | None] = []
    try:
        earlier = saved.read(options.out, settings)
        done = [row.case for row in earlier]
        left = [case for case in selected if case not in done]
        minutes = saved.estimated_minutes(left, settings)
        report(f"{len(left)} of {len(selected)} rows to run: about {minutes:.0f} minutes")
        for row in measured_rows(PeerBench(settings, report), left, report):
            rows.append(row)
            if options.out:
                saved.write(options.out, settings, earlier + [each for each in rows if each is not None])
    except (environments.EnvironmentMissing, saved.OtherSettings) as problem:
        print(f"bench-peers: {problem}", file=sys.stderr)
        return 2
    rows += [row for row in earlier if row.case in selected]
    report(FOOTNOTE)
    if any(row is not None and row.ratio(row.clock).verdict == SLOWER for row in rows):
        return 1
    return 2 if None in rows else 0


if __name__ == "__main__":
    sys.exit(main())
