"""What an interrupted upload or a dying link does to a launch, counted.

    .venv/bin/python benchmarks/faults.py [--launches 500] [--seed 1]

1. The bytes that launch a run are given to `/bin/sh -s` cut after every byte, and to bash and BusyBox (where there are) cut at
   every 16th: how many of the cut ones started something or left a file. The whole upload must start exactly one.
2. Launches over a real sshd on loopback, the link reset after a random number of bytes, at most five times a
   launch, and a third of them given up at a random moment and asked for again: how often each run was started in truth (it
   writes a line), against what was reported.
"""

import argparse
import asyncio
import collections
import contextlib
import random
import shutil
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from loopback import Loopback

from tui.commands.terminal import TerminalAsker
from tui.core.config import HostEntry
from tui.core.link.hosts import open_transport
from tui.core.link.scripts import Input, wrap
from tui.core.runs import control
from tui.core.runs.request import LaunchRequest, new_run_id


def launch_bytes(log: Path) -> bytes:
    """What one launch sends, as control.launch builds it, of a run that writes a line into `log`."""
    sent: list[str] = []

    class Recorder:
        host = "recorder"

        async def run(self, script: str, **_: object) -> None:
            sent.append(script)
            raise SystemExit

    with contextlib.suppress(SystemExit):
        asyncio.run(control.launch(Recorder(), request("cut", log)))
    return wrap(sent[0], "et0123", Input.LINE_ENDS)


def request(name: str, log: Path) -> LaunchRequest:
    return LaunchRequest(
        run_id=new_run_id(name), kind="bench", profile=name, argv=("/bin/sh", "-c", f'echo {name} >> "$0"', str(log))
    )


def wait_for_line(log: Path, line: str) -> None:
    """Until the run has said that it started, ten seconds at most: what is counted is the file, not this."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if log.exists() and line in log.read_text().split():
            return
        time.sleep(0.02)


def cut_uploads(step: int) -> None:
    """`step` bytes between cuts for sh, 16 times as many for the others."""
    for shell, coarser in ((["/bin/sh"], 1), (["bash"], 16), (["busybox", "sh"], 16)):
        if not shutil.which(shell[0]):
            print(f"{' '.join(shell)}: not here")
            continue
        with tempfile.TemporaryDirectory() as home:
            log = Path(home) / "started"
            script = launch_bytes(log)
            state = Path(home) / "state"
            env = {"PATH": "/usr/bin:/bin", "EAGLETUI_STATE": str(state), "HOME": home}
            cuts = range(0, len(script) - 2, step * coarser)  # the last two bytes are the closing brace and a newline
            effects = 0
            for cut in cuts:
                subprocess.run([*shell, "-s"], input=script[:cut], env=env, capture_output=True)
                if log.exists() or state.exists():
                    effects += 1
                    log.unlink(missing_ok=True)
                    shutil.rmtree(state, ignore_errors=True)
            subprocess.run([*shell, "-s"], input=script, env=env, capture_output=True)
            wait_for_line(log, "cut")
            starts = len(log.read_text().splitlines()) if log.exists() else 0
        print(
            f"{' '.join(shell)}: {len(script)} bytes, {len(cuts)} cuts, {effects} with an effect; whole: {starts} start"
        )


class ResettingProxy:
    """Forwards to a port; each connection is reset after its own number of bytes, while there are resets left."""

    def __init__(self, target: int, rng: random.Random) -> None:
        self._target, self._rng = target, rng
        self.resets_left = 0
        self.resets = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            server = socket.create_connection(("127.0.0.1", self._target))
            pair = (client, server)
            for source, sink in (pair, pair[::-1]):
                threading.Thread(target=self._copy, args=(source, sink, pair), daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket, pair: tuple[socket.socket, socket.socket]) -> None:
        try:
            while data := source.recv(65_536):
                if self.resets_left:
                    # Somewhere between the login and the end of the launch.
                    budget = self._rng.randint(0, 20_000)
                    if budget < len(data) or self._rng.random() < 0.2:
                        self.resets_left -= 1
                        self.resets += 1
                        sink.sendall(data[:budget])
                        break
                sink.sendall(data)
        except OSError:
            pass
        for end in pair:
            try:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


async def launches_under_resets(count: int, seed: int) -> None:
    rng = random.Random(seed)
    with Loopback() as loopback:
        log = loopback.directory / "started"
        proxy = ResettingProxy(loopback.port, rng)
        loopback.ssh_config(proxy.port)
        loopback.use()
        transport = open_transport(HostEntry("loopback", "loopback"), TerminalAsker())
        await transport.connect()
        seconds: list[float] = []
        given_up = 0
        reported: collections.Counter[str] = collections.Counter()
        for number in range(count):
            proxy.resets_left = rng.randint(0, 5)
            began = time.monotonic()
            asked = request(f"launch{number}", log)
            if rng.random() < 1 / 3:
                first = asyncio.create_task(control.launch(transport, asked))
                await asyncio.wait([first], timeout=2 * rng.random())
                given_up += first.cancel()
                await asyncio.gather(first, return_exceptions=True)
            run = await control.launch(transport, asked)
            seconds.append(time.monotonic() - began)
            reported[run.profile or ""] += 1
            proxy.resets_left = 0
            await asyncio.to_thread(wait_for_line, log, f"launch{number}")
        await transport.close()
        started = collections.Counter(log.read_text().split())
    exactly = sum(started[f"launch{n}"] == 1 for n in range(count))
    print(
        f"{count} launches, {proxy.resets} resets, {given_up} given up and repeated, seed {seed}: {exactly} started exactly once,"
        f" {sum(v > 1 for v in started.values())} more than once, {count - len(started)} never;"
        f" median {statistics.median(seconds):.2f} s, slowest {max(seconds):.2f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--launches", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--smoke", action="store_true", help="few launches and cuts")
    options = parser.parse_args()
    if options.smoke:
        options.launches = 2
    asyncio.run(launches_under_resets(options.launches, options.seed))
    cut_uploads(step=997 if options.smoke else 1)


if __name__ == "__main__":
    main()
