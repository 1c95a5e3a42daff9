"""The flat record: its keys are a contract, null is "not there"."""

from dataclasses import replace

from tui.core.model.result import (
    Counts,
    Distribution,
    Guard,
    GuardStatus,
    Latencies,
    Load,
    MeasuredServer,
    Result,
    SpecConfig,
    Speculation,
    Throughput,
    Tool,
    Window,
)
from tui.core.results.flat import flat

BARE = Result(
    result_id="decode-20261101T100000Z-abc123-c4-1",
    bench="decode",
    started_at="2026-11-01T10:00:00Z",
    tool=Tool("eagletui", "0.2.0", "generate"),
    server=MeasuredServer("gpu1", profile="base", run_id="base-20261101T090000Z-4f9c2a"),
    load=Load("closed", 4, None, "prompts"),
)

NAMES = (
    "backend request_rate max_concurrency num_prompts successful failed duration_s input_tokens output_tokens"
    " req_per_s input_tok_s output_tok_s total_tok_s concurrency peak_output_tok_s peak_concurrent accept_length"
    " valid suspicious"
)
KEYS_OF_THE_CORPUS = NAMES.split() + [
    f"{point}_{name}_ms" for point in ("mean", "median", "p90", "p95", "p99") for name in ("e2e", "ttft", "tpot", "itl")
]


def test_every_key_is_there_and_what_is_missing_is_none():
    record = flat(BARE)
    assert set(KEYS_OF_THE_CORPUS) <= record.keys()
    for key in ("output_tok_s", "per_user_tok_s", "mean_ttft_ms", "accept_length", "tau", "power_w", "successful"):
        assert record[key] is None
    assert record["request_rate"] == "inf"
    assert record["valid"] is True
    assert record["suspicious"] == []


def test_figures_stand_under_their_names():
    result = replace(
        BARE,
        window=Window(2.0, 62.0),
        counts=Counts(ok=30, errors=0, input_tokens=900, output_tokens=15000),
        throughput=Throughput(per_user_tok_s=82.0, output_tok_s=320.0, output_tok_s_full=300.0, req_s=0.5),
        latencies=Latencies(
            ttft=Distribution(30, mean=50.0, p50=48.0, p90=70.0), gap=Distribution(30, mean=25.0, max=99.0)
        ),
        speculation=Speculation(verify_steps=100, tau=2.4, cycle_ms=30.0, server_accept_length=2.5),
        server=replace(BARE.server, spec=SpecConfig("EAGLE3", 3, 1, 4)),
        guards=(
            Guard("errors", GuardStatus.OK, "no request failed"),
            Guard("cache", GuardStatus.FAILED, "3 % from the cache, at most 1 %", 3.0, 1.0),
        ),
        valid=False,
    )
    record = flat(result)
    wanted = {
        "window_s": 60.0,
        "successful": 30,
        "output_tok_s": 320.0,
        "output_tok_s_full": 300.0,
        "mean_ttft_ms": 50.0,
        "median_ttft_ms": 48.0,
        "p90_ttft_ms": 70.0,
        "p95_ttft_ms": None,
        "mean_itl_ms": 25.0,
        "max_itl_ms": 99.0,
        "accept_length": 2.4,
        "cycle_ms": 30.0,
        "spec_algorithm": "EAGLE3",
        "num_draft_tokens": 4,
        "guards": {"errors": "ok", "cache": "failed"},
        "failed_guards": ["3 % from the cache, at most 1 %"],
        "valid": False,
        "run": "base-20261101T090000Z-4f9c2a",
        "profile": "base",
    }
    assert {key: record[key] for key in wanted} == wanted


def test_a_tool_without_a_window_gives_its_whole_run():
    record = flat(replace(BARE, throughput=Throughput(output_tok_s_full=300.0)))
    assert record["output_tok_s"] == 300.0


def test_an_open_loop_has_its_rate():
    record = flat(replace(BARE, load=replace(BARE.load, kind="open", concurrency=None, rate=2.5)))
    assert (record["request_rate"], record["max_concurrency"], record["load"]) == (2.5, None, "open")


def test_a_posted_figure_is_none_of_ours():
    hostile = {"valid": "yes", "result": "other", "max_concurrency": 9, "per_user_tok_s": 80.0, "speed": 3.0}
    record = flat(replace(BARE, valid=False, posted=hostile))
    assert (record["valid"], record["result"], record["max_concurrency"]) == (False, BARE.result_id, 4)
    assert (record["per_user_tok_s"], record["speed"]) == (80.0, 3.0)
