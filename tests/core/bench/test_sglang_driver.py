"""The referee: what it is told, what becomes of its files, when both tools agree; and the real one on a known server."""

import gzip
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.generator import generator
from tests.support.truth_server import truth_server
from tui.core.bench import sglang_driver
from tui.core.bench.collect import Asked
from tui.core.bench.target import Seen
from tui.core.bench.workload import Dataset
from tui.core.errors import UsageError
from tui.core.model.profile import BenchProfile, LoadPoint
from tui.core.model.result import MeasuredServer, Throughput
from tui.remote import sglang_bench
from tui.remote.loadgen.plan import Plan
from tui.remote.loadgen.prompts import Workload
from tui.remote.loadgen.protocol import Stop
from tui.remote.sglang_bench import Benchmark

DATA = Path(__file__).parents[2] / "data" / "bench" / "referee"


# -- its command line -------------------------------------------------------------------------------------------------

WORDS = (
    "--backend --base-url --model --tokenizer --dataset-name --dataset-path --sharegpt-output-len --num-prompts"
    " --random-input-len --random-output-len --random-range-ratio --tokenize-prompt --max-concurrency --request-rate"
    " --seed --disable-ignore-eos --temperature --flush-cache --warmup-requests --disable-tqdm --output-file"
    " --output-details"
)
NEWEST = frozenset(WORDS.split())
OLD = NEWEST - {"--tokenize-prompt", "--temperature", "--flush-cache", "--warmup-requests", "--output-details"}
CHAT = {"--extra-request-body", "--served-model-name"}


def tool(flags, module="sglang.benchmark.serving"):
    made = Benchmark.__new__(Benchmark)
    made.flags, made.module, made.version = flags, module, "0.5.23"
    return made


def plan(**changes):
    document = {
        "version": 1,
        "base_url": "http://127.0.0.1:30000",
        "api": "generate",
        "points": [{"concurrency": 4}],
        "runs": 1,
        "duration_s": 60,
        "output_len": 64,
        "input_len": 32,
        "dataset": {"kind": "random-ids", "items": []},
        "vocab": [10, 500],
        "seed": 7,
        "ignore_eos": True,
    }
    return Plan(document | changes)


def command(flags=NEWEST, point=None, prompts=None, **changes):
    made = tool(flags)
    return made.command(
        plan(**changes), point or {"concurrency": 4}, 2, 40,
        output="/run/out.jsonl", prompts=prompts, tokenizer="/models/m",
    )  # fmt: skip


def flags_of(argv):
    """Flag and values, as pairs of one text each."""
    found, words = {}, argv[argv.index("--backend") :]
    for word in words:
        if word.startswith("--"):
            name = word
            found[name] = ""
        else:
            found[name] = f"{found[name]} {word}".strip()
    return found


def test_a_closed_loop_of_random_ids():
    argv = command()
    assert argv[:3] == [sys.executable, "-m", "sglang.benchmark.serving"]
    assert flags_of(argv) == {
        "--backend": "sglang",
        "--base-url": "http://127.0.0.1:30000",
        "--model": "/models/m",
        "--tokenizer": "/models/m",
        "--dataset-name": "random-ids",
        "--random-input-len": "32",
        "--random-output-len": "64",
        "--random-range-ratio": "1.0",
        "--tokenize-prompt": "",
        "--num-prompts": "40",
        "--max-concurrency": "4",
        "--request-rate": "inf",
        "--seed": "7002",
        "--temperature": "0.0",
        "--flush-cache": "",
        "--warmup-requests": "0",
        "--disable-tqdm": "",
        "--output-file": "/run/out.jsonl",
        "--output-details": "",
    }


def test_prompts_of_ours_with_a_natural_end_at_a_rate():
    dataset = {"kind": "prompts", "items": [{"prompt": "a"}]}
    found = flags_of(command(point={"rate": 2.5}, prompts="/run/p.jsonl", dataset=dataset, ignore_eos=False))
    assert found["--dataset-name"] == "custom"
    assert found["--dataset-path"] == "/run/p.jsonl"
    assert found["--sharegpt-output-len"] == "64"
    assert found["--request-rate"] == "2.5"
    assert "--disable-ignore-eos" in found
    assert "--max-concurrency" not in found
    assert "--random-input-len" not in found


