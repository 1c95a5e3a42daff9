"""The load generator against a server that knows the truth: every figure is right, every fault is recorded."""

import contextlib
import gzip
import hashlib
import itertools
import json
import os
import queue
import random
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from tests.support.generator import generator
from tests.support.truth_server import truth_server
from tui.core.bench import metrics
from tui.core.bench.guards import ServerChecks, judge
from tui.core.model.result import GuardStatus
from tui.core.verdicts import same_text
from tui.remote.loadgen.counters import read_metrics
from tui.remote.loadgen.identity import without_secrets
from tui.remote.loadgen.plan import Plan
from tui.remote.loadgen.protocol import Stop
from tui.remote.loadgen.server_log import LogSpan

LIMITS = {"stall_s": 1, "request_s": 4, "drain_s": 6, "tail_s": 0.5, "settle_s": 3, "ramp_s": 8}
REPLY = "one two tokens=12 chunk=2"


def pythons():
    """This interpreter, older ones, and SGLang's (which has uvloop and orjson), as far as they are here."""
    yield pytest.param(sys.executable, id="this")
    for version in ("3.8", "3.9"):
        found = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
        program = str(found[-1]) if found else shutil.which(f"python{version}")
        missing = pytest.mark.skipif(not program, reason=f"no Python {version}")
        yield pytest.param(program, id=version, marks=missing)
    place = os.environ.get("EAGLETUI_TEST_SGLANG")
    program = f"{place}/venv/bin/python"
    missing = pytest.mark.skipif(not place or not os.path.exists(program), reason="tests/sglang_cpu/setup.sh")
    yield pytest.param(program, id="sglang", marks=missing)


