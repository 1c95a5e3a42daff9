"""Figures of made-up rows whose truth can be worked out by hand."""

import random
import statistics
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rows import counters, failed, meta, row
from tui.core.bench.metrics import counter, distribution, figures
from tui.core.model.result import GpuUse, HostGpuUse

# -- a rate of one user, and of all ---------------------------------------------------------------------------------------


def test_the_rate_of_a_user_is_tokens_after_the_first_chunk_over_their_time():
    # 4 steps of 30 ms with 1, 2, 3, 2 tokens, and one of 60 ms with 2: 10 tokens in 180 ms.
    rows = [row(gaps_ms=[30, 30, 30, 30], toks=[1, 2, 3, 2]), row(1, send=1.0, gaps_ms=[60], toks=[2], k1=4)]
    found = figures(rows, meta((0.0, 4.0)), gpus=8)
    assert found.throughput.per_user_tok_s == pytest.approx(10 / 0.180)
    assert found.counts.output_tokens == 15
    assert found.counts.tokens_in_window == 15
    assert found.throughput.output_tok_s == pytest.approx(15 / 4)
    assert found.throughput.output_tok_s_per_gpu == pytest.approx(15 / 4 / 8)
    assert found.throughput.input_tok_s == pytest.approx(20 / 4)
    assert found.throughput.total_tok_s == pytest.approx(35 / 4)
    assert found.throughput.req_s == pytest.approx(2 / 4)
    # First request sent to last reply ended: what SGLang's own benchmark divides by.
    assert found.duration_s == pytest.approx(1.160)
    assert found.throughput.output_tok_s_full == pytest.approx(15 / 1.160)


def test_the_first_chunk_s_tokens_are_not_paced_when_it_has_several():
    found = figures([row(gaps_ms=[10, 10], toks=[2, 2], k1=3)], meta())
    assert found.throughput.per_user_tok_s == pytest.approx(4 / 0.020)
    assert found.latencies.tpot.p50 == pytest.approx(20 / 4)  # (t_last - t_first) / (n - k1), not / (n - 1)
    assert found.latencies.gap.p50 == pytest.approx(10.0)  # between chunks: another thing


def test_ramp_and_drain_are_in_no_rate():
    # Chunks at 1.0, 1.1, ... 2.0; the window takes those from 1.25 to 1.65 and the gaps that lie in it as a whole.
    rows = [row(send=0.5, first=1.0, gaps_ms=[100] * 10, toks=[1, 2] * 5)]
    found = figures(rows, meta((1.25, 1.65)))
    assert found.counts.tokens_in_window == 1 + 2 + 1 + 2  # chunks at 1.3, 1.4, 1.5, 1.6
    assert found.throughput.per_user_tok_s == pytest.approx((2 + 1 + 2) / 0.3)  # the gap before 1.3 began outside
    assert found.latencies.gap.n == 3
    assert found.counts.begun_in_window == 0
    assert found.latencies.ttft.n == 0
    assert found.counts.output_tokens == 16  # the whole run, idle to idle


def test_requests_of_the_window_are_those_whose_first_chunk_is_in_it():
    rows = [row(number, send=float(number), gaps_ms=[100] * 5) for number in range(10)]
    found = figures(rows, meta((2.05, 6.05)))
    assert found.counts.begun_in_window == 4  # first chunks at 2.1, 3.1, 4.1, 5.1
    assert found.latencies.tpot.n == 4
    assert found.latencies.ttft.n == 4  # sent at 3, 4, 5, 6
    assert found.throughput.req_s == pytest.approx(4 / 4)  # ended at 2.6 ... 5.6


@given(pause_ms=st.integers(1, 50), begin=st.floats(0, 3), length=st.floats(0.5, 5), seed=st.integers(0, 1000))
def test_a_steady_server_has_its_rate_in_every_window(pause_ms, begin, length, seed):
    rng = random.Random(seed)
    rows, at = [], 0.0
    for number in range(40):
        count = rng.randrange(1, 60)
        rows.append(row(number, send=at, gaps_ms=[pause_ms] * count))
        at = rows[-1]["t_last"]
    found = figures(rows, meta((begin, begin + length)))
    if found.latencies.gap.n:
        assert found.throughput.per_user_tok_s == pytest.approx(1000 / pause_ms)
    shuffled = rng.sample(rows, len(rows))
    assert figures(shuffled, meta((begin, begin + length))).counts == found.counts