def test_chat_is_asked_for_usage_and_for_its_temperature_in_the_body():
    dataset = {"kind": "prompts", "items": [{"prompt": "a"}]}
    changes = {"api": "chat", "model": "tiny", "dataset": dataset, "vocab": None}
    found = flags_of(command(NEWEST | CHAT, prompts="/run/p.jsonl", **changes))
    assert found["--backend"] == "sglang-oai-chat"
    body = json.loads(found["--extra-request-body"])
    assert body == {"stream_options": {"include_usage": True}, "temperature": 0.0}
    assert (found["--served-model-name"], found["--tokenizer"]) == ("tiny", "/models/m")
    assert "--temperature" not in found


def test_an_old_version_gets_the_flags_it_has():
    found = flags_of(command(OLD))
    assert found.keys() <= OLD
    assert found["--output-file"] == "/run/out.jsonl"


@pytest.mark.parametrize("missing", ["--max-concurrency", "--random-input-len", "--output-file", "--seed"])
def test_without_a_flag_that_makes_the_run_there_is_no_run(missing):
    with pytest.raises(Stop, match=missing) as caught:
        command(NEWEST - {missing})
    assert caught.value.slug == "unsupported"


@pytest.mark.parametrize("api", ["generate", "chat"])
def test_prompts_are_those_of_the_load_generator(tmp_path, monkeypatch, api):
    monkeypatch.chdir(tmp_path)
    items = [{"prompt": f"prompt {number}"} for number in range(5)]
    made = plan(api=api, dataset={"kind": "prompts", "items": items}, vocab=None, ignore_eos=False)
    name = sglang_bench.prompts_of(made, "c4", 3, 7, "p.jsonl")
    sent = [json.loads(line)["conversations"] for line in Path(name).read_text().splitlines()]
    ours = iter(Workload(made, "c4", "3", fresh=True))
    wanted = [next(ours)[0] for _ in range(7)]
    texts = [fields["messages"][0]["content"] if api == "chat" else fields["text"] for fields in wanted]
    assert [turns[0]["content"] for turns in sent] == texts
    assert all(len(turns) == 2 for turns in sent)
    assert len({turns[0]["content"] for turns in sent}) == 7  # from the second round on they are marked


def test_what_its_datasets_cannot_hold_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert sglang_bench.prompts_of(plan(), "c4", 1, 5, "p.jsonl") is None  # random ids need no file
    for items in ([{"input_ids": [1, 2, 3]}], [{"prompt": "a", "output_len": 5}]):
        made = plan(dataset={"kind": "jsonl", "items": items})
        with pytest.raises(Stop) as caught:
            sglang_bench.prompts_of(made, "c4", 1, 5, "p.jsonl")
        assert caught.value.slug == "unsupported"


# -- from its files to a result ---------------------------------------------------------------------------------------

ASKED = Asked(
    bench=BenchProfile("short-verify", (LoadPoint(2),), dataset="random-ids", output_len=64),
    server=MeasuredServer("gpu1", profile="tiny", run_id="tiny-20261129T195159Z-c63cd9"),
    api="generate",
    seed=1,
    dataset="random-ids",
    input_len=32,
    ignore_eos=True,
)


def assembled(**meta):
    said = json.loads((DATA / "c2-2.referee.json").read_text()) | meta
    record = (DATA / "c2-2.referee.jsonl").read_bytes()
    server = json.loads((DATA / "server.json").read_text())
    return sglang_driver.assemble("short-verify-20261129T195224Z-a3b0fa", ASKED, said, record, server)


