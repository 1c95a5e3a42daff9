"""The simulated host: found, started once, replaced, ended; behind it the real way of an SSH host."""

import asyncio
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from tui.core.config import state_dir
from tui.core.errors import HostError
from tui.core.link.ssh import SshTransport
from tui.demo import place
from tui.demo.client import demo_env, ensure_demo, stop_demo
from tui.demo.gpus import process_start


class _Nobody:
    async def host_key(self, question: Any) -> bool:
        raise AssertionError("a pinned key asks nobody")

    async def prompt(self, prompt: Any) -> None:
        raise AssertionError("a key of its own asks nobody")


def _facts() -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((state_dir() / "demo" / "host.json").read_text(encoding="utf-8"))
    return facts


async def _until(look: Callable[[], object], deadline_s: float = 60.0) -> None:
    end = time.monotonic() + deadline_s
    while not look():
        if time.monotonic() > end:
            pytest.fail(f"not within {deadline_s:g} s")
        await asyncio.sleep(0.02)


@pytest.fixture(autouse=True)
async def no_host_left() -> AsyncIterator[None]:
    yield
    await stop_demo()


async def _connected() -> SshTransport:
    transport = SshTransport("demo", await ensure_demo(), _Nobody())
    await transport.connect()
    return transport


async def test_the_shell_there_is_the_simulated_host() -> None:
    transport = await _connected()
    try:
        done = await transport.run(
            "nvidia-smi -L | wc -l; command -v python3; echo $HOME; echo $EAGLETUI_STATE\n"
            'python3 -c \'from importlib.metadata import version as v; print(v("sglang"), v("torch"))\'\n'
            'du -s --apparent-size -B1000000000 "$EAGLETUI_FS_ROOT/data/models/Kimi-K2.5" 2>/dev/null | cut -f1\n'
        )
    finally:
        await transport.close()
    demo = state_dir() / "demo"
    words = done.stdout.decode().split()
    assert words[0] == "8"
    assert words[1] == str(demo / "bin" / "python3")
    assert words[2:4] == [str(demo / "home"), str(demo / "state")]
    assert words[4:6] == ["0.5.23", "2.11.0+cu131"]
    if len(words) > 6:
        assert 590 < int(words[6]) < 600


async def test_two_starts_at_once_are_one_host() -> None:
    code = "import asyncio; from tui.demo.client import ensure_demo; print(asyncio.run(ensure_demo()).port)"
    env = {**os.environ, "PYTHONPATH": str(place.package_root())}
    processes = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=subprocess.PIPE, env=env)
        for _ in range(4)
    ]
    ports = {(await process.communicate())[0].strip() for process in processes}
    assert ports == {str(_facts()["port"]).encode()}
    found = [
        name
        for name in os.listdir("/proc")
        if name.isdigit() and f"tui.demo.host\0{state_dir() / 'demo'}\0".encode() in _cmdline(name)
    ]
    assert found == [str(_facts()["pid"])]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _cmdline(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _listening(port: int) -> list[str]:
    """Local addresses, as the kernel writes them, on which somebody listens at this port."""
    return [
        line.split()[1]
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]
        if line.split()[3] == "0A" and int(line.split()[1].rsplit(":", 1)[1], 16) == port
    ]


async def test_private_files_loopback_and_no_known_hosts(own_home: Path) -> None:
    target = await ensure_demo()
    demo = state_dir() / "demo"
    assert stat.S_IMODE(demo.stat().st_mode) == 0o700
    for name in ("key", "host.json"):
        assert stat.S_IMODE((demo / name).stat().st_mode) == 0o600
    assert target.address == "127.0.0.1"
    assert target.pinned_host_key
    assert not (own_home / ".ssh").exists()
    listening = _listening(target.port)
    assert listening == [f"0100007F:{target.port:04X}"]


async def test_another_key_and_a_password_are_refused() -> None:
    target = await ensure_demo()
    for options in (
        {"client_keys": [asyncssh.generate_private_key("ssh-ed25519")]},
        {"client_keys": None, "password": "x"},
    ):
        with pytest.raises(asyncssh.PermissionDenied):
            await asyncssh.connect(
                "127.0.0.1",
                target.port,
                username=target.user,
                known_hosts=None,
                agent_path=None,
                config=None,
                **options,
            )


