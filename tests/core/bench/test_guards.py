"""Every condition of a run: met, not met, and where nothing can be told."""

import json
import shlex
from pathlib import Path

import pytest

from tests.support.rows import counters, failed, meta, row
from tui.core.bench.guards import ServerChecks, judge, simulated
from tui.core.bench.metrics import figures
from tui.core.bench.server_args_check import asked_flags, differences
from tui.core.model.result import GuardStatus

OK, FAILED, NOT_APPLICABLE = GuardStatus.OK, GuardStatus.FAILED, GuardStatus.NOT_APPLICABLE


def steady_rows(count=20, **fields):
    """One user, requests of 41 tokens in 0.6 s each."""
    return [row(n, send=0.6 * n, first=0.6 * n + 0.2, gaps_ms=[10] * 40, **fields) for n in range(count)]


def changing_rows(gap_ms):
    """The same, with another gap from the tenth request on."""
    later = [row(n, send=0.6 * n, first=0.6 * n + 0.2, gaps_ms=[gap_ms] * 40) for n in range(10, 20)]
    return [*steady_rows(10), *later]


IDENTITY = {"model": "kimi", "version": "0.5.23", "args_sha": "5ha", "pid_started": 77}


def steady_meta(**fields):
    """A run of which nothing bad can be said."""
    told = {
        "window": [0.2, 12.0],
        "counters": counters({"sglang:generation_tokens_total": 820, "sglang:prompt_tokens_total": 200}),
        "client": {"cpu_fraction": 0.05, "lost_s": 0.0, "loop_lag_p99_ms": 1.0, "loop_lag_max_ms": 3.0, "rss_mib": 30},
        "server": {"first": IDENTITY, "after": IDENTITY},
        "gpu": {"samples": [[1.0, 0, 300.0, 90.0, 70000.0, 2000.0, 0x4]], "foreign_pids": []},
        "graph": {"on": 50, "off": 0},
        "warmup": {"seconds": 6.0, "stable": True, "requests": 4},
        "flush": {"ok": True, "hit_rate": 0.0},
        "errors": {},
    }
    return meta(**(told | fields))


SERVER = ServerChecks(differences=(), version_meant="0.5.23", version="0.5.23", env={})


def judged(rows=None, told=None, server=SERVER):
    rows = steady_rows() if rows is None else rows
    told = steady_meta() if told is None else told
    return judge(rows, told, figures(rows, told), server)


def guard_of(judgement, name):
    (found,) = [guard for guard in judgement.guards if guard.id == name]
    return found


def only_failed(judgement):
    return [guard.id for guard in judgement.guards if guard.status is FAILED]


def test_a_good_run_counts_and_every_condition_says_its_figure():
    found = judged()
    assert found.valid
    assert {guard.id for guard in found.guards if guard.status is not OK} == {"overload"}  # of open loops
    assert found.suspicious == ("clocks were held down by the power cap",)
    for guard in found.guards:
        assert guard.text
        assert "\n" not in guard.text
        assert not guard.text.endswith(".")