def test_a_recorded_run_becomes_a_result():
    result, rows_gz = assembled()
    assert result.result_id == "short-verify-20261129T195224Z-a3b0fa-c2-2-sglang"
    assert result.bench_run_id == "short-verify-20261129T195224Z-a3b0fa"
    assert (result.tool.name, result.tool.version, result.tool.backend) == ("sglang", "0.5.23", "sglang")
    assert (result.run_index, result.load.concurrency, result.load.requests) == (2, 2, 80)
    assert (result.counts.ok, result.counts.errors, result.counts.output_tokens) == (80, 0, 80 * 64)
    assert result.counts.server_output_tokens == 80 * 64
    assert result.throughput.output_tok_s_full == pytest.approx(297.897, abs=1e-3)
    assert result.throughput.output_tok_s is None  # it knows no window
    assert 160 < (result.throughput.per_user_tok_s or 0) < 170
    assert result.server.version == "0.5.23"
    assert result.server.args["max_total_tokens"] == 8192
    assert result.window is not None
    assert result.window.kind == "full"
    assert result.window.duration_s == pytest.approx(result.duration_s)
    assert result.valid
    assert {guard.id: str(guard.status) for guard in result.guards}["tokens"] == "ok"
    assert "client_cpu" not in {guard.id for guard in result.guards}
    rows = [json.loads(line) for line in gzip.decompress(rows_gz).splitlines()]
    assert sum(row["out"] for row in rows) == 80 * 64


def test_counts_that_the_server_denies_make_it_invalid():
    counters = json.loads((DATA / "c2-2.referee.json").read_text())["counters"]
    counters["after"]["sglang:generation_tokens_total"] += 1000
    result, _ = assembled(counters=counters)
    assert not result.valid
    assert "tokens" in {guard.id for guard in result.guards if guard.status == "failed"}


def test_a_file_without_a_record_is_refused():
    with pytest.raises(ValueError, match="no benchmark result"):
        sglang_driver.assemble("r", ASKED, {"point": {"concurrency": 1}}, b"{}\n", {})


# -- what it is not used for ------------------------------------------------------------------------------------------


def test_chat_is_measured_by_chat_where_the_tool_counts_it_rightly():
    texts = Dataset("prompts", "prompts", items=({"prompt": "a"},))
    seen, plain = Seen("chat", "sglang"), Seen("generate", "sglang")
    assert sglang_driver.through(seen, texts, "it", "0.5.23").api == "chat"
    assert sglang_driver.through(seen, texts, "it", "0.5.13").api == "generate"
    assert sglang_driver.through(seen, texts, "it", None).api == "generate"
    assert sglang_driver.through(plain, Dataset("random-ids", "random-ids"), "it", "0.5.23").api == "generate"
    with pytest.raises(UsageError, match="counts the requested length"):
        sglang_driver.through(Seen("chat", "vllm"), texts, "it", "0.5.23")
    for item in ({"messages": [{"role": "user", "content": "a"}]}, {"input_ids": [1]}):
        with pytest.raises(UsageError, match="takes texts or random ids"):
            sglang_driver.through(seen, Dataset("jsonl", "mine.jsonl", items=(item,)), "it", "0.5.23")


@pytest.mark.parametrize(
    ("argv", "refused"),
    [
        (["python", "-m", "sglang.bench_serving", "--backend", "sglang-oai"], True),
        (["x", "--backend=sglang-oai-chat"], True),
        (["x", "--backend", "sglang"], False),
        (["x", "--backend", "sglang-oai-chat", "--extra-request-body", '{"stream_options": {"include_usage": true}}'], False),
        (["python", "bench.py"], False),
    ],
)  # fmt: skip
def test_a_command_that_counts_wrong_is_refused(argv, refused):
    if refused:
        with pytest.raises(UsageError) as caught:
            sglang_driver.refuse_miscounting(argv)
        assert caught.value.slug == "wrong_api"
    else:
        sglang_driver.refuse_miscounting(argv)


# -- agreement --------------------------------------------------------------------------------------------------------


def runs(make_launch, rates, duration_s=10.0, **posted):
    return [
        replace(result, throughput=Throughput(output_tok_s_full=rate), duration_s=duration_s, posted=posted)
        for result, rate in zip(make_launch("base", 1, rates), rates, strict=True)
    ]