class Bench:
    """A load generator under way in a directory of its own."""

    def __init__(self, directory, plan, python=sys.executable, **environment):
        directory.mkdir(exist_ok=True)
        (directory / "bench.json").write_text(json.dumps(plan))
        self.directory = directory
        self.events = []
        self._lines = queue.Queue()
        self.process = subprocess.Popen(
            generator(directory, python),
            cwd=directory,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=open(directory / "stderr", "wb"),  # noqa: SIM115 - the process has it
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self._lines.put(json.loads(line))
        self._lines.put(None)

    def until(self, right):
        """The first event that is right."""
        while True:
            event = self._lines.get(timeout=60)
            assert event is not None, f"ended: {self.events[-1:]} {(self.directory / 'stderr').read_text()}"
            self.events.append(event)
            if right(event):
                return event

    def end(self):
        """The exit status, when it has ended by itself."""
        while (event := self._lines.get(timeout=90)) is not None:
            self.events.append(event)
        status = self.process.wait(30)
        assert (self.directory / "stderr").read_text() == ""
        return status

    def error(self):
        """The last event, which is an error."""
        assert self.end() == 1
        assert self.events[-1]["event"] == "error"
        return self.events[-1]

    def meta(self, run=1, label="c3"):
        return json.loads((self.directory / f"{label}-{run}.json").read_text())

    def rows(self, run=1, label="c3"):
        text = gzip.decompress((self.directory / f"{label}-{run}.rows.jsonl.gz").read_bytes())
        return [json.loads(line) for line in text.splitlines()]


def plan(port, *prompts, **more):
    """A bench.json for these prompts, short; concurrency 3 unless told otherwise."""
    return {
        "version": 1,
        "base_url": f"http://127.0.0.1:{port}",
        "api": "generate",
        "points": [{"concurrency": 3}],
        "runs": 1,
        "duration_s": 0.6,
        "output_len": 64,
        "dataset": {"kind": "prompts", "items": [{"prompt": prompt} for prompt in prompts]},
        "seed": 7,
        "ignore_eos": False,
        "temperature": 0.0,
        "warmup_s": 0.3,
        "server": {"log": None, "pid": None, "gpus": None},
        "limits": LIMITS,
        **more,
    }


@pytest.fixture
def bench(tmp_path):
    """bench(plan, python=…, VARIABLE=…): starts one; what still runs is ended."""
    begun = []

    def start(document, python=sys.executable, **environment):
        begun.append(Bench(tmp_path / f"bench{len(begun)}", document, python, **environment))
        return begun[-1]

    yield start
    for each in begun:
        each.process.kill()
        each.process.wait()


def done(bench):
    assert bench.end() == 0, bench.events[-1]
    assert [event["event"] for event in bench.events if event["event"] != "progress"][-1] == "done"
    return bench


def runs_of(events):
    """What was asked between the counters before and the counters after, run by run."""
    runs, flushed, inside = [], False, False
    for event in events:
        if event["what"] in ("generate", "chat"):
            if flushed:
                runs.append([])
            flushed, inside = False, inside or flushed
            if inside:
                runs[-1].append(event)
        else:
            inside = False
            flushed = flushed or event["what"] in ("/flush_cache", "/reset_prefix_cache")
    return runs


def figures(one):
    """What a row and the truth must have in common."""
    if "chunks" in one and isinstance(one["chunks"], list):
        names = ("in", "out", "cached", "finish", "verify", "correct", "proposed")
        return (*(one[name] for name in names), tuple(one["chunks"]))
    names = ("in", "out", "cached", "finish", "verify_ct", "correct_drafts", "proposed_drafts")
    return (*(one[name] for name in names), (one["k1"], *one["toks"]))


SHAPES = (
    "tokens=9 one",
    "tokens=20 chunk=3 cached=2 one two",
    "tokens=23 chunk=4 speculate=1 one two three",
    "lines=crlf tokens=5 four",
    "split=1 tokens=6 five",
    "pack=3 tokens=10 six seven",
    "pack=-3 tokens=11 six seven eight",
    "body=close tokens=7 a b c d e f g",
    "body=http10 tokens=8 a b c d e f g h",
    "body=counted tokens=10 comments=1",
    "chunk=5 the longest that is allowed",
)


@pytest.mark.parametrize("python", list(pythons()))
def test_every_figure_is_the_servers(bench, python):
    with truth_server() as (port, server):
        under_way = done(bench(plan(port, *SHAPES, runs=2, duration_s=1.5), python))
        for number, truths in enumerate(runs_of(server.events), 1):
            rows, meta = under_way.rows(number), under_way.meta(number)
            assert Counter(map(figures, rows)) == Counter(map(figures, truths))
            assert len(rows) == meta["requests"] > len(SHAPES)
            counters = meta["counters"]
            for name, key in (("generation_tokens", "out"), ("prompt_tokens", "in"), ("cached_tokens", "cached")):
                gone = counters["after"][f"sglang:{name}_total"] - counters["before"][f"sglang:{name}_total"]
                assert gone == sum(row[key] for row in rows)
            verified = (
                counters["after"]["sglang:spec_verify_calls_total"]
                - counters["before"]["sglang:spec_verify_calls_total"]
            )
            assert verified == sum(row["verify_ct"] or 0 for row in rows)
            assert counters["idle"] is True
            assert meta["errors"] == {}
            assert meta["flush"] == {
                "ok": True,
                "hit_rate": round(sum(r["cached"] for r in rows) / sum(r["in"] for r in rows), 6),
            }
        assert number == 2
    hello = under_way.events[0]
    parts = sorted((under_way.directory / "program/tui/remote/loadgen").glob("*.py"))
    content = b"".join(path.name.encode() + b"\0" + path.read_bytes() for path in parts)
    assert hello["sha256"] == hashlib.sha256(content).hexdigest()
    assert bool(hello["uvloop"]) == ("sglang" in python)


@pytest.mark.parametrize("python", list(pythons()))
@pytest.mark.parametrize("api", ["generate", "chat"])
def test_rows_are_read_as_replies(bench, api, python):
    """By bytes, as they are written here, whatever a text holds."""
    with truth_server() as (port, _):
        under_way = done(bench(plan(port, *SHAPES, api=api), python))
    with gzip.open(under_way.directory / "c3-1.rows.jsonl.gz", "rb") as lines:
        found = list(same_text.replies(lines))
    rows = under_way.rows()
    assert len(rows) > len(SHAPES)
    assert [(one.prompt, one.item, one.capped) for one in found] == [
        (row["prompt"], row["item"], row["finish"] == "length") for row in rows
    ]
    if api == "generate":
        assert [list(one.ids) for one in found] == [row["ids"] for row in rows]
    else:
        assert [one.text for one in found] == ["".join(row["texts"]) for row in rows]


def test_times_are_in_order(bench):
    with truth_server() as (port, _):
        under_way = done(bench(plan(port, REPLY + " first_ms=20", duration_s=1)))
    rows, meta = under_way.rows(), under_way.meta()
    begin, end = meta["window"]
    assert [row["i"] for row in rows] == list(range(len(rows)))
    for row in rows:
        assert 0 <= row["t_sched"] <= row["t_send"] < row["t_first"] < row["t_last"] <= meta["end_s"]
        assert row["t_first"] - row["t_send"] >= 0.0199  # the server waited so long
        assert row["t_last"] == pytest.approx(row["t_first"] + sum(row["gaps_us"]) / 1e6, abs=1e-4)
        assert row["t_sched"] <= end  # nothing new after the window
    assert begin >= max(sorted(row["t_first"] for row in rows)[:3])  # each of three users was busy
    assert end - begin >= 1
    assert meta["end_s"] > end  # drained, not cut
    waits = sorted(row["t_send"] - row["t_sched"] for row in rows)
    assert 0 <= meta["client"]["send_lag_p99_ms"] <= waits[-1] * 1e3 + 0.001
    assert 0 < meta["client"]["cpu_fraction"] < 1
    assert meta["client"]["loop_lag_p99_ms"] >= 0
    assert meta["client"]["rss_mib"] > 5


def test_files_and_events(bench):
    with truth_server() as (port, _):
        under_way = done(bench(plan(port, REPLY, runs=2, points=[{"concurrency": 3}, {"rate": 30.5}])))
    names = {
        f"{label}-{run}.{kind}" for label in ("c3", "r30.5") for run in (1, 2) for kind in ("json", "rows.jsonl.gz")
    }
    assert {path.name for path in under_way.directory.iterdir()} == names | {
        "bench.json",
        "server.json",
        "stderr",
        "program",
    }
    told = [event for event in under_way.events if event["event"] == "run"]
    assert [(event["label"], event["run"]) for event in told] == [("c3", 1), ("c3", 2), ("r30.5", 1), ("r30.5", 2)]
    for event in told:
        for kind in ("meta", "rows"):
            content = (under_way.directory / event[kind]).read_bytes()
            assert hashlib.sha256(content).hexdigest() == event["sha256"][kind]
        meta = json.loads((under_way.directory / event["meta"]).read_text())
        assert (meta["label"], meta["run"], meta["point"], meta["seed"]) == (
            event["label"],
            event["run"],
            event["point"],
            7,
        )
        assert meta["rows_sha256"] == event["sha256"]["rows"]
        assert meta["gpu"] is meta["graph"] is None
    progress = [event for event in under_way.events if event["event"] == "progress"]
    assert {event["phase"] for event in progress} == {"warmup", "window", "drain"}
    last = [event for event in progress if event["run"] == 2 and event["label"] == "c3"][-1]
    assert last["ttft_ms"] > 0
    assert last["tpot_ms"] > 0
    assert last["tokens"] >= 12 * last["completed"] > 0
    assert max(len(json.dumps(event)) for event in progress) < 500  # four a second are 2 kB
    lefts = [event["left_s"] for event in progress]
    assert lefts[0] > lefts[-1] == 0


def test_speculation_is_shown_live(bench):
    with truth_server() as (port, server):
        under_way = done(bench(plan(port, "tokens=30 chunk=4 speculate=1", duration_s=1)))
    truth = runs_of(server.events)[0][0]
    shown = [event["accept_length"] for event in under_way.events if event["event"] == "progress"]
    assert shown[-1] == pytest.approx((truth["correct"] + truth["verify"]) / truth["verify"], abs=0.001)


# --- what a run goes through ----------------------------------------------------------------------------------------


def prompts_of(events):
    return [
        event["body"].get("text") or event["body"].get("input_ids") or event["body"]["messages"][-1]["content"]
        for event in events
    ]


def test_warmed_up_with_others_then_flushed_then_counted(bench):
    with truth_server() as (port, server):
        items = [f"tokens=8 prompt number {number}" for number in range(400)]
        done(bench(plan(port, *items, runs=2, output_len=100)))
    what = [event["what"] for event in server.events]
    kinds = " ".join(kind for number, kind in enumerate(what) if number == 0 or what[number - 1] != kind)
    facts = "/server_info /model_info /v1/models"
    run = f"/metrics generate /flush_cache /metrics generate /metrics {facts}"
    assert kinds == f"{facts} generate {facts} {run} {run} {facts}"
    first, second = runs_of(server.events)
    warm = [event for event in server.events if event["what"] == "generate" and event not in first + second]
    lengths = [event["body"]["sampling_params"]["max_new_tokens"] for event in warm[1:]]  # one tried the server out
    assert len(lengths) > 6
    assert lengths == [100] * (len(lengths) - 3) + [64] * 3  # short before the second run
    assert not set(prompts_of(warm)) & set(prompts_of(first + second))
    assert set(prompts_of(first)) <= set(items)
    assert prompts_of(first) != prompts_of(second)
    assert len(set(prompts_of(first))) == len(first)


def test_later_rounds_do_not_meet_the_cache(bench):
    with truth_server() as (port, server):
        under_way = done(bench(plan(port, "tokens=4 a", "tokens=4 b")))
    prompts = prompts_of(runs_of(server.events)[0])
    assert len(prompts) == len(set(prompts)) > 6
    assert set(prompts[:2]) == {"tokens=4 a", "tokens=4 b"}
    assert all(re.fullmatch(r"[a-z]{5}\. tokens=4 [ab]", prompt) for prompt in prompts[2:])
    assert under_way.meta()["rounds"] == -(-len(prompts) // 2)


@pytest.mark.parametrize(("flush", "ok"), [(0, None), (-1, False)])
def test_a_cache_that_is_not_flushed(bench, flush, ok):
    with truth_server(flush=flush) as (port, server):
        under_way = done(
            bench(plan(port, "tokens=4 cached=1 a", "tokens=4 cached=1 b", limits={**LIMITS, "settle_s": 0.5}))
        )
        prompts = prompts_of(event for event in server.events if event["what"] == "generate")
    assert under_way.meta()["flush"] == {"ok": ok, "hit_rate": 0.2}  # one of five tokens, the mark counts
    assert len(prompts) == len(set(prompts))  # each is marked, so that the cache knows none of them


def test_the_same_seed_asks_the_same(bench):
    def asked(**more):
        with truth_server() as (port, server):
            items = [f"tokens=4 number {number}" for number in range(30)]
            document = plan(port, *items, runs=2, points=[{"concurrency": 1}], max_requests=20, duration_s=20)
            done(bench({**document, **more}))
            return [prompts_of(run) for run in runs_of(server.events)]

    first, again, other = asked(), asked(), asked(seed=8)
    assert [len(run) for run in first] == [20, 20]
    assert first == again
    assert first[0] != first[1]
    assert first != other


def test_random_ids(bench):
    more = {
        "dataset": {"kind": "random-ids"},
        "vocab": [100, 200],
        "input_len": 33,
        "output_len": 10,
        "ignore_eos": True,
    }
    with truth_server() as (port, server):
        done(bench(plan(port, **more, max_requests=30, duration_s=20)))
        bodies = [event["body"] for event in runs_of(server.events)[0]]
    assert len(bodies) == 30
    for body in bodies:
        assert len(body["input_ids"]) == 33
        assert all(100 <= number < 200 for number in body["input_ids"])
        assert body["sampling_params"] == {"max_new_tokens": 10, "temperature": 0.0, "ignore_eos": True}
        assert body["stream"] is True
    seen = {number for body in bodies for number in body["input_ids"]}
    assert len(seen) > 95
    assert len({tuple(body["input_ids"]) for body in bodies}) == 30


def test_items_of_a_file(bench):
    items = [{"prompt": "a tokens=50", "output_len": 5}, {"input_ids": [5, 6, 7]}]
    with truth_server() as (port, server):
        under_way = done(bench(plan(port, dataset={"kind": "jsonl", "items": items}, max_requests=8, duration_s=20)))
        bodies = [event["body"] for event in runs_of(server.events)[0]]
    first = {json.dumps({key: body.get(key) for key in ("text", "input_ids")}) for body in bodies[:2]}
    assert first == {'{"text": "a tokens=50", "input_ids": null}', '{"text": null, "input_ids": [5, 6, 7]}'}
    assert {body["sampling_params"]["max_new_tokens"] for body in bodies if "text" in body} == {5}
    assert {len(body["input_ids"]) for body in bodies[2:] if "input_ids" in body} == {4}  # one more in front
    assert Counter(row["out"] for row in under_way.rows()) == {5: 4, 64: 4}


def test_no_more_requests_than_asked_for(bench):
    with truth_server() as (port, server):
        under_way = done(bench(plan(port, REPLY, max_requests=11, duration_s=30)))
    assert len(runs_of(server.events)[0]) == len(under_way.rows()) == under_way.meta()["requests"] == 11
    begin, end = under_way.meta()["window"]
    assert begin < end <= min(row["t_last"] for row in under_way.rows()[-1:])


def test_connections_are_kept(bench):
    with truth_server() as (port, server):
        done(bench(plan(port, REPLY)))
        used = Counter(event["connection"] for event in server.events if event["what"] == "generate")
    assert len(used) <= 4
    assert min(used.values()) > 2


@pytest.mark.parametrize("how", ["drop", "bye"])
def test_a_server_that_closes_after_each_reply(bench, how):
    with truth_server() as (port, server):
        # None is under way at the end: what is cut there, the server may have sent whole.
        under_way = done(bench(plan(port, f"tokens=5 fault={how}", max_requests=24, duration_s=30)))
        truths = runs_of(server.events)[0]
    assert len({event["connection"] for event in truths}) == len(truths)
    assert Counter(map(figures, under_way.rows())) == Counter(map(figures, truths))


# --- open loop ------------------------------------------------------------------------------------------------------


def schedule(seed, rate, count):
    """When requests are due, seconds since the run began."""
    rng = random.Random(f"{seed}/r{rate:g}/1/arrivals")
    return list(itertools.accumulate(rng.expovariate(rate) for _ in range(count)))


def test_arrivals_are_those_of_the_seed(bench):
    """Requests are due by the clock, whatever the server does: here each takes longer than the time between two."""
    with truth_server() as (port, _):
        under_way = done(bench(plan(port, "tokens=40 first_ms=300", points=[{"rate": 40}], duration_s=1.5)))
    rows = under_way.rows(label="r40")
    assert len(rows) > 40
    assert [row["t_sched"] for row in rows] == pytest.approx(schedule(7, 40, len(rows)), abs=1e-5)
    assert all(row["t_send"] >= row["t_sched"] for row in rows)


def test_a_late_generator_does_not_hide_it(bench):
    """Stopped for a while, it sends late but counts from when the requests were due."""
    with truth_server() as (port, _):
        under_way = bench(plan(port, "tokens=5", points=[{"rate": 50}], duration_s=2.5, warmup_s=0.2))
        under_way.until(lambda event: event.get("phase") == "window" and event["completed"] > 5)
        os.kill(under_way.process.pid, signal.SIGSTOP)
        threading.Event().wait(0.7)
        os.kill(under_way.process.pid, signal.SIGCONT)
        done(under_way)
    rows, meta = under_way.rows(label="r50"), under_way.meta(label="r50")
    assert [row["t_sched"] for row in rows] == pytest.approx(schedule(7, 50, len(rows)), abs=1e-5)
    late = [row for row in rows if row["t_send"] - row["t_sched"] > 0.3]
    assert len(late) > 5
    assert all(row["t_first"] - row["t_sched"] > 0.3 for row in late)
    assert meta["client"]["send_lag_p99_ms"] > 300
    assert meta["client"]["loop_lag_p99_ms"] is not None


# --- chat -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["sglang", "vllm"])
def test_chat(bench, dialect):
    items = [
        {"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "tokens=9 x"}]},
        {"prompt": SHAPES[2]},
    ]
    with truth_server(dialect=dialect) as (port, server):
        under_way = done(bench(plan(port, api="chat", dataset={"kind": "jsonl", "items": items}, ignore_eos=True)))
        truths = runs_of(server.events)[0]
    rows, meta = under_way.rows(), under_way.meta()
    for truth in truths if dialect == "vllm" else ():
        truth.update(verify=None, correct=None, proposed=None)  # its chat does not tell
    assert Counter(map(figures, rows)) == Counter(map(figures, truths))
    assert meta["options"] == {"continuous_usage": True, "spec_details": dialect == "sglang"}
    assert all(truth["body"]["model"] == "truth" and truth["body"]["ignore_eos"] is True for truth in truths)
    counters = meta["counters"]
    name = f"{dialect}:generation_tokens_total"
    assert counters["after"][name] - counters["before"][name] == sum(row["out"] for row in rows)
    server_json = json.loads((under_way.directory / "server.json").read_text())
    assert (server_json["kind"], server_json["version"]) == (dialect, "0.5.23" if dialect == "sglang" else "0.33.0")


@pytest.mark.parametrize("dialect", ["sglang", "vllm"])
def test_chat_of_a_server_that_takes_less(bench, dialect):
    refuses = ["return_spec_tokens_details", "continuous_usage_stats"]
    with truth_server(dialect=dialect, refuses=refuses) as (port, server):
        under_way = done(bench(plan(port, "tokens=9 chunk=2 x", api="chat")))
        truths = runs_of(server.events)[0]
    assert under_way.meta()["options"] == {"continuous_usage": False, "spec_details": False}
    assert len(under_way.rows()) == len(truths)
    for row in under_way.rows():
        assert (row["out"], row["chunks"], row["k1"], row["toks"], row["err"]) == (9, 5, None, None, None)


def test_cache_hits_that_only_the_counters_know(bench):
    with truth_server(silent=1) as (port, _):
        under_way = done(bench(plan(port, "tokens=4 cached=1 x y", api="chat", max_requests=1, duration_s=9)))
    assert {row["cached"] for row in under_way.rows()} == {None}
    assert under_way.meta()["flush"]["hit_rate"] == 0.2  # one of five tokens


# --- counters -------------------------------------------------------------------------------------------------------


def test_counters_that_lag_are_waited_for(bench):
    with truth_server(lag_ms=1500) as (port, _):
        meta, rows = (under_way := done(bench(plan(port, REPLY)))).meta(), under_way.rows()
    name = "sglang:generation_tokens_total"
    assert meta["counters"]["after"][name] - meta["counters"]["before"][name] == sum(row["out"] for row in rows)


def test_counters_that_are_wrong_stay_wrong(bench):
    with truth_server(counts=1.5) as (port, _):
        under_way = done(bench(plan(port, REPLY, limits={**LIMITS, "settle_s": 0.5})))
    meta, rows = under_way.meta(), under_way.rows()
    name = "sglang:generation_tokens_total"
    gone = meta["counters"]["after"][name] - meta["counters"]["before"][name]
    assert gone == pytest.approx(1.5 * sum(row["out"] for row in rows), abs=1)


def test_without_metrics(bench):
    with truth_server(metrics=0) as (port, _):
        under_way = done(bench(plan(port, REPLY)))
    assert under_way.meta()["counters"] == {"before": None, "after": None, "idle": False}


def test_metrics_of_a_real_server():
    text = (Path(__file__).parents[1] / "data" / "http" / "spec_eagle3_metrics_under_load.txt").read_text()
    counters, busy = read_metrics(text)
    assert busy == 6
    assert counters == {
        "sglang:generation_tokens_total": 8,
        "sglang:num_requests_total": 1,
        "sglang:prompt_tokens_total": 15,
        "sglang:spec_verify_calls_total": 4,
    }
    counters, busy = read_metrics((Path(__file__).parents[1] / "data" / "http" / "metrics.txt").read_text())
    assert (busy, counters["sglang:generation_tokens_total"], counters["sglang:prompt_tokens_total"]) == (0, 96, 90)
    assert (counters["sglang:num_requests_total"], counters["sglang:cached_tokens_total"]) == (11, 45)


def test_ranks_of_a_replica_count_once():
    text = "\n".join(
        [
            f'sglang:num_running_reqs{{dp_rank="{dp}",tp_rank="{tp}",pid="{tp}"}} {dp + 2}.0'
            for dp in (0, 1)
            for tp in (0, 1, 2)
        ]
        + [f'sglang:generation_tokens_total{{model_name="a \\"b\\" }}",dp_rank="{dp}"}} {dp + 10}.0' for dp in (0, 1)]
        + [
            'sglang:num_queue_reqs{priority=""} 4.0',
            'sglang:num_queue_reqs{priority="1"} 4.0',
            "sglang:num_queue_reqs NaN",
        ]
        + ["vllm:generation_tokens_total 1.5e3", "sglang:generation_tokens_total_created 7", "other 1"]
    )
    counters, busy = read_metrics(text)
    assert busy == 2 + 3 + 4
    assert counters == {"sglang:generation_tokens_total": 21, "vllm:generation_tokens_total": 1500}


# --- faults ---------------------------------------------------------------------------------------------------------

FAULTS = {
    "reset": "reset",
    "cut": "closed",
    "stall": "stalled",
    "endless": "not_ended",
    "babble": "too_large",
    "503": "http",
    "slow_head": "stalled",
    "garbage": "malformed",
    "bad_size": "malformed",
    "bad_json": "malformed",
    "plain": "malformed",
    "no_finish": "closed",
    "abort": "server",
    "error": "server",
    "no_tokens": "no_tokens",
}


def slugs(rows):
    return Counter(None if row["err"] is None else row["err"].partition(":")[0] for row in rows)


def test_every_fault_is_recorded_and_none_ends_the_run(bench):
    good = [f"tokens=9 chunk=2 good {number}" for number in range(2 * len(FAULTS))]
    bad = [f"tokens=10 fault={fault}" for fault in FAULTS]
    with truth_server() as (port, server):
        count = len(good) + len(bad)
        under_way = done(bench(plan(port, *good, *bad, max_requests=count, duration_s=60, points=[{"concurrency": 6}])))
        truths = runs_of(server.events)[0]
    rows, meta = under_way.rows(label="c6"), under_way.meta(label="c6")
    assert len(rows) == count
    assert slugs(rows) == Counter(FAULTS.get(truth["fault"]) for truth in truths)
    right = [row for row in rows if row["err"] is None]
    assert Counter(map(figures, right)) == Counter(figures(truth) for truth in truths if not truth["fault"])
    assert sum(meta["errors"].values()) == len(FAULTS)
    assert Counter(
        reason.partition(":")[0] for reason in meta["errors"] for _ in range(meta["errors"][reason])
    ) == slugs(row for row in rows if row["err"])
    reasons = " ".join(meta["errors"])
    for words in ("the queue is full", "the engine died", "abort: out of memory", "no stream today", "no byte for 1 s"):
        assert words in reasons
    half = [row for row in rows if row["err"] and row["err"].startswith(("reset", "stalled", "closed"))]
    assert any(row["chunks"] and row["t_first"] for row in half)  # what had come until then is kept
    assert all(
        row["t_first"] is None and row["chunks"] == 0 for row in rows if row["err"] and row["err"].startswith("http")
    )


def test_chat_without_a_count(bench):
    with truth_server(refuses=["continuous_usage_stats"]) as (port, _):
        under_way = done(bench(plan(port, "tokens=5 good", "tokens=5 fault=no_count", api="chat")))
    assert set(slugs(under_way.rows())) == {None, "no_count"}


def test_a_request_that_takes_too_long(bench):
    """It is ended at request_s although bytes keep coming."""
    limits = {**LIMITS, "request_s": 1}
    with truth_server() as (port, _):
        document = plan(
            port,
            "tokens=5",
            "tokens=60 tick_ms=50",
            "tokens=6",
            "tokens=7",
            limits=limits,
            max_requests=8,
            duration_s=20,
        )
        rows = done(bench(document)).rows()
    assert slugs(rows) == {None: 6, "too_slow": 2}


def test_the_drain_is_bounded(bench):
    limits = {**LIMITS, "drain_s": 0.5, "stall_s": 30, "request_s": 30}
    with truth_server() as (port, _):
        document = plan(port, *["tokens=5"] * 40, "tokens=5 fault=stall", limits=limits, max_requests=41, duration_s=20)
        under_way = done(bench(document))
    assert slugs(under_way.rows()) == {None: 40, "drain": 1}
    assert under_way.meta()["window"] is not None


def test_users_that_never_all_begin(bench):
    """No steady window then, and the run says so."""
    limits = {**LIMITS, "ramp_s": 1, "stall_s": 3}
    with truth_server() as (port, _):
        document = plan(
            port, "tokens=5", "tokens=5 fault=slow_head", "tokens=6 fault=slow_head", limits=limits, warmup_s=0.1
        )
        under_way = done(bench(document))
    assert under_way.meta()["window"] is None
    assert under_way.meta()["client"]["cpu_fraction"] is None


# --- what ends it ---------------------------------------------------------------------------------------------------


def test_a_server_that_refuses_everything(bench):
    with truth_server(fault="503") as (port, _):
        under_way = bench(plan(port, "tokens=5"))
        error = under_way.error()
    assert error["slug"] == "refused"
    assert "the queue is full" in error["text"]


def test_no_server(bench):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    error = bench(plan(port, "tokens=5")).error()
    assert (error["slug"], error["hint"]) == ("unreachable", "is the server up, and on this port?")


def test_a_server_without_the_endpoint(bench):
    with truth_server(dialect="vllm") as (port, _):
        error = bench(plan(port, "tokens=5")).error()
    assert error["slug"] == "no_endpoint"
    assert "api chat" in error["hint"]


def start_truth(**settings):
    """The server as a process: it and its port."""
    program = Path(__file__).parents[1] / "support" / "truth_server.py"
    server = subprocess.Popen([sys.executable, str(program), json.dumps(settings)], stdout=subprocess.PIPE, text=True)
    return server, int(server.stdout.readline())


def test_another_server_on_the_port_in_mid_bench(bench):
    """Run 1 loses its server, run 2 is of the other one: neither counts."""
    server, port = start_truth(tokens=40, tick_ms=2)
    under_way = bench(plan(port, "one", runs=2, duration_s=3))
    under_way.until(lambda event: event.get("phase") == "window" and event["completed"] > 5)
    server.kill()
    server.wait()
    other, _ = start_truth(tokens=40, tick_ms=2, model="other", seed=2, port=port)
    try:
        assert under_way.end() == 0
    finally:
        other.kill()
        other.wait()

    def failed(run):
        rows, meta = under_way.rows(run), under_way.meta(run)
        guards = judge(rows, meta, metrics.figures(rows, meta), ServerChecks()).guards
        return {guard.id: guard.text for guard in guards if guard.status is GuardStatus.FAILED}

    assert {"errors", "tokens", "server"} <= set(failed(1))
    second = failed(2)
    assert set(second) <= {"server", "window", "client_lag", "steady"}  # the last two: a busy machine
    assert second["server"] == (
        "another server answered after the run than at the start of the bench: its model truth became other"
    )


def test_a_slow_server_is_given_the_time_that_figures_need(bench):
    """One user whose replies take 0.3 s: until five of them began, but no longer than allowed."""
    with truth_server(tokens=60, tick_ms=5) as (port, _):
        slow = {"points": [{"concurrency": 1}], "duration_s": 0.2, "needs": {"tokens": 200, "replies": 5}}
        grown = done(bench(plan(port, "one", **slow, duration_max_s=30))).meta(label="c1")["window"]
        bound = done(bench(plan(port, "one", **slow, duration_max_s=0.9))).meta(label="c1")["window"]
        least = done(bench(plan(port, "one", **slow))).meta(label="c1")["window"]
    assert 1.2 < grown[1] - grown[0] < 30
    assert bound[1] - bound[0] == pytest.approx(0.9, abs=0.2)
    assert least[1] - least[0] == pytest.approx(0.2, abs=0.15)


def test_a_server_that_dies(bench):
    server, port = start_truth()
    try:
        under_way = bench(plan(port, "tokens=30", runs=3, duration_s=30))
        under_way.until(lambda event: event.get("phase") == "window" and event["completed"] > 5)
    finally:
        server.kill()
        server.wait()
    assert under_way.error()["slug"] == "server_lost"
    errors = slugs(under_way.rows())
    assert errors[None] > 5
    assert errors["connect"] > 5
    assert set(errors) <= {None, "connect", "reset", "closed"}
    assert sum(under_way.meta()["errors"].values()) == sum(count for slug, count in errors.items() if slug)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_leaves_finished_runs(bench, number):
    with truth_server() as (port, _):
        under_way = bench(plan(port, REPLY, runs=2, points=[{"concurrency": 3}, {"concurrency": 2}]))
        under_way.until(lambda event: event["event"] == "run" and event["run"] == 2)
        under_way.until(lambda event: event["event"] == "progress")
        under_way.process.send_signal(number)
        assert under_way.error()["slug"] == "interrupted"
    for run in (1, 2):
        assert under_way.meta(run)["requests"] == len(under_way.rows(run))
    kept = {path.name for path in under_way.directory.iterdir()}
    assert not [name for name in kept if name.startswith((".", "c2"))]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 2}, "version is 2"),
        ({"base_url": "https://x"}, "base_url"),
        ({"api": "soap"}, "api is 'soap'"),
        ({"points": []}, "no points"),
        ({"points": [{"concurrency": 0}]}, "bad point"),
        ({"points": [{"concurrency": 1.5}]}, "bad point"),
        ({"points": [{"concurrency": 1, "rate": 2}]}, "bad point"),
        ({"duration_s": 0}, "duration_s"),
        ({"duration_s": "soon"}, "soon"),
        ({"output_len": None}, "bench.json"),
        ({"max_requests": 0}, "max_requests"),
        ({"headers_env": "NO_SUCH_VARIABLE"}, "NO_SUCH_VARIABLE is not set"),
        ({"dataset": {"kind": "sharegpt"}}, "sharegpt"),
        ({"dataset": {"kind": "prompts", "items": []}}, "without items"),
        ({"dataset": {"kind": "jsonl", "items": [{"prompt": "a"}, {"text": "b"}]}}, "item 1 needs one of"),
        ({"dataset": {"kind": "jsonl", "items": [{"messages": [{"role": "user"}]}]}}, "messages need the api chat"),
        ({"dataset": {"kind": "random-ids"}}, "without a vocab"),
        ({"dataset": {"kind": "random-ids"}, "vocab": [0, 9]}, "without input_len"),
        ({"dataset": {"kind": "random-ids"}, "vocab": [0, 9], "input_len": 4, "api": "chat"}, "needs the api generate"),
    ],
)
def test_a_plan_that_cannot_be_carried_out(change, words, tmp_path):
    file = tmp_path / "bench.json"
    file.write_text(json.dumps({**plan(1, "a"), **change}))
    with pytest.raises(Stop) as caught:
        Plan.read(str(file))
    assert caught.value.slug == "bad_plan"
    assert words in caught.value.text


