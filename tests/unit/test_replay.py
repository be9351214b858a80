"""The draw of replayed repeats, the comparison of a replay with its submission, and signed verdicts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from suite.audit import vsa
from suite.audit.curves import bounds, envelope, passes
from suite.audit.items import (
    DIFFERENT,
    EQUAL,
    INSIDE,
    NOT_COMPARABLE,
    ComparedItem,
    different,
    lines,
    numbers,
)
from suite.audit.judgement import AUDIT_TASKS, judged
from suite.audit.replay import T99, allowed, identity, lacking, level, select
from suite.audit.replayed import DIFFERS, HELD, INCOMPLETE, compared, root_of, with_replay
from suite.log.reader import record_of
from suite.rules import load
from suite.sandbox.sandbox import Sandbox
from suite.submissions.signing import keys
from tests.fixtures.forged_ranks import TWO
from tests.fixtures.forging import Events, Forge, rewrite
from tests.fixtures.good_container import Container
from tests.fixtures.good_log import H200, Good, reference, write_good
from tests.fixtures.replayed import one_thread, raw, replay_of, slower

NONCE = "a7" * 32
SEEDED = Good(spread=(1.0, 1.004, 0.997, 1.002, 0.999))  # CV 0.27 %


def drawn(folder: Path, count: int = 1, nonce: str = NONCE) -> tuple[int, ...]:
    return select(root_of(raw(folder).data), nonce, count)


def replayed(
    folder: Path, good: Good, *edits: Forge, forge: Forge | None = None, count: int = 1
) -> list[ComparedItem]:
    """The items of a submission of ``good``, forged by ``forge``, and an honest replay with ``edits``."""
    honest = rewrite(write_good(folder / "honest", good), one_thread)
    submitted = write_good(folder / "submitted", good)

    def both(events: Events) -> None:
        one_thread(events)
        if forge is not None:
            forge(events)

    rewrite(submitted, both)
    again = replay_of(honest, folder / "again", drawn(submitted, count), *edits)
    return compared(raw(submitted), raw(again), NONCE)


def outcomes(items: list[ComparedItem]) -> dict[str, str]:
    return {item.name: item.outcome for item in items}


def names(items: list[ComparedItem]) -> set[str]:
    return {item.name for item in items}


# ---- which repeats -------------------------------------------------------------------------------------


def test_draw_is_the_hash_of_root_and_nonce() -> None:
    assert select("00" * 32, "00" * 32, 5) == (2, 1, 4, 0, 3)  # the first from sha256sum
    assert select("00" * 32, "00" * 32, 2) == (2, 1)
    assert select("00" * 32, "01" + "00" * 31, 5) != (2, 1, 4, 0, 3)


def test_repeats_are_drawn_equally_often() -> None:
    firsts = [select(f"{number:064x}", NONCE, 1)[0] for number in range(1000)]
    assert all(150 <= firsts.count(repeat) <= 250 for repeat in range(5))


@pytest.mark.parametrize("count", [0, 6])
def test_draw_refuses_a_count_out_of_range(count: int) -> None:
    with pytest.raises(ValueError, match="expected 1 to 5"):
        select("00" * 32, NONCE, count)


def test_replay_of_repeats_that_were_not_drawn_is_detected(tmp_path: Path) -> None:
    submitted = write_good(tmp_path / "s", SEEDED)
    other = (drawn(submitted)[0] + 1) % 5
    items = compared(raw(submitted), raw(replay_of(submitted, tmp_path / "a", (other,))), NONCE)
    assert names(different(items)) == {"drawn repeats"}


# ---- honest --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 5])
def test_honest_replay_on_the_same_machine_reaches_l3(tmp_path: Path, count: int) -> None:
    items = replayed(tmp_path, SEEDED, slower(0.004), count=count)
    found = outcomes(items)
    assert different(items) == []
    assert found["time"] == INSIDE
    assert (found["losses"], found["batches"], found["final parameters"]) == (EQUAL, EQUAL, EQUAL)
    assert found["energy per step"] == NOT_COMPARABLE
    assert level(items) == "L3"


def test_settings_that_change_no_repeat_may_differ(tmp_path: Path) -> None:
    """A replay has fewer repeats, and states the steps that a search or a pilot found."""
    again = record_of(raw(write_good(tmp_path, SEEDED))).header.data
    more = {"repeats": 3, "reuse_compiled": True, "min_seconds": 9.0, "pilot_ns": 5, "excluded_nodes": ["n"]}
    submitted = {**again, "settings": {**again["settings"], **more}}
    assert different(identity(submitted, again)) == []
    (item,) = different(identity({**submitted, "measured_steps": 200}, again))
    assert (item.name, item.expected) == ("settings", "measured_steps = 200")


@pytest.mark.parametrize("repeats", [3, 7])
def test_replay_of_another_number_of_repeats(tmp_path: Path, repeats: int) -> None:
    good = replace(
        SEEDED, spread=(1.0, 1.004, 0.997, 1.002, 0.999, 1.001, 0.998)[:repeats], counts=(repeats, 100)
    )
    submitted = rewrite(write_good(tmp_path / "s", good), one_thread)
    chosen = select(root_of(raw(submitted).data), NONCE, 2, repeats)
    items = compared(raw(submitted), raw(replay_of(submitted, tmp_path / "a", chosen)), NONCE)
    assert different(items) == []
    time = next(item for item in items if item.name == "time")
    assert f"2 of {repeats} repeats" in time.tolerance


def test_curves_of_each_rank_are_compared(tmp_path: Path) -> None:
    def rounded(events: Events) -> None:
        for event in events:
            if event["kind"] == "step":
                event["data"]["loss"] = (float.fromhex(event["data"]["loss"]) * (1 + 1e-7)).hex()

    submitted = write_good(tmp_path / "s", TWO)
    again = replay_of(submitted, tmp_path / "a", drawn(submitted), rounded)
    found = outcomes(compared(raw(submitted), raw(again), NONCE))
    assert (found["losses"], found["losses of rank 1"]) == (INSIDE, INSIDE)


# ---- forgeries -----------------------------------------------------------------------------------------


def cut_times(events: Events) -> None:
    slower(-0.05)(events)


def other_losses(events: Events) -> None:
    """Each repeat has the losses of the next one."""
    steps = [event["data"] for event in events if event["kind"] == "step"]
    losses = [step["loss"] for step in steps]
    for at, step in enumerate(steps):
        step["loss"] = losses[(at + 110) % len(losses)]


def _in_steps(field: str, value: str, step: int) -> Forge:
    def edit(events: Events) -> None:
        for event in events:
            if event["kind"] == "step" and event["data"]["step"] == step:
                event["data"][field] = value

    return edit


def _in_ends(edit: Callable[[dict[str, Any]], object]) -> Forge:
    def forge(events: Events) -> None:
        for event in events:
            if event["kind"] == "rank_end":
                edit(event["data"])

    return forge


def _in_header(edit: Callable[[dict[str, Any]], object]) -> Forge:
    return lambda events: edit(events[0]["data"])


def fingerprint_losses(events: Events) -> None:
    for event in events:
        if event["kind"] == "fingerprint":
            losses = event["data"]["passes"][1]["losses"]
            losses[2] = (1.001 * float.fromhex(losses[2])).hex()


FORGERIES: dict[str, tuple[Forge, set[str]]] = {
    "times cut by 5 %": (cut_times, {"time"}),
    "another seed's losses": (other_losses, {"losses"}),
    "another code": (_in_header(lambda data: data.update(code_digest="c" * 64)), {"code"}),
    "another dataset": (_in_header(lambda data: data["dataset"].update(digest="d" * 64)), {"dataset"}),
    "another rate": (_in_header(lambda data: data["hyper"].update(rate="2e-3")), {"settings"}),
    "another batch": (_in_steps("batch_digest", "b" * 64, 57), {"batches"}),
    "other weights": (
        _in_ends(lambda end: end["parameters"].update(initial="e" * 64)),
        {"initial parameters"},
    ),
    "other types": (_in_ends(lambda end: end["dtypes"].update(activations="bfloat16")), {"types"}),
    "another end": (_in_ends(lambda end: end["parameters"].update(final="f" * 64)), {"final parameters"}),
    "another fingerprint": (fingerprint_losses, {"fingerprint own: losses (fp64)"}),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_replay_detects_each_forgery_by_its_item(tmp_path: Path, forgery: str) -> None:
    forge, expected = FORGERIES[forgery]
    items = replayed(tmp_path, SEEDED, forge=forge)
    assert names(different(items)) == expected
    assert level(items) is None


def test_replay_detects_another_container_image(tmp_path: Path) -> None:
    def swap(events: Events) -> None:
        events[0]["data"]["image"]["diff_ids"][-1] = "sha256:" + "9" * 64

    ran = replace(SEEDED, container=Container())
    assert different(replayed(tmp_path / "honest", ran)) == []
    items = replayed(tmp_path / "swapped", ran, forge=swap)
    assert names(different(items)) == {"image"}


def test_native_replay_of_a_container_run_differs(tmp_path: Path) -> None:
    def native(events: Events) -> None:
        events[0]["data"]["image"] = None
        events[0]["data"]["reasons"] |= {"image": "runtime native uses no image"}
        reasons = events[0]["data"]["reasons"]
        events[0]["data"]["reasons"] = {at: why for at, why in reasons.items() if not at.startswith("image.")}

    items = replayed(tmp_path, replace(SEEDED, container=Container()), native)
    assert outcomes(items)["image"] == DIFFERENT


# ---- time ----------------------------------------------------------------------------------------------


def test_tolerance_of_the_time_follows_the_formula() -> None:
    assert allowed(0.01, 0.01, 5) == pytest.approx(0.0208, abs=1e-4)
    assert allowed(0.02, 0.02, 5) == pytest.approx(0.0416, abs=1e-4)
    assert allowed(0.01, None, 1) == pytest.approx(0.0504, abs=1e-4)
    assert allowed(0.002, None, 1) == 0.02
    assert allowed(0.01, None, 2) < allowed(0.01, None, 1)
    assert allowed(0.01, 0.01, 3, 3) == pytest.approx(9.925 * 0.01 * math.sqrt(2 / 3), rel=1e-3)


def test_quantiles_are_those_of_scipy() -> None:
    for repeats, known in T99.items():
        assert known == pytest.approx(stats.t.ppf(0.995, repeats - 1), abs=6e-4)


@pytest.mark.parametrize(
    ("share", "inside"), [(0.019, True), (0.021, False), (-0.019, True), (-0.021, False)]
)
def test_time_tolerance_on_a_quiet_machine_is_two_percent(tmp_path: Path, share: float, inside: bool) -> None:
    even = replace(SEEDED, spread=(1.0,) * 5, jitter_ns=4_000)
    item = next(one for one in replayed(tmp_path, even, slower(math.expm1(share))) if one.name == "time")
    assert (item.outcome == INSIDE) is inside


def _machine(edit: Callable[[dict[str, Any]], object]) -> Forge:
    def forge(events: Events) -> None:
        for event in events:
            if event["kind"] == "env" and event["data"]["side"] == "outside":
                edit(event["data"]["facts"])

    return forge


def test_time_on_another_kind_of_system_is_not_comparable(tmp_path: Path) -> None:
    items = replayed(tmp_path, SEEDED, _machine(lambda facts: facts["cpu"].update(model="Another CPU")))
    assert outcomes(items)["time"] == NOT_COMPARABLE
    assert different(items) == []
    assert level(items) is None
    assert lacking(items) == ["time"]


@pytest.mark.parametrize("devices", [["x"], 5])
def test_devices_that_are_no_facts_are_compared(tmp_path: Path, devices: object) -> None:
    edit = _machine(lambda facts: facts["accelerators"].update(devices=devices))
    items = replayed(tmp_path, reference(step_ns=30_000_000), edit)
    assert outcomes(items)["time"] == NOT_COMPARABLE


def test_time_tolerance_on_another_device_of_the_model_is_ten_percent(tmp_path: Path) -> None:
    def device(facts: dict[str, Any]) -> None:
        facts["accelerators"]["devices"][0]["uuid"] = "8" * 64

    good = reference(step_ns=30_000_000)
    near = replayed(tmp_path / "near", good, _machine(device), slower(0.08))
    far = replayed(tmp_path / "far", good, _machine(device), slower(0.12))
    assert (outcomes(near)["time"], outcomes(far)["time"]) == (INSIDE, DIFFERENT)
    same = replayed(tmp_path / "same", good, slower(0.08))
    assert outcomes(same)["time"] == DIFFERENT


@pytest.mark.parametrize(
    ("share", "outcome", "reached"),
    [
        (0.05, INSIDE, "L3"),
        (0.25, NOT_COMPARABLE, None),
        (-0.2, NOT_COMPARABLE, None),
        (0.9, DIFFERENT, None),
    ],
)
def test_spread_of_the_submission_never_confirms_a_time_over_ten_percent_away(
    tmp_path: Path, share: float, outcome: str, reached: str | None
) -> None:
    """With this CV of 11 % the prediction interval reaches 75 %: it refutes little and confirms nothing."""
    wild = replace(SEEDED, spread=(1.0, 1.2, 0.9, 1.1, 1.05))
    items = replayed(tmp_path, wild, _relative_to_mean(wild, share))
    (time,) = [item for item in items if item.name == "time"]
    assert time.outcome == outcome, time
    assert level(items) == reached
    if outcome == NOT_COMPARABLE:
        assert time.because.startswith("time not confirmed: ")
        assert f"% {'slower' if share > 0 else 'faster'} in the replay" in time.because
        assert lacking(items) == ["time"]
    if outcome == INSIDE:
        assert time.tolerance.startswith("10.52 %")


def _relative_to_mean(good: Good, share: float) -> Forge:
    """All windows as long as the mean of the submission's, and longer by this share."""

    def edit(events: Events) -> None:
        (window,) = [event["data"]["window"] for event in events if event["kind"] == "repeat_end"]
        mean = good.step_ns * 100 * sum(good.spread) / len(good.spread)
        slower(mean * (1 + share) / window["ns"] - 1)(events)

    return edit