@pytest.mark.parametrize(
    ("name", "rows", "told", "words"),
    [
        (
            "errors",
            [*steady_rows(), failed(20, send=11.0)],
            steady_meta(errors={"reset: gone": 1}),
            "1 of 21 requests failed (limit 0), most by: reset: gone",
        ),
        ("window", None, steady_meta(window=[0.2, 10.1]), "9.9 s with all users busy"),
        ("window", None, steady_meta(window=None), "there was no time with all users busy"),
        (
            "window",
            steady_rows(4),
            steady_meta(counters=counters({"sglang:generation_tokens_total": 164})),
            "164 tokens (at least 10 s and 500 tokens)",
        ),
        (
            "tokens",
            None,
            steady_meta(counters=counters({"sglang:generation_tokens_total": 826})),
            "820 tokens counted here, 826 by the server: 0.73% apart (limit 0.5%); somebody else may be using it",
        ),
        ("tokens", None, steady_meta(counters=counters({"sglang:generation_tokens_total": 0})), "none by the server"),
        (
            "chunks",
            [*steady_rows(18), *(each | {"out": 71} for each in steady_rows()[18:])],
            steady_meta(counters=counters({"sglang:generation_tokens_total": 880})),
            "2 of 20 replies were counted wrongly by chunk: 82 tokens in their chunks, 142 in the replies (limit 0)",
        ),
        (
            "chunks",
            [each | {"t_last": each["t_last"] + 0.0021} for each in steady_rows()],
            None,
            "hold its tokens, but not its time: 8.000 s between chunks, 8.042 s from first to last",
        ),
        (
            "cache",
            steady_rows(cached=73, **{"in": 400}),
            None,
            "2.2% of the prompt tokens came from the prefix cache",
        ),
        (
            "client_cpu",
            None,
            steady_meta(client={"cpu_fraction": 0.81, "lost_s": 0.0}),
            "used 81% of a core (limit 80%)",
        ),
        (
            "client_lag",
            None,
            steady_meta(client={"cpu_fraction": 0.1, "lost_s": 0.0591, "loop_lag_max_ms": 64.0}),
            "stood still for 0.50% of the window (limit 0.5%), for 64 ms at most",
        ),
        (
            "client_lag",  # many small ones, on both ends of replies of 0.4 s
            None,
            steady_meta(client={"cpu_fraction": 0.1, "lost_s": 0.0, "late_mean_ms": 2.01}),
            "chunks were stamped 2.01 ms late on average (limit 2.00 ms, 0.5% of a reply)",
        ),
        (
            "client_lag",  # a freeze is one sample of the loop's lag, and is seen all the same
            None,
            steady_meta(client={"cpu_fraction": 0.1, "lost_s": 2.0, "loop_lag_p99_ms": 1.0, "loop_lag_max_ms": 2005.0}),
            "stood still for 16.95% of the window (limit 0.5%), for 2005 ms at most",
        ),
        (
            "tokens",
            None,
            steady_meta(
                counters=counters({"sglang:generation_tokens_total": 20}, {"sglang:generation_tokens_total": 900})
            ),
            "the server's own count fell by 880 tokens: it was restarted",
        ),
        (
            "server",
            None,
            steady_meta(server={"first": IDENTITY, "after": IDENTITY | {"model": "other"}}),
            "another server answered after the run than at the start of the bench: its model kimi became other",
        ),
        (
            "server",
            None,
            steady_meta(server={"first": IDENTITY, "after": IDENTITY | {"pid_started": 99}}),
            "another server answered after the run than at the start of the bench: its process changed",
        ),
        (
            "server",
            None,
            steady_meta(server={"first": IDENTITY, "after": None}),
            "the server did not answer after the run",
        ),
        (
            "steady",
            changing_rows(10.3),
            None,
            "the time between chunks became 3.0% longer, from 6 s into the window on (limit 2%)",
        ),
        (
            "foreign",
            None,
            steady_meta(gpu={"samples": [[1.0, 0, 300.0, 90.0, 7e4, 2e3, 0]], "foreign_pids": [4711, 4712]}),
            "2 processes of others on the GPUs: PID 4711, 4712",
        ),
        (
            "clocks",
            None,
            steady_meta(gpu={"samples": [[1.0, 0, 300.0, 90.0, 7e4, 2e3, 0x44]], "foreign_pids": []}),
            "slowed down: thermal, by hardware",
        ),
        ("graph", None, steady_meta(graph={"on": 97, "off": 3}), "3 of 100 decode lines ran without a graph"),
    ],
)  # fmt: skip
def test_each_fault_fails_its_own_condition_alone(name, rows, told, words):
    found = judged(rows, told)
    assert not found.valid
    assert only_failed(found) == [name]
    assert words in guard_of(found, name).text


