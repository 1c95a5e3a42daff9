"""The real SGLang, with and without an EAGLE-3 draft, measured by the command over a real sshd.

What is shown: the figures are those of the server's own counters, of SGLang's own tool (`bench verify`), and of what came
over the socket. Speeds mean nothing on a CPU that server and client share; tokens, acceptance and what a server was
launched with do. Two servers serve all tests, one after the other; with the same kernels and exact enough for the same text.
"""

import contextlib
import gzip
import json
import subprocess

import pytest

from tests.support.generator import generator
from tests.support.truth import LIMIT, Case, Run, compare
from tests.support.wire import Proxy, replies_of
from tui.core.verdicts.same_text import Reply, replies, same_text

pytestmark = pytest.mark.timeout(900)

READY_S = 500  # a start takes 17 to 60 s on a free machine
BENCH = """
kind = "bench"
description = "short, for a CPU"
dataset = "prompts"
concurrency = [2]
output_len = 32
duration_s = 6
runs = 1
"""
EXACT = {"dtype": "float32"}  # in bfloat16 a step of four tokens rounds otherwise than a step of one
AMX = {"prefill_attention_backend": "intel_amx", "decode_attention_backend": "intel_amx"}
SERVERS = {"tiny-eagle3": EXACT, "tiny-plain": {"eagle3": False, **AMX, **EXACT}}
RANDOM = ("--set", "dataset=random-ids", "--set", "input_len=32")
# On few cores the server is in its client's way, slow, and slower while others work.
CPU_ONLY = {"client_cpu", "client_lag", "steady", "window"}


@pytest.fixture(scope="module")
def host(gpu_hosts, sglang_module):
    host = gpu_hosts()
    host.python(sglang_module.python)
    host.profile("cpu-bench", BENCH)
    return host


@pytest.fixture(scope="module")
def ready(host, sglang_module, free_port):
    """ready(name): run and port of the server of that name, launched where another one was there or none."""
    with contextlib.ExitStack() as stack:
        now: dict[str, tuple[str, int]] = {}

        def launched(name: str) -> tuple[str, int]:
            if name not in now:
                stack.close()
                now.clear()
                port = free_port()
                host.profile(name, sglang_module.profile(port, **SERVERS[name]))
                said = host.eagletui.json("launch", name, "--wait", "--timeout", str(READY_S), timeout=READY_S + 60)
                assert said["outcome"] == "ready"
                stack.callback(host.eagletui.json, "stop", said["run"], "--yes")
                now[name] = said["run"], port
            return now[name]

        yield launched


def failed_guards(record: dict) -> set[str]:
    return {guard["id"] for guard in record["guards"] if guard["status"] == "failed"} - CPU_ONLY


# ---- with the draft ---------------------------------------------------------------------------------------------------