@given(cuts=st.lists(st.floats(0.001, 9.999), min_size=1, max_size=6, unique=True), seed=st.integers(0, 99))
def test_tokens_of_windows_side_by_side_add_up(cuts, seed):
    rng = random.Random(seed)
    rows = [
        row(number, send=rng.random() * 4, gaps_ms=[rng.random() * 90 for _ in range(30)], toks=[2] * 30)
        for number in range(8)
    ]
    stamps = {each["t_first"] + passed / 1e6 for each in rows for passed in (0, *accumulate(each["gaps_us"]))}
    edges = [0.0, *sorted(set(cuts) - stamps), 20.0]
    parts = [figures(rows, meta(window)).counts.tokens_in_window for window in pairwise(edges)]
    assert sum(parts) == sum(each["out"] for each in rows)


def test_without_a_steady_window_it_is_the_whole_run():
    found = figures([row(send=1.0, gaps_ms=[50, 50])], meta(None))
    assert (found.window.begin_s, found.window.end_s, found.window.kind) == (1.0, 1.2, "full")
    assert found.throughput.output_tok_s == pytest.approx(3 / 0.2)


def test_nothing_came():
    found = figures([failed(0), failed(1)], meta(None))
    assert found.window is None
    assert (found.counts.ok, found.counts.errors, found.counts.output_tokens) == (0, 2, 0)
    assert found.throughput.per_user_tok_s is None
    assert found.duration_s is None
    assert found.latencies.tpot is None
    assert figures([], meta(None)).counts.ok == 0


def test_what_failed_is_counted_and_sets_no_pace():
    half = row(1, send=1.0, gaps_ms=[500, 500], err="reset", out=None)
    found = figures([row(gaps_ms=[10, 10]), half, failed(2, send=2.0)], meta())
    assert (found.counts.ok, found.counts.errors) == (1, 2)
    assert found.counts.output_tokens == 6  # what came of the half is counted: the server made it
    assert found.throughput.per_user_tok_s == pytest.approx(100)
    assert found.latencies.e2e.n == 1


def test_a_reply_of_one_chunk_has_no_pace():
    found = figures([row(gaps_ms=[], k1=1)], meta())
    assert found.throughput.per_user_tok_s is None
    assert found.latencies.tpot.n == 0
    assert found.latencies.ttft.p50 == pytest.approx(100)


def test_a_server_that_counts_at_the_end_only_has_its_tokens_spread_evenly_behind_that_of_prefill():
    found = figures([row(gaps_ms=[20, 20, 20]) | {"k1": None, "toks": None, "out": 12}], meta())
    assert found.counts.tokens_in_window == 12
    assert found.throughput.per_user_tok_s == pytest.approx(11 / 0.060)
    assert found.latencies.tpot.p50 == pytest.approx(60 / 11)


def test_a_reply_of_one_chunk_that_was_counted_at_its_end_holds_all_its_tokens():
    assert figures([row() | {"k1": None, "toks": None, "out": 3}], meta()).counts.tokens_in_window == 3


def test_a_reply_that_broke_off_before_it_was_counted_has_a_token_a_chunk():
    broken = row(gaps_ms=[20, 20], err="reset") | {"k1": None, "toks": None, "out": None}
    assert figures([broken], meta()).counts.tokens_in_window == 3


# -- latencies ----------------------------------------------------------------------------------------------------------


def test_in_an_open_loop_the_clock_runs_from_when_a_request_was_due():
    late = row(send=2.0, due=1.5, first=2.1, gaps_ms=[100])
    waited = figures([late], meta(point={"rate": 2.0})).latencies
    assert waited.ttft.p50 == pytest.approx(600)
    assert waited.e2e.p50 == pytest.approx(700)
    assert figures([late], meta()).latencies.ttft.p50 == pytest.approx(100)


