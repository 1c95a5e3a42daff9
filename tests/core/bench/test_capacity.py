"""The highest load that holds limits: how it is searched, what its answer rests on, and what becomes of it afterwards."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import truth_server as truth_server_module
from tests.support.rows import failed, meta, row
from tests.support.truth_server import truth_server
from tests.support.verdicts import compare
from tui.commands.measure import document, summary
from tui.core.bench import bench_run, target
from tui.core.bench.capacity import answer
from tui.core.bench.driver import Order
from tui.core.bench.loadgen_driver import plan
from tui.core.bench.metrics import figures
from tui.core.bench.recompute import recompute, recompute_answer
from tui.core.bench.workload import bundled_prompts
from tui.core.config import data_dir
from tui.core.errors import EagletuiError
from tui.core.experiment import record as experiment_record
from tui.core.experiment.export.formats import format_named
from tui.core.experiment.history import configurations, side_by_side
from tui.core.experiment.runner import begin
from tui.core.experiment.so_far import verdicts_of, worth_repeating
from tui.core.model.experiment import ArmStatus
from tui.core.model.profile import BenchProfile, ExperimentArm, ExperimentProfile, Limits, LoadPoint, Search
from tui.core.model.result import Counts, Guard, GuardStatus, Held, Result, Throughput
from tui.core.model.verdict import VerdictKind
from tui.core.profiles.load import load_bench, load_launch
from tui.core.records import from_json, to_json
from tui.core.results import store
from tui.core.results.flat import flat
from tui.core.verdicts.pairing import Side, matched
from tui.core.verdicts.sentences import answer_words
from tui.remote.loadgen import search as on_the_host

LIMITS = Limits(ttft_ms=500.0, tpot_ms=30.0)
USERS = Search(LIMITS, "concurrency", 1.0, 256.0)
SEARCHING = BenchProfile("capacity", (LoadPoint(search="concurrency"),), search=USERS, runs=1)


# -- which loads are measured ---------------------------------------------------------------------------------------------


def searched(search, holds):
    """The generator's search by what the plan says of it, each load judged by an oracle."""
    profile = replace(SEARCHING, search=search)
    order = Order(profile, bundled_prompts(), target.Target(""), target.Seen("chat"), 1, "python3", {})
    own = on_the_host.Search(plan(order)["search"])
    while (load := own.next()) is not None:
        assert search.low <= load <= search.high
        own.judge(load, 100, 95 if holds(load) else 94)
        assert len(own.points) <= search.most_points, own.points
    return own


@pytest.mark.parametrize("high", [2, 3, 7, 48, 100, 256, 1000])
def test_the_highest_concurrency_is_found_to_its_neighbour_or_within_5_percent(high):
    for low in (1, 2, 5):
        if low >= high:
            continue
        for capacity in range(low, high):
            found = searched(replace(USERS, low=float(low), high=float(high)), lambda n, c=capacity: n <= c)
            assert found.found <= capacity < found.fails_from
            assert found.fails_from - found.found <= max(1, 0.05 * found.found)
            assert all(isinstance(point["point"]["concurrency"], int) for point in found.points)


@pytest.mark.parametrize("capacity", [0.5, 0.51, 1.0, 1.99, 3.7, 8.1, 15.99, 31.9])
def test_the_highest_rate_is_found_within_5_percent(capacity):
    found = searched(Search(LIMITS, "rate", 0.5, 32.0), lambda rate: rate <= capacity)
    assert found.found <= capacity < found.fails_from <= 1.05 * found.found


def test_nothing_holds_everything_holds_and_what_fails_only_in_between():
    none = searched(USERS, lambda n: False)
    assert (none.found, none.fails_from, len(none.points)) == (None, 1, 1)
    every = searched(replace(USERS, high=100.0), lambda n: True)
    assert (every.found, every.fails_from) == (100, None)
    assert [point["point"]["concurrency"] for point in every.points] == [1, 2, 4, 8, 16, 32, 64, 100]
    # A load that fails ends it, whatever higher ones would do: the answer lies below the lowest that fails.
    dip = searched(USERS, lambda n: not 6 <= n <= 9)
    assert (dip.found, dip.fails_from) == (5, 6)