def test_eagle3_by_its_own_counters_over_a_link_that_is_cut(host, ready, wait_until):
    run, _ = ready("tiny-eagle3")
    measuring = host.eagletui.popen(
        *("bench", "cpu-bench", "--set", "duration_s=10", "--json"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    (found,) = wait_until(
        lambda: [row for row in host.eagletui.json("ps") if row["kind"] == "bench"], 60, lambda: "no bench run"
    )
    for _ in range(3):
        accepted = host.link.accepted
        host.link.cut()
        wait_until(
            lambda a=accepted: host.link.accepted > a or measuring.poll() is not None, 60, lambda: "no reconnect"
        )
    out, _ = measuring.communicate(timeout=300)
    said = json.loads(out)
    assert said["error"] is None, said
    assert said["bench_run"] == found["run"]
    assert said["run"] == run  # the one ready server of ours
    record = said["results"][0]["record"]
    counts, speculation = record["counts"], record["speculation"]
    assert failed_guards(record) == set()
    assert counts["errors"] == 0
    assert counts["ok"] >= 2
    # --enable-metrics was added at the launch: the server's own counter, idle to idle, is ours.
    assert counts["server_output_tokens"] == pytest.approx(counts["output_tokens"], rel=0.005)
    # Its own counters: tokens of prefill are counted there, and drafts behind a stop are not.
    by_counters = (counts["server_output_tokens"] - counts["ok"]) / speculation["verify_steps"]
    assert speculation["tau"] == pytest.approx(by_counters, rel=0.03)
    assert speculation["counter_accept_length"] == pytest.approx(
        counts["server_output_tokens"] / speculation["verify_steps"]
    )
    assert speculation["server_accept_length"] == pytest.approx(speculation["tau"], rel=0.05)
    assert 1.2 < speculation["tau"] <= 4.0
    assert speculation["proposed_drafts"] == 3 * speculation["verify_steps"]
    assert record["server"]["spec"] == {
        "algorithm": "EAGLE3",
        "steps": 3,
        "topk": 1,
        "draft_tokens": 4,
        "draft_model": record["server"]["args"]["speculative_draft_model_path"],
    }
    # What it was launched with is what it says that it runs with.
    assert said["guards"]["server"] == "ok"
    assert said["guards"]["graph"] == "not_applicable"
    assert said["guards"]["simulated_acceptance"] == "ok"
    assert record["server"]["version"] == "0.5.23"
    assert record["server"]["env"]["SGLANG_USE_CPU_ENGINE"] == "1"
    assert record["tool"]["backend"] == "chat"


@pytest.mark.parametrize(("interface", "sets"), [("chat", ()), ("generate", RANDOM)])
def test_both_count_the_same_tokens_and_the_rates_are_compared(host, ready, interface, sets):
    """`bench verify`: the referee is SGLang's own tool."""
    run, _ = ready("tiny-eagle3")
    document = host.eagletui.json("bench", "verify", "cpu-bench", *sets, code=None, timeout=400)
    assert document["error"] is None
    assert document["interface"] == interface
    assert document["referee"]["name"] == "sglang"
    assert document["referee"]["version"]
    (point,) = document["points"]
    assert point["load"] == "c2"
    assert point["passes"] is (abs(point["difference"]) <= point["limit"])
    assert document["passes"] is point["passes"]
    # It counts one GET more than there was: taken out, its rate is higher than it printed.
    assert point["referee_tok_s"][0] > point["referee_printed_tok_s"][0]
    ours, theirs = document["results"]
    assert (ours["tool"], theirs["tool"]) == ("eagletui", "sglang")
    assert ours["backend"] == interface
    assert theirs["backend"] == ("sglang-oai-chat" if interface == "chat" else "sglang")
    assert ours["bench"] == theirs["bench"] == "cpu-bench-verify"
    assert ours["run"] == theirs["run"] == document["run"] == run
    # Greedy replies to the same prompts: the same tokens, and the server's own counter says so of both.
    assert ours["successful"] == theirs["successful"] == theirs["num_prompts"]
    assert ours["output_tokens"] == theirs["output_tokens"]
    assert ours["guards"]["tokens"] == theirs["guards"]["tokens"] == "ok"
    assert ours["spec_algorithm"] == theirs["spec_algorithm"] == "EAGLE3"
    assert theirs["accept_length"] == pytest.approx(ours["accept_length"], rel=0.05)
    stored = {record["result"] for record in host.eagletui.json("results")}
    assert {ours["result"], theirs["result"]} <= stored


def test_no_such_bench_and_no_such_server(host):
    assert host.eagletui.json("bench", "verify", "nothing", code=2)["error"] == "unknown_profile"
    refused = host.eagletui.json("bench", "verify", "cpu-bench", "--run", "ffffff", code=2)
    assert refused["error"] == "unknown_run"


@pytest.mark.parametrize("users", [1, 4])
@pytest.mark.parametrize("api", ["chat", "generate"])
def test_the_figures_are_those_of_the_frames(ready, tmp_path, api, users):
    """What the load generator says is what came over the socket, as a proxy between the two noted it."""
    _, port = ready("tiny-eagle3")
    proxy = Proxy(port)
    items = [{"prompt": f"{word} of the next line"} for word in ("a few", "words", "that", "differ", "a little")]
    plan = {
        "version": 1,
        "base_url": f"http://127.0.0.1:{proxy.port}",
        "api": api,
        "points": [{"concurrency": users}],
        "duration_s": 4,
        "duration_max_s": 60,
        "needs": {"replies": 4 * users + 1},
        "output_len": 48,
        "dataset": {"kind": "prompts", "items": items},
        "warmup_s": 3,
    }
    (tmp_path / "bench.json").write_text(json.dumps(plan))
    argv = generator(tmp_path)
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    proxy.close()
    assert done.returncode == 0, done.stdout[-500:] + done.stderr
    noted = replies_of(proxy)
    meta = json.loads((tmp_path / f"c{users}-1.json").read_text())
    lines = gzip.decompress((tmp_path / f"c{users}-1.rows.jsonl.gz").read_bytes()).splitlines()
    rows = [json.loads(line) for line in lines]
    told = [noted[row["prompt"]] for row in rows]
    assert len(rows) > 4 * users
    for row, reply in zip(rows, told, strict=True):
        assert row["err"] is None
        assert [row["k1"], *row["toks"]] == reply["chunks"]
        assert row["k1"] + sum(row["toks"]) == row["out"] == reply["sends"][-1][1]
    figures = {each.figure: each for each in compare(Run(Case(api, {"concurrency": users}), rows, meta, told))}
    rate = figures["per-user tok/s"]
    assert rate.measured == pytest.approx(rate.true, rel=LIMIT), meta["client"]
    assert figures["tau"].holds
    assert figures["tau"].true > 1.2


# ---- with and without, and without ----------------------------------------------------------------------------------


def test_greedy_verification_changes_no_text(host, ready):
    """By chat, and token by token by /generate; at one user and with the same kernels."""
    answered: dict[tuple[str, ...], list[list[Reply]]] = {(): [], RANDOM: []}
    for name in SERVERS:
        run, _ = ready(name)
        for asked, found in answered.items():
            words = ("bench", "cpu-bench", "--run", run, "--set", "concurrency=1", *asked)
            said = host.eagletui.json(*words, code=None, timeout=300)
            (rows,) = host.eagletui.home.rglob(f"{said['results'][0]['result']}.rows.jsonl.gz")
            with gzip.open(rows) as lines:
                found.append(list(replies(lines)))
    for drafted, alone in answered.values():
        found = same_text([[alone]], [[drafted]])
        assert found.between.replies >= 4
        assert found.between.differ == 0, found.examples


def test_the_baseline_with_fixed_lengths(host, ready):
    ready("tiny-plain")
    said = host.eagletui.json(
        *("bench", "cpu-bench", "--set", "dataset=random-ids", "--set", "input_len=64"), code=None, timeout=300
    )
    record = said["results"][0]["record"]
    counts = record["counts"]
    assert failed_guards(record) == set()
    assert counts["output_tokens"] == 32 * counts["ok"] == counts["server_output_tokens"]
    assert counts["input_tokens"] == 64 * counts["ok"]
    assert counts["cached_tokens"] < counts["input_tokens"] / 100  # two prompts may begin with the same token
    assert record["speculation"] is None
    assert record["tool"]["backend"] == "generate"
    assert said["guards"]["server"] == "ok"
