"""The real SGLang with an EAGLE-3 draft behind a real sshd, driven by the command line.

One server serves most of these tests, in their order: launched, followed, asked, stopped.
"""

import hashlib
import http.server
import json
import subprocess
import threading
import urllib.request

import pytest

pytestmark = pytest.mark.timeout(600)

READY_S = 240  # a start takes 17 to 60 s on a free machine


def generate(port: int, tokens: int) -> str:
    """One greedy generation by the server's own interface."""
    body = {"text": "import os", "sampling_params": {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/generate", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        document = json.load(answer)
    assert document["meta_info"]["completion_tokens"] == tokens
    return document["text"]


class Server:
    """What the tests share: the host, and the run once it is there."""

    def __init__(self, host, sglang, port: int) -> None:
        self.host = host
        self.sglang = sglang
        self.port = port
        self.run: str = ""

    def eagletui(self, *arguments: str, code: int | None = 0, timeout: float = READY_S + 60):
        return self.host.eagletui.json(*arguments, code=code, timeout=timeout)


@pytest.fixture(scope="module")
def server(gpu_hosts, sglang_module, free_port):
    host = gpu_hosts()
    host.python(sglang_module.python)
    port = free_port()
    host.profile("tiny-eagle3", sglang_module.profile(port))
    return Server(host, sglang_module, port)


def test_the_profile_becomes_the_command(server):
    shown = server.eagletui("profiles", "show", "tiny-eagle3")
    argv = shown["argv"]
    assert argv[0] == server.sglang.python
    assert argv[argv.index("--speculative-algorithm") + 1] == "EAGLE3"
    assert argv[argv.index("--port") + 1] == str(server.port)
    assert shown["env"]["SGLANG_USE_CPU_ENGINE"] == "1"


def test_launch_waits_until_ready(server):
    document = server.eagletui("launch", "tiny-eagle3", "--wait", "--timeout", str(READY_S))
    assert document["outcome"] == "ready"
    assert document["host"] == "gpu1"
    assert document["port"] == server.port
    assert document["diagnosis"] is None
    server.run = document["run"]
    generate(server.port, 8)  # it really is


def test_ps_lists_it(server):
    (row,) = [row for row in server.eagletui("ps") if row["run"] == server.run]
    assert row["kind"] == "server"
    assert row["profile"] == "tiny-eagle3"
    assert row["outcome"] == "ready"
    assert row["port"] == server.port
    assert row["pid"] in server.sglang.processes()
    assert row["exit_code"] is None


def test_wait_knows_it_by_its_six_digits(server):
    assert server.eagletui("wait", server.run[-6:], "--timeout", "60")["outcome"] == "ready"


def test_tokens_and_accept_length(server):
    generate(server.port, 300)
    decode = server.eagletui("diagnose", server.run)["last_decode"]
    # The tiny draft knows the target's next-token table: a real, partial acceptance between 1 and 1 + 3 steps.
    assert 1.2 < decode["accept_len"] <= 4.0
    assert decode["gen_tok_s"] > 0


def test_the_log_survives_a_link_that_dies(server, tmp_path, wait_until):
    """Every byte once, in order, however often the link is reset while it is followed."""
    (log,) = server.host.directory.rglob("log")
    copy = tmp_path / "copy"
    with copy.open("wb") as out:
        follower = server.host.eagletui.popen("logs", server.run, "-f", stdout=out, stderr=subprocess.DEVNULL)
    try:
        for _ in range(4):
            seen = copy.stat().st_size
            accepted = server.host.link.accepted
            generate(server.port, 100)  # new lines while the link is up
            wait_until(lambda s=seen: copy.stat().st_size > s, 30, lambda: "nothing new was followed")
            server.host.link.cut()
            generate(server.port, 100)  # and while it is down
            wait_until(lambda a=accepted: server.host.link.accepted > a, 60, lambda: "no reconnect")
        wait_until(
            lambda: copy.stat().st_size == log.stat().st_size,
            60,
            lambda: f"followed {copy.stat().st_size} of {log.stat().st_size} bytes",
        )
        assert follower.poll() is None
        assert hashlib.sha256(copy.read_bytes()).digest() == hashlib.sha256(log.read_bytes()).digest()
    finally:
        follower.terminate()
        follower.wait(30)
    assert "Traceback" not in copy.read_text(errors="replace")


def test_another_launch_on_the_port_is_refused_before_it_starts(server):
    document = server.eagletui("launch", "tiny-eagle3", code=1)
    assert document["error"] == "preflight"
    (port,) = [finding for finding in document["findings"] if finding["check"] == "port"]
    assert port["level"] == "block"
    assert str(server.port) in port["text"]
    assert [row["run"] for row in server.eagletui("ps") if row["state"] != "foreign"] == [server.run]


def test_stop_leaves_no_process(server, wait_until):
    assert server.sglang.processes()
    document = server.eagletui("stop", server.run, "--yes")
    assert document["outcome"] == "stopped"
    assert document["orphans"] == []
    assert server.sglang.processes() == []


def test_stop_again_says_the_same(server):
    assert server.eagletui("stop", server.run, "--yes")["outcome"] == "stopped"
    assert server.eagletui("wait", server.run, "--for", "exit", "--timeout", "30")["outcome"] == "stopped"
    assert server.eagletui("wait", server.run, "--timeout", "30", code=1)["outcome"] == "stopped"
    (row,) = [row for row in server.eagletui("ps") if row["run"] == server.run]
    assert row["outcome"] == "stopped"


class Impostor(http.server.BaseHTTPRequestHandler):
    """Another server on the port that answers all that SGLang's warm-up, and a careless observer, asks."""

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = json.dumps({"model_path": "other", "is_generation": True, "text": "x", "meta_info": {}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = _answer

    def log_message(self, *_: object) -> None:
        pass


def test_a_second_server_on_the_port_is_never_called_ready(server, free_port):
    """SGLang's warm-up reaches the other server and prints "fired up" just before it dies."""
    port = free_port()
    server.host.profile("tiny-plain", server.sglang.profile(port, eagle3=False))
    launched = server.eagletui("launch", "tiny-plain")
    assert launched["outcome"] == "starting"
    # The port was free at the launch and is taken while the server loads.
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), Impostor) as impostor:
        threading.Thread(target=impostor.serve_forever, daemon=True).start()
        document = server.eagletui("wait", launched["run"], "--timeout", str(READY_S), code=1)
        impostor.shutdown()
    assert document["outcome"] == "crashed"
    assert document["diagnosis"]["cause"] == "port_in_use"
    log = server.host.eagletui.run("logs", launched["run"]).stdout
    assert "fired up and ready to roll" in log  # the trap was there
    assert server.sglang.processes() == []
