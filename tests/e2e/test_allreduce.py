"""The all-reduce micro-benchmark in a real torch: gloo, as there is no GPU here."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tui.remote
from tui.core.bench import allreduce
from tui.core.model.result import AllReduce, Load, MeasuredServer, Result, SpecConfig, Tool

PROGRAM = Path(tui.remote.__file__).with_name("allreduce.py")


def start(python: str, *words: str, mark: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [python, str(PROGRAM), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "EAGLETUI_TEST_MARK": mark},
    )


def run(python: str, *words: str) -> tuple[int, dict]:
    process = start(python, *words)
    out, err = process.communicate(timeout=200)
    assert not err, err
    return process.returncode, json.loads(out)


def test_figures_for_each_size(sglang_cpu):
    words = ("--model", sglang_cpu.model("tiny-llama"), "--ranks", "3", "--seconds", "1")
    code, found = run(sglang_cpu.python, *words, "--draft-tokens", "2,4", "--batches", "1,2")
    assert code == 0
    assert (found["backend"], found["mode"], found["ranks"]) == ("gloo", "eager", 3)
    config = json.loads(Path(sglang_cpu.model("tiny-llama"), "config.json").read_text())
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    assert (found["hidden"], found["layers"]) == (hidden, layers)
    sizes = [(p["what"], p["batch"], p["draft_tokens"], p["tokens"]) for p in found["points"]]
    assert sizes == [
        ("decode", 1, None, 1),
        ("decode", 2, None, 2),
        ("verify", 1, 2, 2),
        ("verify", 2, 2, 4),
        ("verify", 1, 4, 4),
        ("verify", 2, 4, 8),
    ]
    for point in found["points"]:
        assert point["bytes"] == point["tokens"] * hidden * 2
        assert point["samples"] >= 100
        assert 0 < point["min_us"] <= point["median_us"] <= point["p99_us"]
        assert point["step_ms"] == pytest.approx(2 * layers * point["median_us"] / 1000, abs=0.001)


@pytest.mark.parametrize(
    ("words", "slug", "text"),
    [
        (["--hidden", "64", "--layers", "2", "--ranks", "1"], "too_few_gpus", "one rank reduces nothing"),
        (["--hidden", "64"], "no_shape", "are not known"),
        (["--model", "/nowhere"], "bad_model_path", "/nowhere/config.json"),
    ],
)
def test_what_cannot_be_measured_is_one_line(sglang_cpu, words, slug, text):
    code, found = run(sglang_cpu.python, *words)
    assert code == 1
    assert (found["event"], found["slug"]) == ("error", slug)
    assert text in found["text"]
    assert found["hint"]


def test_a_python_without_torch_is_named():
    code, found = run(sys.executable, "--hidden", "64", "--layers", "2")
    assert (code, found["slug"]) == (1, "no_torch")
    assert sys.executable in found["text"]


def test_a_stop_takes_the_ranks_along(sglang_cpu, wait_until):
    words = ("--hidden", "64", "--layers", "2", "--seconds", "600")
    process = start(sglang_cpu.python, *words, mark=sglang_cpu.mark)
    wait_until(lambda: len(sglang_cpu.processes()) == 3, 60, lambda: f"only {sglang_cpu.processes()}")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    assert sglang_cpu.processes() == []


def test_the_command_measures_a_host_and_the_economics_find_it(sglang_cpu, eagletui, monkeypatch):
    config = eagletui.home / ".config/eagletui"
    config.mkdir(parents=True)
    (config / "config.toml").write_text(f"[hosts.local]\npython = {json.dumps(sglang_cpu.python)}\n")
    profiles = eagletui.home / "profiles"
    profiles.mkdir()
    model = sglang_cpu.model("tiny-llama")
    words = ["{python}", "{allreduce}", "--model", model, "--draft-tokens", "4", "--batches", "1,2", "--seconds", "1"]
    (profiles / "quick.toml").write_text(f'kind = "bench"\ndriver = "command"\ncommand = {json.dumps(words)}\n')
    document = eagletui.json("bench", "quick", "--host", "local")
    assert (document["host"], document["backend"], document["error"]) == ("local", "gloo", None)
    told = eagletui.run("bench", "quick", "--host", "local")
    assert told.returncode == 0
    assert "2 ranks on cpu (gloo, call by call), hidden 64, 8 layers" in told.stdout
    shipped = eagletui.json("bench", "all-reduce", "--host", "local", code=1)  # no such model here
    assert shipped["error"] == "bad_model_path"
    server = eagletui.json("bench", "quick", "--host", "local", "--url", "http://127.0.0.1:1", code=2)
    assert "measures the host, not a server" in server["message"]

    # The newest one speaks for speculative results of that model on that host.
    monkeypatch.setenv("HOME", str(eagletui.home))
    monkeypatch.delenv("EAGLETUI_HOME")
    report = allreduce.latest("local", model)
    assert report is not None
    assert report.run_id != document["run_id"]

    def measured(host="local", users=2, drafts=4) -> Result:
        server = MeasuredServer(host, model=model, spec=SpecConfig("EAGLE3", 3, 1, drafts))
        load = Load("closed", users, None, "prompts")
        return Result("r-c1-1", "b", "2026-11-29T08:00:00Z", Tool("eagletui"), server, load)

    found = AllReduce(report.at(2), report.at(8))
    assert allreduce.of_results([measured()]) == (8, found)
    assert allreduce.of_results([measured()], layers=8) == (8, found)
    assert allreduce.of_results([measured()], layers=61) == (61, None)
    assert allreduce.of_results([measured(drafts=6)]) == (8, None)  # a size that was not measured
    assert allreduce.of_results([measured(host="gpu1")]) == (None, None)
