"""A server in a container by the command line: from a profile to ready, its log, its end, and one that somebody else runs."""

import json

import pytest

from tests.support.engines import IMAGE, MOUNTS, docker_engine
from tests.support.shell import Shell


@pytest.fixture(scope="module")
def dockerd(tmp_path_factory):
    yield from docker_engine(tmp_path_factory.mktemp("docker"))


def profile(shell: Shell, name: str, engine: tuple[str, ...], port: str) -> str:
    directory = shell.cwd / "profiles"
    directory.mkdir(exist_ok=True)
    number = port.partition("=")[2]
    (directory / f"{name}.toml").write_text(
        f"""kind = "launch"
command = ["/usr/bin/python3", "/t/container_server.py"]
[container]
image = "{IMAGE}"
engine = {json.dumps(engine)}
mounts = {json.dumps([word for word in MOUNTS if word != "-v"])}
gpus = false
[env]
PORT = "{number}"
[args]
port = {number}
"""
    )
    return name


def test_from_a_profile_to_ready_and_to_nothing(shell, port, dockerd):
    name = profile(shell, "boxed", dockerd.engine.words, port)
    ready = shell("launch", name, "--host", "local", "--wait", "--timeout", "60", "--json")
    assert (ready.code, ready.json["outcome"]) == (0, "ready")
    run = ready.json["run"]
    assert dockerd.engine.names() == [f"eagletui-{run}"]
    assert b"fired up" in shell("logs", run).out
    again = shell("launch", name, "--host", "local", "--json").refused(1, "preflight")
    assert any(run[-6:] in finding["text"] for finding in again["findings"])
    stopped = shell("stop", run, "--yes", "--json")
    assert (stopped.code, stopped.json["outcome"], stopped.json["exit_code"]) == (0, "stopped", 0)
    assert dockerd.engine.names() == []
    assert b"Draining" in shell("logs", run).out


def test_what_the_engine_refuses_is_said_before_a_launch(shell, port, dockerd):
    name = profile(shell, "nobody", ("docker", "-H", "unix:///nowhere/sock"), port)
    refused = shell("launch", name, "--host", "local", "--json").refused(1, "preflight")
    (finding,) = [f for f in refused["findings"] if f["check"] == "container"]
    assert finding["level"] == "block"
    assert finding["text"].startswith("docker does not answer: ")


def test_logs_and_diagnose_take_a_container_that_has_ended(shell, dockerd):
    words = dockerd.engine.run_words("-d", "--name", "dead", "-e", "EXIT=0,3", "-e", "PORT=1")
    dockerd.engine(*words[words.index("run") :])
    dockerd.engine("wait", "dead")
    shell.env["DOCKER_HOST"] = f"unix://{dockerd.socket}"
    assert b"partial without newline rest" in shell("logs", "docker:dead", "--host", "local").out
    assert shell("diagnose", "docker:dead", "--host", "local", "--json").json["phase"]
    missing = shell("logs", "docker:nobody", "--host", "local", "--json").refused(2, "unknown_run")
    assert "No such" in missing["message"]
    dockerd.engine("rm", "dead")


DIES = """[2026-11-30 10:00:00] server_args=ServerArgs(model_path='m', port=30000)
Traceback (most recent call last):
  File "/usr/lib/python3/dist-packages/sglang/srt/model_executor/model_runner.py", line 1, in load_model
    self.model = get_model(
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB
"""


def test_a_restart_loop_by_the_commands(shell, dockerd):
    package = shell.cwd / "sglang"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "launch_server.py").write_text(
        "import runpy; runpy.run_path('/t/container_server.py', run_name='__main__')"
    )
    dockerd.engine(
        "run", "-d", "--name", "loop", "--restart", "always", "--network", "host", *MOUNTS, "-v", f"{shell.cwd}:/p:ro",
        "-e", "PYTHONPATH=/p", "-e", f"SAY={DIES}", "-e", "EXIT=0,3", "-e", "PORT=1",
        IMAGE, "/usr/bin/python3", "-m", "sglang.launch_server", "--port", "1",
    )  # fmt: skip
    try:
        # Each pause is twice the one before: from here on it is longer than what is asked takes.
        while int(dockerd.engine("inspect", "-f", "{{.RestartCount}}", "loop")) < 7:
            pass
        shell.env["DOCKER_HOST"] = f"unix://{dockerd.socket}"
        (row,) = [row for row in shell("ps", "local", "--json").json if (row["container"] or {}).get("name") == "loop"]
        assert (row["outcome"], row["cause"], row["container"]["log"]) == ("restarting", "oom_weights", "docker:loop")
        lines = shell("ps", "local").out.decode().splitlines()
        at = next(number for number, line in enumerate(lines) if "docker:loop" in line)
        assert "restarting" in lines[at]
        assert lines[at + 1].endswith("times by its engine")
        found = shell("diagnose", "docker:loop", "--host", "local", "--json").json
        assert (found["outcome"], found["cause"]) == ("crashed", "oom_weights")
        assert "was started again" in found["note"]
        refused = shell("stop", "docker:loop", "--yes", "--json").refused(2, "foreign")
        assert "watched read-only" in refused["message"]
    finally:
        dockerd.engine("rm", "-f", "loop")


BENCH = """kind = "bench"
concurrency = [2]
output_len = 20
duration_s = 0.5
runs = 1
"""
SERVES = """
import asyncio, sys
sys.path.insert(0, "/t")
import truth_server

def started(port, server):
    print("INFO:     Uvicorn running on http://0.0.0.0:%d (Press CTRL+C to quit)" % port, file=sys.stderr)
    print("The server is fired up and ready to roll!", file=sys.stderr, flush=True)

asyncio.run(truth_server.serve({"host": "0.0.0.0", "port": 30000, "tokens": 12, "tick_ms": 4}, started))
"""


def test_a_server_on_a_bridge_from_its_profile_to_its_end(shell, port, dockerd):
    """Its port is the published one in all that is said and measured; the inner one is never asked for on the host."""
    published = int(port.partition("=")[2])
    profile(shell, "bridged", dockerd.engine.words, "port=30000")
    path = shell.cwd / "profiles/bridged.toml"
    text = path.read_text().replace('"/t/container_server.py"', f'"-c", {json.dumps(SERVES)}')
    options = ["--network", dockerd.engine.bridge(), "-p", f"{published}:30000"]
    path.write_text(text.replace("[container]", f"[container]\noptions = {json.dumps(options)}"))
    (shell.cwd / "profiles/quick.toml").write_text(BENCH)
    ready = shell("launch", "bridged", "--host", "local", "--wait", "--timeout", "60", "--json")
    assert (ready.code, ready.json["outcome"], ready.json["port"]) == (0, "ready", published)
    run = ready.json["run"]
    row = shell.row(run)
    assert (row["outcome"], row["port"], row["container"]["published"]) == ("ready", published, [[30000, published]])
    measured = shell("bench", "quick", "--run", run, "--host", "local", "--json").json
    (result,) = measured["results"]
    assert (result["record"]["tool"]["container"], result["record"]["counts"]["errors"]) == (None, 0)
    assert result["record"]["server"]["url"] == f"http://127.0.0.1:{published}"
    replaced = shell("launch", "bridged", "--host", "local", "--replace", "--json", timeout=120).json
    assert replaced["error"] is None
    stopped = shell("stop", replaced["run"], "--yes", "--json")
    assert (stopped.code, stopped.json["outcome"]) == (0, "stopped")
    assert dockerd.engine.names() == []
