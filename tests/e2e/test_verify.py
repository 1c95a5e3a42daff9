"""`eagletui bench verify` on a real SGLang with an EAGLE-3 draft, behind a real sshd: the referee is SGLang's own tool."""

import pytest

pytestmark = pytest.mark.timeout(600)

READY_S = 240
BENCH = """
kind = "bench"
description = "short, for a test"
dataset = "prompts"
concurrency = [2]
output_len = 32
duration_s = 10
runs = 1
"""


@pytest.fixture(scope="module")
def host(gpu_hosts, sglang_module, free_port):
    """A host with a server that is ready."""
    started = gpu_hosts()
    started.python(sglang_module.python)
    started.profile("tiny-eagle3", sglang_module.profile(free_port()))
    started.profile("short", BENCH)
    document = started.eagletui.json("launch", "tiny-eagle3", "--wait", "--timeout", str(READY_S), timeout=300)
    assert document["outcome"] == "ready"
    return started


RANDOM = ("--set", "dataset=random-ids", "--set", "input_len=32")


@pytest.mark.parametrize(("interface", "sets"), [("chat", ()), ("generate", RANDOM)])
def test_both_count_the_same_tokens_and_the_rates_are_compared(host, interface, sets):
    document = host.eagletui.json("bench", "verify", "short", *sets, code=None, timeout=400)
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
    assert ours["bench"] == theirs["bench"] == "short-verify"
    assert ours["run"] == theirs["run"] == document["run"]
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
    refused = host.eagletui.json("bench", "verify", "short", "--run", "ffffff", code=2)
    assert refused["error"] == "unknown_run"