def on_hosts(**gpu4):
    """A run of a group on gpu3, of which nothing bad can be said, and gpu4."""
    told = {"samples": [[1.0, 0, 300.0, 90.0, 7e4, 2e3, 0]], "foreign_pids": []}
    return judged(told=steady_meta(gpu={"hosts": {"gpu3": told, "gpu4": gpu4 if "missing" in gpu4 else told | gpu4}}))


def test_all_hosts_of_a_group_are_looked_at():
    found = on_hosts()
    assert guard_of(found, "foreign").text == "nobody else was on the GPUs of gpu3, gpu4"
    assert [guard_of(found, name).status for name in ("foreign", "clocks")] == [OK, OK]


def test_a_stranger_on_any_host_of_a_group_voids_and_the_host_is_named():
    found = on_hosts(foreign_pids=[4711, 4712])
    assert only_failed(found) == ["foreign"]
    assert guard_of(found, "foreign").text == "2 processes of others on the GPUs: PID 4711, 4712 of gpu4 (limit 0)"


def test_a_host_of_a_group_that_is_slowed_down_is_named():
    found = on_hosts(samples=[[1.0, 0, 300.0, 90.0, 7e4, 2e3, 0x40]])
    assert only_failed(found) == ["clocks"]
    assert guard_of(found, "clocks").text == "the GPUs of gpu4 were slowed down: thermal, by hardware"


def test_a_host_without_figures_is_not_silently_fine():
    found = on_hosts(missing="it could not\x1b[2J be reached")
    for name in ("foreign", "clocks"):
        guard = guard_of(found, name)
        assert guard.status is NOT_APPLICABLE
        assert guard.text.startswith("not checked on gpu4: it could not")
        assert "\x1b" not in guard.text
    unknown = guard_of(on_hosts(foreign_pids=None), "foreign")
    assert (unknown.status, unknown.text) == (
        NOT_APPLICABLE,
        "not checked on gpu4: whose processes are on the GPUs is not known",
    )


def test_a_stranger_voids_also_where_another_host_was_not_looked_at():
    gpu = {"hosts": {"gpu3": {"missing": "no GPU figures"}, "gpu4": {"samples": [], "foreign_pids": [7]}}}
    found = judged(told=steady_meta(gpu=gpu))
    assert only_failed(found) == ["foreign"]
    assert "PID 7 of gpu4" in guard_of(found, "foreign").text


@pytest.mark.parametrize(
    ("count", "chunks", "counts"), [(1, 498, False), (1, 499, True), (6, 80, False), (7, 80, True)]
)
def test_a_window_needs_time_and_tokens(count, chunks, counts):
    """Not replies: one user of a slow server gets a rate from a single one."""
    rows = [row(n, send=2.0 * n, gaps_ms=[10] * chunks) for n in range(count)]
    told = steady_meta(window=[0.0, 20.0], counters=None)
    assert judged(rows, told).valid is counts


@pytest.mark.parametrize("mask", [0x8, 0x20, 0x40, 0x80])
def test_heat_and_supply_slow_a_run_down_and_the_power_cap_is_told(mask):
    samples = [[1.0, 0, 300.0, 90.0, 7e4, 2e3, mask | 0x4]]
    found = judged(told=steady_meta(gpu={"samples": samples, "foreign_pids": []}))
    assert only_failed(found) == ["clocks"]
    assert "power cap" not in guard_of(found, "clocks").text
    assert any("power cap" in text for text in found.suspicious)


def test_limits_are_not_crossed_by_what_is_just_on_them():
    told = steady_meta(
        window=[0.2, 10.2],
        client={"cpu_fraction": 0.8, "lost_s": 0.05, "late_mean_ms": 1.99, "loop_lag_max_ms": 99.0},
        graph={"on": 99, "off": 1},
        counters=counters({"sglang:generation_tokens_total": 824}),  # 0.485 %
    )
    rows = changing_rows(10.19)
    found = judged(rows, told)
    assert found.valid
    assert "became 1.9% longer" in guard_of(found, "steady").text
    assert found.suspicious[-1] == ("the load generator was late by 99 ms once: a tail of the latencies may be its own")


