"""Measurements as runs on a host, of a server that knows the truth; over a real sshd whose link is cut in the middle."""

import asyncio
import json
import shutil
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.truth_server import truth_server
from tui.core.bench import bench_run, target
from tui.core.bench.progress import Progress
from tui.core.config import HostEntry, data_dir
from tui.core.errors import EagletuiError, UsageError
from tui.core.model.experiment import LiveRun
from tui.core.model.profile import BenchProfile, LoadPoint
from tui.core.model.result import GuardStatus, Result
from tui.core.model.run import RunState
from tui.core.results import store
from tui.core.runs import control
from tui.core.runs.request import LaunchRequest, new_run_id
from tui.core.server import launch_records
from tui.core.server.session import HostSession

QUICK = BenchProfile("quick", (LoadPoint(concurrency=2),), output_len=40, duration_s=0.5, runs=1)
ENDLESS = replace(QUICK, duration_s=600.0)
# Some 30 requests a second by two users; each waits for its first token, then has 9 verify steps.
SPECULATIVE = {"speculate": 1, "chunk": 3, "tick_ms": 4, "tokens": 19, "first_ms": 10}


async def measured(session, profile, port_or_url, **options):
    """(run, live states, results) of a whole measurement."""
    where = await target.of_url(session, f"127.0.0.1:{port_or_url}" if isinstance(port_or_url, int) else port_or_url)
    run = await bench_run.start(session, profile, where, **options)
    news = [event async for event in bench_run.follow_run(session, run)]
    return run, [n for n in news if isinstance(n, LiveRun)], [n for n in news if isinstance(n, Result)]


def replies(server):
    """What the server says of the requests that were not probes, in order."""
    return [event for event in server.events if event["what"] in ("generate", "chat")]


def status_of(result, name):
    (guard,) = [guard for guard in result.guards if guard.id == name]
    return guard.status


# -- figures ------------------------------------------------------------------------------------------------------------


async def test_every_figure_is_what_the_server_did(local):
    with truth_server(**SPECULATIVE) as (port, server):
        run, live, (result,) = await measured(local, QUICK, port)
        told = replies(server)
    asked = result.counts.ok
    mine = told[-asked:]  # the measured run comes last
    counts = result.counts
    assert counts.errors == 0
    assert counts.output_tokens == sum(each["out"] for each in mine) == 19 * asked
    assert counts.server_output_tokens == counts.output_tokens
    assert counts.input_tokens == sum(each["in"] for each in mine)
    assert counts.chunks == sum(len(each["chunks"]) for each in mine)
    assert 0 < counts.tokens_in_window <= counts.output_tokens
    speculation = result.speculation
    assert speculation.verify_steps == sum(each["verify"] for each in mine)
    assert speculation.correct_drafts == sum(each["correct"] for each in mine)
    assert speculation.tau == pytest.approx(2.0)  # 1, 2, 3 tokens in turn, three times
    assert speculation.counter_accept_length == pytest.approx(19 / 9)  # the token of prefill counted as well
    # A user's rate, the cycle and tau are one and the same measurement.
    rate = result.throughput.per_user_tok_s
    assert rate * speculation.cycle_ms / 1000 == pytest.approx(speculation.tau, rel=1e-6)
    assert result.latencies.ttft.p50 >= 10
    assert result.latencies.gap.p50 >= 4
    assert result.latencies.tpot.p50 == pytest.approx(1000 / rate, rel=0.5)
    assert result.throughput.output_tok_s_full == pytest.approx(counts.output_tokens / result.duration_s)
    assert result.load.requests == asked
    assert (result.load.concurrency, result.load.dataset, result.load.temperature) == (2, "prompts", 0.0)
    assert result.tool.name == "eagletui"
    assert result.tool.backend == "chat"  # text is asked for as users do, through the model's template
    assert len(result.tool.sha) == 64
    assert (result.server.url, result.server.version, result.server.model) == (
        f"http://127.0.0.1:{port}",
        "0.5.23",
        "truth",
    )
    assert "hush-hush" not in json.dumps(result.server.args)
    assert store.read(result.result_id) == result
    assert result.result_id == f"{run.run_id}-c2-1"
    assert len(store.rows(result.result_id)) == asked
    assert launch_records.read(run.run_id).kind == "bench"
    assert {state.phase for state in live} >= {"warmup", "window"}
    last = live[-1]
    assert (last.point, last.run_index, last.errors) == (QUICK.points[0], 1, 0)
    assert last.accept_length == pytest.approx(2.0)


