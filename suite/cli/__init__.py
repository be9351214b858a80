"""The command line: ``python -m suite VERB …``. A verb's module is imported only when the verb is used."""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import sys
from collections.abc import Sequence

# verb -> (module, one line of help). A module has add_arguments(parser) and main(args) -> exit code;
# `run`, `preprocess` and `ab` take their words unparsed, because they are Hydra's.
VERBS = {
    "run": ("suite.cli.run", "run a benchmark and check its log: workload=… framework=… (Hydra overrides)"),
    "check": ("suite.cli.check", "check results or submissions against the rules"),
    "matrix": ("suite.cli.matrix", "run every cell of a grid that has no result yet, and show one table"),
    "quality": ("suite.cli.quality", "train every pair to its target, and show what each reached"),
    "summary": ("suite.cli.summary", "tabulate results and submissions as csv, md or json"),
    "compare": ("suite.cli.compare", "two results, or one and its history: differences, ratio, interval"),
    "ab": ("suite.cli.ab", "run two sides by turns and compare them: 'words of A' -- 'words of B'"),
    "plot": ("suite.cli.plot", "draw a metric of results by benchmark and framework, as SVG or PNG"),
    "submit": ("suite.cli.submit", "lay an accepted result out under submissions/"),
    "keygen": ("suite.cli.keygen", "make a key to sign submissions with"),
    "check-submissions": ("suite.cli.check_submissions", "check everything under submissions/"),
    "audit": ("suite.cli.audit", "judge a result rule by rule, and sign the verdict"),
    "audit-replay": ("suite.cli.replay", "run repeats of a submission again, and compare item by item"),
    "audit-perturb": ("suite.cli.perturb", "run a submission's work under another name, widened"),
    "quote": ("suite.cli.quote", "print the one publishable sentence of a result"),
    "verify-quote": ("suite.cli.verify_quote", "find the log of a published sentence, and compare"),
    "export": ("suite.cli.export", "write an accepted result as MLPerf's log lines"),
    "import": ("suite.cli.import_", "read MLPerf's published logs, and tell what can be verified of them"),
    "coverage": ("suite.cli.coverage", "what a submitter has done of closed, and what is missing"),
    "data": ("suite.cli.data", "prepare or fetch the dataset of a workload"),
    "preprocess": (
        "suite.cli.preprocess",
        "convert a workload's pictures, measured: workload=… to=recordio|tfrecord|lmdb",
    ),
    "environments": ("suite.cli.environments", "make the frameworks' environments beforehand"),
    "image": ("suite.cli.image", "list, build, lock, verify and publish the images of the pairs"),
    "doctor": ("suite.cli.doctor", "check this machine: engine, GPU, images, limits, clocks, disks"),
    "fetch": ("suite.cli.fetch", "bundle image, wheels, data and rules for a machine without a network"),
    "bench-overhead": ("suite.cli.bench_overhead", "measure what the suite's own marks and telemetry cost"),
}
USAGE, INTERRUPTED = 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Dispatch on the verb and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in {"-h", "--help", "help"}:
        print(_help())
        return 0 if words else USAGE
    if words[0] == "--version":
        from suite import __version__

        print(f"suite {__version__}")
        return 0
    verb, rest = words[0], words[1:]
    if verb not in VERBS:
        close = difflib.get_close_matches(verb, VERBS, n=1)
        hint = (
            f"did you mean `python -m suite {close[0]}`?"
            if close
            else "`python -m suite --help` lists the verbs"
        )
        print(f"suite: unknown verb {verb!r}; {hint}", file=sys.stderr)
        return USAGE
    try:
        return _call(verb, rest)
    except KeyboardInterrupt:
        print("suite: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe (head, less) went away: nobody is left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return USAGE


def _call(verb: str, rest: list[str]) -> int:
    module = importlib.import_module(VERBS[verb][0])
    if verb in ("run", "preprocess", "ab"):
        return int(module.main(rest))
    parser = argparse.ArgumentParser(prog=f"python -m suite {verb}", description=VERBS[verb][1])
    module.add_arguments(parser)
    # Words and options in any order, which argparse cannot do for verbs that have verbs of their own.
    parse = parser.parse_intermixed_args if verb == "matrix" else parser.parse_args
    return int(module.main(parse(rest)))


def _help() -> str:
    width = max(map(len, VERBS))
    lines = ["usage: python -m suite VERB …", "", "verbs:"]
    lines += [f"  {verb:<{width}}  {text}" for verb, (_, text) in VERBS.items()]
    lines += ["", "`python -m suite VERB --help` says more; `make` lists the same as make targets."]
    return "\n".join(lines)
