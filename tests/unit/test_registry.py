"""The registry: nonces, timings, devices, attempts and waivers; each rule has a forgery that breaks it."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from suite.log.files import read_folder
from suite.log.reader import record_of
from suite.submissions import package as submission
from suite.submissions.registry import read_registry
from suite.submissions.registry.comparison import overlapping_runs
from suite.submissions.registry.copies import copied_durations
from suite.submissions.registry.model import Registry, parse_time
from suite.submissions.registry.traces import Trace, trace_of
from suite.submissions.signing import dsse, keys
from suite.submissions.signing.statement import PAYLOAD_TYPE
from suite.submissions.system import encode
from suite.telemetry.nvml import hash_uuid
from tests.fixtures.forging import Events
from tests.fixtures.gaming_rows_across import on_gpu
from tests.fixtures.good_log import STEP_NS, Good, reference
from tests.fixtures.registered import ORG, Registrar, entry, life, nonce, receipt, result, today
from tests.fixtures.registered import moment as day
from tests.unit.test_submit_system import OF_ACCELERATOR

VALUE = "5e" * 32
REGISTRY = Path(__file__).resolve().parents[2] / "submissions" / "registry"
Forge = Callable[[Registrar], object]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A result without a nonce; read only."""
    return result(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def nonced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A result with a nonce; read only."""
    return result(tmp_path_factory.mktemp("nonced"), Good(nonce=VALUE))


@pytest.fixture
def tree(tmp_path: Path) -> Registrar:
    """A tree with a registry and no submission."""
    return Registrar(tmp_path / "submissions")


# ---- nonces
OTHER, OF_ANOTHER = "0" * 64, Good(run_hex="00000000").run_id
NONCES: list[tuple[str, str, Callable[[Path], list[dict[str, Any]]]]] = [
    ("REG-002", "never given out", lambda run: []),
    ("REG-002", "another's", lambda run: [nonce(VALUE, "other-labs")]),
    ("REG-003", "used by another run", lambda run: [nonce(VALUE, **receipt(run) | {"run_id": OF_ANOTHER})]),
    ("REG-004", "issued after the run", lambda run: [nonce(VALUE, issued=0.5)]),
    ("REG-005", "issued long ago", lambda run: [nonce(VALUE, issued=-8)]),
    ("REG-005", "received late", lambda run: [nonce(VALUE, **receipt(run, 6.5))]),
    ("REG-005", "received early", lambda run: [nonce(VALUE, **receipt(run, -0.5))]),
    ("REG-013", "received as another log", lambda run: [nonce(VALUE, **receipt(run) | {"sha256": OTHER})]),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "name", "rows"), NONCES, ids=[name for _, name, _ in NONCES])
def test_wrong_nonce_is_rejected(
    tree: Registrar, nonced: Path, rule: str, name: str, rows: Callable[[Path], list[dict[str, Any]]]
) -> None:
    tree.rows("keys")
    tree.rows("nonces", nonce(VALUE))
    assert tree.submit(nonced, key=False) == 0
    tree.rows("nonces", *rows(nonced))
    assert tree.state() == ({rule: "reject"}, [None])


def test_log_exchanged_after_receipt_is_rejected(tree: Registrar, tmp_path: Path) -> None:
    """A faster run of the same run id and nonce, signed again by the same key."""
    tree.rows("nonces", nonce(VALUE))
    honest = result(tmp_path / "honest", Good(nonce=VALUE))
    assert tree.submit(honest) == 0
    tree.rows("nonces", nonce(VALUE, **receipt(honest)))
    assert tree.state() == ({}, ["L2"])
    (run,) = tree.runs()
    shutil.rmtree(run)
    faster = result(tmp_path / "faster", Good(nonce=VALUE, step_ns=STEP_NS // 2))
    assert faster.name == run.name
    assert tree.submit(faster) == 1  # refused here already
    tree.rows("nonces", nonce(VALUE))
    assert tree.submit(faster) == 0
    tree.rows("nonces", nonce(VALUE, **receipt(honest)))
    assert tree.state() == ({"REG-013": "reject"}, [None])


def test_nonce_in_two_submissions_is_rejected(tree: Registrar, tmp_path: Path) -> None:
    tree.rows("nonces", nonce(VALUE))
    for number in range(2):
        good = Good(nonce=VALUE, run_hex=f"{number:08x}")
        assert tree.submit(result(tmp_path / "results", good)) == 0
    assert tree.state() == ({"REG-003": "reject"}, ["L1", None])


# ---- over all submissions
def test_copied_timings_are_rejected(tree: Registrar, tmp_path: Path) -> None:
    first = result(tmp_path / "first", Good(run_hex="00000001"))
    timestamps = [
        (event["data"]["step_end_ns"], event["data"]["dispatch_ns"])
        for event in map(json.loads, (first / "run.jsonl").read_bytes().splitlines())
        if event["kind"] == "step" and event["repeat"] == 3
    ]

    def copied(events: Events) -> None:
        """Seventeen steps of another run's fourth repeat, shifted in time to fit into the second."""
        steps = [event for event in events if event["kind"] == "step" and event["repeat"] == 1]
        shift = steps[39]["data"]["step_end_ns"] - timestamps[39][0]
        for step in range(40, 57):
            steps[step]["data"]["step_end_ns"] = steps[step]["data"]["dispatch_ns"] = (
                timestamps[step][0] + shift
            )

    second = result(tmp_path / "second", Good(run_hex="00000002"), copied)
    assert tree.submit(first) == tree.submit(second) == 0
    assert tree.state() == ({"REG-007": "reject"}, ["L1", None])


def test_equal_durations_of_coarse_timer_are_no_copy(tree: Registrar, tmp_path: Path) -> None:
    """Steps of one length on a coarse tick share sixteen consecutive durations by chance, as in COPY-001."""
    record = record_of(read_folder(result(tmp_path, Good())))
    one = trace_of(record, "one", ORG, "box")
    coarse = replace(one, curves=(((1000,) * 60 + (2000,) * 40,),))
    assert list(copied_durations([coarse, replace(coarse, location="two")])) == []
    fine = replace(one, curves=((tuple(range(100)),),))
    assert [fault.rule for fault in copied_durations([fine, replace(fine, location="two")])] == ["REG-007"]


def on_device(seconds: float, device: str = "GPU-1") -> Callable[[Events], None]:
    """The run on a device, started ``seconds`` later; its UUID is where telemetry writes it."""

    def forge(events: Events) -> None:
        for event in events:
            later = parse_time(event["wall"]) + timedelta(seconds=seconds)
            event["wall"] = f"{later:%Y-%m-%dT%H:%M:%S.%fZ}"
            if event["kind"] == "env" and event["data"]["side"] == "outside":
                facts = event["data"]["facts"]
                facts["accelerators"] = {"devices": [{"uuid": hash_uuid(device)}]}

    return forge


@pytest.mark.parametrize(("seconds", "device", "found"), [
    (0.5, "GPU-1", {"REG-008"}), (0.5, "GPU-2", set()), (600, "GPU-1", set()),
])  # fmt: skip
def test_runs_on_one_device_do_not_overlap(
    tmp_path: Path, seconds: float, device: str, found: set[str]
) -> None:
    traces = []
    for number, (shift, name) in enumerate(((0.0, "GPU-1"), (seconds, device))):
        good = Good(run_hex=f"{number:08x}")
        record = record_of(read_folder(result(tmp_path, good, on_device(shift, name))))
        span = timedelta(seconds=2)  # the imagined run is written in a moment, and ran for seconds
        traces.append(
            replace(
                trace_of(record, str(number), ORG, "box"),
                ended=parse_time(record.events[0].wall) + span,
                repeats=(),
            )
        )
    assert {fault.rule for fault in overlapping_runs(traces)} == found
    assert {fault.rule for fault in overlapping_runs(reversed(traces))} == found


def test_overlapping_runs_in_tree_are_rejected(tree: Registrar, tmp_path: Path) -> None:
    for number in range(2):  # each lasts for seconds, and the second begins within the first
        good = reference(run_hex=f"{number:08x}")
        assert tree.submit(result(tmp_path / "results", good, on_gpu(number)), stated=OF_ACCELERATOR) == 0
    of_no_release = {"ID-016": "info", "REG-015": "info"}  # and without a reference result
    assert tree.state() == ({"REG-008": "reject"} | of_no_release, ["L1", None])


def test_long_run_overlaps_every_run_within_it(tmp_path: Path) -> None:
    record = record_of(read_folder(result(tmp_path, Good(), on_device(0))))
    base = trace_of(record, "", ORG, "box")
    spans = {"long": (0, 100), "early": (10, 20), "late": (50, 60), "after": (100, 110)}
    traces = [
        replace(
            base,
            location=name,
            started=base.started + timedelta(seconds=at),
            ended=base.started + timedelta(seconds=to),
            repeats=(),
        )
        for name, (at, to) in spans.items()
    ]
    assert [fault.location.split(",")[0] for fault in overlapping_runs(traces)] == ["early", "late"]


def test_interleaved_runs_overlap_only_if_their_repeats_do(tmp_path: Path) -> None:
    record = record_of(read_folder(result(tmp_path, Good(), on_device(0))))
    base = trace_of(record, "", ORG, "box")

    def run(name: str, *spans: tuple[float, float]) -> Trace:
        times = [
            (base.started + timedelta(seconds=at), base.started + timedelta(seconds=to)) for at, to in spans
        ]
        return replace(base, location=name, started=times[0][0], ended=times[-1][1], repeats=tuple(times))

    single, ranks = run("single", (0, 10), (30, 40)), run("ranks", (10, 20), (20, 30))
    assert list(overlapping_runs([single, ranks])) == []
    within, across = run("within", (15, 16)), run("across", (5, 35))
    assert [fault.between for fault in overlapping_runs([single, ranks, within])] == [("ranks", "within")]
    found = [fault.between for fault in overlapping_runs([single, ranks, across])]
    assert found == [("single", "across"), ("across", "ranks")]


def attempt(run: Path, number: int, tree: Registrar) -> dict[str, Any]:
    (found,) = (one.trace for one in submission.check_tree(tree.root)[0] if one.run_id == run.name)
    assert found is not None
    submitter, system, digest = found.benchmark
    return {
        "submitter": submitter, "system": system, "benchmark": digest, "attempt": number, "run_id": run.name,
    }  # fmt: skip


def test_gap_in_attempts_ledger_is_reported(tree: Registrar, tmp_path: Path) -> None:
    run = result(tmp_path / "results", Good(purpose="submission"))
    assert tree.submit(run) == 0
    assert tree.findings() == {"REG-006": "flag"}  # not in the ledger
    first = attempt(run, 1, tree)
    tree.rows("attempts", first)
    assert tree.findings() == {}
    third = {**first, "attempt": 3, "run_id": run.name[:-1] + "3"}
    tree.rows("attempts", first, third)
    assert tree.findings() == {"REG-006": "flag"}  # the second is missing
    tree.rows("attempts", first, {**third, "attempt": 2})
    assert tree.state() == ({}, ["L1"])


# ---- the registry
def broken(name: str, change: Callable[[dict[str, Any]], Any]) -> Forge:
    def forge(tree: Registrar) -> None:
        value = json.loads((tree.folder / f"{name}.json").read_text())
        change(value)
        tree.put(name, value)

    return forge


def linked(tree: Registrar) -> None:
    (tree.folder / "nonces.json").unlink()
    (tree.folder / "nonces.json").symlink_to(tree.folder / "keys.json")


ROW: dict[str, Any] = {"submitter": ORG, "system": "box", "benchmark": "0" * 64, "attempt": 1,
       "run_id": "20261118T1106Z-ncf-pytorch-train-fp32-mini-0123abcd"}  # fmt: skip
NO_DAY = "2030-02-30T00:00:00Z"
BROKEN: dict[str, Forge] = {
    "a file missing": lambda tree: (tree.folder / "nonces.json").unlink(),
    "a file too many": lambda tree: (tree.folder / "notes.txt").write_text(""),
    "a link": linked,
    "no JSON": lambda tree: (tree.folder / "keys.json").write_text("{"),
    "a name twice": lambda tree: (tree.folder / "keys.json").write_text('{"keys":[],"keys":[]}'),
    "an unknown name": broken("keys", lambda value: value.update(extra=1)),
    "another format": broken("keys", lambda value: value.update(format="suite-registry-keys/2")),
    "a key id of another key": broken("keys", lambda value: value["keys"][0].update(key_id="0" * 64)),
    "no key": broken("keys", lambda value: value["keys"][0].update(spki="A" * 59 + "=")),
    "a key twice": broken("keys", lambda value: value["keys"].append(value["keys"][0])),
    "a key without a life": broken("keys", lambda value: value["keys"][0].update(not_after=day(-60))),
    "a day that is none": broken("keys", lambda value: value["keys"][0].update(not_after=NO_DAY)),
    "a key of both": lambda tree: tree.rows("keys", {**entry(tree.key), **life(tree.registry_key)}),
    "a nonce twice": lambda tree: tree.rows("nonces", nonce(VALUE), nonce(VALUE)),
    "an attempt twice": lambda tree: tree.rows("attempts", ROW, {**ROW, "run_id": ROW["run_id"][:-1] + "e"}),
    "a run twice": lambda tree: tree.rows("attempts", ROW, {**ROW, "attempt": 2}),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken_registry_is_reported_and_gives_no_assurance(name: str, tree: Registrar, plain: Path) -> None:
    BROKEN[name](tree)
    assert tree.findings() == {"REG-001": "reject"}
    registry = read_registry(tree.folder)
    if "keys.json" in registry.faults[0].location:
        assert registry.keys == ()
        assert tree.submit(plain) == 1


def test_registry_of_the_project_is_valid() -> None:
    registry = read_registry(REGISTRY)
    assert registry.faults == ()
    # Devices are compared over submissions by this hash: another salt in the harness would hide overlaps.
    uuid = "GPU-5b3c1d9e-0000-4000-8000-123456789abc"
    assert hash_uuid(uuid) == hashlib.sha256(f"{registry.device_salt}\n{uuid}".encode()).hexdigest()


def test_registry_that_is_a_link_is_refused(tree: Registrar, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tree.folder)
    assert [fault.rule for fault in read_registry(tmp_path / "link").faults] == ["REG-001"]
    assert read_registry(tmp_path / "absent") == Registry()


# ---- waivers
def rejected(tree: Registrar, plain: Path) -> str:
    """A submission that breaks SUBM-005; returns the digest of its log."""
    tree.rows("keys")
    assert tree.submit(plain, key=False) == 0
    (run,) = tree.runs()
    value = json.loads((run / "system.json").read_text())
    (run / "system.json").write_bytes(encode({**value, "host_memory_capacity": 1}))
    assert tree.findings() == {"SUBM-005": "reject"}
    return record_of(read_folder(run)).digest


def test_waiver_turns_rejection_into_flag(tree: Registrar, plain: Path) -> None:
    digest = rejected(tree, plain)
    tree.waive(digest, "SUBM-005")
    assert tree.findings() == {"SUBM-005": "flag"}
    (one,), _ = submission.check_tree(tree.root)
    assert "waived until" in one.findings[0].expected
    assert "a test" in one.findings[0].expected
    for run, rule, until in (("0" * 64, "SUBM-005", 5), (digest, "SUBM-004", 5), (digest, "SUBM-005", -1)):
        tree.waive(run, rule, until=today(until))
        assert tree.findings() == {"SUBM-005": "reject"}


FORGED_WAIVERS: dict[str, Callable[[Registrar, str], object]] = {
    "signed by the submitter": lambda tree, run: tree.waive(run, "SUBM-005", key=tree.key),
    "signed with an unregistered key": lambda tree, run: tree.waive(run, "SUBM-005", key=keys.generate()),
    "of a signature": lambda tree, run: tree.waive(run, "SUBM-005", "SIGN-005"),
    "of the format": lambda tree, run: tree.waive(run, "SUBM-005", "LOG-010"),
    "with an unknown name": lambda tree, run: tree.waive(run, "SUBM-005", extra=1),
    "older than its key": lambda tree, run: tree.waive(run, "SUBM-005", issued_at=day(-40)),
    "under another name": lambda tree, run: tree.waive(run, "SUBM-005").rename(
        tree.folder / "waivers" / "x.json"
    ),
    "garbage": lambda tree, run: tree.waive(run, "SUBM-005").write_bytes(b"{}"),
    "for another purpose": lambda tree, run: tree.waive(run, "SUBM-005").write_bytes(
        dsse.sign(PAYLOAD_TYPE, b"{}", tree.registry_key).encode()
    ),
}


@pytest.mark.parametrize("name", FORGED_WAIVERS)
def test_forged_waiver_has_no_effect(name: str, tree: Registrar, plain: Path) -> None:
    digest = rejected(tree, plain)
    FORGED_WAIVERS[name](tree, digest)
    assert tree.findings() == {"SUBM-005": "reject", "REG-009": "reject"}


def test_every_rule_of_the_registry_has_a_forgery() -> None:
    elsewhere = {f"REG-{number:03}" for number in (1, 6, 7, 8, 9, 10, 11, 12, 14, 15, 16)}
    known = {rule for rule in submission.rules() if rule.startswith("REG-")}
    assert {rule for rule, _, _ in NONCES} | elsewhere == known
