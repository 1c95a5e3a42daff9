"""Round trips of each command over a far link, beside OpenSSH's `ssh HOST true` through the same link.

    .venv/bin/python benchmarks/far_link.py [--rounds 5] [--delay-ms 100]

A proxy before an sshd on loopback delays what goes either way by half of --delay-ms, and counts: what the client sends after it has heard
the host's n-th answer is its turn n + 1, so the turns of a connection are its round trips, however long each took. The round trip of
TCP is not in them. Two questions asked at once share a turn; a machine so busy that they are more than the delay apart counts two.
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

from big_log import big_log
from loopback import Loopback

BUSY = 2  # so many more a busy machine counts, whose answers come too far apart to share a turn
BOUNDS: dict[
    str, Callable[[float], float]
] = {  # round trips: what --smoke holds; a login is what `ssh HOST true` takes
    "ps": lambda login: login + 3,
    "gpus": lambda login: login + 3,
    "ps, a server runs": lambda login: login + 3,
    "launch": lambda login: login + 5,
    "the first call": lambda _: 3,
    "the next call": lambda _: 1,
    "first GPU figures": lambda _: 6,
    "a log is opened": lambda _: 3,
    "a jump in it": lambda _: 2,
}
PROFILE = 'kind = "launch"\ncommand = ["sh", "-c", "sleep 600", "sglang::server"]\n[args]\nport = {port}\n'


class FarProxy:
    """Forwards to a port of this machine; each direction arrives `delay_s` later, in order and whole.

    Attributes:
        bytes: so many were forwarded, both ways.
        turns: round trips so far, of all connections one after another.
    """

    def __init__(self, target_port: int, delay_s: float) -> None:
        self.target_port, self.delay_s = target_port, delay_s
        self.port = self.bytes = self.turns = 0
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
        asked = answered = 0  # the turn of what has arrived at the host, and here

        def at_host(turn: int) -> None:
            nonlocal asked
            asked = turn

        def at_home(turn: int) -> None:
            nonlocal answered
            self.turns += turn - answered
            answered = turn

        await asyncio.gather(
            self._pump(reader, back, lambda: answered + 1, at_host),
            self._pump(there, writer, lambda: asked, at_home),
            return_exceptions=True,
        )

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        turn: Callable[[], int],
        arrived: Callable[[int], None],
    ) -> None:
        late: asyncio.Queue[tuple[float, int, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            while True:
                due, number, data = await late.get()
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                if not data:
                    sink.close()
                    return
                arrived(number)
                sink.write(data)

        task = asyncio.create_task(deliver())
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                self.bytes += len(data)
                late.put_nowait((time.monotonic() + self.delay_s, turn(), data))
        late.put_nowait((time.monotonic() + self.delay_s, 0, b""))
        await task


class Commands:
    """What is timed: each takes the environment of a home whose ~/.ssh/config names the proxy."""

    def __init__(self, host: Loopback) -> None:
        self.host = host
        self.env = {
            "HOME": str(host.home),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(Path(__file__).parents[1]),
        }
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


async def in_the_panel(proxy: FarProxy) -> dict[str, int]:
    """Round trips of what the panel does over a link that is there."""
    from tui.core.host.gpu_sampler import one_sample
    from tui.core.link.transport import SilentAsker
    from tui.core.logs.log_file import LogFile
    from tui.core.server.session import open_session

    log = big_log(20_000_000)
    found: dict[str, int] = {}
    session = await open_session("loopback", SilentAsker())
    await session.open()
    try:
        file = LogFile(session.transport, str(log))
        following = file.updates()
        for name, step in {
            "first GPU figures": lambda: one_sample(session.transport, "python3"),
            "the first call": lambda: session.transport.run("true"),
            "the next call": lambda: session.transport.run("true"),
            "a log is opened": lambda: anext(following),
            "a jump in it": lambda: file.jump_to(log.stat().st_size // 2),
        }.items():
            before = proxy.turns
            await step()
            found[name] = proxy.turns - before
            await asyncio.sleep(
                3 * proxy.delay_s
            )  # what is still under way (a channel that closes) is not the next one's
        await following.aclose()
    finally:
        await session.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--delay-ms", type=float, default=100.0)
    parser.add_argument(
        "--smoke", action="store_true", help="one round, which fails where there are more than there were"
    )
    given = parser.parse_args()
    rounds = 1 if given.smoke else given.rounds
    with Loopback(alone=True) as host:
        host.use()
        proxy = FarProxy(host.port, given.delay_ms / 2000)
        host.ssh_config(proxy.port)
        commands = Commands(host)
        named: dict[str, Callable[[], None]] = {
            "ssh HOST true": commands.ssh,
            "ps": commands.ps,
            "gpus": commands.gpus,
            "launch": commands.launch,
            "ps, a server runs": commands.ps,
            "stop": commands.stop,
        }
        turns: dict[str, list[int]] = {}
        took: dict[str, list[float]] = {}
        for _ in range(rounds):
            for name, run in named.items():
                before, begin = proxy.turns, time.monotonic()
                run()
                took.setdefault(name, []).append(time.monotonic() - begin)
                turns.setdefault(name, []).append(proxy.turns - before)
            for name, count in asyncio.run(in_the_panel(proxy)).items():
                turns.setdefault(name, []).append(count)
    login = statistics.median(turns["ssh HOST true"])
    print(f"{'':<18} {'round trips':>11} {'beyond ssh':>10} {'all of them':>14} {'s':>7}")
    for name, counts in turns.items():
        count = statistics.median(counts)
        beyond = f"{count - login:+g}" if name in named else ""
        seconds = f"{statistics.median(took[name]):.2f}" if name in took else ""
        print(f"{name:<18} {count:>11g} {beyond:>10} {', '.join(map(str, sorted(counts))):>14} {seconds:>7}")
    for name, bound in BOUNDS.items():
        if given.smoke and min(turns[name]) > bound(login) + BUSY:
            raise SystemExit(f"{name}: {min(turns[name])} round trips, more than {bound(login) + BUSY:g}")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
