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