def test_a_share_needs_replies_enough_and_says_how_sure_it_is():
    assert (Limits(share=0.95).replies, Limits(share=0.99).replies, Limits(share=0.5).replies) == (100, 500, 10)
    assert not Held(LIMITS, 0, 0).holds
    edge = Held(LIMITS, 100, 95)
    assert (edge.holds, edge.sure) == (True, False)
    assert Held(LIMITS, 100, 100).sure
    assert not Held(LIMITS, 100, 80).holds
    assert Held(LIMITS, 100, 80).sure
    low, high = Held(LIMITS, 50, 45).interval  # Wilson's, by hand: 0.786 … 0.957
    assert (low, high) == pytest.approx((0.7864, 0.9565), abs=1e-4)


# -- whether a reply is within the limits -----------------------------------------------------------------------------------


@pytest.mark.parametrize("point", [{"concurrency": 1}, {"rate": 2.0}])
def test_a_reply_is_within_all_limits_or_not_the_same_here_and_in_the_generator(point):
    rows = [
        row(0, send=1.0, first=1.5, gaps_ms=[30.0] * 4),  # at every limit
        row(1, send=1.0, first=1.6),  # TTFT
        row(2, send=1.0, first=1.1, gaps_ms=[31.0] * 4),  # TPOT
        row(3, send=1.0, first=1.1, gaps_ms=[58.0] * 2, toks=[2, 2]),  # two tokens a chunk: 29 ms each
        row(4, send=1.4, due=1.0, first=1.6),  # in an open loop it has waited since it was due
        failed(5, send=1.0),
        row(6, send=0.5, due=0.5, first=9.0),  # due before the window
        row(7, send=99.9, first=100.1),  # due in it, and ended after it
    ]
    limits = Limits(500.0, 30.0, None)
    told = meta(window=(0.9, 100.0), point=point)
    found = figures(rows, told, limits=limits)
    late = 1 if "rate" in point else 0
    assert (found.slo.replies, found.slo.met) == (7, 4 - late)
    assert found.throughput.goodput_req_s == pytest.approx((4 - late) / 99.1)
    # Without all users busy nothing was held; without limits nothing is said.
    assert figures(rows, meta(window=None), limits=limits).slo == Held(limits, 0, 0)
    assert figures(rows, told).slo is figures(rows, told).throughput.goodput_req_s is None


# -- what the answer rests on -----------------------------------------------------------------------------------------------


OK = tuple(Guard(name, GuardStatus.OK, "as it should be") for name in ("errors", "window", "clocks"))


@pytest.fixture
def make_search(make_launch):
    """make_search(at, {load: replies of 100 within the limits}, …): the results of one search, its answer last."""

    def made(at, shares, *, profile="base", search=USERS, guards=None, **server):
        (base,) = make_launch(profile, at, [80.0], bench="capacity", **server)
        found = [
            replace(
                base,
                result_id=f"bench-{at:06x}-c{load}-1",
                load=replace(base.load, concurrency=load),
                slo=Held(search.limits, 100, met),
                throughput=Throughput(80.0 - load, goodput_req_s=met / 10),
                counts=Counts(ok=100),
                guards=(guards or {}).get(load, OK),
                valid=all(guard.status is GuardStatus.OK for guard in (guards or {}).get(load, OK)),
            )
            for load, met in shares.items()
        ]
        return [*found, answer(found, search, f"bench-{at:06x}-max-1")]

    return made


SHARES = {1: 100, 2: 100, 4: 99, 8: 40, 6: 98, 7: 94}


def test_the_answer_has_the_figures_of_the_highest_load_that_holds(make_search):
    *loads, found = results = make_search(1, SHARES)
    assert (found.capacity.found, found.capacity.fails_from, found.capacity.at_least) == (6, 7, False)
    assert answer_words(found.capacity) == "holds 6 users at once, not 7"
    assert found.point == LoadPoint(search="concurrency")
    assert found.point.label == "max"
    assert found.throughput == loads[4].throughput
    assert found.valid
    record = flat(found)
    said = {key: record[key] for key in ("load", "max_concurrency", "max_rate", "goodput_req_s", "slo_share")}
    assert said == {"load": "search", "max_concurrency": 6, "max_rate": None, "goodput_req_s": 9.8, "slo_share": 0.98}
    assert [
        text
        for text in found.suspicious
        if "too few to be sure that it is below 95 %" in text and text.startswith("at 7 users")
    ]
    assert from_json(Result, json.loads(json.dumps(to_json(found)))) == found
    table = summary(results, SEARCHING)
    assert "→ run 1: holds 6 users at once, not 7, with 95 % of replies within TTFT 500 ms and TPOT 30 ms" in table
    assert [line for line in table.splitlines() if "highest that holds" in line] == [
        line for line in table.splitlines() if line.strip().startswith("6 at once")
    ]
    assert (document(results)["max_concurrency"], document(results)["load"]) == (6, "search")