async def test_each_start_makes_new_keys() -> None:
    first = await ensure_demo()
    key = first.identity_files[0].read_text(encoding="utf-8")
    await stop_demo()
    assert not first.identity_files[0].exists()
    second = await ensure_demo()
    assert second.pinned_host_key != first.pinned_host_key
    assert second.identity_files[0].read_text(encoding="utf-8") != key


async def test_another_version_is_replaced() -> None:
    await ensure_demo()
    old = _facts()
    path = state_dir() / "demo" / "host.json"
    path.write_text(json.dumps({**old, "version": "0.0.0"}), encoding="utf-8")
    await ensure_demo()
    new = _facts()
    assert new["pid"] != old["pid"]
    assert process_start(old["pid"]) != old["start"]
    await ensure_demo()
    assert _facts()["pid"] == new["pid"]


async def test_a_host_that_was_killed_is_started_again() -> None:
    await ensure_demo()
    old = _facts()
    os.kill(old["pid"], signal.SIGKILL)
    await _until(lambda: process_start(old["pid"]) != old["start"])
    await ensure_demo()
    assert _facts()["pid"] != old["pid"]


async def test_leaves_by_itself_after_the_last_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EAGLETUI_DEMO_LINGER_S", "1.5")
    transport = await _connected()
    facts = _facts()
    done = await transport.run("sleep 3; echo still here")  # longer than it lingers: a client keeps it
    assert done.stdout.strip() == b"still here"
    await transport.close()
    await _until(lambda: process_start(facts["pid"]) != facts["start"])
    assert not (state_dir() / "demo" / "host.json").exists()
    assert not (state_dir() / "demo" / "key").exists()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_simulated_servers_end_with_it(how: signal.Signals) -> None:
    transport = await _connected()
    await transport.run(
        "cd; export EAGLETUI_DEMO_SPEED=2000\n"
        f"setsid python3 -m sglang.launch_server --model-path Qwen/Qwen3-0.6B --port {_free_port()} >log 2>&1 </dev/null &"
    )
    demo = state_dir() / "demo"
    files = demo / "root" / "gpu"
    await _until(lambda: list(files.glob("*.json")))
    body = json.loads(next(files.glob("*.json")).read_text(encoding="utf-8"))
    assert process_start(body["pid"]) == body["start"]
    facts = _facts()
    os.kill(facts["pid"], how)
    await transport.close()
    pids = [body["pid"], *(rank[1] for rank in body["ranks"])]
    await _until(lambda: all(process_start(pid) is None for pid in pids))


async def test_http_of_a_server_there_through_the_link() -> None:
    transport = await _connected()
    port = _free_port()
    try:
        await transport.run(
            "cd; export EAGLETUI_DEMO_SPEED=2000\n"
            f"setsid python3 -m sglang.launch_server --model-path Qwen/Qwen3-0.6B --port {port} >log 2>&1 </dev/null &"
        )
        log = state_dir() / "demo" / "home" / "log"
        await _until(lambda: log.exists() and "Uvicorn running" in log.read_text(encoding="utf-8"))
        async with transport.open_connection("127.0.0.1", port) as connection:
            await connection.write(b"GET /model_info HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            answer = b""
            while data := await connection.read():
                answer += data
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b'"model_path":"Qwen/Qwen3-0.6B"' in answer
    finally:
        await transport.close()


async def test_speed_and_seed_of_whoever_started_it_do_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EAGLETUI_DEMO_SPEED", "77")
    monkeypatch.setenv("EAGLETUI_DEMO_SEED", "9")
    transport = await _connected()
    try:
        done = await transport.run('echo "[${EAGLETUI_DEMO_SPEED-}${EAGLETUI_DEMO_SEED-}]"')
    finally:
        await transport.close()
    assert done.stdout.strip() == b"[]"


async def test_a_start_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EAGLETUI_DEMO_LINGER_S", "soon")
    with pytest.raises(HostError, match="could not convert string to float") as failed:
        await ensure_demo()
    assert failed.value.slug == "demo"
    assert "host.log" in (failed.value.hint or "")


def test_the_environment_of_a_launch_has_speed_and_seed() -> None:
    assert demo_env({"EAGLETUI_DEMO_SEED": "4"}) == {"EAGLETUI_DEMO_SPEED": "20", "EAGLETUI_DEMO_SEED": "4"}
