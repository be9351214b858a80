"""The verbs by group, each with a line of help: all that ``python -m suite --help`` needs."""

from __future__ import annotations

# Heading -> verb -> what it does. :mod:`suite.cli.verbs` has what each takes. Make alone has the last group.
GROUPS: dict[str, dict[str, str]] = {
    "Measure": {
        "run": "run a benchmark five times, write the log, check it",
        "ab": "run two sides interleaved, and compare them",
        "matrix": "run every cell of a grid that has no result yet, and show one table",
        "quality": "train every pair to its target, and show what each reached",
        "bench-overhead": "measure what timestamps and telemetry cost",
        "bench-peers": "pairs beside plain scripts, Gluon's zoo and gensim: ratios",
    },
    "Results": {
        "check": "check results against the rules",
        "summary": "tabulate results and submissions",
        "compare": "two results, or one and its history: differences, ratio, interval",
        "plot": "draw a metric of results by benchmark and framework",
        "export": "write an accepted result as MLPerf's log lines, one file a repeat",
        "import": "read MLPerf's published logs, and show what can be verified of them",
    },
    "Audit": {
        "audit": "every rule with its outcome, the level of assurance; sign the verdict",
        "audit-replay": "run repeats of a submission again, and compare item by item",
        "audit-perturb": "a submission's work under another name, and more of it",
        "quote": "print the one publishable sentence of a result",
        "verify-quote": "find the log of a published sentence, and compare",
    },
    "Publish": {
        "keygen": "make a key to sign submissions with",
        "submit": "package an accepted result as a submission, signed with --key",
        "check-submissions": "check everything under submissions/",
        "coverage": "what a submitter has done of closed, what is missing and why",
    },
    "Data": {
        "data": "prepare, fetch or verify the dataset of a workload",
        "preprocess": "measure the conversion of a workload's images, and convert them",
    },
    "Machine and images": {
        "doctor": "what this machine lacks, and what fixes it",
        "environments": "make the frameworks' environments beforehand",
        "image list": "each pair's base image, what it needs, whether closed accepts it",
        "image build": "build the images of pairs, from their Dockerfile and the lock",
        "image publish": "write down the layers of the images of pairs",
        "image lock": "read every digest from the registry and write the lock",
        "image lock-check": "compare lock and registry, write nothing",
        "fetch": "bundle image, wheels, data and rules for a machine without a network",
    },
    "Develop": {
        "equivalence": "how far the frameworks are apart, workload by workload",
        "test-pair": "the contract tests on your pair",
    },
}
PROGRAMS = (
    "bench-peers",
    "equivalence",
    "test-pair",
)  # of the repository, outside of the suite: make starts them


def verbs_page(names: tuple[str, ...] = ()) -> str:
    """The help page of the verbs, all or those of ``names``."""
    width = max(len(name) for members in GROUPS.values() for name in members)
    lines = ["usage: python -m suite VERB …"]
    for heading, members in GROUPS.items():
        chosen = [name for name in members if name not in PROGRAMS and (not names or name in names)]
        if chosen:
            lines += ["", f"{heading}:", *(f"  {name:<{width}}  {members[name]}" for name in chosen)]
    return "\n".join(
        [*lines, "", "`python -m suite VERB --help` lists a verb's options; `make` lists make's."]
    )
