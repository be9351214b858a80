"""The verbs by group, each with a line of help, for ``python -m suite --help``."""

from __future__ import annotations

# Heading -> verb -> help. :mod:`suite.cli.verbs` declares the options. The last group exists in make only.
GROUPS: dict[str, dict[str, str]] = {
    "Measure": {
        "run": "run a benchmark five times, write the log, check it",
        "node": "take part in a run on several machines; launchers start it",
        "ab": "run two sides interleaved, and compare them",
        "matrix": "run every cell of a grid that has no result yet, and show one table",
        "sweep": "run a grid of options in random order, resumable, and show one table",
        "scale": "compare several devices with one, and show where throughput is lost",
        "quality": "train every pair to its target, and show what each reached",
        "bench-overhead": "measure the cost of timestamps and telemetry",
        "bench-peers": "compare pairs with plain scripts, Gluon's zoo and gensim",
    },
    "Results": {
        "check": "check results against the rules",
        "summary": "tabulate results",
        "compare": "compare results, or one with its history: differences, ratio, interval",
        "advise": "show which machine is enough, by measured and predicted speed, and what to measure next",
        "plot": "draw results and sweeps, step times or telemetry",
        "site": "write a site of results: HTML files that need neither server nor network",
        "report": "write one result, or a table of several, as one HTML file",
        "export": "write an accepted result as MLPerf's log lines, one file per repeat",
        "import": "read MLPerf's published logs, and verify what they state",
    },
    "Audit": {
        "audit": "show every rule with its outcome and the assurance level; sign the verdict",
        "audit-replay": "run repeats of a submission again, and compare item by item",
        "audit-perturb": "run a submission's work under another name, and more of it",
        "quote": "print the one publishable sentence of a result",
        "verify-quote": "find the log of a published sentence, and compare",
    },
    "Publish": {
        "keygen": "make a key to sign submissions with",
        "register": "add your public key to the registry of this checkout, as a change to propose",
        "system": "write the file that describes the system of a result, to fill in",
        "submit": "package an accepted result as a submission, signed with --key",
        "withdraw": "withdraw a submission, with a reason that the site shows",
        "check-submissions": "check everything under submissions/",
        "coverage": "show what a submitter has submitted of closed, and what is missing",
    },
    "Data": {
        "data": "prepare, fetch or verify the dataset of a workload",
        "preprocess": "measure the conversion of a workload's images, and convert them",
    },
    "Machine and images": {
        "baseline": "measure the machine itself, and compare it with earlier and with equal machines",
        "doctor": "check whether this machine can run the suite, and show the fixes",
        "environments": "make the environments of the frameworks",
        "image list": "show each pair's base image, its needs, and whether closed accepts it",
        "image build": "build the images of pairs, from their Dockerfile and the lock",
        "image publish": "record the layers of the images of pairs",
        "image lock": "read every digest from the image registry and write the lock",
        "image lock-check": "compare lock and image registry, write nothing",
        "fetch": "bundle image, wheels, data and rules for a machine without a network",
    },
    "Develop": {
        "equivalence": "measure the differences between the frameworks, per workload",
        "test-pair": "run the contract tests on a custom pair",
    },
}
PROGRAMS = (
    "bench-peers",
    "equivalence",
    "test-pair",
)  # outside of the package suite; make starts them


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
