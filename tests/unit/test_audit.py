"""An audit reports the outcome of every rule and signs it; a signed verdict is valid only for its result."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from securesystemslib import dsse as oracle
from securesystemslib.signer import SSlibKey

from suite.audit import show, vsa
from suite.audit.judgement import AUDIT_TASKS, judged
from suite.audit.outcomes import DECLARED, KEPT, NOT_APPLICABLE, NOT_TRIED, REJECTED, outcomes
from suite.checker import check_result
from suite.cli import main
from suite.log.canonical import sha256_hex
from suite.rules import load
from suite.sandbox.sandbox import Sandbox
from suite.submissions.signing import dsse, keys
from suite.submissions.signing.statement import PAYLOAD_TYPE, encode
from tests.fixtures.forging import rewrite
from tests.fixtures.good_log import MINI, Good, write_good
from tests.fixtures.registered import ORG, Registrar, nonce, result

VALUE = "5e" * 32
RESULTS = Path(__file__).parents[2] / "submissions" / "suite-reference" / "results" / "h200-virtual-machine"


@pytest.fixture(scope="module")
def sandbox() -> Any:
    """One child for the whole module."""
    with Sandbox(AUDIT_TASKS) as found:
        yield found


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Registrar:
    """A registry and one signed submission with a nonce; read only."""
    folder = tmp_path_factory.mktemp("tree")
    tree = Registrar(folder / "submissions")
    tree.rows("nonces", nonce(VALUE))
    assert tree.submit(result(folder / "r", Good(nonce=VALUE))) == 0
    return tree


@pytest.fixture(scope="module")
def value(tree: Registrar, sandbox: Sandbox) -> dict[str, Any]:
    """The verdict on that submission; copy it before changing it."""
    (run,) = tree.runs()
    return judged(sandbox, run, tree.root)


def of(rows: list[dict[str, str]], rule: str) -> tuple[str, str]:
    (row,) = [row for row in rows if row["rule"] == rule]
    return row["outcome"], row["because"]


def test_audit_reports_one_outcome_per_rule(value: dict[str, Any]) -> None:
    assert [row["rule"] for row in value["outcomes"]] == list(load("practice").checks)
    assert {row["outcome"] for row in value["outcomes"]} == {KEPT, NOT_APPLICABLE}
    assert of(value["outcomes"], "QUAL-002") == (NOT_APPLICABLE, "only for mode quality")
    assert of(value["outcomes"], "STAT-001") == (NOT_APPLICABLE, "only for closed")
    assert of(value["outcomes"], "CLAIM-001") == (KEPT, "")
    assert of(value["outcomes_of_submission"], "SIGN-002") == (KEPT, "")
    assert of(value["outcomes_of_submission"], "REG-004") == (KEPT, "")
    assert value["level"] == "L1"
    assert "received" in value["missing"]


def test_rules_after_a_rejecting_stage_are_not_tried(tmp_path: Path) -> None:
    def forge(events: list[dict[str, Any]]) -> None:
        events[0]["data"]["key"]["cache"] = "lukewarm"

    verdict = check_result(rewrite(write_good(tmp_path), forge))
    rows = {row.rule: row for row in outcomes(verdict)}
    if verdict.record is None:  # the schema rejected it
        assert rows["LOG-014"].outcome == REJECTED
        assert rows["CLAIM-001"].outcome == NOT_TRIED
        assert "cannot be read" in rows["CLAIM-001"].because
    else:
        assert rows["ID-003"].outcome == REJECTED
        assert rows["CLAIM-001"] == replace(
            rows["CLAIM-001"],
            outcome=NOT_TRIED,
            because="stage key rejected the log, and later stages rely on it",
        )


def test_unreadable_log_leaves_other_rules_untried(tmp_path: Path, sandbox: Sandbox) -> None:
    run = write_good(tmp_path)
    (run / "run.jsonl").write_bytes((run / "run.jsonl").read_bytes()[:-5])
    found = judged(sandbox, run, tmp_path / "none")
    assert not found["accepted"]
    assert of(found["outcomes"], "TIME-001") == (NOT_TRIED, "the reader stopped: the log cannot be read")
    assert REJECTED in {row["outcome"] for row in found["outcomes"] if row["rule"].startswith("LOG-")}
    assert {row["outcome"] for row in found["outcomes_of_submission"]} == {NOT_TRIED}


def test_result_without_submission_reaches_l0(tmp_path: Path, sandbox: Sandbox) -> None:
    found = judged(sandbox, write_good(tmp_path), tmp_path / "none")
    assert (found["accepted"], found["level"]) == (True, "L0")
    assert "attestation.dsse.json" in found["missing"]
    assert of(found["outcomes_of_submission"], "SIGN-001")[0] == NOT_TRIED
    assert of(found["outcomes_of_submission"], "REG-007") == (KEPT, "")


def test_copy_of_another_submission_is_rejected(tree: Registrar, tmp_path: Path, sandbox: Sandbox) -> None:
    copy = write_good(tmp_path, Good(nonce=VALUE))  # equal timings, other facts
    found = judged(sandbox, copy, tree.root)
    assert of(found["outcomes_of_submission"], "REG-007") == (REJECTED, "")
    assert of(found["outcomes_of_submission"], "REG-003") == (REJECTED, "")  # its nonce as well
    assert (found["accepted"], found["level"], found["quote"]) == (False, None, None)


def test_submission_in_wrong_folder_is_rejected(tree: Registrar, tmp_path: Path, sandbox: Sandbox) -> None:
    (run,) = tree.runs()
    alone = tmp_path / run.name
    alone.mkdir()
    for file in run.iterdir():
        (alone / file.name).write_bytes(file.read_bytes())
    assert judged(sandbox, alone, tree.root)["level"] == "L1"  # not in the tree: no folders to match
    misplaced = tree.root / ORG / "practice" / "another-system" / "ncf" / run.name
    misplaced.parent.mkdir(parents=True)
    alone.rename(misplaced)
    try:
        found = judged(sandbox, misplaced, tree.root)
    finally:
        for file in misplaced.iterdir():
            file.unlink()
        misplaced.rmdir()
        misplaced.parent.rmdir()
        misplaced.parent.parent.rmdir()
    assert of(found["outcomes_of_submission"], "SUBM-006") == (REJECTED, "")
    assert found["level"] is None


def test_securesystemslib_verifies_the_envelope(value: dict[str, Any]) -> None:
    key = keys.generate()
    content = json.loads(vsa.signed(value, key))
    public = SSlibKey(key.public.key_id, "ed25519", "ed25519", {"public": key.public.spki[-32:].hex()})
    envelope = oracle.Envelope.from_dict(content)
    assert set(envelope.verify([public], 1)) == {key.public.key_id}
    statement = json.loads(envelope.payload)
    assert statement["predicateType"] == "https://slsa.dev/verification_summary/v1"
    predicate = statement["predicate"]
    assert set(predicate) == {
        *("verifier", "timeVerified", "resourceUri", "policy", "inputAttestations", "verificationResult"),
        *("verifiedLevels", vsa.EXTENSION),
    }
    assert predicate["verificationResult"] == "PASSED"
    assert predicate["verifiedLevels"] == ["SUITE_L1"]
    assert predicate["resourceUri"].endswith(value["sha256"])
    assert [row["uri"] for row in predicate["inputAttestations"]] == ["urn:suite:file:attestation.dsse.json"]
    assert statement["subject"][0] == {"name": "run.jsonl", "digest": {"sha256": value["sha256"]}}


def forged(
    statement: dict[str, Any], change: Callable[[dict[str, Any]], object], key: keys.PrivateKey
) -> bytes:
    """The statement with a change, signed again by its verifier: only deriving it again shows the change."""
    changed = json.loads(json.dumps(statement))
    change(changed)
    return dsse.sign(PAYLOAD_TYPE, encode(changed), key).encode()


FORGERIES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a higher level": (
        lambda s: s["predicate"].update(verifiedLevels=["SUITE_L2"]),
        "predicate.verifiedLevels.0",
    ),
    "two levels": (
        lambda s: s["predicate"]["verifiedLevels"].append("SUITE_L2"),
        "predicate.verifiedLevels",
    ),
    "failed": (
        lambda s: s["predicate"].update(verificationResult="FAILED"),
        "predicate.verificationResult",
    ),
    "another log": (
        lambda s: s["subject"][0]["digest"].update(sha256="0" * 64),
        "subject.0.digest.sha256",
    ),
    "another resource": (
        lambda s: s["predicate"].update(resourceUri="urn:suite:log:sha256:" + "0" * 64),
        "predicate.resourceUri",
    ),
    "other rules": (
        lambda s: s["predicate"]["policy"]["digest"].update(sha256="0" * 64),
        "predicate.policy.digest.sha256",
    ),
    "no attestation": (
        lambda s: s["predicate"].update(inputAttestations=[]),
        "predicate.inputAttestations",
    ),
    "a rule left out": (
        lambda s: s["predicate"][vsa.EXTENSION]["outcomes"].pop("TIME-001"),
        f"predicate.{vsa.EXTENSION}.outcomes.TIME-001",
    ),
    "a rule called kept": (
        lambda s: s["predicate"][vsa.EXTENSION]["outcomes"].update({"QUAL-002": "kept"}),
        f"predicate.{vsa.EXTENSION}.outcomes.QUAL-002",
    ),
    "an additional field": (lambda s: s["predicate"].update(note="fast"), "predicate.note"),
    "a time that is none": (
        lambda s: s["predicate"].update(timeVerified="yesterday"),
        "predicate.timeVerified",
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_verdict_is_reported_with_its_field(name: str, value: dict[str, Any]) -> None:
    key = keys.generate()
    change, field = FORGERIES[name]
    honest = vsa.statement_of(value, key.public, vsa.now())
    statement, signer = vsa.verified(forged(honest, lambda s: None, key), [key.public])
    assert vsa.differences(statement, value, signer) == []
    statement, signer = vsa.verified(forged(honest, change, key), [key.public])
    assert [found[0] for found in vsa.differences(statement, value, signer)] == [field]


def test_signature_is_checked_before_the_statement(value: dict[str, Any]) -> None:
    key, other = keys.generate(), keys.generate()
    honest = vsa.statement_of(value, key.public, vsa.now())
    with pytest.raises(vsa.SummaryError, match="none of the given keys"):
        vsa.verified(vsa.signed(value, other), [key.public])
    with pytest.raises(vsa.SummaryError, match=r"verifier\.id"):  # signed by one verifier, naming another
        vsa.verified(dsse.sign(PAYLOAD_TYPE, encode(honest), other).encode(), [other.public, key.public])
    attestation = {**honest, "predicateType": "urn:suite:attestation:run:1"}
    with pytest.raises(vsa.SummaryError, match="predicateType"):
        vsa.verified(dsse.sign(PAYLOAD_TYPE, encode(attestation), key).encode(), [key.public])
    with pytest.raises(vsa.SummaryError, match="payloadType"):
        vsa.verified(dsse.sign("text/plain", encode(honest), key).encode(), [key.public])
    with pytest.raises(vsa.SummaryError, match=r"canonical|none of the given"):
        vsa.verified(vsa.signed(value, key).replace(b'"payload":"', b'"payload":"AAAA'), [key.public])


def test_verdict_without_log_digest_is_not_signed(tmp_path: Path, sandbox: Sandbox) -> None:
    (tmp_path / "empty").mkdir()
    found = judged(sandbox, tmp_path / "empty", tmp_path / "none")
    assert (found["sha256"], found["accepted"]) == (None, False)
    with pytest.raises(vsa.SummaryError, match="no digest"):
        vsa.signed(found, keys.generate())


def test_audit_command_writes_and_verifies_a_verdict(
    tree: Registrar, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run,) = tree.runs()
    before = {file.name: file.read_bytes() for file in run.iterdir()}
    out, public = tmp_path / "out", tree.key_file.with_name("key.pub.pem")
    arguments = ["audit", "--result", str(run), "--submissions", str(tree.root)]
    assert main([*arguments, "--key", str(tree.key_file), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "assurance level: L1; for the next: a nonce of the registry" in printed
    for rule in load("practice").checks:
        assert rule in printed
    assert json.loads((out / "verdict.json").read_text())["level"] == "L1"
    verify = [*arguments, "--verify", str(out / "verdict.dsse.json"), "--keys"]
    assert main([*verify, str(public)]) == 0
    assert capsys.readouterr().out.startswith("holds: PASSED, SUITE_L1")
    assert {file.name: file.read_bytes() for file in run.iterdir()} == before
    assert main([*arguments, "--out", str(run / "here")]) == 2
    assert "outside of the result" in capsys.readouterr().err
    assert main([*verify, str(tree.root.parent / "system.json")]) == 2  # no key
    assert not (run / "here").exists()


def test_verification_reports_changed_fields(
    tree: Registrar, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A verdict at L1 is not valid for a registry without the key."""
    (run,) = tree.runs()
    arguments = ["audit", "--result", str(run), "--submissions"]
    assert main([*arguments, str(tree.root), "--key", str(tree.key_file), "--out", str(tmp_path)]) == 0
    capsys.readouterr()
    public = tree.key_file.with_name("key.pub.pem")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert (
        main([*arguments, str(empty), "--verify", str(tmp_path / "verdict.dsse.json"), "--keys", str(public)])
        == 1
    )
    printed = capsys.readouterr().out
    assert "predicate.verificationResult" in printed
    assert "does not hold" in printed


