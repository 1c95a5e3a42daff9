"""Results of an experiment are compared as it planned, whoever asks: `compare`, the panel, an export."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from tui.cli import cli
from tui.core.errors import UsageError
from tui.core.experiment import history, planned
from tui.core.experiment import record as experiment_record
from tui.core.experiment.export.formats import format_named
from tui.core.experiment.record import ExperimentRecord
from tui.core.experiment.so_far import stored_state, verdicts_of
from tui.core.model.experiment import ArmStatus
from tui.core.model.profile import BenchProfile, ExperimentArm, ExperimentProfile, LoadPoint
from tui.core.model.result import Guard, GuardStatus
from tui.core.results import store
from tui.core.verdicts.metric import metric

BENCH = BenchProfile("decode-bs1", (LoadPoint(1),), runs=2)
WOBBLE = (0.998, 1.0, 1.002, 0.999, 1.001, 1.0, 0.998, 1.002)


@pytest.fixture
def begun(make_launch):
    """begun(pairs, planned=3, looks=(), B=1.09, …): an experiment with so many pairs measured, stored with its results."""

    def make(pairs, *, planned=3, looks=(), margin=0.02, name="graphs", number=1, host="gpu1", after=0, **ratios):
        letters = ["A", *ratios]
        arms = tuple(ExperimentArm(x, f"base-{x}", against=None if x == "A" else "A") for x in letters)
        profile = ExperimentProfile(name, BENCH.name, arms, planned, looks, margin)
        cells, results = experiment_record.all_rounds(planned, letters, 1), []
        done = []
        for cell in cells:
            if cell.pair <= pairs:
                rate = 80.0 * ratios.get(cell.arm, 1.0) * WOBBLE[cell.pair - 1] ** (-1 if cell.arm == "A" else 1)
                place = {"experiment": f"{name}-{number}", "arm": cell.arm, "pair": cell.pair, "host": host}
                launch = make_launch(f"base-{cell.arm}", after + cell.number, [rate, rate * 1.001], **place)
                results += launch
                ids = tuple(result.result_id for result in launch)
                cell = replace(cell, status=ArmStatus.MEASURED, result_ids=ids)
            done.append(cell)
        started = f"2026-11-2{number}T08:00:00Z"
        record = ExperimentRecord(f"{name}-{number}", host, profile, BENCH, 1, tuple(done), started_at=started)
        experiment_record.write(record)
        for result in results:
            store.write(result)
        return record

    return make


def compared(*refs):
    done = CliRunner().invoke(cli, ["compare", *refs, "--json"], standalone_mode=False)
    if done.exception:
        raise done.exception
    return json.loads(done.stdout)


def on_screen(record):
    return {verdict.b.ref: verdict for verdict in stored_state(record).verdicts}


def test_between_looks_compare_says_what_the_screen_says(begun):
    for pairs, confidence, n in ((2, None, 2), (3, 0.99, 3), (4, 0.99, 3), (5, 0.98, 5), (7, 0.98, 5)):
        record = begun(pairs, planned=8, looks=(3, 5, 8), B=1.09)
        found, screen = compared("graphs:A", "graphs:B"), on_screen(record)["B"]
        assert (found["verdict"], found["ci"], found["text"]) == (
            screen.verdict,
            list(screen.ci) if screen.ci else None,
            screen.text,
        )
        assert found["n_pairs"] == n
        if confidence is None:
            assert "3 launch pairs needed for a verdict, 2 measured" in found["text"]
            assert found["verdict"] == "indistinct"
        else:
            assert found["confidence"] == pytest.approx(confidence)
            assert found["verdict"] == "faster"
    # By the names of the profiles, too: they are launches of that experiment.
    assert compared("base-A", "base-B")["text"] == found["text"]


def test_the_pairs_and_the_margin_are_those_of_the_experiment(begun):
    begun(4, planned=5, margin=0.1, B=1.05)
    assert "5 launch pairs needed for a verdict, 4 measured" in compared("graphs:A", "graphs:B")["text"]
    begun(5, planned=5, margin=0.1, B=1.05)
    found = compared("graphs:A", "graphs:B")
    assert "equivalent within 10 %" in found["text"]
    other = compared("graphs:A", "graphs:B", "--margin", "2")
    assert other["verdict"] == "faster"
    assert "a margin of 2 %, where 10 % was planned" in other["reasons"]


def test_the_error_is_shared_with_the_arms_that_were_not_asked_about(begun):
    record = begun(3, B=1.02, C=1.0)
    found = compared("graphs:A", "graphs:B")
    assert found["confidence"] == pytest.approx(0.975)
    assert found["confidence"] == pytest.approx(on_screen(record)["B"].confidence)
    turned = compared("graphs:B", "graphs:A")
    assert turned["confidence"] == found["confidence"]
    assert turned["ratio"] == pytest.approx(1 / found["ratio"])
    unplanned = compared("graphs:C", "graphs:B")  # one of three pairs of arms
    assert unplanned["confidence"] == pytest.approx(1 - 0.05 / 3)
    assert "3 comparisons, held to 5 % together (Holm)" in unplanned["facts"]


def test_an_arm_that_lags_behind_keeps_its_share(begun):
    record = begun(3, B=1.09, C=1.0)
    last = next(cell for cell in record.cells if cell.arm == "C" and cell.pair == 3)
    waiting = record.with_cell(replace(last, status=ArmStatus.QUEUED, result_ids=()))
    experiment_record.write(waiting)
    b, c = verdicts_of(waiting, {result.result_id: result for result in store.read_all()})
    assert b.confidence == pytest.approx(0.975)
    assert "for a verdict, 2 measured" in c.text
    # What was measured of its launch so far counts no more than on the screen.
    assert "for a verdict, 2 measured" in compared("graphs:A", "graphs:C")["text"]


def test_several_are_held_to_five_percent_together(begun):
    record = begun(3, B=1.09, C=1.0, D=1.2)
    document = compared("graphs:A", "graphs:B", "graphs:C", "graphs:D")
    assert [found["b"]["ref"] for found in document["comparisons"]] == ["graphs:B", "graphs:C", "graphs:D"]
    screen = on_screen(record)
    for letter, found in zip("BCD", document["comparisons"], strict=True):
        assert found["confidence"] == pytest.approx(screen[letter].confidence)
        assert found["text"] == screen[letter].text
    begun(3, name="other", number=2, after=50, E=1.09)
    two = compared("base-A", "base-B", "base-E")["comparisons"]
    assert "4 comparisons, held to 5 % together (Holm)" in two[0]["facts"]
    shown = CliRunner().invoke(cli, ["compare", "graphs:A", "graphs:B", "graphs:C"], standalone_mode=False)
    assert "   C  graphs:C: 3 launches, 6 runs" in shown.stdout


def test_a_name_is_its_newest_experiment_on_that_host(begun):
    begun(3, B=1.2)
    begun(3, B=1.09, number=2, after=50)
    assert compared("graphs:A", "graphs:B")["ratio"] == pytest.approx(1.09, rel=0.01)
    assert compared("graphs-1:A", "graphs-1:b")["ratio"] == pytest.approx(1.2, rel=0.01)
    begun(3, B=1.3, number=3, host="gpu2", after=100)
    with pytest.raises(UsageError, match="graphs was run on gpu1, gpu2") as raised:
        compared("graphs:A", "graphs:B")
    assert raised.value.slug == "ambiguous_host"
    assert compared("graphs:A", "graphs:B", "--host", "gpu2")["ratio"] == pytest.approx(1.3, rel=0.01)
    with pytest.raises(UsageError, match="graphs has no arm C"):
        compared("graphs:A", "graphs:C", "--host", "gpu1")


def test_pairs_of_several_experiments_wait_for_all_of_them(begun):
    begun(3, B=1.09)
    begun(2, B=1.09, number=2, after=50)
    assert "6 launch pairs needed for a verdict, 5 measured" in compared("base-A", "base-B")["text"]
    begun(3, B=1.09, number=2, after=50)
    found = compared("base-A", "base-B")
    assert (found["verdict"], found["n_pairs"]) == ("faster", 6)
    assert any("pairs of 2 experiments" in reason for reason in found["reasons"])


def test_of_an_experiment_that_is_not_here_the_plan_is_said_to_be_unknown(begun):
    record = begun(3, planned=5, B=1.09)
    (experiment_record.FILES.directory / f"{record.experiment_id}.json").unlink()
    found = compared("graphs-1:A", "graphs-1:B")
    assert found["verdict"] == "faster"
    assert any("cannot be read here" in reason for reason in found["reasons"])


def test_an_arm_that_never_started_says_how_it_failed(begun):
    record = begun(3, B=1.09)
    for cell in record.cells:
        if cell.arm == "B":
            record = record.with_cell(replace(cell, status=ArmStatus.FAILED, cause="oom_kv_pool", result_ids=()))
    experiment_record.write(record)
    found = compared("graphs:A", "graphs:B")
    assert (found["error"], found["text"]) == ("invalid", "B: no result — 3/3 launches out of memory")


def test_a_pair_that_is_to_be_made_up_for_is_waited_for(begun):
    record = begun(4, planned=4, B=1.09)
    lost = next(cell for cell in record.cells if cell.arm == "B" and cell.pair == 2)
    record = record.with_cell(replace(lost, status=ArmStatus.FAILED, cause="timeout", result_ids=()))
    experiment_record.write(record)
    assert "4 launch pairs needed for a verdict, 3 measured" in compared("graphs:A", "graphs:B")["text"]
    experiment_record.write(replace(record, outcome="budget"))
    assert compared("graphs:A", "graphs:B")["n_pairs"] == 3


def test_the_panel_and_an_export_obey_it_too(begun):
    begun(4, planned=8, looks=(3, 5, 8), B=1.09)
    [shown] = history.side_by_side(history.configurations("gpu1")).verdicts
    assert (shown.confidence, shown.n_pairs) == (0.99, 3)
    results = sorted(store.read_all(), key=lambda result: result.server.profile or "")
    assert "99 % CI" in format_named("markdown").export(results, results).decode()


def test_what_was_found_not_to_count_since_is_in_no_verdict(begun):
    record = begun(3, B=1.09)
    assert on_screen(record)["B"].verdict == "faster"
    wrong = Guard("tokens", GuardStatus.FAILED, "the chunks do not add up")
    for result in store.read_all():
        if result.arm == "B":
            store.write(replace(result, valid=False, guards=(wrong,)))
    assert on_screen(record)["B"].verdict == "invalid"


def test_screened_candidates_are_a_list(make_launch):
    for at, letter in enumerate("ABC"):
        for result in make_launch(f"p-{letter}", at, (80.0 + at, 80.1 + at)):
            store.write(result)
    results = store.read_all()
    assert planned.verdicts([], metric("per_user_tok_s"), results) == ()
    found = compared("p-A", "p-B", "p-C")
    assert [one["by_chance"] for one in found["comparisons"]] == [None, None]  # no noise known
    for at in range(3, 9):
        for result in make_launch("p-A", at, (80.0, 80.1)):
            store.write(result)
    found = compared("p-A", "p-B", "p-C")["comparisons"]
    assert [one["verdict"] for one in found] == ["indistinct", "looks_faster"]
    assert all(one["facts"][-1].startswith("2 screened: were all the same") for one in found)