async def test_nobody_asks_for_health_and_the_cache_is_emptied(local):
    with truth_server(tokens=8) as (port, server):
        await measured(local, replace(QUICK, runs=2), port)
        asked = [event["what"] for event in server.events]
    assert not any("health" in what for what in asked)
    assert asked.count("/flush_cache") == 2


async def test_runs_differ_and_the_same_run_is_the_same_on_both_sides(local):
    """Prompts and their order depend on seed and run alone."""

    async def prompts(**options):
        with truth_server(tokens=8, tick_ms=2) as (port, server):
            _, _, results = await measured(local, replace(QUICK, runs=2), port, **options)
            texts = [event["body"]["messages"][0]["content"] for event in replies(server)]
        second = texts[-results[1].counts.ok :]
        before = texts[: -results[1].counts.ok]
        # Between the runs there is a short warm-up of two requests.
        first = before[-results[0].counts.ok - 2 : -2]
        assert min(len(first), len(second)) >= 6
        return first[:6], second[:6]

    one, two = await prompts()
    again, again_two = await prompts()
    other, _ = await prompts(seed=2)
    assert one == again
    assert two == again_two
    assert one != two
    assert one != other


async def test_random_ids_never_end_by_themselves(local):
    profile = replace(QUICK, dataset="random-ids", input_len=32, output_len=9)
    with truth_server(tokens=4) as (port, server):
        _, _, (result,) = await measured(local, profile, port)
        bodies = [event["body"] for event in replies(server)[1:]]
    assert result.tool.backend == "generate"
    assert (result.load.input_len, result.load.output_len, result.load.ignore_eos) == (32, 9, True)
    assert result.counts.output_tokens == 9 * result.counts.ok
    assert all(len(body["input_ids"]) == 32 for body in bodies)
    assert all(body["sampling_params"]["ignore_eos"] for body in bodies)


async def test_an_open_loop(local):
    profile = replace(QUICK, points=(LoadPoint(rate=30.0),), duration_s=1.0)
    with truth_server(tokens=8) as (port, _):
        run, _, (result,) = await measured(local, profile, port)
    assert result.result_id == f"{run.run_id}-r30-1"
    assert (result.load.kind, result.load.rate, result.load.concurrency) == ("open", 30.0, None)
    assert result.window.kind == "steady"
    assert result.counts.server_output_tokens == result.counts.output_tokens


async def test_a_vllm_server_is_measured_by_chat(local):
    with truth_server(dialect="vllm", tokens=12) as (port, _):
        _, _, (result,) = await measured(local, QUICK, port)
        with pytest.raises(UsageError, match="takes no token ids"):
            await measured(local, replace(QUICK, dataset="random-ids"), port)
    assert result.counts.server_output_tokens == result.counts.output_tokens == 12 * result.counts.ok
    assert result.speculation is None
    assert result.server.version == "0.33.0"


async def test_requests_of_a_file(local, tmp_path):
    (tmp_path / "mine.jsonl").write_text('{"prompt": "one tokens=5"}\n{"prompt": "two tokens=7", "output_len": 6}')
    profile = replace(QUICK, dataset="mine.jsonl", path=tmp_path / "p.toml")
    with truth_server() as (port, server):
        _, _, (result,) = await measured(local, profile, port)
        outs = {event["out"] for event in replies(server)[1:]}
    assert outs == {5, 6}
    assert result.load.dataset == "mine.jsonl"
    assert result.load.dataset_sha