def test_time_with_too_large_a_spread_is_not_comparable(tmp_path: Path) -> None:
    wild = (1.0, 1.2, 0.9, 1.1, 1.05)
    items = replayed(tmp_path / "open", reference(step_ns=30_000_000, spread=wild))
    assert outcomes(items)["time"] == NOT_COMPARABLE


def test_one_repeat_has_no_spread(tmp_path: Path) -> None:
    of_counts = (("DIV-015", "other repeats than the rules say"),)
    one_repeat = replace(SEEDED, counts=(1, SEEDED.counts[1]), differences=of_counts)
    submitted = rewrite(write_good(tmp_path, one_repeat), one_thread)
    again = replay_of(submitted, tmp_path / "again", (0,))
    (time,) = [one for one in compared(raw(submitted), raw(again), NONCE) if one.name == "time"]
    assert (time.outcome, time.because) == (
        NOT_COMPARABLE,
        "the submission has one repeat, whose spread is not known",
    )


# ---- energy --------------------------------------------------------------------------------------------


def test_energy_tolerance_is_ten_percent_in_long_windows(tmp_path: Path) -> None:
    def wasteful(events: Events) -> None:
        for event in events:
            if event["kind"] == "telemetry" and event["data"]["at"] == "window_close":
                for device in event["data"]["devices"]:
                    device["energy_mj"] += 400_000  # of 1.2 MJ

    good = reference(step_ns=30_000_000)
    assert outcomes(replayed(tmp_path / "same", good))["energy per step"] == INSIDE
    assert outcomes(replayed(tmp_path / "more", good, wasteful))["energy per step"] == DIFFERENT
    assert H200 in good.devices
    short = replayed(tmp_path / "short", reference())
    assert outcomes(short)["energy per step"] == NOT_COMPARABLE


