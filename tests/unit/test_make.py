"""make passes on the variables of its command line, and nothing else; the suite translates them to arguments.

The Makefile under test is the real one, in a copy with an interpreter that prints its arguments. The
tests call the suite's translation themselves.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from suite.cli import main
from suite.cli.make import WrongVariable, translate, verb_of
from suite.cli.verbs import OTHER_TARGETS, TARGETS

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = {
    "WORKLOAD": "gnmt",
    "FRAMEWORK": "pytorch",
    "PHASE": "infer",
    "SCENARIO": "single_stream",
    "MODE": "quality",
    "PRECISION": "bf16",
    "SCALE": "mini",
    "DATA": "real",
    "CACHE": "cold",
    "LOADER": "dali",
    "BATCH": "256",
    "DEVICES": "2",
    "DIVISION": "open",
    "PURPOSE": "submission",
    "RUNTIME": "docker",
    "LAUNCHER": "slurm",
    "VARIANT": "f8",
    "PAIR": "custom/pair.py",
    "BUNDLE": "/usb/bundle",
    "DATA_ROOT": "/big/data",
    "RESULTS_DIR": "out",
    "CACHE_DIR": "/tmp/cache",
}

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


class Checkout:
    """A copy of what make needs, with ``.venv/bin/python`` a script that prints its arguments, one a line."""

    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.copy(ROOT / "Makefile", root)
        shutil.copytree(ROOT / "tools", root / "tools")
        (root / "suite").symlink_to(ROOT / "suite")
        (root / "requirements").mkdir()
        for lock in ("suite.txt", "dev.txt"):
            (root / "requirements" / lock).write_text("")
        (root / ".venv" / "bin").mkdir(parents=True)
        python = root / ".venv" / "bin" / "python"
        python.write_text('#!/bin/sh\nfor argument in "$@"; do printf "<%s>\\n" "$argument"; done\n')
        python.chmod(0o755)
        for stamp in ("suite.stamp", "dev.stamp"):
            (root / ".venv" / stamp).write_text("")

    def make(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run make with these arguments and additional environment variables."""
        clean = {
            key: value for key, value in os.environ.items() if key not in {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}
        }
        return subprocess.run(
            ["make", *arguments],
            cwd=self.root,
            env=clean | environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def interpreter_arguments(self, *arguments: str, **environment: str) -> list[str]:
        """The arguments that reached the interpreter."""
        answer = self.make(*arguments, **environment)
        assert answer.returncode == 0, answer.stderr
        return re.findall(r"^<(.*)>$", answer.stdout, re.MULTILINE)

    def suite_command(self, *arguments: str, **environment: str) -> list[str]:
        """The verb of the suite and its arguments that ``make`` with these arguments runs."""
        received = self.interpreter_arguments(*arguments, **environment)
        at = received.index("--make")
        assert received[at - 2 : at] == ["-m", "suite"]
        target, *pairs = received[at + 1 :]
        return command(target, *pairs)

    def with_python(self) -> Checkout:
        """This checkout with the interpreter of the tests, which carries out what it is given."""
        (self.root / ".venv" / "bin" / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        return self


def command(target: str, *pairs: str) -> list[str]:
    """The verb and its arguments that a target and its variables stand for."""
    return [*verb_of(target).name.split(), *translate(target, pairs)]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A new checkout for each test."""
    return Checkout(tmp_path)


@pytest.mark.parametrize("option", OPTIONS)
def test_each_variable_is_passed_only_from_the_command_line(checkout: Checkout, option: str) -> None:
    value = OPTIONS[option]
    assert checkout.suite_command("run", f"{option}={value}") == ["run", f"{option.lower()}={value}"]
    assert checkout.suite_command("run", **{option: value}) == ["run"]
    assert checkout.suite_command("-e", "run", **{option: value}) == ["run"]


def test_preprocess_passes_on_its_options(checkout: Checkout) -> None:
    variables = ["WORKLOAD=vgg16", "TO=recordio", "SCALE=mini", "DATA_ROOT=/big/data", "DRY=1"]
    arguments = ["workload=vgg16", "to=recordio", "scale=mini", "data_root=/big/data", "dry=true"]
    assert checkout.suite_command("preprocess", *variables) == ["preprocess", *arguments]
    short = ["workload=vgg16", "to=lmdb"]
    assert checkout.suite_command("preprocess", "WORKLOAD=vgg16", "TO=lmdb", "MEASURE=1")[1:] == short
    assert checkout.suite_command("preprocess", "WORKLOAD=vgg16", "TO=lmdb", "MEASURE=0")[1:] == [
        *short,
        "measure=false",
    ]
    assert checkout.suite_command("preprocess", "WORKLOAD=vgg16", "TO=lmdb", MEASURE="0")[1:] == short


def test_image_by_digest_reaches_hydra_as_one_value(checkout: Checkout) -> None:
    digest = "registry.example:5000/custom/image@sha256:" + "a" * 64
    option = checkout.suite_command("run", f"IMAGE={digest}")[-1]
    assert OverridesParser.create().parse_override(option).value() == digest


def test_first_printed_line_is_the_command(checkout: Checkout) -> None:
    variables = [f"{option}={value}" for option, value in OPTIONS.items()]
    variables += ["SCENARIO=none_such", "DRY=1", "FETCH=1", "ARGS=framework.threads=2 +experiment=x"]
    line, *_ = checkout.with_python().make("run", *variables).stdout.splitlines()
    python, *printed = shlex.split(line)
    assert python == ".venv/bin/python"
    assert printed == ["-m", "suite", *command("run", *variables)]
    assert {"dry=true", "fetch=true"} < set(printed)
    assert printed[-2:] == ["framework.threads=2", "+experiment=x"]


@pytest.mark.parametrize("value", ["0,1", "/a b/c", "it's", 'say "x"', "[1]", "a=b", "/päth", "back\\slash"])
def test_special_characters_of_a_value_survive_the_shell_and_hydra(checkout: Checkout, value: str) -> None:
    option = checkout.suite_command("run", f"DATA_ROOT={value}")[-1]
    override = OverridesParser.create().parse_override(option)
    assert override.key_or_group == "data_root"
    assert override.value() == value


def test_switch_variable_takes_1_or_0(checkout: Checkout) -> None:
    assert checkout.suite_command("run", "DRY=0", "FETCH=1", "TELEMETRY=0")[1:] == [
        "telemetry=false",
        "fetch=true",
    ]
    with pytest.raises(WrongVariable, match="expected DRY=1 or DRY=0, found DRY=perhaps"):
        translate("run", ["DRY=perhaps"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "WORKLAOD=gnmt"], "did you mean WORKLOAD?"),
        (["run", "workload=gnmt"], "did you mean WORKLOAD?"),
        (["run", "RESULT=x"], "`make run` does not know the variable RESULT"),
        (["check", "PHASE=infer"], "`make check` does not know the variable PHASE"),
        (["help", "FOO=1"], "`make help` does not know the variable FOO"),
        (["submit", "SUBMITTER=org"], "needs RESULT="),
        (["data"], "needs WORKLOAD="),
        (
            ["compare", "A=a"],
            "expected two results (make: A= and B=) or up to 26 (make: RESULTS='… … …'), found 1",
        ),
        (["compare", "BASELINE=h"], "needs A=RESULT B=RESULT"),
        (["compare", "RESULTS='a b"], "RESULTS: expected closed quotes"),
        (["compare", "RESULTS=a b c"], "A: expected a result's folder, found nothing at a"),
        (["run", "FORM=lmdb"], "FORM is now STORAGE"),
        (["data", "WORKLOAD=ncf", "OWN=1"], "OWN is now CUSTOM"),
        (["lint", "WORKLOAD=ncf"], "`make lint` does not know the variable WORKLOAD; it takes: none"),
        (["compare", "WORKLOAD=ncf"], "`make compare` does not know the variable WORKLOAD"),
        (["ab", "WORKLOAD=ncf", "B=x"], "needs A="),
        (["chekc"], "did you mean check?"),
    ],
)
def test_refused_variable_is_explained(checkout: Checkout, arguments: list[str], message: str) -> None:
    answer = checkout.with_python().make(*arguments)
    assert answer.returncode == 2
    assert message in answer.stderr
    assert "Traceback" not in answer.stderr


def test_bare_make_is_help(checkout: Checkout) -> None:
    answer = checkout.with_python().make()
    assert answer.returncode == 0
    for option in (
        *OPTIONS,
        "make test",
        "make check",
        "make submit",
        "make summary",
        "make compare",
        "make ab",
        "make matrix",
        "make plot",
    ):
        assert option in answer.stdout


def test_make_knows_the_targets_of_the_suite_and_none_of_its_options() -> None:
    text = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    listed = [re.search(rf"^{name} := (.*)$", text, re.M) for name in ("VERBS", "WITH_TESTS")]
    assert {option for found in listed if found for option in found[1].split()} == set(TARGETS)
    phony = re.search(r"^\.PHONY: (.*)$", text, re.M)
    assert phony is not None
    assert set(phony[1].split()) >= set(OTHER_TARGETS)
    assert not re.search(r"\b(WORKLOAD|RESULT|FORMAT)\b", text)


def test_bare_check_takes_the_newest_finished_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["check"]) == 2
    output = capsys.readouterr().err
    assert "`make test` runs the self-tests" in output
    assert "no result in results/" in output
    for name in (
        "20260101T0000Z-a",
        "20260201T0000Z-b",
        "20260201T0000Z-c",
        "20260301T0000Z-c.partial",
        "20260301T0000Z-c.debug",
    ):
        (tmp_path / "results" / name).mkdir(parents=True)
    assert main(["check"]) == 1
    assert "newest result: results/20260201T0000Z-c" in capsys.readouterr().err
    for name, second in (("20260201T0000Z-b", "07"), ("20260201T0000Z-c", "05")):
        first = {"kind": "header", "wall": f"2026-02-01T00:00:{second}.000000Z"}
        (tmp_path / "results" / name / "run.jsonl").write_text(json.dumps(first) + "\n")
    assert main(["check"]) == 1
    errors = capsys.readouterr().err
    assert "newest result: results/20260201T0000Z-b" in errors  # of one minute, the one that began last
    assert "newer, but incomplete: results/20260301T0000Z-c.partial" in errors
    assert command("check", "RESULT=a b", "STRICT=1", "JSON=1") == ["check", "--strict", "--json", "a b"]


@pytest.mark.parametrize(
    ("arguments", "reached"),
    [
        (["submit", "RESULT=r", "SUBMITTER=o"], ["submit", "--result", "r", "--submitter", "o"]),
        (
            ["submit", "RESULT=r", "SUBMITTER=o", "KEY=a b", "YES=1"],
            ["submit", "--result", "r", "--submitter", "o", "--key", "a b", "--yes"],
        ),
        (["keygen"], ["keygen"]),
        (
            ["register", "SUBMITTER=o", "ORGANISATION=O"],
            ["register", "--submitter", "o", "--organisation", "O"],
        ),
        (["system", "RESULT=r", "OUT=s.toml"], ["system", "--result", "r", "--out", "s.toml"]),
        (["keygen", "OUT=k.pem", "SUBMITTER=o"], ["keygen", "--out", "k.pem", "--submitter", "o"]),
        (["summary", "FORMAT=csv"], ["summary", "--format", "csv"]),
        (["data", "WORKLOAD=ncf", "FROM=a b"], ["data", "--workload", "ncf", "--from", "a b"]),
        (["environments", "FRAMEWORK=mxnet", "FETCH=1"], ["environments", "--fetch", "mxnet"]),
        (["check-submissions"], ["check-submissions"]),
        (
            ["audit", "RESULT=a b", "KEY=k", "OUT=o", "STRICT=1", "JSON=1"],
            ["audit", "--result", "a b", "--key", "k", "--out", "o", "--strict", "--json"],
        ),
        (
            ["audit", "RESULT=r", "VERIFY=v", "KEYS=p", "SUBMISSIONS=s"],
            ["audit", "--result", "r", "--submissions", "s", "--verify", "v", "--keys", "p"],
        ),
        (
            ["audit", "RESULT=r", "VERIFY=v", "KEYS=p", "REPLAY=a b"],
            ["audit", "--result", "r", "--verify", "v", "--keys", "p", "--replay", "a b"],
        ),
        (
            ["audit-replay", "RESULT=a b", "REPEATS=2", "NONCE=ab", "KEY=k", "OTHER_CODE=1", "DATA_ROOT=/d"],
            [
                *("audit-replay", "--result", "a b", "--nonce", "ab", "--key", "k", "--data-root", "/d"),
                *("--other-code", "--repeats", "2"),
            ],
        ),
        (
            ["audit-replay", "RESULT=r", "DEVICE=cpu", "STEPS=3", "FRAMEWORK=mxnet", "INTERPRETER=/p"],
            [
                *("audit-replay", "--result", "r", "--interpreter", "/p", "--device", "cpu", "--steps", "3"),
                *("--framework", "mxnet"),
            ],
        ),
        (
            ["audit-perturb", "RESULT=r", "PAIR=p.py", "GROW=4"],
            ["audit-perturb", "--result", "r", "--pair", "p.py", "--grow", "4"],
        ),
        (["quote", "RESULT=a b"], ["quote", "--result", "a b"]),
        (["verify-quote", "SENTENCE=a b", "IN=d"], ["verify-quote", "--in", "d", "--", "a b"]),
        (["export", "RESULT=a b"], ["export", "a b"]),
        (["export", "RESULT=r", "OUT=a b"], ["export", "--out", "a b", "r"]),
        (["export", "RESULT=r", "OUT=-"], ["export", "--out", "-", "r"]),
        (
            ["import", "LOGS=a b", "ROUND=0.7", "FORMAT=md", "STRICT=1"],
            ["import", "--round", "0.7", "--format", "md", "--strict", "a b"],
        ),
        (["coverage", "SUBMITTER=o", "JSON=1"], ["coverage", "--submitter", "o", "--json"]),
        (
            [
                "matrix",
                "SWEEP=a b",
                "DRY=1",
                "WORKLOAD=ncf,gnmt",
                "RESULTS_DIR=/r",
                "DATA_ROOT=/d,e",
                "ARGS=batch=1,2",
            ],
            [
                *("matrix", "--sweep", "a b", "--workload", "ncf,gnmt", "--dry", "--results-dir", "/r"),
                'data_root="/d,e"',
                "batch=1,2",
            ],
        ),
        (
            ["matrix", "FRAMEWORK=mxnet", "PHASE=infer", "FORMAT=csv"],
            ["matrix", "--framework", "mxnet", "--phase", "infer", "--format", "csv"],
        ),
        (
            ["compare", "A=a b", "B=it's", "FAIL_SLOWER=2%", "JUNIT=x y.xml", "FORMAT=md"],
            ["compare", "--fail-slower", "2%", "--junit", "x y.xml", "--format", "md", "a b", "it's"],
        ),
        (
            ["compare", "RESULT=r", "BASELINE=h i", "ADD=1"],
            ["compare", "--baseline", "h i", "--add", "r"],
        ),
        (
            [
                *(
                    "ab",
                    "WORKLOAD=ncf",
                    "DATA_ROOT=/d e",
                    "DRY=1",
                    "FAIL_SLOWER=1.5%",
                    "ARGS=framework.fast=false",
                ),
                *("A=batch=1 framework.threads=1", "B="),
            ],
            [
                *("ab", "--fail-slower", "1.5%", "workload=ncf", "dry=true", 'data_root="/d e"'),
                *("framework.fast=false", "--", "batch=1 framework.threads=1", "--", ""),
            ],
        ),
        (["plot", "METRIC=step_time", "OUT=a b.png"], ["plot", "--metric", "step_time", "--out", "a b.png"]),
        (["bench-overhead"], ["bench-overhead"]),
    ],
)
def test_other_targets_run_their_verb_with_its_options(
    checkout: Checkout, arguments: list[str], reached: list[str]
) -> None:
    assert checkout.suite_command(*arguments) == reached


def test_equivalence_makes_the_environments_first(checkout: Checkout) -> None:
    made = ["-m", "suite", "environments", "--accelerator", "cpu"]
    table = [
        "-m",
        "tests.equivalence.table",
        "--workload",
        "ncf,gnmt",
        "--scale",
        "reference",
        "--out",
        "a b.md",
    ]
    arguments = ("equivalence", "WORKLOAD=ncf,gnmt", "SCALE=reference", "OUT=a b.md")
    assert checkout.interpreter_arguments(*arguments)[: len(made)] == made
    assert checkout.suite_command(*arguments) == ["equivalence", *table[2:]]


def test_bench_peers_passes_its_arguments(checkout: Checkout) -> None:
    arguments = ["bench-peers", "WORKLOAD=ncf,gnmt", "SCALE=mini", "THREADS=1", "OUT=a b.json"]
    options = ["--workload", "ncf,gnmt", "--scale", "mini", "--threads", "1", "--out", "a b.json"]
    assert checkout.suite_command(*arguments) == ["bench-peers", *options]


def test_missing_python_is_reported_in_one_sentence_with_the_fix(checkout: Checkout, tmp_path: Path) -> None:
    shutil.rmtree(checkout.root / ".venv")
    tools = tmp_path / "tools_only"
    tools.mkdir()
    for name in (
        "make",
        "bash",
        "touch",
        "rm",
        "sed",
        "cat",
        "find",
        "sort",
        "tail",
        "grep",
        "tr",
        "env",
        "flock",
    ):
        found = shutil.which(name)
        if found:
            (tools / name).symlink_to(found)
    answer = checkout.make("run", "WORKLOAD=gnmt", PATH=str(tools))
    assert answer.returncode == 2
    assert "Python 3.11 was not found: sudo apt-get install python3.11" in answer.stderr
    assert not (checkout.root / ".venv").exists()


def test_changed_lock_updates_the_environment(checkout: Checkout) -> None:
    lock = checkout.root / "requirements" / "suite.txt"
    later = time.time() + 5
    os.utime(lock, (later, later))
    # The stand-in interpreter is no Python 3.11, so make rebuilds .venv and refuses PYTHON.
    answer = checkout.make("run", "PYTHON=/nowhere/python3.11")
    assert answer.returncode == 2
    assert "PYTHON=/nowhere/python3.11 is not a Python 3.11" in answer.stderr
