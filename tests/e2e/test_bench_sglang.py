"""The real SGLang, with and without an EAGLE-3 draft, measured by the command over a real sshd.

Speeds mean nothing on a CPU that server and client share; tokens, acceptance and what a server was launched with do.
"""

import contextlib
import gzip
import json
import subprocess

import pytest

from tui.core.verdicts.same_text import Reply, replies, same_text

pytestmark = pytest.mark.timeout(600)

READY_S = 240
BENCH = """
kind = "bench"
description = "short, for a CPU"
dataset = "prompts"
concurrency = [2]
output_len = 48
duration_s = 10
runs = 1
"""
# On few cores the server is in its client's way, and slow.
CPU_ONLY = {"client_cpu", "client_lag", "window"}


@pytest.fixture(scope="module")
def host(gpu_hosts, sglang_module):
    host = gpu_hosts()
    host.python(sglang_module.python)
    host.profile("cpu-bench", BENCH)
    return host


@pytest.fixture
def launched(host, sglang_module, free_port):
    """launched(name, **options of the profile): a ready server of that name; stopped with the test."""
    with contextlib.ExitStack() as stack:

        def launch(name: str, **options: object) -> str:
            host.profile(name, sglang_module.profile(free_port(), **options))
            said = host.eagletui.json("launch", name, "--wait", "--timeout", str(READY_S), timeout=READY_S + 60)
            assert said["outcome"] == "ready"
            stack.callback(host.eagletui.json, "stop", said["run"], "--yes")
            return said["run"]

        yield launch


def failed_guards(record: dict) -> set[str]:
    return {guard["id"] for guard in record["guards"] if guard["status"] == "failed"} - CPU_ONLY


def test_eagle3_by_its_own_counters_over_a_link_that_is_cut(host, launched, wait_until):
    run = launched("tiny-eagle3")
    measuring = host.eagletui.popen("bench", "cpu-bench", "--json", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    (found,) = wait_until(
        lambda: [row for row in host.eagletui.json("ps") if row["kind"] == "bench"], 60, lambda: "no bench run"
    )
    for _ in range(3):
        accepted = host.link.accepted
        host.link.cut()
        wait_until(lambda a=accepted: host.link.accepted > a, 60, lambda: "no reconnect")
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


def test_the_baseline_with_fixed_lengths(host, launched):
    launched("tiny-plain", eagle3=False)
    said = host.eagletui.json(
        *("bench", "cpu-bench", "--set", "dataset=random-ids", "--set", "input_len=64", "--set", "output_len=32"),
        code=None,
        timeout=300,
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


def test_greedy_verification_changes_no_text(host, launched):
    """By chat, and token by token by /generate; at one user and with the same kernels."""
    exact = {"dtype": "float32"}  # in bfloat16 a step of four tokens rounds otherwise than a step of one
    amx = {"prefill_attention_backend": "intel_amx", "decode_attention_backend": "intel_amx"}
    random_ids = ("--set", "dataset=random-ids", "--set", "input_len=32")
    answered: dict[tuple[str, ...], list[list[Reply]]] = {(): [], random_ids: []}
    for name, options in (("tiny-drafted", exact), ("tiny-alone", {"eagle3": False, **amx, **exact})):
        run = launched(name, **options)
        for asked, found in answered.items():
            words = ("bench", "cpu-bench", "--run", run, "--set", "concurrency=1", *asked)
            said = host.eagletui.json(*words, code=None, timeout=300)
            (rows,) = host.eagletui.home.rglob(f"{said['results'][0]['result']}.rows.jsonl.gz")
            with gzip.open(rows) as lines:
                found.append(list(replies(lines)))
        host.eagletui.json("stop", run, "--yes")
    for drafted, alone in answered.values():
        found = same_text([[alone]], [[drafted]])
        assert found.between.replies >= 4
        assert found.between.differ == 0, found.examples