# ---- curves --------------------------------------------------------------------------------------------


def test_rounding_may_grow_with_several_threads(tmp_path: Path) -> None:
    def drifted(events: Events) -> None:
        for event in events:
            if event["kind"] == "env" and event["data"]["side"] == "inside":
                event["data"]["facts"]["framework"]["threads"] = 2
            if event["kind"] == "step":
                data = event["data"]
                data["loss"] = (float.fromhex(data["loss"]) * (1 + 1e-6 * (data["step"] + 1))).hex()

    items = replayed(tmp_path, SEEDED, drifted, forge=drifted)  # the same change in both logs
    assert outcomes(items)["losses"] == EQUAL

    def two(events: Events) -> None:
        for event in events:
            if event["kind"] == "env" and event["data"]["side"] == "inside":
                event["data"]["facts"]["framework"]["threads"] = 2

    items = replayed(tmp_path / "two", SEEDED, drifted, forge=two)
    assert outcomes(items)["losses"] == INSIDE
    assert "final parameters" not in outcomes(items)


def test_envelope_of_losses_widens_with_the_steps(tmp_path: Path) -> None:
    record = record_of(raw(write_good(tmp_path, SEEDED)))
    room = envelope(record, load("practice"), "fp32")
    assert room[0] == pytest.approx(1e-5)
    assert room[9] < 5e-5
    assert 5e-3 < room[109] < 2e-2
    assert room == sorted(room)
    assert bounds(record, load("practice"), "fp64", 3, "losses") == [1e-8] * 3