def arrivals(rate, capacity, seconds=60.0, sent_late_s=0.0):
    """Requests that come evenly at `rate` a second and are served one after the other, `capacity` a second."""
    rows, free = [], 0.0
    for number in range(int(rate * seconds)):
        due = number / rate
        free = max(free, due) + 1 / capacity
        rows.append(row(number, due=due, send=due + sent_late_s, first=free - 0.4 / capacity, gaps_ms=[400 / capacity]))
    return rows


def open_meta(**fields):
    told = {"point": {"rate": 4.0}, "window": [0.5, 55.0], "counters": None}
    return steady_meta(**(told | fields))


@pytest.mark.parametrize(("capacity", "holds"), [(20.0, True), (4.2, True), (3.4, False), (2.0, False)])
def test_a_load_above_what_the_server_holds_is_told(capacity, holds):
    found = judged(arrivals(4.0, capacity), open_meta())
    guard = guard_of(found, "overload")
    assert guard.status is (OK if holds else FAILED)
    assert guard.text.startswith("4.02 requests/s offered, ")
    assert ("above what the server holds" in guard.text) is not holds
    assert guard_of(found, "steady").status is NOT_APPLICABLE


@pytest.mark.parametrize(("late_ms", "counts"), [(0.2, True), (1.9, True), (2.1, False), (33.0, False)])
def test_an_open_loop_that_sends_late_measures_itself(late_ms, counts):
    client = {"cpu_fraction": 0.1, "lost_s": 0.1, "send_lag_mean_ms": late_ms}
    guard = guard_of(judged(arrivals(4.0, 20.0), open_meta(client=client)), "client_lag")
    assert guard.status is (OK if counts else FAILED)
    assert f"requests were sent {late_ms:.1f} ms late on average (limit 2.0 ms)" in guard.text


def test_a_chat_template_from_the_cache_is_no_warm_cache():
    """After the first request the template's 20 tokens are shared by all; a whole prompt is something else."""
    prompts = steady_rows(cached=20, **{"in": 60})
    assert guard_of(judged(prompts), "cache").status is OK
    short = steady_rows(cached=58, **{"in": 60})
    assert guard_of(judged(short), "cache").status is FAILED
    again = steady_rows(cached=199, **{"in": 200})
    assert guard_of(judged(again), "cache").status is FAILED


def test_the_cache_is_judged_by_counters_where_replies_say_nothing():
    def with_counters(cached):
        return steady_meta(
            counters=counters(
                {
                    "sglang:generation_tokens_total": 820,
                    "sglang:prompt_tokens_total": 4000,
                    "sglang:cached_tokens_total": cached,
                }
            )
        )

    silent = steady_rows(cached=None)
    assert guard_of(judged(silent, with_counters(20 * 64)), "cache").status is OK
    assert guard_of(judged(silent, with_counters(2000)), "cache").status is FAILED
    assert guard_of(judged(silent, steady_meta(counters=None)), "cache").status is NOT_APPLICABLE


