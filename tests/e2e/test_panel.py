"""The panel in a real terminal, driven by keys, with the real SGLang and EAGLE-3 behind a real sshd."""

import json
import re
import subprocess
import urllib.request

import pytest

pytestmark = pytest.mark.timeout(600)

# Servers of other tests, the simulated host's too, are foreign ones to the host of these.
NOTHING_OF_OURS = r"No server runs here|foreign-\d+"


def generate(port: int, tokens: int) -> None:
    body = {"text": "import os", "sampling_params": {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/generate", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        assert json.load(answer)["meta_info"]["completion_tokens"] == tokens


def test_launched_followed_and_stopped_by_keyboard(
    gpu_host, sglang_cpu, free_port, terminal, launch_by_keyboard, wait_until
):
    port = free_port()
    gpu_host.python(sglang_cpu.python)
    gpu_host.profile("tiny-eagle3", sglang_cpu.profile(port))
    command = gpu_host.eagletui
    screen = terminal([*command.argv, "gpu1"], command.env, cwd=command.home)
    screen.wait_for(NOTHING_OF_OURS, 60)

    launch_by_keyboard(screen, "tiny-eagle3")
    screen.wait_for(r"STARTING\s+tiny-eagle3", 60)
    screen.wait_for(r"✓ launch", 120)

    # The link dies in the middle of the start: shown, survived, and the log goes on where it stopped.
    accepted = gpu_host.link.accepted
    gpu_host.link.cut()
    wait_until(lambda: gpu_host.link.accepted > accepted, 60, lambda: "no reconnect:\n" + screen.screen())

    screen.wait_for(r"READY\s+tiny-eagle3", 180)
    for phase in ("distributed init", "load weights", "draft model", "memory pool", "warm-up"):
        assert re.search(rf"✓ {phase}", screen.screen()), screen.screen()

    generate(port, 300)
    accept = screen.wait_for(r"accept(?:ed)?(?: len(?:gth)?)?\D{0,20}([1-4]\.\d+)", 30)
    assert 1.2 < float(accept.group(1)) <= 4.0

    # Another eagletui finds the run, and its log holds every byte once.
    (log,) = gpu_host.directory.rglob("log")
    (run,) = (one for one in command.json("ps", "gpu1") if one["profile"] == "tiny-eagle3")  # others may run here
    assert run["outcome"] == "ready"
    assert run["pid"] in sglang_cpu.processes()
    followed = subprocess.run([*command.argv, "logs", run["run"]], env=command.env, stdout=subprocess.PIPE, check=True)
    assert followed.stdout == log.read_bytes()

    # Its log: what it decodes is plotted, the host counts what is searched for.
    screen.keys("2")
    screen.wait_for(r"serving │.*Prefill batch|serving │.*Decode batch", 30)
    screen.wait_for(r"tok/s ─+ \d\d:\d\d:\d\d to \d\d:\d\d:\d\d.*accept length ─+ mean [1-4]\.\d\d", 30)
    count = sum(b"accept len" in line for line in log.read_bytes().splitlines())
    screen.keys("/")
    screen.wait_for("Enter done")
    screen.type("accept len")
    screen.wait_for(rf"\b{count} hits", 30)
    screen.keys("Enter")
    screen.wait_for(rf"\b{count} of {count} hits", 30)
    screen.keys("1")

    screen.keys("S")
    screen.wait_for(r"Stop this server on gpu1\?", 20)
    screen.wait_for(rf"PID\s+{run['pid']}", 5)
    screen.keys("Tab", "Enter")
    screen.wait_for(r"STOPPED\s+tiny-eagle3", 90)
    screen.keys("2", "G")
    screen.wait_for(r"\[eagletui\] exit=", 30)
    screen.wait_for("read to the end")
    wait_until(lambda: not sglang_cpu.processes(), 30, lambda: f"left: {sglang_cpu.processes()}")
    screen.keys("q")
    assert screen.wait_exit() == 0


def test_leaving_the_panel_leaves_the_server(gpu_host, free_port, terminal, launch_by_keyboard):
    """A server of any kind: started from one panel, found by the next, gone when it is stopped."""
    gpu_host.profile(
        "sleeper", f'kind = "launch"\ncommand = ["sh", "-c", "sleep 1000", "server"]\n[args]\nport = {free_port()}\n'
    )
    command = gpu_host.eagletui
    first = terminal([*command.argv, "gpu1"], command.env, cwd=command.home)
    first.wait_for(NOTHING_OF_OURS, 60)
    launch_by_keyboard(first, "sleeper")
    first.wait_for(r"sleeper\s+started \d", 60)
    first.keys("q")
    assert first.wait_exit() == 0
    second = terminal([*command.argv, "gpu1"], command.env, cwd=command.home)
    second.wait_for(r"sleeper\s+started \d", 60)
    second.keys("q")
    assert second.wait_exit() == 0
    (run,) = (run for run in command.json("ps", "gpu1") if run["profile"] == "sleeper")
    assert command.json("stop", run["run"], "--yes")["outcome"] == "stopped"


def test_a_dead_link_is_shown_and_the_panel_can_be_left(gpu_host, terminal):
    command = gpu_host.eagletui
    screen = terminal([*command.argv, "gpu1"], command.env, cwd=command.home)
    screen.wait_for(NOTHING_OF_OURS, 60)
    gpu_host.link.freeze()
    screen.wait_for(r"(?i)link lost|lost", 60)
    screen.keys("q")
    assert screen.wait_exit() == 0


def test_an_unknown_host_key_is_asked_about(gpu_host, terminal):
    known = gpu_host.ssh / "known_hosts"
    known.write_text("")
    command = gpu_host.eagletui
    screen = terminal([*command.argv, "gpu1"], command.env, cwd=command.home)
    screen.wait_for(r"SHA256:\S+", 60)
    assert known.read_text() == ""  # nothing is written before the answer
    screen.keys("Escape")
    screen.wait_for("✗ not connected", 20)
    assert known.read_text() == ""
    screen.keys("q")
    assert screen.wait_exit() == 0


def test_a_small_terminal_is_enough(gpu_host, terminal):
    command = gpu_host.eagletui
    screen = terminal([*command.argv, "gpu1"], command.env, cwd=command.home, columns=80, rows=24)
    screen.wait_for(NOTHING_OF_OURS, 60)
    assert all(len(line) <= 80 for line in screen.screen().splitlines())
    screen.keys("?")
    screen.wait_for("j k scroll", 20)
    screen.keys("Escape")
    screen.wait_gone("j k scroll", 10)
    screen.keys("q")
    assert screen.wait_exit() == 0
