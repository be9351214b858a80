"""``python -m peers``: the suite's pairs beside plain scripts and gensim; exit 1 where one is slower."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from peers import kept
from peers.bench import PROCESSORS, Bench, Row, Settings, measured
from peers.cases import BATCHES, GENSIM, PHASES, SAME_AT_MINI, Case, peers_of
from peers.ratios import LEAST_ROUNDS, SLOWER
from suite import workloads
from suite.cli.parsing import parser_of
from suite.cli.verbs import VERBS
from suite.environments import environments

FOOTNOTE = """\
ratio: ours over theirs, the median of the rounds. Rates are units per second of the clock named last: wall,
or cpu where other processes took more than a tenth of the machine. SLOWER: even the one-sided 95 % upper
limit of the ratio is below 1."""


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = parser_of(VERBS["bench-peers"], __doc__ or "")
    options = parser.parse_args(given)
    options.threads = options.threads or PROCESSORS
    options.rounds = options.rounds or LEAST_ROUNDS
    options.environments = options.environments or environments.ROOT / ".envs"
    known = {"workload": workloads.names(), "framework": environments.frameworks(), "phase": PHASES}
    for name, allowed in known.items():
        asked = [word for word in getattr(options, name).split(",") if word] or list(allowed)
        if strange := sorted(set(asked) - set(allowed)):
            parser.error(f"{name}: expected some of {', '.join(allowed)}, found {strange[0]}")
        setattr(options, name, asked)
    if options.rounds < LEAST_ROUNDS:
        parser.error(f"rounds: expected at least {LEAST_ROUNDS}, found {options.rounds}")
    return options


def cases(options: argparse.Namespace) -> Iterator[Case]:
    """What was asked for and has a peer. A mini model of ours has a stock twin only where sizes are free."""
    how = (options.precision, options.scale)
    for workload in options.workload:
        if options.scale == "mini" and workload not in SAME_AT_MINI:
            continue
        spec = workloads.specification(workload)
        batch = options.batch or (spec.BATCHES["mini"][0] if options.scale == "mini" else BATCHES[workload])
        for framework in options.framework:
            for phase in options.phase:
                for peer in peers_of(workload, framework):
                    variants = spec.VARIANTS[options.scale]
                    for variant in variants if peer == GENSIM else variants[:1]:
                        yield Case(workload, framework, phase, *how, variant, batch, peer)


def main() -> int:
    """Print the table; 1 where the suite is slower, 2 where a side failed or nothing was asked for."""
    options = arguments()
    asked = list(cases(options))
    if not asked:
        print("bench-peers: nothing of what was asked for has a peer: see peers/README.md", file=sys.stderr)
        return 2

    def say(line: str) -> None:
        print(line, flush=True)

    settings = Settings(
        options.rounds, options.seconds, options.threads, options.wait_policy, options.environments
    )
    rows: list[Row | None] = []
    try:
        had = kept.read(options.out, settings)
        done = [row.case for row in had]
        left = [case for case in asked if case not in done]
        minutes = kept.estimated_minutes(left, settings)
        say(f"{len(left)} of {len(asked)} rows to run: about {minutes:.0f} minutes")
        for row in measured(Bench(settings, say), left, say):
            rows.append(row)
            if options.out:
                kept.write(options.out, settings, had + [each for each in rows if each is not None])
    except (environments.EnvironmentMissing, kept.OtherSettings) as problem:
        print(f"bench-peers: {problem}", file=sys.stderr)
        return 2
    rows += [row for row in had if row.case in asked]
    say(FOOTNOTE)
    if any(row is not None and row.ratio(row.clock).verdict == SLOWER for row in rows):
        return 1
    return 2 if None in rows else 0


if __name__ == "__main__":
    sys.exit(main())