@pytest.mark.parametrize(
    ("name", "told", "server"),
    [
        ("tokens", steady_meta(counters={"before": None, "after": None}), SERVER),
        ("client_cpu", steady_meta(client=None), SERVER),
        ("client_lag", steady_meta(client=None), SERVER),
        ("client_lag", steady_meta(client={"loop_lag_p99_ms": 70.0}), SERVER),  # of a record from before
        ("server", steady_meta(server=None), ServerChecks(None, env={})),
        ("steady", steady_meta(window=None) | {"window": [0.2, 0.9]}, SERVER),
        ("foreign", steady_meta(gpu=None), SERVER),
        ("foreign", steady_meta(gpu={"samples": [[1.0, 0, 1.0, 1.0, 1.0, 1.0, 0]], "foreign_pids": None}), SERVER),
        ("clocks", steady_meta(gpu=None), SERVER),
        ("graph", steady_meta(graph=None), SERVER),
        ("graph", steady_meta(graph={"on": 0, "off": 0}), SERVER),
        ("graph", steady_meta(graph={"on": 0, "off": 9}), ServerChecks((), env={}, no_graphs="switched off")),
        ("server", None, ServerChecks(None, env={})),
        ("simulated_acceptance", None, ServerChecks(())),
    ],
)  # fmt: skip
def test_what_does_not_exist_here_fails_nothing(name, told, server):
    found = judged(told=told, server=server)
    assert only_failed(found) == (["window"] if name == "steady" else [])
    assert guard_of(found, name).status is NOT_APPLICABLE
    assert guard_of(found, name).text


def test_simulated_acceptance_is_always_flagged():
    found = judged(server=ServerChecks((), env={"SGLANG_SIMULATE_ACC_LEN": "2.5"}))
    assert only_failed(found) == ["simulated_acceptance"]
    assert "SGLANG_SIMULATE_ACC_LEN=2.5" in guard_of(found, "simulated_acceptance").text
    for off in ("-1", "0", "", "many"):  # as SGLang has it
        assert simulated({"SGLANG_SIMULATE_ACC_LEN": off}).status is OK


def test_another_version_or_other_arguments_are_another_server():
    other = ServerChecks((), version_meant="0.5.22", version="0.5.23", env={})
    assert "the server is 0.5.23, launched was 0.5.22" in guard_of(judged(server=other), "server").text
    resolved = {"tp_size": 8, "cuda_graph_max_bs_decode": 512, "speculative_algorithm": None}
    found = differences(asked_flags(["--tp", "8", "--cuda-graph-max-bs", "128"]), resolved)
    assert only_failed(judged(server=ServerChecks(found, env={}))) == []
    assert judged(server=ServerChecks(found, env={})).suspicious[-1] == (
        "SGLang made it so: cuda-graph-max-bs-decode is 512, asked for 128"
    )
    found = differences(asked_flags(["--tp", "4"]), {**resolved, "speculative_algorithm": "EAGLE3"})
    text = guard_of(judged(server=ServerChecks(found, env={})), "server").text
    assert text == (
        "not the server that was launched: tp-size is 8, asked for 4; "
        "speculative-algorithm is EAGLE3, asked for not set"
    )


def test_what_a_reader_should_know():
    told = steady_meta(
        warmup={"seconds": 30.0, "stable": False, "requests": 9},
        flush={"ok": False, "hit_rate": 0.0},
        gpu=None,
        counters={**counters({"sglang:generation_tokens_total": 820}), "idle": False},
    )
    rows = [each | {"toks": None, "k1": None} for each in steady_rows()]
    found = judged(rows, told)
    assert found.valid
    assert len(found.suspicious) == 4
    assert found.suspicious[0] == "the time between chunks was not steady after 30 s of warm-up"


# -- what a server was asked, and what it says --------------------------------------------------------------------------

DEFAULTS = json.loads((Path(__file__).parents[3] / "tui/demo/data/sglang_0_5_23.json").read_text(encoding="utf-8"))[
    "defaults"
]


def test_flags_of_a_command_line_by_their_first_names():
    words = shlex.split(
        "python -m sglang.launch_server --model /m --tp 8 --trust-remote-code --mem-fraction-static=0.88 "
        "--cuda-graph-bs-decode 1 2 4 --chunked-prefill-size -1 --json-model-override-args '{\"a\": 1}' "
        "--no-lora-strict-loading --cuda-graph-max-bs 512"
    )
    assert asked_flags(words) == {
        "model-path": "/m",
        "tp-size": "8",
        "trust-remote-code": True,
        "mem-fraction-static": "0.88",
        "cuda-graph-bs-decode": ["1", "2", "4"],
        "chunked-prefill-size": "-1",
        "json-model-override-args": '{"a": 1}',
        "lora-strict-loading": False,
        "cuda-graph-max-bs-decode": "512",
    }


