"""A simulated server as a process of its own, as the shell of the simulated host would start it."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from tui.core.config import HostEntry, shipped_profiles_dir
from tui.core.profiles.command import build_command
from tui.core.profiles.load import load_launch
from tui.core.sglang.flags import flags_of
from tui.demo import place
from tui.demo.gpus import process_start

SPEED = "2000"
BASE = ["--model-path", "/data/models/Kimi-K2.5", "--tp", "8", "--trust-remote-code"]
EAGLE = [
    *BASE,
    "--speculative-algorithm",
    "EAGLE3",
    "--speculative-draft-model-path",
    "/data/models/Kimi-K2.5-Eagle3",
    "--speculative-num-steps",
    "3",
    "--speculative-eagle-topk",
    "1",
    "--speculative-num-draft-tokens",
    "4",
]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Server:
    """A running simulated server."""

    process: subprocess.Popen[bytes]
    log_path: Path
    port: int

    @property
    def log(self) -> str:
        return self.log_path.read_bytes().decode("utf-8", "replace")

    def wait_exit(self, deadline_s: float = 60.0) -> int:
        """Exit code as a shell has it."""
        code = self.process.wait(deadline_s)
        return 128 - code if code < 0 else code

    def wait_for(self, text: str, deadline_s: float = 60.0) -> None:
        end = time.monotonic() + deadline_s
        while text not in self.log:
            if self.process.poll() is not None and text not in self.log:
                pytest.fail(f"the server ended ({self.process.returncode}) without {text!r}:\n{self.log[-3000:]}")
            if time.monotonic() > end:
                pytest.fail(f"no {text!r} within {deadline_s} s:\n{self.log[-3000:]}")
            time.sleep(0.02)

    def wait_ready(self) -> None:
        self.wait_for("The server is fired up and ready to roll!")

    def open(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[HTTPConnection, HTTPResponse]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection.request(method, path, data, headers or {})
        return connection, connection.getresponse()

    def call(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        connection, response = self.open(method, path, body, headers)
        with contextlib.closing(connection):
            return response.status, response.read()

    def json(self, method: str, path: str, body: Any = None) -> Any:
        status, data = self.call(method, path, body)
        assert status == 200, (status, data)
        return json.loads(data)

    def frames(self, path: str, body: dict[str, Any]) -> list[Any]:
        status, data = self.call("POST", path, {**body, "stream": True})
        assert status == 200
        lines = [line for line in data.decode().split("\n\n") if line]
        assert lines[-1] == "data: [DONE]"
        return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


class Launcher:
    """Starts simulated servers."""

    base = tuple(BASE)
    eagle = tuple(EAGLE)

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.started: list[Server] = []

    def __call__(self, words: Sequence[str], *, port: int | None = None, **env: str) -> Server:
        number = port or free_port()
        log = self.directory / f"log{len(self.started)}"
        shell = place.shell_env(self.directory, f"{os.getpid()} {process_start(os.getpid())}")
        with open(log, "wb") as output:
            process = subprocess.Popen(
                [str(self.directory / "bin" / "python3"), "-m", "sglang.launch_server", *words, "--port", str(number)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**shell, "EAGLETUI_DEMO_SPEED": SPEED, **env},
                cwd=self.directory / "home",
                start_new_session=True,
            )
        server = Server(process, log, number)
        self.started.append(server)
        return server

    def end(self) -> None:
        """Kills what still runs."""
        for server in self.started:
            if server.process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(server.process.pid, signal.SIGKILL)
            server.process.wait(10)

    def profile(self, name: str) -> Server:
        """A shipped profile, its flags mapped to 0.5.23 as for a real host."""
        profile = load_launch(name, [shipped_profiles_dir()])
        command = build_command(profile, HostEntry("demo", "demo"), "0.5.23", flags_of("0.5.23"))
        at = command.argv.index("sglang.launch_server")
        words = [*command.argv[at + 1 :]]
        port = words.index("--port")
        del words[port : port + 2]
        return self(words, **command.env)


@pytest.fixture
def demo_place(tmp_path: Path) -> Path:
    """The simulated host's directory, laid out."""
    directory = tmp_path / "demo"
    directory.mkdir(mode=0o700)
    place.build(directory)
    return directory


@pytest.fixture
def launch(demo_place: Path) -> Iterator[Launcher]:
    """Starts servers; what still runs at the end is killed."""
    launcher = Launcher(demo_place)
    yield launcher
    launcher.end()