def test_nothing_holds_and_everything_holds_are_answers_too(make_search):
    nothing, every = make_search(1, {1: 10})[-1], make_search(2, {1: 100, 256: 100})[-1]
    assert nothing.valid
    assert (flat(nothing)["max_concurrency"], nothing.throughput, nothing.slo) == (None, Throughput(), None)
    assert answer_words(nothing.capacity) == "does not hold 1 user at once, the lowest that was tried"
    assert (flat(every)["max_concurrency"], flat(every)["max_at_least"]) == (256, True)
    assert (
        "holds 256 users at once, the highest that was tried"
        in format_named("markdown").export([every], [every]).decode()
    )
    verdict = compare(Side("A", "A", (every,)), Side("B", "B", (make_search(3, SHARES)[-1],)), "max_concurrency")
    assert verdict.verdict is VerdictKind.INVALID
    assert "holds 256 users at once, the highest that was tried" in verdict.text


@pytest.mark.parametrize(
    ("load", "guard", "counts"),
    [(8, "errors", True), (7, "errors", True), (7, "window", True), (7, "overload", True), (7, "clocks", False),
     (6, "errors", True), (6, "window", False), (6, "clocks", False), (8, "clocks", True)],
)  # fmt: skip
def test_what_fails_because_the_load_is_too_much_is_evidence_and_nothing_else_is(make_search, load, guard, counts):
    bad = (*OK[:2], Guard(guard, GuardStatus.FAILED, "it failed"))
    found = make_search(1, SHARES, guards={load: bad})[-1]
    assert found.valid is counts
    assert [g.text for g in found.guards if g.status is GuardStatus.FAILED] == (
        [] if counts else [f"at {load} users at once: it failed"]
    )
    # Errors are told: of the load that holds, where they are within its share, and of the one beyond it.
    told = f"at {load} users at once: it failed" in found.suspicious
    assert told is ((load, guard) in ((6, "errors"), (7, "errors")))


def test_a_load_that_nobody_asked_for_proves_nothing(make_search):
    (load,) = make_search(1, {1: 10})[:-1]
    none = Guard("errors", GuardStatus.FAILED, "no request was begun")
    empty = replace(
        load, load=replace(load.load, requests=0), slo=Held(USERS.limits, 0, 0), guards=(none,), valid=False
    )
    found = answer([empty], USERS, "bench-000001-max-1")
    assert not found.valid
    assert [guard.text for guard in found.guards] == ["at 1 user at once: no request was begun"]


def test_an_answer_is_computed_anew_with_its_loads(make_search):
    *loads, found = make_search(1, SHARES)
    refused = Guard("chunks", GuardStatus.FAILED, "38 of 79 replies were counted wrongly by chunk")
    now = {load.result_id: load for load in loads} | {
        loads[4].result_id: replace(loads[4], guards=(refused,), valid=False)
    }
    anew = recompute_answer(found, now.get)
    assert not anew.valid
    assert recompute_answer(found, {load.result_id: load for load in loads}.get) == found
    assert recompute_answer(found, {}.get) is None


# -- compared ---------------------------------------------------------------------------------------------------------------


def launched(make_search, pairs, **options):
    """Sides A and B of so many launch pairs, by (A, B) capacities."""
    sides = {"A": [], "B": []}
    for number, pair in enumerate(pairs):
        for place, (letter, capacity) in enumerate(zip("AB", pair, strict=True)):
            shares = {1: 100, capacity: 100, capacity + 1: 20}
            sides[letter] += make_search(2 * number + place, shares, profile=f"arm-{letter}", **options)
    return tuple(Side(letter, letter, tuple(found)) for letter, found in sides.items())


def test_searches_are_compared_by_what_they_found_no_finer_than_they_end(make_search):
    a, b = launched(make_search, [(40, 60), (42, 61), (41, 62)])
    [(one, other)] = matched(a, b)  # their answers, not the loads on the way
    assert {result.point for result in (*one.results, *other.results)} == {LoadPoint(search="concurrency")}
    verdict = compare(one, other, "max_concurrency")
    assert verdict.verdict is VerdictKind.FASTER
    assert (verdict.a.tok_s, verdict.b.tok_s) == pytest.approx((41, 61), rel=0.01)
    assert verdict.text.startswith("B holds 48.8 % more load than A")
    assert verdict.text.endswith("41 → 61 users")
    # A neighbour each time is no difference: both searches end within one user.
    same = compare(*matched(*launched(make_search, [(10, 11)] * 3))[0], "max_concurrency")
    assert same.verdict is VerdictKind.INDISTINCT
    # A load that both measured on the way can be asked for; other limits are another question.
    [(one, other)] = matched(a, b, LoadPoint(concurrency=1))
    assert compare(one, other).metric == "per_user_tok_s"
    assert compare(*matched(a, b)[0], "goodput_req_s").n_pairs == 3
    stricter = replace(USERS, limits=Limits(ttft_ms=100.0))
    with pytest.raises(EagletuiError, match="limits 95 % of replies within TTFT 500 ms and TPOT 30 ms against"):
        matched(a, launched(make_search, [(9, 9)], search=stricter)[1])