def _pair(fp32: float, fp64: float) -> list[list[dict[str, Any]]]:
    """Two fingerprints whose second steps differ by these relative amounts in the two precisions."""
    found: list[list[dict[str, Any]]] = []
    for sign in (0, 1):
        factor = {"common": 1 + sign * fp32, "own": 1 + sign * fp64}
        found.append(
            [
                {
                    "name": name,
                    "precision": precision,
                    "losses": [(6.9).hex(), (5.4 * factor[name]).hex()],
                    "gradient_norms": [(4.0).hex()],
                    "parameters": {"initial": "a" * 64},
                }
                for name, precision in (("common", "fp32"), ("own", "fp64"))
            ]
        )
    return found


@pytest.mark.parametrize(
    ("fp32", "fp64", "inside"),
    [
        (3.5e-3, 2.3e-11, True),  # ResNet-50 between frameworks: rounding grows in both precisions
        (3.5e-3, 1e-16, False),  # rounding does not grow in float64
        (3.5e-3, 1e-7, False),  # float64 differs too much as well
        (5e-6, 0.0, True),
    ],
)
def test_difference_in_float64_sets_the_tolerance_in_float32(
    tmp_path: Path, fp32: float, fp64: float, inside: bool
) -> None:
    record = record_of(raw(write_good(tmp_path, SEEDED)))
    wanted, found = _pair(fp32, fp64)
    items = {item.name: item.outcome for item in passes(record, wanted, found, load("practice"))}
    assert (items["fingerprint common: losses (fp32)"] != DIFFERENT) is inside