# -- faults, each flagged by its own condition ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "prompt", "guard"),
    [
        ({"counts": 1.1}, "tokens=20", "tokens"),
        ({}, "tokens=20 cached=500", "cache"),
        ({}, "tokens=20 fault=cut", "errors"),
        ({}, "tokens=20 fault=503", "errors"),
        ({}, "tokens=20 fault=no_finish", "errors"),
    ],
)
async def test_a_fault_of_the_server_is_flagged(local, tmp_path, settings, prompt, guard):
    good = [json.dumps({"prompt": f"plain {n} tokens=20"}) for n in range(9)]
    (tmp_path / "mixed.jsonl").write_text("\n".join([*good, json.dumps({"prompt": prompt})]))
    profile = replace(QUICK, dataset="mixed.jsonl", path=tmp_path / "p.toml")
    with truth_server(tick_ms=1, **settings) as (port, _):
        _, _, (result,) = await measured(local, profile, port)
    assert not result.valid
    failed = {g.id for g in result.guards if g.status is GuardStatus.FAILED} - {"window", "client_lag", "steady"}
    # A server may have counted what its client never saw the end of.
    assert failed - ({"tokens"} if guard == "errors" else set()) == {guard}
    assert store.read(result.result_id) == result  # it is kept, with what is wrong with it


async def test_without_metrics_the_count_cannot_be_held_against_anything(local):
    with truth_server(metrics=0, tokens=20) as (port, _):
        _, _, (result,) = await measured(local, QUICK, port)
    assert status_of(result, "tokens") is GuardStatus.NOT_APPLICABLE
    assert result.counts.server_output_tokens is None


async def test_simulated_acceptance_is_seen_in_the_server_s_environment(local):
    program = Path(__file__).parents[2] / "support" / "truth_server.py"
    env = {"SGLANG_SIMULATE_ACC_LEN": "2.5"}
    process = await asyncio.create_subprocess_exec(
        shutil.which("python3"), str(program), '{"tokens": 20}', env=env, stdout=asyncio.subprocess.PIPE
    )
    try:
        port = int(await process.stdout.readline())
        _, _, (result,) = await measured(local, QUICK, port)
    finally:
        process.kill()
        await process.wait()
    assert status_of(result, "simulated_acceptance") is GuardStatus.FAILED
    assert result.server.env["SGLANG_SIMULATE_ACC_LEN"] == "2.5"
    assert not result.valid


async def test_an_address_of_a_run_of_ours_is_that_run(local, until):
    program = str(Path(__file__).parents[2] / "support" / "truth_server.py")
    argv = (shutil.which("python3"), program, '{"tokens": 20}', "--tp", "4")
    run = await control.launch(local.transport, LaunchRequest(new_run_id("tiny"), "server", "tiny", argv))
    await until(lambda: Path(run.log_path).read_text().strip())
    found = await target.of_url(local, f"localhost:{Path(run.log_path).read_text().strip()}/")
    assert found.run is not None
    assert (found.run.run_id, found.pid) == (run.run_id, run.pid)
    assert str(found) == run.run_id


# -- what cannot be measured ----------------------------------------------------------------------------------------------


async def refusal(session, profile, where, **options):
    with pytest.raises(EagletuiError) as caught:
        await measured(session, profile, where, **options)
    assert caught.value.message
    assert caught.value.hint
    return caught.value