def test_a_request_that_was_due_in_the_window_of_an_open_loop_counts_however_late_it_was_sent():
    slow = row(send=2.5, due=1.9, first=2.6)
    early = row(send=0.5, due=-0.1, first=0.6)  # due before the window
    waited = figures([slow, early], meta((0.0, 2.0), point={"rate": 2.0})).latencies
    assert (waited.ttft.n, waited.ttft.p50) == (1, pytest.approx(700))
    assert (waited.e2e.n, waited.e2e.p50) == (1, pytest.approx(700))
    sent = figures([slow, early], meta((0.0, 2.0))).latencies.ttft
    assert (sent.n, sent.p50) == (1, pytest.approx(100))


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=60))
def test_percentiles_are_linear_between_neighbours(values):
    found = distribution(values)
    cuts = statistics.quantiles(values, n=10, method="inclusive")
    assert found.p90 == pytest.approx(cuts[8])
    assert found.p50 == pytest.approx(statistics.median(values))
    assert found.max == max(values)
    assert found.n == len(values)


@pytest.mark.parametrize(("n", "p95", "p99"), [(99, False, False), (100, True, False), (1000, True, True)])
def test_tails_need_enough_requests(n, p95, p99):
    found = distribution([float(value) for value in range(n)])
    assert (found.p95 is not None, found.p99 is not None) == (p95, p99)


# -- speculation ----------------------------------------------------------------------------------------------------------


def speculative(number=0, **fields):
    """The recorded reply of 32 tokens in 17 steps with 14 correct drafts; 17 chunks after the first, 12 ms each."""
    toks = [2] * 14 + [1] * 3
    given = {"verify_ct": 17, "correct_drafts": 14, "proposed_drafts": 51} | fields
    return row(number, send=float(number), gaps_ms=[12] * 17, toks=toks, **given)


def test_tau_counts_the_bonus_token_and_leaves_out_the_one_of_prefill():
    found = figures([speculative(0), speculative(1)], meta()).speculation
    assert found.tau == pytest.approx(31 / 17)  # not 32 / 17, which SGLang calls spec_accept_length
    assert (found.verify_steps, found.correct_drafts, found.proposed_drafts) == (34, 28, 102)
    assert found.cycle_ms == pytest.approx(12.0)


def test_tau_is_a_ratio_of_sums_not_a_mean_of_ratios():
    short = row(1, send=1.0, gaps_ms=[10], toks=[4], verify_ct=1, correct_drafts=3)
    assert figures([speculative(), short], meta()).speculation.tau == pytest.approx((31 + 4) / 18)


def test_without_correct_drafts_tau_comes_from_the_tokens():
    assert figures([speculative(correct_drafts=None)], meta()).speculation.tau == pytest.approx(31 / 17)


def test_where_replies_say_nothing_the_counters_tell():
    counted = counters(
        {"sglang:generation_tokens_total": 164, "sglang:spec_verify_calls_total": 134},
        {"sglang:generation_tokens_total": 100, "sglang:spec_verify_calls_total": 100},
    )
    silent = [speculative(n, verify_ct=None, correct_drafts=None, proposed_drafts=None) for n in range(2)]
    found = figures(silent, meta(counters=counted)).speculation
    assert (found.verify_steps, found.correct_drafts) == (34, None)
    assert found.tau == pytest.approx(31 / 17)
    assert found.cycle_ms == pytest.approx(12.0)
    assert found.counter_accept_length == pytest.approx(64 / 34)


def test_a_cycle_is_measured_on_what_came_after_the_first_chunk():
    # The first chunk brought 4 of the 32 tokens: its steps are not timed.
    late = speculative(k1=4, out=35)
    late["verify_ct"] = 18
    found = figures([late], meta()).speculation
    assert found.cycle_ms == pytest.approx(12 * 17 / (18 * 31 / 34))


def test_no_speculation_is_none():
    counted = counters({"sglang:generation_tokens_total": 3, "sglang:spec_verify_calls_total": 0})
    assert figures([row(gaps_ms=[10, 10])], meta(counters=counted)).speculation is None


# -- counters, GPUs, the client ---------------------------------------------------------------------------------------


