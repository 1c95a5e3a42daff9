"""The HTTP side: the shapes that SGLang 0.5.23 was recorded with, tokens that add up, times that follow the model."""

import asyncio
import concurrent.futures
import contextlib
import itertools
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from tui.demo import model
from tui.demo.engine import Engine, Request
from tui.demo.output import Output

SHAPES = json.loads((Path(__file__).parents[1] / "data" / "demo" / "shapes_0_5_23.json").read_text(encoding="utf-8"))
PROMPT = "Explain in a few sentences how a compiler turns source text into machine code, and where time is lost."


def _keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _keys(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_keys(value[0])] if value and isinstance(value[0], dict | list) else []
    return None


@pytest.fixture
def plain(launch: Any) -> Any:
    server = launch(
        [*launch.base, "--mem-fraction-static", "0.84", "--cuda-graph-max-bs-decode", "128", "--enable-metrics"]
    )
    server.wait_ready()
    return server


@pytest.fixture
def eagle(launch: Any) -> Any:
    server = launch([*launch.eagle, "--mem-fraction-static", "0.88", "--enable-metrics"])
    server.wait_ready()
    return server


def _generate(server: Any, tokens: int, text: str = PROMPT, **more: Any) -> Any:
    params = {"temperature": 0, "max_new_tokens": tokens, **more}
    return server.json("POST", "/generate", {"text": text, "sampling_params": params})


def _metric(server: Any, name: str, **labels: str) -> float:
    page = server.call("GET", "/metrics")[1].decode()
    total = None
    for line in page.splitlines():
        found = re.match(rf"sglang:{name}\{{(.*)\}} (\S+)$", line)
        if found and all(f'{key}="{value}"' in found[1] for key, value in labels.items()):
            total = (total or 0.0) + float(found[2])
    assert total is not None, name
    return total


def test_answers_have_the_recorded_keys(plain: Any) -> None:
    assert _keys(_generate(plain, 8)) == SHAPES["generate"]
    assert _keys(plain.json("GET", "/v1/models")) == SHAPES["v1_models"]
    assert _keys(plain.json("GET", "/model_info")) == SHAPES["model_info"]
    assert _keys(plain.json("GET", "/get_model_info")) == SHAPES["model_info"]
    assert _keys(plain.json("GET", "/v1/loads")) == SHAPES["v1_loads"]
    messages = [{"role": "user", "content": PROMPT}]
    assert (
        _keys(plain.json("POST", "/v1/chat/completions", {"messages": messages, "max_tokens": 5})) == SHAPES["v1_chat"]
    )
    assert _keys(plain.json("POST", "/v1/completions", {"prompt": PROMPT, "max_tokens": 5})) == SHAPES["v1_completions"]
    info = plain.json("GET", "/server_info")
    assert sorted(info) == SHAPES["server_info"]
    assert sorted(info["internal_states"][0]) == SHAPES["server_info_state"]
    assert _keys(info["startup_time"]) == SHAPES["server_info_startup"]
    assert _keys(info["internal_states"][0]["memory_usage"]) == SHAPES["server_info_memory"]
    assert info["version"] == "0.5.23"
    assert info["mem_fraction_static"] == 0.84
    assert info["max_total_num_tokens"] == info["internal_states"][0]["memory_usage"]["token_capacity"] > 50_000


def test_speculative_answers_have_the_recorded_keys(eagle: Any) -> None:
    body = _generate(eagle, 40)
    assert _keys(body) == SHAPES["generate_spec"]
    frames = eagle.frames("/generate", {"text": PROMPT, "sampling_params": {"max_new_tokens": 12}})
    shape = SHAPES["generate_stream_spec"]
    for frame, name in ((frames[0], "first"), (frames[1], "middle"), (frames[-1], "last")):
        got, wanted = _keys(frame), json.loads(json.dumps(shape[name]))
        for one in (got, wanted):  # details only where something was cached
            one["meta_info"].pop("cached_tokens_details")
            one["meta_info"].pop("finish_reason")
        assert got == wanted