async def test_what_cannot_be_measured_is_said_before_anything_is_started(local, monkeypatch, tmp_path):
    assert (await refusal(local, QUICK, "127.0.0.1:9")).slug == "unreachable"
    assert (await refusal(local, QUICK, "https://x")).slug == "bad_value"
    assert (await refusal(local, QUICK, "http://:9999999")).slug == "bad_value"
    assert (await refusal(local, replace(QUICK, dataset="no.jsonl"), "127.0.0.1:9")).slug == "unknown_file"
    with truth_server(tokens=0, refuses=["messages", "text", "input_ids"]) as (port, _):
        assert (await refusal(local, QUICK, port)).slug == "not_generating"
    with truth_server(api_key="hush", tokens=9) as (port, _):
        assert (await refusal(local, QUICK, port)).slug == "unauthorized"
        monkeypatch.setenv("EAGLETUI_API_KEY", "wrong")
        wrong = await refusal(local, QUICK, port)
        assert "not this one" in wrong.message
        assert await control.list_runs(local.transport) == ()
        monkeypatch.setenv("EAGLETUI_API_KEY", "hush")
        run, _, (result,) = await measured(local, QUICK, port)
    assert result.counts.ok
    for path in Path(run.directory).iterdir():  # the key is in no file that stays
        if path.is_file():
            assert b"hush" not in path.read_bytes().replace(b"hush-hush", b""), path


async def test_what_answers_with_anything_at_all_is_no_server(local):
    bodies = [b"[" * 100_000, b'{"version": [], "data": [1], "model_path": 3, "usage": "x"}', b"\xff\x00", b""]

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(bodies[0]))
        writer.write(bodies[0])
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        while bodies:
            assert (await refusal(local, QUICK, port)).slug == "not_generating"
            bodies.pop(0)


async def test_two_measurements_of_one_server_would_measure_each_other(local):
    with truth_server(tokens=20) as (port, _):
        where = await target.of_url(local, f"127.0.0.1:{port}")
        run = await bench_run.start(local, ENDLESS, where)
        busy = await refusal(local, QUICK, port)
        assert busy.slug == "busy"
        assert run.run_id in busy.message
        # Asked for again with its own id, it is that very measurement.
        again = await bench_run.start(local, ENDLESS, where, run_id=run.run_id)
        assert again.pid == run.pid


async def test_a_host_without_python(local):
    entry = replace(local.entry, python="/nowhere/python3")
    with truth_server(tokens=9) as (port, _):
        refused = await refusal(HostSession(entry, local.transport), QUICK, port)
    assert refused.slug == "no_python"
    assert "/nowhere/python3" in refused.message


# -- lost links, stops, later collectors ------------------------------------------------------------------------------------


async def test_the_link_is_cut_again_and_again_and_nothing_is_lost(
    start_sshd, make_tcp_proxy, make_ssh_transport, tmp_path
):
    state = tmp_path / "state"
    server = start_sshd(f"SetEnv EAGLETUI_STATE={state}\n")
    proxy = await make_tcp_proxy(server.port)
    transport = make_ssh_transport(server.target(proxy.port))
    session = HostSession(HostEntry("gpu1", "gpu1"), transport)
    await session.open()
    profile = replace(QUICK, runs=3, duration_s=2.0)
    with truth_server(**SPECULATIVE) as (port, truth):
        where = await target.of_url(session, f"127.0.0.1:{port}")
        run = await bench_run.start(session, profile, where)
        results, seen = [], 0
        async for news in bench_run.follow_run(session, run):
            if isinstance(news, Result):
                results.append(news)
            seen += 1
            if seen % 4 == 0:
                proxy.reset()
        made = sum(each["out"] for each in replies(truth))
    assert [result.run_index for result in results] == [1, 2, 3]
    assert proxy.accepted > 3
    for result in results:
        assert result.server.host == "gpu1"
        assert result.counts.output_tokens == result.counts.server_output_tokens
        assert result == store.read(result.result_id)
    assert sum(result.counts.output_tokens for result in results) < made  # warm-ups are not counted
    stored = {path.name: path.read_bytes() for path in store.FILES.directory.iterdir()}
    # Another machine, with nothing stored, collects the very same files.
    shutil.rmtree(data_dir())
    (found,) = await control.list_runs(transport)
    collected = await bench_run.collect(session, replace(found, host="gpu1"))
    assert {path.name: path.read_bytes() for path in store.FILES.directory.iterdir()} == stored
    assert collected == tuple(results)
    assert await bench_run.collect(session, replace(found, host="gpu1")) == collected
    await session.close()