@pytest.mark.parametrize(
    "content", ["", "[1, 2]", '{"version": 1', '{"version": 1, "base_url": 5}', '{"version": 1, "points": 3}']
)
def test_a_plan_that_is_no_plan(bench, content, tmp_path):
    (tmp_path / "p").mkdir()
    under_way = subprocess.run(generator(tmp_path, plan="p/bench.json"), cwd=tmp_path, capture_output=True, text=True)
    assert json.loads(under_way.stdout.splitlines()[-1])["slug"] == "bad_plan"
    (tmp_path / "p" / "bench.json").write_text(content)
    under_way = subprocess.run(generator(tmp_path, plan="p/bench.json"), cwd=tmp_path, capture_output=True, text=True)
    assert (under_way.returncode, under_way.stderr) == (1, "")
    assert json.loads(under_way.stdout.splitlines()[-1])["slug"] == "bad_plan"


def test_a_full_disk(bench):
    with truth_server() as (port, _):
        under_way = bench(plan(port, REPLY, runs=3))
        under_way.until(lambda event: event.get("phase") == "warmup")
        (under_way.directory / "c3-1.rows.jsonl.gz").mkdir()  # a name that can't be taken
        error = under_way.error()
    assert error["slug"] == "disk"
    assert not list(under_way.directory.glob(".*"))