def test_stored_searches_stand_side_by_side_and_are_exported(make_search):
    a, b = launched(make_search, [(40, 60), (42, 61), (41, 62)])
    for result in (*a.results, *b.results):
        store.write(result)
    shown = side_by_side(configurations("gpu1"))
    assert shown.bench.points == (LoadPoint(search="concurrency"),)
    assert shown.bench.search == USERS
    [verdict] = shown.verdicts
    assert (verdict.metric, verdict.verdict) == ("max_concurrency", VerdictKind.FASTER)
    results = [result for arm in shown.arms for result in arm.results]
    assert ",max_rate," in format_named("csv").export(results, ()).decode()
    said = format_named("markdown").export(results, store.read_all()).decode()
    assert "highest concurrency: 40, 42, 41" in said
    assert re.search(r"holds 4\d\.\d % more load than", said)


def test_an_experiment_on_a_search_is_judged_by_what_its_arms_hold(make_search, tmp_path):
    (tmp_path / "base.toml").write_text('kind = "launch"\n[args]\nmodel-path = "/m"\n')
    arms = (ExperimentArm("A", "base"), ExperimentArm("B", "base", {"tp": 2}, against="A"))
    launches = {arm.letter: load_launch("base", [tmp_path], arm.sets) for arm in arms}
    record = begin(ExperimentProfile("x", "capacity", arms), SEARCHING, launches, "gpu1", seed=1)
    experiment_record.write(record)
    assert experiment_record.read(record.experiment_id) == record
    found = []
    for number, (a, b) in enumerate([(40, 60), (42, 61), (41, 62)]):
        for place, (letter, capacity) in enumerate((("A", a), ("B", b))):
            shares = {1: 100, capacity: 100, capacity + 1: 20}
            place_of = {"experiment": record.experiment_id, "arm": letter, "pair": number + 1}
            found += make_search(2 * number + place, shares, profile=f"arm-{letter}", **place_of)
    for cell in record.cells:
        own = tuple(r.result_id for r in found if (r.arm, r.pair_number) == (cell.arm, cell.pair))
        record = record.with_cell(replace(cell, status=ArmStatus.MEASURED, result_ids=own))
    results = {result.result_id: result for result in found}
    [verdict] = verdicts_of(record, results)
    assert (verdict.metric, verdict.verdict, verdict.n_pairs) == ("max_concurrency", VerdictKind.FASTER, 3)
    assert verdict.point == LoadPoint(search="concurrency")
    assert not worth_repeating(SEARCHING, found[:4])
    # A search that did not come to its end has no answer, however many loads it measured.
    assert verdicts_of(record, {name: r for name, r in results.items() if not r.capacity})[0].n_pairs == 0


# -- through a whole bench ----------------------------------------------------------------------------------------------------

# Three replies at a time, a tenth of a second each: a fourth user waits a third of that.
LIVE = replace(
    SEARCHING, search=Search(Limits(ttft_ms=25.0, share=0.8), "concurrency", 1.0, 8.0), output_len=10, duration_s=1.0
)
SERVER = {"slots": 3, "tokens": 10, "tick_ms": 10}


async def follow(session, profile, port):
    """(run, results, error) of a whole measurement."""
    run = await bench_run.start(session, profile, await target.of_url(session, f"127.0.0.1:{port}"))
    results, error = [], None
    try:
        async for event in bench_run.follow_run(session, run):
            if isinstance(event, Result):
                results.append(event)
    except EagletuiError as ended:
        error = ended
    return run, results, error