@pytest.mark.parametrize(
    ("ours", "theirs", "limit", "passes"),
    [
        ([100.0], [100.9], 0.01, True),
        ([100.0], [101.2], 0.01, False),
        ([100.0, 100.2, 99.9], [100.5, 100.6, 100.4], 0.01, True),
        ([100.0, 103.0], [104.0, 104.0], 3 / 101.5, True),
        ([100.0, 100.1], [110.0, 110.2], 0.01, False),
        ([110.0, 110.2], [100.0, 100.1], 0.01, False),
    ],
)
def test_they_agree_within_one_percent_or_their_spread(make_launch, ours, theirs, limit, passes):
    found = sglang_driver.agreement("c1", runs(make_launch, ours), runs(make_launch, theirs))
    assert found.limit == pytest.approx(limit)
    assert found.passes is passes
    assert (found.difference < 0) is (sum(ours) / len(ours) < sum(theirs) / len(theirs))


def test_what_the_referees_clock_takes_too_long_is_taken_out(make_launch):
    theirs = runs(make_launch, [98.0], duration_s=10.0, server_info_ms=200.0)
    found = sglang_driver.agreement("c1", runs(make_launch, [100.0]), theirs)
    assert found.referee_raw == (98.0,)
    assert found.referee == (pytest.approx(100.0),)
    assert found.passes
    plain = sglang_driver.agreement("c1", runs(make_launch, [100.0]), runs(make_launch, [98.0], server_info_ms=None))
    assert not plain.passes


def test_a_tool_without_a_run_agrees_with_nothing(make_launch):
    with pytest.raises(UsageError, match="SGLang's benchmark has no rate at c4"):
        sglang_driver.agreement("c4", runs(make_launch, [100.0]), [])


# -- the real one, on a server that knows the truth -------------------------------------------------------------------

PLAN = {
    "version": 1,
    "api": "generate",
    "model": None,
    "headers_env": None,
    "points": [{"concurrency": 2}],
    "runs": 2,
    "duration_s": 60,
    "max_requests": 12,
    "output_len": 20,
    "input_len": 16,
    "dataset": {"kind": "random-ids", "sha": None, "items": []},
    "vocab": [10, 200],
    "seed": 1,
    "ignore_eos": True,
    "temperature": 0.0,
    "warmup_s": 1,
    "server": {"log": None, "pid": None, "gpus": None},
    "verify": True,
}


@pytest.fixture(scope="module")
def sglang():
    named = os.environ.get("EAGLETUI_TEST_SGLANG")
    if not named:
        setup = Path(__file__).parents[2] / "sglang_cpu" / "setup.sh"
        named = subprocess.run([setup, "--where"], capture_output=True, text=True, check=True).stdout.strip()
    place = Path(named)
    if not (place / "venv/bin/python").exists():
        pytest.skip(f"no SGLang in {place}: tests/sglang_cpu/setup.sh builds it")
    return place


def started(directory, python, port, **changes):
    (directory / "bench.json").write_text(json.dumps(PLAN | {"base_url": f"http://127.0.0.1:{port}"} | changes))
    return subprocess.Popen(
        generator(directory, str(python), "sglang"), cwd=directory, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, env={**os.environ, "HF_HUB_OFFLINE": "1"}, start_new_session=True,
    )  # fmt: skip


def events_of(process):
    assert process.stdout is not None
    with process.stdout:
        return [json.loads(line) for line in process.stdout if line.startswith(b"{")]