async def test_a_measurement_that_nobody_follows_goes_on_and_can_be_followed_later(local):
    with truth_server(tokens=20) as (port, _):
        where = await target.of_url(local, f"127.0.0.1:{port}")
        news = bench_run.follow_run(local, await bench_run.start(local, replace(QUICK, runs=2), where))
        first = await anext(news)
        assert isinstance(first, LiveRun)
        await news.aclose()
        (run,) = await control.list_runs(local.transport)
        assert run.state is RunState.RUNNING
        results = [n async for n in bench_run.follow_run(local, run) if isinstance(n, Result)]
    assert len(results) == 2


async def test_a_stop_ends_the_generator_and_keeps_what_was_measured(local):
    with truth_server(tokens=20) as (port, server):
        where = await target.of_url(local, f"127.0.0.1:{port}")
        run = await bench_run.start(local, replace(QUICK, runs=200), where)
        results = []

        async def follow():
            async for news in bench_run.follow_run(local, run):
                if isinstance(news, Result):
                    results.append(news)
                    async for _ in local.stop(run, grace_s=5):
                        pass

        with pytest.raises(EagletuiError) as caught:
            await follow()
        count = len(server.events)
        (ended,) = await control.list_runs(local.transport)
        assert ended.over
        assert not ended.orphans
        assert len(server.events) == count
    assert caught.value.slug == "stopped"
    assert store.read(results[0].result_id) == results[0]
    assert [r.result_id for r in await bench_run.collect(local, ended)][:1] == [results[0].result_id]


async def test_a_server_that_dies_is_named_and_earlier_runs_stay(local):
    program = Path(__file__).parents[2] / "support" / "truth_server.py"
    process = await asyncio.create_subprocess_exec(
        shutil.which("python3"), str(program), '{"tokens": 20}', stdout=asyncio.subprocess.PIPE
    )
    port = int(await process.stdout.readline())
    results = []
    where = await target.of_url(local, f"127.0.0.1:{port}")
    run = await bench_run.start(local, replace(QUICK, runs=50), where)

    async def follow():
        async for news in bench_run.follow_run(local, run):
            if isinstance(news, Result):
                results.append(news)
                if process.returncode is None:
                    process.kill()
                    await process.wait()

    with pytest.raises(EagletuiError) as caught:
        await follow()
    assert caught.value.slug in ("server_lost", "unreachable")
    assert results[0].valid or status_of(results[0], "errors") is GuardStatus.OK


async def test_what_the_generator_cannot_do_is_told_in_its_own_words(local):
    with truth_server(tokens=20) as (port, _):
        run, _, _ = await measured(local, QUICK, port)
    (Path(run.directory) / "log").write_text("Traceback (most recent call last):\nMemoryError: no more\n")
    (found,) = await control.list_runs(local.transport)
    crashed = replace(found, exit_code=1)
    with pytest.raises(EagletuiError, match="exit code 1: MemoryError: no more") as caught:
        [news async for news in bench_run.follow_run(local, crashed)]
    assert caught.value.slug == "generator_failed"


async def test_damaged_files_are_never_taken_for_results(local):
    with truth_server(tokens=20) as (port, _):
        run, _, (result,) = await measured(local, QUICK, port)
    shutil.rmtree(data_dir())
    rows = Path(run.directory) / "c2-1.rows.jsonl.gz"
    whole = rows.read_bytes()
    (ended,) = await control.list_runs(local.transport)
    for damaged in (whole[:-5], b"", whole[::-1]):
        rows.write_bytes(damaged)
        with pytest.raises(EagletuiError) as caught:
            await bench_run.collect(local, ended)
        assert caught.value.slug == "broken_rows"
        assert store.read_all() == []
    rows.write_bytes(whole)
    assert [r.result_id for r in await bench_run.collect(local, ended)] == [result.result_id]