def test_streams_have_the_recorded_frames(plain: Any) -> None:
    frames = plain.frames("/generate", {"text": PROMPT, "sampling_params": {"max_new_tokens": 6}})
    assert [frame["meta_info"]["completion_tokens"] for frame in frames] == [1, 2, 3, 4, 5, 6]
    assert [len(frame["output_ids"]) for frame in frames] == [1, 2, 3, 4, 5, 6]
    for before, after in itertools.pairwise(frames):
        assert after["text"].startswith(before["text"])
    for path, body, shape in (
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": PROMPT}]}, SHAPES["v1_chat_stream"]),
        ("/v1/completions", {"prompt": PROMPT}, SHAPES["v1_completions_stream"]),
    ):
        body |= {"max_tokens": 6, "stream_options": {"include_usage": True}}
        frames = plain.frames(path, body)
        assert _keys(frames[0]) == shape["first"]
        assert _keys(frames[1]) == shape["middle"]
        assert _keys(frames[-2]) == shape["before_last"]
        assert _keys(frames[-1]) == shape["last"]
        assert frames[-1]["usage"]["completion_tokens"] == 6
        assert frames[-2]["choices"][0]["finish_reason"] == "length"
        assert "usage" not in plain.frames(path, {**body, "stream_options": {}})[-1] or path == "/v1/completions"


CHAT = {
    "messages": [{"role": "user", "content": PROMPT}],
    "max_tokens": 40,
    "ignore_eos": True,
    "return_spec_tokens_details": True,
}


def test_a_chat_says_what_speculation_did_where_it_is_asked_for(eagle: Any) -> None:
    (said,) = [f["sglext"] for f in eagle.frames("/v1/chat/completions", CHAT) if "sglext" in f]
    details = said["spec_tokens_details"]
    assert details["spec_num_correct_drafts"] + details["spec_verify_ct"] >= 39  # the first token is prefill's
    assert details["spec_num_proposed_drafts"] == 3 * details["spec_verify_ct"]
    unasked = {**CHAT, "return_spec_tokens_details": False}
    assert not any("sglext" in frame for frame in eagle.frames("/v1/chat/completions", unasked))


def test_a_chat_without_speculation_says_nothing_of_it(plain: Any) -> None:
    assert not any("sglext" in frame for frame in plain.frames("/v1/chat/completions", CHAT))


def _check_metrics(server: Any) -> str:
    recorded = {(name, labels) for name, labels in SHAPES["metrics"]}
    page = str(server.call("GET", "/metrics")[1].decode())
    for line in page.splitlines():
        found = re.match(r"(sglang:\w+)\{(.*?)\} ", line)
        if found:
            labels = ",".join(sorted(re.findall(r"(\w+)=", found[2])))
            assert (found[1], labels) in recorded, line
    return page


def test_metrics_have_recorded_names_and_labels(eagle: Any) -> None:
    _generate(eagle, 60)
    assert "spec_verify_calls_total" in _check_metrics(eagle)


def test_metrics_without_speculation(plain: Any) -> None:
    _generate(plain, 60)
    assert "spec_" not in _check_metrics(plain)


def test_errors(plain: Any) -> None:
    for body, name in (
        ({"text": "a", "sampling_params": {"max_new_tokens": 999_999}}, "generate_too_long"),
        ({"text": "a", "sampling_params": {"temperature": -3}}, "generate_bad_param"),
        (b'{"text":', "generate_bad_json"),
    ):
        status, data = plain.call("POST", "/generate", body)
        assert status == 400
        assert _keys(json.loads(data)) == SHAPES[name]
    status, data = plain.call("GET", "/get_load")
    assert (status, _keys(json.loads(data))) == (404, SHAPES["not_found"])
    assert plain.call("POST", "/generate", {})[0] == 400
    assert plain.call("POST", "/v1/chat/completions", {})[0] == 400


def test_not_ready_before_the_warm_up_is_over(launch: Any) -> None:
    server = launch(["--model-path", "Qwen/Qwen3-0.6B"], EAGLETUI_DEMO_SPEED="40")
    server.wait_for("Application startup complete.")
    server.wait_for("Uvicorn running")
    if "fired up" not in server.log:
        states = {path: server.call("GET", path)[0] for path in ("/health", "/ready", "/model_info", "/v1/models")}
        if "fired up" not in server.log:
            assert states == {"/health": 503, "/ready": 503, "/model_info": 200, "/v1/models": 200}
    server.wait_ready()
    assert server.call("GET", "/ready")[0] == 200
    before = server.log.count("Prefill batch")
    assert server.call("GET", "/health")[0] == 200
    assert server.log.count("Prefill batch") == before + 1  # a health check generates