@pytest.mark.parametrize("api", ["generate", "chat"])
def test_both_measure_the_same_requests_by_turns(sglang, tmp_path, api):
    items = [{"prompt": f"tokens={5 + number} words"} for number in range(12)]
    with truth_server(tokenizer=str(sglang / "models/tiny-llama"), tick_ms=2) as (port, server):
        process = started(tmp_path, sglang / "venv/bin/python", port, api=api, vocab=None, ignore_eos=False,
                          dataset={"kind": "prompts", "sha": None, "items": items})  # fmt: skip
        events = events_of(process)
        truth = server.events
    assert process.wait() == 0, events
    order = [(event["run"], event.get("tool", "eagletui")) for event in events if event["event"] == "run"]
    assert order == [(1, "eagletui"), (1, "sglang"), (2, "eagletui"), (2, "sglang")]
    wanted = sum(5 + number for number in range(12))
    for number in (1, 2):
        record = json.loads((tmp_path / f"c2-{number}.referee.jsonl").read_text())
        meta = json.loads((tmp_path / f"c2-{number}.referee.json").read_text())
        with gzip.open(tmp_path / f"c2-{number}.rows.jsonl.gz") as file:
            ours = [json.loads(line) for line in file]
        assert sum(row["out"] for row in ours) == record["total_output_tokens"] == wanted
        assert len(ours) == record["completed"] == meta["requests"] == 12
        counters = meta["counters"]
        name = "sglang:generation_tokens_total"
        assert counters["after"][name] - counters["before"][name] == wanted
        assert meta["server_info_ms"] > 0
        assert meta["version"]
        assert "generated_texts" not in record
    # The very same prompts: each of the two runs sent every text twice, once by each tool.
    bodies = [event["body"] for event in truth if event["what"] == api and event["whole"]]
    texts = [body["messages"][0]["content"] if api == "chat" else body["text"] for body in bodies]
    plain = [text for text in texts if text.startswith("tokens=")]
    assert sorted(plain) == sorted([item["prompt"] for item in items] * 4)
    assert not list(tmp_path.glob(".*"))  # nothing half done is left


def test_a_tokenizer_that_is_not_there_is_said(sglang, tmp_path):
    with truth_server(tokenizer=str(tmp_path / "nowhere")) as (port, _):
        process = started(tmp_path, sglang / "venv/bin/python", port, verify=False, runs=1)
        events = events_of(process)
    assert process.wait() == 1
    assert events[-1]["slug"] == "referee_failed"
    assert "exit status 1" in events[-1]["text"]
    assert (tmp_path / "c2-1.referee.log").stat().st_size


def test_ended_it_takes_the_tool_with_it(sglang, tmp_path, gone):
    with truth_server(tokenizer=str(sglang / "models/tiny-llama"), tick_ms=500) as (port, _):
        process = started(tmp_path, sglang / "venv/bin/python", port, verify=False, runs=1)
        assert process.stdout is not None
        for line in process.stdout:
            if b'"tool":"sglang"' in line:
                break
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert children
        process.send_signal(signal.SIGTERM)
        events = events_of(process)
        assert process.wait() == 1
    assert events[-1]["slug"] == "interrupted"
    assert all(gone(int(child)) for child in children)


def test_an_interpreter_without_sglang_is_no_referee(tmp_path):
    with truth_server() as (port, _):
        process = started(tmp_path, sys.executable, port)
        events = events_of(process)
    assert process.wait() == 1
    assert events[-1]["slug"] == "no_referee"
    assert "python" in events[-1]["hint"]


def test_a_tool_that_counts_chat_wrongly_is_refused(tmp_path):
    """An older one: an event that has usage alone would end it, so it is not asked for usage."""
    old = tmp_path / "program" / "sglang" / "bench_serving.py"
    old.parent.mkdir(parents=True)
    (old.parent / "__init__.py").touch()
    old.write_text(
        '"--extra-request-body"\nasync def async_request_openai_chat_completions(x):\n'
        '    data.get("choices", [{}])[0]\n    data.get("usage")\nasync def other():\n    data.get("choices") or []\n'
    )
    with truth_server() as (port, _):
        process = started(tmp_path, sys.executable, port, api="chat", vocab=None,
                          dataset={"kind": "prompts", "sha": None, "items": [{"prompt": "a"}]})  # fmt: skip
        events = events_of(process)
    assert process.wait() == 1
    assert events[-1]["slug"] == "wrong_api"
    assert "counts the requested length" in events[-1]["text"]
