"""A custom pair in the worker: loaded from a file, part of the digests, refused with a clear message."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from suite import workloads
from suite.contract import BENCHMARK, CONVERSION, ConversionJob, ConversionKey, Job, Key
from suite.worker import record
from suite.worker.job import parse_job
from suite.worker.main import _describe, _fault_code
from suite.workloads import CUSTOM_PAIR, CustomPairError

KEY = Key("ncf", "pytorch", "train", "offline", "fp32", 256, 1, "mini", "synthetic", "warm", "f8")
JOB = Job(KEY, "throughput", 7, 0, {}, "cpu", 1, True, 0, 0, "", "")
PAIR = "from dataclasses import dataclass\n@dataclass\nclass Pair:\n    rate: int = {}\n"


@pytest.fixture(autouse=True)
def _unload_custom_pair() -> Iterator[None]:
    yield
    sys.modules.pop(CUSTOM_PAIR, None)


def job_of(path: Path, text: str) -> Job:
    path.write_text(text)
    return replace(JOB, pair_file=str(path))


def test_pair_file_is_optional_in_the_configuration_line() -> None:
    fields = {name: getattr(JOB, name) for name in Job.__slots__ if name not in ("key", "pair_file")}
    key = {name: getattr(KEY, name) for name in Key.__slots__}
    line = {"kind": BENCHMARK, "key": key, **fields}
    for pair_file in ("", "/pair.py"):
        job = parse_job({**line, **({"pair_file": pair_file} if pair_file else {})})
        assert isinstance(job, Job)
        assert job.pair_file == pair_file


def test_configuration_line_of_a_conversion_is_a_conversion_job() -> None:
    job = ConversionJob(ConversionKey("resnet50", "mxnet", "recordio", 20, "mini", "warm"), 2, 0, "/d", "/s")
    assert parse_job({"kind": CONVERSION, **asdict(job)}) == job
    with pytest.raises(TypeError, match="mode"):
        parse_job({"kind": CONVERSION, **asdict(job), "mode": "throughput"})


def test_custom_pair_is_loaded_under_a_fixed_module_name(tmp_path: Path) -> None:
    module = workloads.pair_module(job_of(tmp_path / "anything", PAIR.format(3)))
    assert module.Pair().rate == 3
    assert sys.modules[CUSTOM_PAIR] is module
    assert list(tmp_path.iterdir()) == [tmp_path / "anything"], "bytecode was written beside the pair"


def test_changed_custom_pair_is_loaded_without_stale_bytecode(tmp_path: Path) -> None:
    file = tmp_path / "pair.py"
    workloads.pair_module(job_of(file, PAIR.format(3)))
    before, state = record.modules_digest(), file.stat()
    job = job_of(file, PAIR.format(4))  # same size
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))  # and time: bytecode would pass for current
    assert workloads.pair_module(job).Pair().rate == 4
    assert record.modules_digest() != before


def test_digests_include_the_custom_pair(tmp_path: Path) -> None:
    without = record.modules_digest()
    assert record.custom_pair_digest() is None
    assert "custom_pair" not in record.facts({})[0]
    job = job_of(tmp_path / "pair.py", PAIR.format(3))
    workloads.pair_module(job)
    assert record.modules_digest() != without
    digest = hashlib.sha256(Path(job.pair_file).read_bytes()).hexdigest()
    assert record.custom_pair_digest() == digest
    assert record.facts({})[0]["custom_pair"] == digest


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "custom pair: expected a file that the worker can read, found none; check PAIR"),
        ("", "custom pair: expected a class named Pair, found none"),
        ("Pair = 3\n", "custom pair: expected a class named Pair, found none"),
        (
            "\nclass Pair(\n",
            "custom pair: importing it failed with SyntaxError: '(' was never closed, line 2",
        ),
        (
            "import no_such_module",
            "custom pair: importing it failed with ModuleNotFoundError: No module named 'no_such_module'",
        ),
        (
            "open('/home/alice/x')",
            "custom pair: importing it failed with FileNotFoundError: [Errno 2] No such file",
        ),
        ("raise SystemExit(3)", "custom pair: importing it failed with SystemExit: 3"),
        ("x = '\udcff'", "custom pair: importing it failed with SyntaxError: "),
    ],
    ids=["missing", "empty", "no class", "syntax", "import", "path", "exit", "encoding"],
)
def test_broken_custom_pair_is_a_typed_fault_without_paths(
    text: str | None, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "pair.py"
    if text is not None:
        file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(CustomPairError) as caught:
        workloads.pair_module(replace(JOB, pair_file=str(file)))
    assert _fault_code(caught.value, "import") == "environment"
    assert _describe(caught.value).startswith(f"CustomPairError: {message}")
    assert "/" not in _describe(caught.value)
    assert CUSTOM_PAIR not in sys.modules


def test_memory_error_while_loading_is_passed_on(tmp_path: Path) -> None:
    with pytest.raises(MemoryError):
        workloads.pair_module(job_of(tmp_path / "pair.py", "raise MemoryError"))