async def test_other_runs_are_no_measurements(local):
    other = await control.launch(local.transport, LaunchRequest(new_run_id("x"), "bench", "x", ("true",)))
    with pytest.raises(EagletuiError) as caught:
        await bench_run.collect(local, other)
    assert caught.value.slug == "not_collectable"
    with pytest.raises(UsageError, match="not a server"):
        target.of_run(other)


# -- a command as the driver ------------------------------------------------------------------------------------------------

BLOCK = """
============ Serving Benchmark Result ============
Backend:                                 sglang
Traffic request rate:                    inf
Max request concurrency:                 $1
Successful requests:                     10
Benchmark duration (s):                  20.00
Total input tokens:                      1000
Total generated tokens:                  2000
Request throughput (req/s):              0.50
Input token throughput (tok/s):          50.00
Output token throughput (tok/s):         100.00
Total token throughput (tok/s):          150.00
Mean TTFT (ms):                          11.00
==================================================
"""


async def test_any_command_may_measure(local):
    said = f'echo "measuring $2"; cat <<END\n{BLOCK}END\n'
    profile = BenchProfile(
        "mine",
        (LoadPoint(concurrency=4), LoadPoint(concurrency=8)),
        driver="command",
        runs=2,
        command=("sh", "-c", said, "sh", "{concurrency}", "{url} {model} {output_len} 'a b'"),
    )
    with truth_server(tokens=20) as (port, _):
        run, _, results = await measured(local, profile, port)
    names = [result.result_id for result in results]
    assert names == [f"{run.run_id}-{label}-{n}" for label in ("c4", "c8") for n in (1, 2)]
    assert [result.load.concurrency for result in results] == [4, 4, 8, 8]
    assert all(result.valid for result in results)
    assert {result.throughput.output_tok_s_full for result in results} == {100.0}
    assert {result.tool.name for result in results} == {"command"}
    output = (Path(run.directory) / "c4-1.out").read_text()
    assert f"measuring http://127.0.0.1:{port} truth 512 'a b'" in output
    assert await bench_run.collect(local, run) == tuple(results)


async def test_a_command_that_fails_or_prints_nothing_does_not_count(local):
    profile = BenchProfile(
        "mine",
        (LoadPoint(concurrency=1),),
        driver="command",
        runs=1,
        command=("sh", "-c", "echo no such model; exit 3"),
    )
    with truth_server(tokens=20) as (port, _):
        _, _, (failed,) = await measured(local, profile, port)
        _, _, (silent,) = await measured(local, replace(profile, command=("true",)), port)
        other = 'echo "*** Measurement Settings ***"'
        _, _, (foreign,) = await measured(local, replace(profile, command=("sh", "-c", other)), port)
        wrong = replace(profile, command=("python", "-m", "sglang.bench_serving", "--backend", "sglang-oai"))
        with pytest.raises(UsageError, match="counts the requested length"):
            await measured(local, wrong, port)
    assert not failed.valid
    assert not silent.valid
    assert status_of(failed, "exit") is GuardStatus.FAILED
    (said,) = [guard.text for guard in failed.guards if guard.id == "output"]
    assert said.endswith("no such model")
    (said,) = [guard.text for guard in foreign.guards if guard.id == "output"]
    assert said == "no benchmark result is in its output; it is perf_analyzer's report, which is not read"


def test_series_of_a_live_run_has_a_figure_a_second():
    progress = Progress()
    lines = [
        {
            "event": "progress",
            "point": {"concurrency": 4},
            "run": 1,
            "runs": 3,
            "phase": "window",
            "t": t / 4,
            "tok_s": t,
        }
        for t in range(40)
    ]
    progress.feed(b"not json\n" + b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    assert len(progress.live.series) == 10
    assert progress.live.series[-1] == 39
    assert statistics.mean(progress.live.series) == pytest.approx(21, abs=3)
    progress.feed(json.dumps(lines[0] | {"run": 2}).encode() + b"\n")
    assert progress.live.series == (0.0,)