# --- secrets --------------------------------------------------------------------------------------------------------


def test_the_key_is_sent_and_kept_nowhere(bench):
    with truth_server(api_key="hush-hush") as (port, _):
        assert bench(plan(port, REPLY)).error()["slug"] == "unauthorized"
        assert bench(plan(port, REPLY, headers_env="KEY"), KEY="wrong").error()["slug"] == "unauthorized"
        under_way = done(bench(plan(port, REPLY, headers_env="KEY"), KEY="hush-hush"))
    assert set(slugs(under_way.rows())) == {None}
    for path in filter(Path.is_file, under_way.directory.rglob("*")):
        content = path.read_bytes()
        assert b"hush" not in (gzip.decompress(content) if path.suffix == ".gz" else content)
    assert "hush" not in json.dumps(under_way.events)
    command = json.loads((under_way.directory / "server.json").read_text())["last"]["server_info"]
    assert command == {
        "version": "0.5.23",
        "model_path": "truth",
        "random_seed": 1,
        "api_key": "***",
        "tp_size": 8,
        "launch_command": "python -m sglang.launch_server --api-key *** --tp 8",
    }


def test_the_servers_environment(bench):
    variables = {
        "NCCL_DEBUG": "WARN",
        "SGLANG_SIMULATE_ACC_LEN": "2.5",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "SGLANG_API_KEY": "hush",
        "HF_TOKEN": "hush",
        "HF_HUB_OFFLINE": "1",
        "HOME": "/root",
    }
    argv = ["sleep", "600"]
    server = subprocess.Popen(argv, env={**variables, "PATH": os.environ["PATH"]})
    try:
        with truth_server() as (port, _):
            under_way = done(bench(plan(port, REPLY, server={"log": None, "pid": server.pid, "gpus": None})))
    finally:
        server.kill()
        server.wait()
    found = json.loads((under_way.directory / "server.json").read_text())
    kept = ("NCCL_DEBUG", "SGLANG_SIMULATE_ACC_LEN", "CUDA_VISIBLE_DEVICES", "HF_HUB_OFFLINE")
    assert found["env"] == {name: variables[name] for name in kept}
    assert found["argv"] == argv
    assert set(found["first"]) == set(found["last"]) == {"server_info", "model_info", "models"}