def test_counters_are_differences_by_name():
    told = meta(counters=counters({"sglang:generation_tokens_total": 150, "vllm:x_total": 4}, {"vllm:x_total": 1}))
    assert counter(told, "generation_tokens_total") == 150  # a series appears with its first count
    assert counter(told, "missing_total", "x_total") == 3
    assert counter(told, "missing_total") is None
    assert counter(meta(counters={"before": None, "after": None}), "x_total") is None
    assert figures([row(gaps_ms=[1])], told).counts.server_output_tokens == 150


def test_gpus_during_the_window():
    samples = [
        [0.5, 0, 900.0, 100.0, 70000.0, 2000.0, 0x40],  # before it
        [1.5, 0, 300.0, 90.0, 70000.0, 2000.0, 0x4],
        [1.5, 1, 200.0, 80.0, 71000.0, 1400.0, 0],
        [2.5, 0, 400.0, 100.0, 72000.0, None, 0],
        [2.5, 1, None, 90.0, None, None, None],
    ]
    found = figures(
        [row(send=1.0, first=1.0, gaps_ms=[100] * 10)], meta((1.0, 3.0), gpu={"samples": samples, "foreign_pids": []})
    ).gpu
    assert found.power_w == pytest.approx(350 + 200)
    assert found.energy_j == pytest.approx(1100)
    assert found.joules_per_token == pytest.approx(1100 / 11)
    assert found.utilization_pct == pytest.approx((95 + 85) / 2)
    assert found.memory_peak_mib == 72000
    assert found.throttle == ("power cap",)
    assert found.sm_mhz == 1700
    assert figures([row()], meta(gpu=None)).gpu is None


def test_gpus_of_a_group_are_those_of_all_its_hosts():
    """GPU 0 of one host is another one than GPU 0 of the next."""
    hosts = {
        "gpu3": {"samples": [[1.5, 0, 300.0, 90.0, 70000.0, 2000.0, 0x4]], "foreign_pids": []},
        "gpu4": {
            "samples": [[1.5, 0, 200.0, 70.0, 71000.0, 1400.0, 0], [2.5, 0, 100.0, 50.0, 1.0, 1400.0, 0x40]],
            "foreign_pids": None,
        },
    }
    rows = [row(send=1.0, first=1.0, gaps_ms=[100] * 10)]
    found = figures(rows, meta((1.0, 3.0), gpu={"hosts": hosts})).gpu
    assert (found.power_w, found.energy_j) == (450, 900)
    assert found.joules_per_token == pytest.approx(900 / 11)
    assert (found.utilization_pct, found.memory_peak_mib, found.sm_mhz) == (75, 71000, 1700)
    assert found.throttle == ("power cap", "thermal, by hardware")
    assert found.hosts == (
        HostGpuUse("gpu3", 300, 90, 70000, ("power cap",), 2000),
        HostGpuUse("gpu4", 150, 60, 71000, ("thermal, by hardware",), 1400),
    )


@pytest.mark.parametrize(
    ("gpu4", "why"),
    [
        ({"missing": "it could not be reached"}, "it could not be reached"),
        ({"samples": [[0.5, 0, 200.0, 70.0, 71000.0, 1400.0, 0]]}, "there is no sample in the window"),
    ],
)
def test_a_part_of_a_group_s_gpus_is_no_figure(gpu4, why):
    gpu3 = {"samples": [[1.5, 0, 300.0, 90.0, 70000.0, 2000.0, 0x4]], "foreign_pids": []}
    rows = [row(send=1.0, first=1.0, gaps_ms=[100] * 10)]
    found = figures(rows, meta((1.0, 3.0), gpu={"hosts": {"gpu3": gpu3, "gpu4": gpu4}})).gpu
    assert found == GpuUse(
        throttle=("power cap",),
        hosts=(HostGpuUse("gpu3", 300, 90, 70000, ("power cap",), 2000), HostGpuUse("gpu4", missing=why)),
    )


def test_the_client_s_own_load():
    found = figures(
        [row()], meta(client={"cpu_fraction": 0.2, "loop_lag_p99_ms": 1.5, "send_lag_p99_ms": None, "rss_mib": 30})
    ).client
    assert (found.cpu_fraction, found.loop_lag_p99_ms, found.send_lag_p99_ms) == (0.2, 1.5, None)
    assert figures([row()], meta()).client is None