def test_audit_has_the_exit_codes_of_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "none").mkdir()
    arguments = ["--submissions", str(tmp_path / "none"), "--out", str(tmp_path / "out")]
    bad = rewrite(write_good(tmp_path / "bad"), lambda events: events[-1]["data"]["claims"].update(units=1))
    assert main(["audit", "--result", str(bad), *arguments]) == 1
    assert "rejected: CLAIM-00" in capsys.readouterr().out
    assert main(["audit", "--result", str(tmp_path / "nothing"), *arguments]) == 2
    archive = tmp_path / "a.zip"
    archive.write_bytes(b"PK\x03\x04" + bytes(60))
    assert main(["audit", "--result", str(archive), *arguments]) == 2
    assert "unzip -d unpacked" in capsys.readouterr().err


def test_answer_that_is_too_long_breaks_log_019(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("suite.sandbox.sandbox._MAX_ANSWER", 999)
    with Sandbox(AUDIT_TASKS) as brief:
        found = judged(brief, write_good(tmp_path), tmp_path / "none")
    assert of(found["outcomes"], "LOG-019") == (REJECTED, "")


def test_check_ended_by_a_limit_breaks_log_019(tmp_path: Path) -> None:
    with Sandbox(AUDIT_TASKS, wall_seconds=0.0) as hasty:
        found = judged(hasty, write_good(tmp_path), tmp_path / "none")
    assert of(found["outcomes"], "LOG-019") == (REJECTED, "")
    assert of(found["outcomes"], "ID-001") == (NOT_TRIED, "the check was ended by a limit")
    assert show.verdict(found).startswith("rejected")


@pytest.mark.parametrize(
    "poison", ["\x1b[31m", "\u202egpj.exe", "::error::b", "a\n::error::b", "\u2066a\u2028b"]
)
def test_audit_output_escapes_text_of_a_result(poison: str, value: dict[str, Any]) -> None:
    finding = dict.fromkeys(("location", "expected", "found"), poison)
    row = {"rule": "ID-003", "severity": "flag", "fix": "fix it", **finding}
    changed = {**value, "result": poison, "reached": poison, "missing": poison, "findings": [row]}
    for line in show.lines(changed):
        assert line.isprintable() or line == ""
        assert not line.startswith("::")
        assert poison not in line or poison == "::error::b"


def test_a_declared_difference_is_not_reported_as_kept() -> None:
    (log,) = RESULTS.glob("resnet50/*T1020Z-*/run.jsonl")
    rows = {row.rule: row.outcome for row in outcomes(check_result(log.parent))}
    assert rows["DIV-008"] == DECLARED  # an interpreter of the machine's, in open
    assert rows["DIV-007"] == KEPT


def test_conversion_and_inference_have_separate_reasons(tmp_path: Path) -> None:
    verdict = check_result(write_good(tmp_path, Good(key=replace(MINI, phase="infer"))))
    rows = {row.rule: row for row in outcomes(verdict)}
    assert rows["TRAIN-009"].because == "nothing is trained"
    assert rows["TRAIN-009"].outcome == NOT_APPLICABLE
    assert rows["INFER-002"].outcome == KEPT


def test_waived_rule_is_flagged_and_waiver_is_an_input(tmp_path: Path, sandbox: Sandbox) -> None:
    tree = Registrar(tmp_path / "submissions")
    run_of = result(tmp_path / "r")
    tree.rows("keys")
    assert tree.submit(run_of, key=False) == 0
    (run,) = tree.runs()
    rewrite(run, lambda events: events[-1]["data"]["claims"].update(units=1))
    with Sandbox(AUDIT_TASKS) as before:
        assert of(judged(before, run, tree.root)["outcomes"], "CLAIM-001") == (REJECTED, "")
    tree.waive(sha256_hex((run / "run.jsonl").read_bytes()), "CLAIM-001", "CLAIM-002", "CLAIM-003")
    with Sandbox(AUDIT_TASKS) as after:  # a child reads the registry once
        found = judged(after, run, tree.root)
    assert of(found["outcomes"], "CLAIM-001") == ("flagged", "")
    assert (found["accepted"], found["scored"]) == (True, True)
    assert list(found["inputs"]) == ["registry/waivers/one.dsse.json"]
    assert any("waived until" in one["expected"] for one in found["findings"])