@pytest.mark.parametrize(
    ("value", "left"),
    [
        ({"api_key": "k", "max_total_num_tokens": 5, "admin_api_key": None}, {"api_key": "***", "max_total_num_tokens": 5, "admin_api_key": None}),
        (["--api-key", "k", "--tp", "8"], ["--api-key", "***", "--tp", "8"]),
        ("serve --admin-api-key=k --tokenizer-path t", "serve --admin-api-key=*** --tokenizer-path t"),
        ("it is the-key, hidden", "it is ***, hidden"),
        ({"a": [{"hf_token": "x"}, {"token_usage": 0.5}]}, {"a": [{"hf_token": "***"}, {"token_usage": 0.5}]}),
    ],
)  # fmt: skip
def test_secrets_are_taken_out(value, left):
    assert without_secrets(value, "the-key") == left


# --- the host around it ---------------------------------------------------------------------------------------------

NVIDIA_SMI = """#!/bin/sh
trap '' PIPE # nothing but a kill ends it
case "$*" in
*{unknown}*) echo 'Field "{unknown}" is not a valid field to query.' ;;
*--query-gpu=*)
  echo $$ >>{pids}
  echo "$*" >{asked}
  while :; do
    printf '0, 250.5, 97, 70000, 1980, 0x0000000000000004\\n1, [N/A], 96, 71000, 1975, 0x0000000000000000\\n'
    sleep 0.1
  done ;;
*--query-compute-apps*)
  echo $$ >>{pids}
  while :; do
    printf '{server}\\n{foreign}\\n'
    sleep 0.2
  done ;;
esac
"""