def test_counters_equal_what_was_sent(eagle: Any) -> None:
    names = ("generation_tokens_total", "prompt_tokens_total", "spec_verify_calls_total", "num_requests_total")
    before = {name: _metric(eagle, name) for name in names}
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        texts = [f"{PROMPT} Part {n}." for n in range(6)]
        metas = [body["meta_info"] for body in pool.map(lambda text: _generate(eagle, 50, text), texts)]
    frames = eagle.frames("/generate", {"text": PROMPT, "sampling_params": {"max_new_tokens": 30}})
    metas.append(frames[-1]["meta_info"])
    delta = {name: _metric(eagle, name) - before[name] for name in names}
    assert delta["generation_tokens_total"] == sum(meta["completion_tokens"] for meta in metas) == 330
    assert delta["prompt_tokens_total"] == sum(meta["prompt_tokens"] for meta in metas)
    assert delta["spec_verify_calls_total"] == sum(meta["spec_verify_ct"] for meta in metas)
    assert delta["num_requests_total"] == 7
    for meta in metas:
        assert meta["spec_accept_length"] == pytest.approx(meta["completion_tokens"] / meta["spec_verify_ct"])
        assert sum(meta["spec_correct_drafts_histogram"]) == meta["spec_verify_ct"]
        drafts = sum(n * count for n, count in enumerate(meta["spec_correct_drafts_histogram"]))
        assert drafts == meta["spec_num_correct_drafts"]
        # the first token comes from prefill; the last step may be cut
        assert meta["completion_tokens"] <= 1 + meta["spec_verify_ct"] + drafts
    assert _metric(eagle, "num_running_reqs") == 0


def test_decode_lines_say_what_was_really_sent(eagle: Any) -> None:
    assert eagle.call("GET", "/flush_cache")[0] == 200
    meta = _generate(eagle, 400, ignore_eos=True)["meta_info"]
    assert meta["finish_reason"] == {"type": "length", "length": 400}
    lines = re.findall(
        r"TP0\] Decode batch, #running-req: 1, #token: (\d+), token usage: \d\.\d\d, accept len: ([\d.]+), "
        r"accept rate: ([\d.]+), cuda graph: True, gen throughput \(token/s\): ([\d.]+), #queue-req: 0",
        eagle.log,
    )
    assert len(lines) >= 3
    average = eagle.json("GET", "/server_info")["internal_states"][0]["avg_spec_accept_length"]
    assert 1.5 < average < 3.2
    for _, accept, rate, _ in lines:
        assert float(rate) == pytest.approx((float(accept) - 1) / 3, abs=0.01)


def test_greedy_text_is_the_same_everywhere_and_ends_by_itself(launch: Any, plain: Any) -> None:
    one = _generate(plain, 100)
    plain.process.terminate()
    assert plain.wait_exit() == 0
    eagle = launch([*launch.eagle, "--mem-fraction-static", "0.88"])
    eagle.wait_ready()
    two = _generate(eagle, 100)
    assert one["text"] == two["text"]
    assert one["output_ids"] == two["output_ids"]
    forced = eagle.json(
        "POST", "/generate", {"text": "Short.", "sampling_params": {"max_new_tokens": 4000}, "stream": False}
    )
    assert forced["meta_info"]["finish_reason"]["type"] == "stop"


def test_prefix_cache_and_its_flush(plain: Any) -> None:
    first = _generate(plain, 2)["meta_info"]
    again = _generate(plain, 2)["meta_info"]
    assert first["cached_tokens"] == 0
    assert 0 < again["cached_tokens"] < again["prompt_tokens"]
    assert again["cached_tokens_details"] == {"device": again["cached_tokens"], "host": 0}
    status, text = plain.call("POST", "/flush_cache")
    assert status == 200
    assert text.startswith(b"Cache flushed.\n")
    assert _generate(plain, 2)["meta_info"]["cached_tokens"] == 0
    assert "Cache flushed successfully!" in plain.log


