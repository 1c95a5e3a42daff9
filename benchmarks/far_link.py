"""Round trips of each command over a far link, beside OpenSSH's `ssh HOST true` through the same link.

    .venv/bin/python benchmarks/far_link.py [--rounds 5] [--delay-ms 100]

A proxy before an sshd on loopback delays what goes either way by half of --delay-ms. Each command runs by turns through a proxy that delays
and one that does not; the difference of the medians, in delays, is how often one side waited for the other.
"""

import argparse
import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from loopback import Loopback

PROFILE = 'kind = "launch"\ncommand = ["sh", "-c", "exec sleep 600", "server"]\n[args]\nport = {port}\n'


class FarProxy:
    """Forwards to a port of this machine; each direction arrives `delay_s` later, in order and whole.

    Attributes:
        bytes: so many were forwarded, both ways.
    """

    def __init__(self, target_port: int, delay_s: float) -> None:
        self.target_port, self.delay_s = target_port, delay_s
        self.port = self.bytes = 0
        self._ready = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True).start()
        self._ready.wait(10)

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await server.serve_forever()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self.target_port)
        await asyncio.gather(self._pump(reader, back), self._pump(there, writer), return_exceptions=True)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            while True:
                due, data = await late.get()
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                if not data:
                    sink.close()
                    return
                sink.write(data)

        task = asyncio.create_task(deliver())
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                self.bytes += len(data)
                late.put_nowait((time.monotonic() + self.delay_s, data))
        late.put_nowait((time.monotonic() + self.delay_s, b""))
        await task


class Commands:
    """What is timed: each takes the environment of a home whose ~/.ssh/config names the proxy."""

    def __init__(self, host: Loopback) -> None:
        self.host = host
        self.env = {"HOME": str(host.home), "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
        self.run_ids: list[str] = []
        profiles = host.home / "profiles"
        profiles.mkdir(exist_ok=True)
        (profiles / "sleeper.toml").write_text(PROFILE.format(port=host.port + 1))

    def eagletui(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "tui", *words],
            env=self.env, cwd=self.host.home, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if done.returncode not in (0, 1):
            raise SystemExit(f"{words}: {done.stderr}{done.stdout}")
        return done.stdout

    def ssh(self) -> None:
        subprocess.run(
            ["ssh", "-F", f"{self.host.home}/.ssh/config", "loopback", "true"], env=self.env, check=True, timeout=60
        )

    def ps(self) -> None:
        self.eagletui("ps", "loopback", "--json")

    def gpus(self) -> None:
        self.eagletui("gpus", "loopback", "--json")

    def launch(self) -> None:
        started = json.loads(self.eagletui("launch", "sleeper", "--host", "loopback", "--json"))
        if started.get("error"):
            raise SystemExit(f"launch: {started}")
        self.run_ids.append(started["run"])

    def stop(self) -> None:
        self.eagletui("stop", self.run_ids.pop(), "--yes", "--grace", "0")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--delay-ms", type=float, default=100.0)
    parser.add_argument("--smoke", action="store_true", help="one round, in seconds")
    given = parser.parse_args()
    rounds = 1 if given.smoke else given.rounds
    with Loopback() as host:
        near, far = FarProxy(host.port, 0.0), FarProxy(host.port, given.delay_ms / 2000)
        commands = Commands(host)
        took: dict[str, dict[str, list[float]]] = {}
        names: list[tuple[str, Callable[[], None]]] = [
            ("ssh HOST true", commands.ssh),
            ("ps", commands.ps),
            ("gpus", commands.gpus),
            ("launch", commands.launch),
            ("stop", commands.stop),
        ]
        for _ in range(rounds):
            for proxy, where in ((near, "near"), (far, "far")):
                host.ssh_config(proxy.port)
                for name, run in names:
                    begin = time.monotonic()
                    run()
                    took.setdefault(name, {}).setdefault(where, []).append(time.monotonic() - begin)
        print(f"{'':<16} {'near':>8} {'far':>8}  round trips (difference / {given.delay_ms:g} ms)")
        for name, times in took.items():
            near_s, far_s = (statistics.median(times[where]) for where in ("near", "far"))
            print(f"{name:<16} {near_s:>7.2f}s {far_s:>7.2f}s  {(far_s - near_s) / given.delay_ms * 1000:.1f}")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