@pytest.fixture
def nvidia_smi(tmp_path):
    """nvidia_smi(server, foreign): a stand-in first on PATH; returns PATH and a function that gives its process ids."""

    def make(server, foreign, unknown="clocks_no_reasons"):
        directory = tmp_path / "smi"
        directory.mkdir()
        program = directory / "nvidia-smi"
        text = NVIDIA_SMI.replace("{pids}", str(directory / "pids")).replace("{asked}", str(directory / "asked"))
        text = text.replace("{unknown}", unknown)
        program.write_text(text.replace("{server}", str(server)).replace("{foreign}", str(foreign)))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return f"{directory}:{os.environ['PATH']}", lambda: [
            int(pid) for pid in (directory / "pids").read_text().split()
        ]

    return make


@pytest.mark.parametrize("unknown", ["clocks_event_reasons", "clocks_no_reasons"])
def test_gpus(bench, nvidia_smi, gone, unknown):
    """An older driver knows the reasons of a lower clock under another name."""
    server = subprocess.Popen(
        ["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    child = int(server.stdout.readline())  # the process on the GPU descends from the server
    path, pids = nvidia_smi(child, os.getpid(), unknown)
    try:
        with truth_server() as (port, _):
            where = {"log": None, "pid": server.pid, "gpus": [0, 1]}
            under_way = done(bench(plan(port, REPLY, server=where), PATH=path))
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
    meta = under_way.meta()
    samples = meta["gpu"]["samples"]
    assert {tuple(sample[1:]) for sample in samples} == {
        (0, 250.5, 97.0, 70000.0, 1980.0, 4),
        (1, None, 96.0, 71000.0, 1975.0, 0),
    }
    assert all(0 <= sample[0] <= meta["end_s"] for sample in samples)
    assert meta["gpu"]["foreign_pids"] == [os.getpid()]
    assert len(pids()) == 2
    assert all(map(gone, pids()))
    asked = (Path(path.partition(":")[0]) / "asked").read_text()
    assert "-i 0,1" in asked
    last = [event for event in under_way.events if event["event"] == "progress"][-1]
    assert (last["power_w"], last["memory_used_mib"]) == (250.5, 71000)


def test_foreign_processes_are_unknown_where_the_servers_own_is_not_seen(bench, nvidia_smi):
    """In a container the process ids are those of another namespace."""
    path, _ = nvidia_smi(999999998, 999999999)
    with truth_server() as (port, _):
        where = {"log": None, "pid": os.getpid(), "gpus": None}
        under_way = done(bench(plan(port, REPLY, server=where), PATH=path))
    assert under_way.meta()["gpu"]["foreign_pids"] is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_no_child_survives(bench, nvidia_smi, gone, until, number):
    path, pids = nvidia_smi(1, 2)
    with truth_server() as (port, _):
        under_way = bench(plan(port, REPLY, duration_s=60), PATH=path)
        under_way.until(lambda event: event.get("phase") == "window" and event["power_w"] is not None)
        assert not any(map(gone, pids()))
        under_way.process.send_signal(number)
        under_way.process.wait(30)
        await until(lambda: all(map(gone, pids())), 10)


def test_decode_lines_of_the_window(bench, tmp_path):
    log = tmp_path / "server.log"
    log.write_text("Decode batch, cuda graph: False, gen\n" * 50)

    def write(text):
        with log.open("a") as file:
            file.write(text)

    with truth_server() as (port, _):
        where = {"log": str(log), "pid": None, "gpus": None}
        under_way = bench(plan(port, REPLY, server=where, duration_s=1.2))
        under_way.until(lambda event: event.get("phase") == "window" and event["completed"] > 3)
        write("[x] Decode batch. #running-req: 3, accept len: 2.1, cuda graph: True, gen throughput: 1\n" * 3)
        write(
            "[x] Decode batch, #token: 5, cuda graph: False, gen\nPrefill batch, cuda graph: False\ncuda graph: True\n"
        )
        done(under_way)
    assert under_way.meta()["graph"] == {"on": 3, "off": 1}


def test_log_span(tmp_path):
    log = tmp_path / "log"
    span = LogSpan(str(log))
    assert span.mark() is None
    assert span.graph() is None
    line = b"[x] Decode batch, " + b"y" * 300 + b" cuda graph: %b,\n"
    log.write_bytes(line % b"True")
    span.begin = span.mark()
    log.write_bytes(log.read_bytes() + line % b"True" * 9000 + line % b"False" * 2 + b"Decode batch without an end")
    span.end = span.mark()
    assert span.graph() == {"on": 9000, "off": 2}  # across blocks of a mebibyte
    log.write_bytes(b"")
    span.end = span.mark()
    assert span.graph() is None  # another file by now
    log.unlink()
    with contextlib.suppress(OSError):
        assert span.graph() is None


def test_the_description_of_the_files_names_every_key(bench):
    with truth_server() as (port, _):
        under_way = done(bench(plan(port, REPLY)))
    text = (Path(__file__).parents[2] / "docs/load-generator.md").read_text()

    def keys(value):
        return set(value) if isinstance(value, dict) else set()

    meta = under_way.meta()
    names = keys(meta) | keys(under_way.rows()[0]) | keys(json.loads((under_way.directory / "server.json").read_text()))
    for part in ("flush", "counters", "client", "warmup", "options"):
        names |= keys(meta[part])
    for event in under_way.events:
        names |= keys(event)
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", text)] == []