@pytest.mark.parametrize(
    ("words", "resolved"),
    [
        ("--context-length 128k", {"context_length": 128000}),
        ("--mem-fraction-static 0.880", {"mem_fraction_static": 0.88}),
        ("--speculative-algorithm NEXTN", {"speculative_algorithm": "EAGLE"}),
        ("--speculative-algorithm eagle3", {"speculative_algorithm": "EAGLE3"}),
        ("--model-path Qwen/Qwen3-0.6B", {"model_path": "/hf/hub/models--Qwen--Qwen3-0.6B/snapshots/ab12"}),
        ("--model-path /data/m/", {"model_path": "/data/m"}),
        ("--json-model-override-args '{\"b\": 1, \"a\": 2}'", {"json_model_override_args": '{"a":2,"b":1}'}),
        ("--cuda-graph-max-bs 128", {"cuda_graph_max_bs": 128}),  # before 0.5.14
        ("--cuda-graph-bs-decode 1 2", {"cuda_graph_bs_decode": [1, 2]}),
        ("--api-key hush", {"api_key": "***"}),
        ("--unheard-of 7", {}),
        ("--enable-metrics", {"enable_metrics": True}),
        ("--cuda-graph-max-bs-decode 64", {"cuda_graph_max_bs_decode": None}),  # resolved into another one
    ],
)  # fmt: skip
def test_the_same_in_other_words_is_no_difference(words, resolved):
    assert differences(asked_flags(shlex.split(words)), resolved) == ()


@pytest.mark.parametrize(
    ("words", "resolved", "adjusted"),
    [
        ("--model-path /data/a", {"model_path": "/data/b"}, False),
        ("--tp 8", {"tp_size": 4}, False),
        ("--context-length 128k", {"context_length": 131072}, False),
        ("--speculative-algorithm EAGLE3", {"speculative_algorithm": None}, False),
        ("--speculative-draft-model-path /d", {"speculative_draft_model_path": "/e"}, False),
        ("--speculative-num-draft-tokens 8", {"speculative_num_draft_tokens": 4}, True),
        ("--attention-backend fa3", {"attention_backend": "triton"}, True),
        ("--trust-remote-code", {"trust_remote_code": False}, False),
        ("", {"speculative_algorithm": "NGRAM"}, False),
    ],
)  # fmt: skip
def test_a_difference_says_whether_sglang_makes_it_by_itself(words, resolved, adjusted):
    (found,) = differences(asked_flags(shlex.split(words)), resolved)
    assert found.adjusted is adjusted


RECORDED = Path(__file__).parents[2] / "data/measure/resolved_0_5_23.json"  # by SGLang's own resolution, on a CPU


@pytest.mark.parametrize(("words", "resolved"), json.loads(RECORDED.read_text(encoding="utf-8")))
def test_what_sglang_really_makes_of_its_flags_is_the_server_that_was_meant(words, resolved):
    found = differences(asked_flags(words), resolved)
    assert [str(each) for each in found if not each.adjusted] == []
    told = {each.flag for each in found}
    assert told <= {"speculative-num-draft-tokens", "dp-size", "tool-call-parser"}


def test_all_defaults_given_as_flags_are_no_difference():
    """Every plain default of 0.5.23, written as a flag, is what the server then says."""
    words = []
    for name, value in DEFAULTS.items():
        if isinstance(value, int | float | str) and not isinstance(value, bool) and value != "":
            words.append(f"--{name.replace('_', '-')}={value}")
    found = differences(asked_flags(words), DEFAULTS)
    assert [str(each) for each in found] == []