async def test_a_search_finds_what_the_server_can_and_whoever_collects_it_stores_the_same(local):
    with truth_server(**SERVER) as (port, _):
        run, results, error = await follow(local, LIVE, port)
    assert error is None
    *loads, found = results
    assert [result.load.concurrency for result in loads] == [1, 2, 4, 3]
    assert (found.capacity.found, found.capacity.fails_from) == (3, 4)
    assert found.result_id == f"{run.run_id}-max-1"
    assert all(result.slo.replies >= LIVE.search.limits.replies for result in loads)
    # What the generator judged by is what is stored.
    lines = [json.loads(line) for line in Path(run.log_path).read_text().splitlines()]
    [event] = [line for line in lines if line["event"] == "search"]
    told = [(point["label"], point["replies"], point["met"], point["holds"]) for point in event["points"]]
    assert told == [(r.point.label, r.slo.replies, r.slo.met, r.slo.holds) for r in loads]
    assert (event["found"], event["fails_from"]) == (3, 4)
    kept = {path.name: path.read_bytes() for path in (data_dir() / "results").iterdir()}
    shutil.rmtree(data_dir() / "results")
    assert await bench_run.collect(local, run) == tuple(results)
    assert await bench_run.collect(local, run) == tuple(results)
    assert {path.name: path.read_bytes() for path in (data_dir() / "results").iterdir()} == kept
    assert all(recompute(result).slo == result.slo for result in loads)


async def test_a_rate_that_not_even_the_lowest_of_holds(local):
    search = Search(Limits(ttft_ms=1e-3, share=0.5), "rate", 20.0, 40.0)
    profile = replace(LIVE, points=(LoadPoint(search="rate"),), search=search, runs=2)
    with truth_server(**SERVER) as (port, _):
        _, results, error = await follow(local, profile, port)
    assert error is None
    assert [result.point.label for result in results] == ["r20", "max", "r20", "max"]
    assert [result.capacity.found for result in results if result.capacity] == [None, None]


async def test_a_server_that_dies_in_the_middle_leaves_what_was_measured(local):
    all_hold = replace(LIVE, search=Search(Limits(ttft_ms=60_000.0), "concurrency", 1.0, 8.0))
    program = Path(truth_server_module.__file__)
    with subprocess.Popen([sys.executable, program, json.dumps(SERVER)], stdout=subprocess.PIPE, text=True) as server:
        try:
            port = int(server.stdout.readline())
            run = await bench_run.start(local, all_hold, await target.of_url(local, f"127.0.0.1:{port}"))
            following = bench_run.follow_run(local, run)
            first = await anext(event async for event in following if isinstance(event, Result))
        finally:
            server.kill()
    with pytest.raises(EagletuiError) as caught:
        async for _ in following:
            pass
    assert caught.value.slug in ("server_lost", "refused")
    assert store.read(first.result_id) == first
    assert not any(result.capacity for result in await bench_run.collect(local, run))


# -- in a profile -------------------------------------------------------------------------------------------------------------


def test_a_profile_asks_for_limits_between_two_loads(tmp_path):
    def load(text, *sets):
        (tmp_path / "c.toml").write_text(f'kind = "bench"\n{text}\n')
        return load_bench("c", [tmp_path], sets)

    found = load("slo = { ttft_ms = 500, tpot_ms = 30 }\nconcurrency = [1, 256]")
    assert (found.search, found.points) == (USERS, (LoadPoint(search="concurrency"),))
    rate = load("slo = { e2e_ms = 4000.0, share = 0.9 }\nrate = [0.5, 8]")
    assert rate.search == Search(Limits(e2e_ms=4000.0, share=0.9), "rate", 0.5, 8.0)
    assert load("concurrency = [4, 16]", "slo={ttft_ms=9}").search.low == 4
    for text, said in (
        ("slo = { ttft_ms = 500 }", "the lowest and the highest load of the search"),
        ("slo = { ttft_ms = 500 }\nconcurrency = [1, 4, 8]", "write concurrency = [1, 256] or rate = [0.5, 32.0]"),
        ("slo = { ttft_ms = 500 }\nconcurrency = [8, 1]", "the lowest and the highest load"),
        ("slo = { share = 0.9 }\nconcurrency = [1, 8]", "names no limit"),
        ("slo = { ttft = 500 }\nconcurrency = [1, 8]", "did you mean ttft_ms?"),
        ("slo = { ttft_ms = 500, share = 95 }\nconcurrency = [1, 8]", "must be at most 0.999"),
        ("slo = { ttft_ms = 0 }\nconcurrency = [1, 8]", "must be more than 0"),
        ('slo = { ttft_ms = 5 }\nconcurrency = [1, 8]\ndriver = "sglang"', "cannot search for limits"),
    ):
        with pytest.raises(EagletuiError) as caught:
            load(text)
        assert said in str([str(error) for error in caught.value.errors]), (text, caught.value.errors)