def test_abort_and_a_client_that_goes_away(plain: Any) -> None:
    long = {
        "text": PROMPT,
        "rid": "mine",
        "stream": True,
        "sampling_params": {"max_new_tokens": 3000, "ignore_eos": True},
    }
    connection, response = plain.open("POST", "/generate", long)
    with contextlib.closing(connection):
        response.readline()
        assert plain.call("POST", "/flush_cache")[0] == 400  # refused while something runs
        assert plain.call("POST", "/abort_request", {"rid": "mine"})[0] == 200
        assert b'"type":"abort"' in response.read()
    connection, response = plain.open("POST", "/generate", {**long, "rid": "other"})
    response.readline()
    response.close()
    connection.close()
    end = time.monotonic() + 30
    while plain.json("GET", "/v1/loads")["loads"][0]["num_running_reqs"]:
        assert time.monotonic() < end
        time.sleep(0.05)
    assert _metric(plain, "num_aborted_requests_total") == 2


def test_speed_for_one_user_is_the_models(plain: Any) -> None:
    """Checked against a slack that a busy machine cannot break: never faster than the model, by its own clock."""
    meta = _generate(plain, 120, ignore_eos=True)["meta_info"]
    decode_s = meta["request_finished_ts"] - meta["request_received_ts"] - meta["first_token_latency"]
    expected = 119 * model.Config(True, 8, 0.84, 128).decode_step_s(1)
    assert decode_s > 0.9 * expected


class _Silent(Output):
    def raw(self, text: str) -> None:
        pass


async def test_average_step_is_the_models_whatever_the_event_loop_does(tmp_path: Path) -> None:
    """The absolute schedule: with sleeps that return at once, the engine's own time is the sum of the steps."""
    config = model.Config(True, 8, 0.84, 128)
    engine = Engine(config, _Silent(8, tmp_path), seed=1, configuration="x", launch=1)
    dues: list[float] = []

    async def until(due: float) -> float:
        dues.append(due)
        await asyncio.sleep(0)
        return due

    engine._until = until  # type: ignore[method-assign]
    task = asyncio.create_task(engine.run())
    done = asyncio.Event()
    request = Request("r", PROMPT, 24, 1000, ignore_eos=True, stream=False)
    request.notify = lambda: done.set() if request.finish else None
    engine.submit(request)
    await asyncio.wait_for(done.wait(), 60)
    task.cancel()
    assert len(request.output_ids) == 1000
    assert (dues[-1] - dues[0]) / 999 == pytest.approx(config.decode_step_s(1) * engine.factor, rel=0.002)


async def test_wrong_drafts_change_the_text_from_some_token_on(tmp_path: Path) -> None:
    said = []
    for wrong in (0.0, 0.02, 0.02):
        config = model.Config(True, 8, 0.88, 48, speculative=True, steps=3, draft_tokens=4, wrong_drafts=wrong)
        engine = Engine(config, _Silent(8, tmp_path), seed=1, configuration="x", launch=len(said))
        engine._until = lambda due: asyncio.sleep(0, due)  # type: ignore[method-assign]
        done = asyncio.Event()
        request = Request("r", PROMPT, 24, 400, ignore_eos=True, stream=False)
        request.notify = lambda done=done, request=request: done.set() if request.finish else None  # type: ignore[misc]
        engine.submit(request)
        task = asyncio.create_task(engine.run())
        await asyncio.wait_for(done.wait(), 60)
        task.cancel()
        said.append(request.output_ids)
    right, one, other = said
    assert one == other
    assert right[0] == one[0]
    assert right != one


async def test_a_full_pool_makes_requests_wait(tmp_path: Path) -> None:
    config = model.Config(True, 8, 0.84, 128, max_total_tokens=512)
    engine = Engine(config, _Silent(8, tmp_path), seed=1, configuration="x", launch=1)

    async def until(due: float) -> float:
        await asyncio.sleep(0)
        assert sum(r.reserved for r in engine.running) <= 512
        return due

    engine._until = until  # type: ignore[method-assign]
    task = asyncio.create_task(engine.run())
    requests = [Request(str(n), PROMPT, 24, 200, ignore_eos=True, stream=False) for n in range(5)]
    left = asyncio.Semaphore(0)
    for request in requests:
        request.notify = lambda request=request: left.release() if request.finish else None  # type: ignore[misc]
        engine.submit(request)
    for _ in requests:
        await asyncio.wait_for(left.acquire(), 60)
    task.cancel()
    assert all(len(request.output_ids) == 200 for request in requests)