@pytest.mark.parametrize("found", [["0x1p0", "nan"], ["0x1p0", "inf"], ["0x1p0"]])
def test_nan_inf_and_missing_numbers_differ(found: list[str]) -> None:
    assert numbers("losses", ["0x1p0", "0x1p1"], found, [0.5, 0.5]).outcome == DIFFERENT


def test_lines_name_the_difference_without_control_characters() -> None:
    hostile = ComparedItem("losses", DIFFERENT, "\x1b[31m", "0.5", because="first at step 3", repeat=2)
    text = "\n".join(lines([hostile.as_dict()]))
    assert "losses, repeat 2" in text
    assert "\x1b" not in text


# ---- the verdict ---------------------------------------------------------------------------------------


def test_signed_verdict_applies_to_its_two_logs_only(tmp_path: Path) -> None:
    honest = write_good(tmp_path / "s", SEEDED)
    again = replay_of(honest, tmp_path / "a", drawn(honest))
    submitted, ours = raw(honest), raw(again)
    with Sandbox(AUDIT_TASKS) as sandbox:
        value = judged(sandbox, honest, tmp_path / "none")
    verdict = with_replay(value, compared(submitted, ours, NONCE), NONCE, submitted.data, ours.data)
    assert verdict["replay"]["outcome"] == HELD
    assert (verdict["level"], verdict["replay"]["on_top_of"]) == ("L3", "L0")
    key = keys.generate()
    statement, signer = vsa.verified(vsa.signed(verdict, key), [key.public])
    assert statement["predicate"]["verifiedLevels"] == ["SUITE_L3"]
    assert vsa.replayed_with(statement) == NONCE
    assert vsa.differences(statement, verdict, signer) == []
    other = replay_of(honest, tmp_path / "b", drawn(honest), slower(0.01))
    forged = with_replay(
        value, compared(submitted, raw(other), NONCE), NONCE, submitted.data, raw(other).data
    )
    assert vsa.differences(statement, forged, signer) != []
    assert vsa.differences(statement, value, signer) != []


def test_different_replay_fails_and_incomparable_replay_gives_no_level(tmp_path: Path) -> None:
    honest = write_good(tmp_path / "s", SEEDED)
    with Sandbox(AUDIT_TASKS) as sandbox:
        value = judged(sandbox, honest, tmp_path / "none")
    key = keys.generate()

    def verdict_of(folder: str, edit: Forge) -> dict[str, Any]:
        again = raw(replay_of(honest, tmp_path / folder, drawn(honest), edit))
        submitted = raw(honest)
        items = compared(submitted, again, NONCE)
        return with_replay(value, items, NONCE, submitted.data, again.data)

    late = verdict_of("late", slower(0.05))
    assert (late["replay"]["outcome"], late["level"]) == (DIFFERS, "L0")
    statement = vsa.statement_of(late, key.public, "2026-11-20T00:00:00Z")
    assert statement["predicate"]["verificationResult"] == "FAILED"
    elsewhere = verdict_of("elsewhere", _machine(lambda facts: facts["cpu"].update(model="Another CPU")))
    assert (elsewhere["replay"]["outcome"], elsewhere["level"]) == (INCOMPLETE, "L0")
    statement = vsa.statement_of(elsewhere, key.public, "2026-11-20T00:00:00Z")
    assert statement["predicate"]["verifiedLevels"] == ["SUITE_L0"]
