"""The verbs of ``python -m suite`` and of make, with their options.

Parsers, make's variables, help pages and suggestions are derived from this table. ``make help`` works without
an environment: this module imports the standard library only and runs on Python 3.10.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from suite.cli.arguments import (
    AGAIN,
    COMPARISON,
    JSON,
    KEY,
    METRICS,
    OUT,
    RESULT,
    SCALE_OVERRIDES,
    SEVERAL,
    STRICT,
    SUBMISSIONS,
    SUBMITTER,
    SWEEP,
    SWEEP_OVERRIDES,
    THREADS,
    Verb,
    format_of,
    only,
    positional,
    seconds,
    share,
    since,
)
from suite.cli.setup_verbs import SETUP_VERBS
from suite.plan import options as run
from suite.plan.options import Option

_ALL = (
    Verb("run", "suite.cli.run", overrides=run.RUN_OPTIONS, hydra=True),
    Verb("node", "suite.cli.node", overrides=run.RUN_OPTIONS, hydra=True),
    Verb(
        "ab", "suite.cli.ab", (
            *COMPARISON,
            Option("a", "the options of side A", metavar="'OPTION=VALUE …'"),
            Option("b", "the options of side B", metavar="'OPTION=VALUE …'"),
        ),
        run.RUN_OPTIONS, hydra=True,
    ),
    Verb(
        "matrix", "suite.cli.matrix", (
            Option("sweep", "a study or grid of conf/sweep, or a path to a .yaml", metavar="NAME"),
            *(only("workload"), only("framework"), only("phase"), *SWEEP),
            format_of("text", "md", "csv", "json"),
        ),
        SWEEP_OVERRIDES, storage_code=15,
    ),
    Verb(
        "sweep", "suite.cli.sweep", (
            Option("grid", "axes and their values", metavar="'batch=32,64 runtime.cpus=1,2'", default=""),
            Option("sweep", "a study or grid of conf/sweep, or a path to a .yaml", metavar="NAME"),
            *(replace(only(name), help=f"this {name}; several with commas")
              for name in ("workload", "framework", "phase")),
            Option(
                "seed", "of the random order (default: the last of the same sweep, else drawn)",
                metavar="N", type=int,
            ),
            Option("timeout", "seconds after which a cell is ended", metavar="S", type=seconds),
            Option(
                "disks", "names of folders with datasets, for the axis disk=…", metavar="FILE.toml", type=Path
            ),
            *SWEEP, format_of("text", "md", "csv", "json"),
        ),
        SWEEP_OVERRIDES, storage_code=15,
    ),
    Verb(
        "scale", "suite.cli.scale", (
            replace(run.WORKLOAD, required=True),
            replace(run.FRAMEWORK, required=True),
            Option(
                "devices", "numbers of devices to compare with one", metavar="1,2,4", required=True
            ),
            Option(
                "scaling", "weak: BATCH is per device; strong: BATCH is the global batch", ("weak", "strong"),
                default="weak",
            ),
            Option(
                "cause", "why an efficiency is above 1.02; the set states it", metavar="TEXT", default=""
            ),
            Option("plot", "draw the set: a .svg or .png, replaced if it exists", metavar="FILE", type=Path),
            *(*SWEEP, format_of()),
        ),
        SCALE_OVERRIDES, storage_code=15,
    ),
    Verb(
        "quality", "suite.cli.quality", (
            *(only("workload"), only("framework")),
            Option("seeds", "runs of each pair, each from another seed", metavar="N", type=int),
            *(*SWEEP, format_of()),
        ),
        SWEEP_OVERRIDES, storage_code=15,
    ),
    Verb(
        "bench-overhead", "suite.cli.bench_overhead", (
            Option(
                "share", "share of the time, for a quick estimate", metavar="X", default=1.0, type=share
            ),
        ),
    ),
    Verb(
        "bench-peers", "peers", (
            replace(run.WORKLOAD, help=SEVERAL, values=(), metavar="A,B", default=""),
            replace(run.FRAMEWORK, help=SEVERAL, values=(), metavar="A,B", default=""),
            Option("phase", "train or infer (default: both)", metavar="A,B", default=""),
            Option("scale", "of the models", ("reference", "mini"), default="reference"),
            Option("precision", "of both sides", ("fp32", "bf16"), default="fp32"),
            Option("batch", "of both sides (default: one that two cores finish)", metavar="N", type=int),
            THREADS,
            Option(
                "wait_policy", "OpenMP's; active: for many small operations on otherwise idle processors",
                ("passive", "active"), default="passive",
            ),
            Option("rounds", "of each pair (default: the least that decides)", metavar="N", type=int),
            Option("seconds", "about so long is each window", metavar="S", default=5.0, type=float),
            Option(
                "out",
                "all that was read, as JSON; rows it has are not run again", metavar="FILE", type=Path
            ),
            Option("environments", "where the environments are", metavar="DIR", type=Path),
        ),
    ),
    Verb(
        "check", "suite.cli.check", (
            positional(
                RESULT, help="folders of results or of scaling sets (default: the newest result)", many=True,
                required=False,
            ),
            *(run.RESULTS_DIR, STRICT, JSON),
        ),
    ),
    Verb(
        "summary", "suite.cli.summary", (
            positional(
                RESULT, help="results, or folders of them (default: results)", many=True,
                required=False,
            ),
            format_of("text", "csv", "csv-repeats", "json", "md"),
            *(only("workload"), only("framework"), only("phase"), only("precision"), only("scale")),
            Option("division", "this division alone", run.DIVISION.values),
            Option("data", "this kind of data alone", ("real", "synthetic")),
            Option("mode", "this mode alone", ("throughput", "quality", "conversion", "load")),
            Option(
                "since", "only results that began since: 2026-11-24, 2026-11-24T07:30 (UTC), 12h or 7d ago",
                metavar="TIME", type=since,
            ),
            Option("here", "only results of this machine", switch=True),
            replace(OUT, help="write a file there instead of printing"),
        ),
    ),
    Verb(
        "compare", "suite.cli.compare", (
            Option(
                "results",
                "A and B or more: results' folders, or their run.jsonl; one alone with --baseline",
                metavar="RESULT", type=Path, required=True, many=True, positional=True,
                make=("A", "B", "RESULTS", "RESULT"),
            ),
            Option(
                "baseline", "compare with the history in this folder", metavar="DIR", type=Path
            ),
            Option(
                "add", "then add the result to the history (--baseline) or begin one", switch=True
            ),
            *COMPARISON,
        ),
    ),
    Verb(
        "advise", "suite.cli.advise", (
            replace(run.WORKLOAD, required=True),
            *(only("framework"), only("phase"), only("precision"), only("scale")),
            Option("data", "this kind of data alone", ("real", "synthetic")),
            Option(
                "goal", "throughput>=2000 (units/s), cost<=1.50 or epoch<=600 (s)", metavar="'NAME>=N'",
            ),
            Option("prices", "machines with prices: see docs/sizing.md", metavar="FILE", type=Path),
            Option("price_age", "the oldest price, in days", metavar="DAYS", default=90, type=int),
            Option(
                "epoch", "units of work of an epoch (default: the images of the dataset, by the rules)",
                metavar="N", type=float,
            ),
            Option(
                "grid", "configurations to advise on (default: all combinations of the measured values)",
                metavar="'runtime.cpus=1,2 batch=32,64'",
            ),
            run.RESULTS_DIR,
            format_of(),
        ),
    ),
    Verb(
        "plot", "suite.cli.plot", (
            replace(run.RESULTS_DIR, help="where results are", many=True),
            Option("metric", "what is drawn", METRICS, default="throughput"),
            replace(OUT, help="a new .svg or .png (default: results/plots/<metric>.svg)", metavar="FILE"),
            Option("force", "replace the file if it exists", switch=True),
            *(only("division"), only("scale"), only("data"), only("mode")),
            *(only("workload"), only("framework"), only("phase"), only("precision")),
        ),
    ),
    Verb(
        "site", "suite.cli.site", (
            replace(
                SUBMISSIONS, name="from", help="results or submissions", default=Path("submissions")
            ),
            Option("to", "the folder of the site", metavar="DIR", type=Path, default=Path("site")),
            Option(
                "baselines", "baselines of machines, as make baseline keeps them", metavar="DIR",
                type=Path, default=Path("baselines"),
            ),
            run.CACHE_DIR,
        ),
        storage_code=15,
    ),
    Verb(
        "report", "suite.cli.report", (
            replace(RESULT, required=False),
            replace(run.RESULTS_DIR, help="a table of all results in this folder, without --result"),
            SUBMISSIONS,
            replace(OUT, help="the file (default: results/reports/<digest>.html)", metavar="FILE"),
            run.CACHE_DIR,
        ),
        storage_code=15,
    ),
    Verb(
        "export", "suite.cli.export", (
            positional(RESULT),
            Option("format", "of the lines", ("mllog",), default="mllog"),
            replace(OUT, help="where result_0.txt … go (default: results/mllog/<run id>); - prints them"),
        ),
    ),
    Verb(
        "import", "suite.cli.import_", (
            Option(
                "logs", "a log, or a folder with logs below it", metavar="PATH", type=Path, required=True,
                positional=True,
            ),
            Option(
                "round", "whose rules apply (default: by the folder's name or the format)", metavar="N.N"
            ),
            format_of(),
            replace(STRICT, help="exit 3 instead of 0 if there are warnings"),
        ),
    ),
    Verb(
        "audit", "suite.cli.audit", (
            *(RESULT, SUBMISSIONS, KEY),
            replace(OUT, help="where verdict.json goes (default: audits/<digest of the log>)"),
            Option("verify", "compare a signed verdict with a new one", metavar="FILE", type=Path),
            Option(
                "keys", "public keys to trust with --verify", metavar="FILE", type=Path, many=True
            ),
            Option(
                "replay", "with --verify of a replay: the folder of the replay's log", metavar="DIR",
                type=Path,
            ),
            *(STRICT, JSON),
        ),
    ),
    Verb(
        "audit-replay", "suite.cli.replay", (
            *AGAIN,
            Option("repeats", "how many of the five (default: 1)", metavar="K", type=int),
            Option("device", "only compute the first steps again, on this processor", ("cpu",)),
            Option("steps", "with --device: how many (default: 3)", metavar="N", type=int),
            Option("framework", "with --device: in which (default: the log's)", metavar="NAME"),
            replace(THREADS, help="with --device: how many (default: all cores)"),
        ),
    ),
    Verb(
        "audit-perturb", "suite.cli.perturb", (
            *AGAIN,
            Option("repeats", "of each variant", metavar="K", default=3, type=int),
            Option(
                "grow", "how much wider the first wide batch is (default: by its time)", metavar="N",
                type=int,
            ),
        ),
    ),
    Verb("quote", "suite.cli.quote",
    (RESULT, SUBMISSIONS)),
    Verb(
        "verify-quote", "suite.cli.verify_quote", (
            Option("sentence", "as `quote` printed it", metavar="TEXT", positional=True, required=True),
            Option(
                "in", "folders where the log may lie (default: the tree of --submissions)", metavar="DIR",
                type=Path, many=True,
            ),
            SUBMISSIONS,
        ),
    ),
    Verb(
        "keygen", "suite.cli.keygen", (
            replace(
                OUT, metavar="FILE",
                help="where the private key goes (default: ~/.config/dl-benchmark-suite/signing-key.pem)",
            ),
            replace(SUBMITTER, required=False, default="<submitter>"),
            Option("organisation", "its full name", metavar="NAME", default="<organisation>"),
        ),
    ),
    Verb(
        "register", "suite.cli.register", (
            SUBMITTER,
            Option("organisation", "its full name", metavar="NAME", required=True),
            replace(KEY, help="your private key, whose public half is added (default: as in `keygen`)"),
            replace(SUBMISSIONS, help="where submissions and the registry are kept"),
        ),
    ),
    Verb(
        "system", "suite.cli.system", (
            RESULT, replace(OUT, metavar="FILE", help="the file to write", default="system.toml"),
        ),
    ),
    Verb(
        "submit", "suite.cli.submit", (
            *(RESULT, SUBMITTER),
            Option(
                "system",
                "TOML or JSON with what is in no log, as `make system` writes it to fill in",
                metavar="FILE", type=Path,
            ),
            KEY,
            Option("yes", "do not ask whether to write what is shown", switch=True),
            replace(SUBMISSIONS, help="where submissions are kept"),
        ),
    ),
    Verb(
        "withdraw", "suite.cli.withdraw", (
            replace(RESULT, help="the submission: submissions/<submitter>/…/<run id>"),
            Option("reason", "why, in one line of ASCII that the site shows", metavar="TEXT", required=True),
            replace(SUBMISSIONS, help="where submissions and the registry are kept"),
        ),
    ),
    Verb(
        "check-submissions", "suite.cli.check_submissions",
        (positional(SUBMISSIONS, help="the tree of submissions"), STRICT),
    ),
    Verb(
        "coverage", "suite.cli.coverage",
        (SUBMITTER, replace(SUBMISSIONS, help="where submissions are kept"), JSON),
    ),
    *SETUP_VERBS,
)  # fmt: skip
VERBS: dict[str, Verb] = {verb.name: verb for verb in _ALL}

# Targets of make that stand for a verb: the verb, and its required options.
ALIASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "image": ("image build", ("workload", "framework")),
    "images": ("image build", ()),
}
TARGETS: dict[str, Verb] = {verb.name.replace(" ", "-"): verb for verb in VERBS.values()} | {
    target: replace(
        VERBS[name],
        options=tuple(
            replace(one, required=one.name in needed or one.required) for one in VERBS[name].options
        ),
    )
    for target, (name, needed) in ALIASES.items()
}
# Targets that the Makefile carries out without a verb.
OTHER_TARGETS = {
    "test": "the self-tests over all frameworks; ARGS='-k ncf' passes arguments to pytest",
    "test-containers": "real containers, on stand-in images; ARGS as of test",
    "test-all": "test and test-containers at once, as CI",
    "lint": "ruff, mypy and import-linter",
    "format": "what ruff can fix by itself",
    "lock": "new locks after a change of pyproject.toml or of a requirements file; needs uv",
    "clean": "remove caches and builds; results, data and submissions stay",
    "distclean": "remove the environments too",
}
