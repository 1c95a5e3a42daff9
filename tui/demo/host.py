"""The simulated host: an SSH server on 127.0.0.1 in a process of its own (`python -m tui.demo.host DIRECTORY PIPE`).

Started by `tui.demo.client.ensure_demo`, shared by all commands, gone ten minutes after the last client. Simulated
servers watch this process and end with it.
"""

import asyncio
import contextlib
import fcntl
import getpass
import json
import os
import signal
import sys
import time
from pathlib import Path

from tui import __version__
from tui.core.link.ssh_keys import generate_key
from tui.demo import place
from tui.demo.gpus import process_start
from tui.demo.sshd import serve

LINGER_S = 600.0
LINGER = "EAGLETUI_DEMO_LINGER_S"  # for tests


class _Host:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clients = 0
        self.changed = asyncio.Event()
        self.stop = asyncio.Event()
        self.left_at = time.time()

    def on_clients(self, count: int) -> None:
        self.clients = count
        self.left_at = time.time()
        self.changed.set()

    def idle_s(self) -> float:
        """How long nobody has been here, nor asked for the way."""
        if self.clients:
            return 0.0
        try:
            touched = (self.directory / "touched").stat().st_mtime
        except OSError:
            touched = 0.0
        return time.time() - max(self.left_at, touched)

    async def linger(self, linger_s: float) -> None:
        """Returns, holding the lock, when it is time to leave."""
        while True:
            left = linger_s - self.idle_s()
            if left <= 0:
                lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    os.close(lock)  # somebody is asking for this host right now
                    left = 0.2
                else:
                    if self.idle_s() >= linger_s:
                        return  # the lock goes with this process
                    os.close(lock)
                    continue
            self.changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.changed.wait(), min(left, 30.0))


async def run(directory: Path, ready: int) -> None:
    """Serves until nobody has come for long enough, or SIGTERM. `ready` is closed once it serves."""
    linger_s = float(os.environ.get(LINGER, LINGER_S))
    me = f"{os.getpid()} {process_start(os.getpid())}"
    place.build(directory)
    host_key, host_public = generate_key()
    client_key, client_public = generate_key()
    key = directory / "key"
    _private(key, client_key)
    host = _Host(directory)
    server = await serve(
        host_key=host_key,
        client_public_key=client_public,
        env=place.shell_env(directory, me),
        cwd=str(directory / "home"),
        on_clients=host.on_clients,
    )
    facts = {
        "pid": os.getpid(),
        "start": process_start(os.getpid()),
        "version": __version__,
        "protocol": place.PROTOCOL,
        "port": server.port,
        "host_key": host_public,
        "user": getpass.getuser(),
    }
    _private(directory / "host.json", json.dumps(facts))
    os.close(ready)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, host.stop.set)
    stopping = asyncio.create_task(host.stop.wait())
    lingering = asyncio.create_task(host.linger(linger_s))
    await asyncio.wait({stopping, lingering}, return_when=asyncio.FIRST_COMPLETED)
    with contextlib.suppress(OSError, ValueError, KeyError):
        if json.loads((directory / "host.json").read_text(encoding="utf-8"))["pid"] == os.getpid():
            (directory / "host.json").unlink()
            key.unlink()
    end_servers(directory)
    server.close()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(server.wait_closed(), 2.0)


def end_servers(directory: Path) -> None:
    """Asks the simulated servers to stop; those that do not notice end by themselves when this process is gone."""
    for file in (directory / "root" / "gpu").glob("*.json"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            body = json.loads(file.read_text(encoding="utf-8"))
            if process_start(body["pid"]) == body["start"]:
                os.kill(body["pid"], signal.SIGTERM)


def _private(path: Path, text: str) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    aside.replace(path)


if __name__ == "__main__":
    os.umask(0o077)
    if os.fork():  # whoever asked need not wait for this process, however long they live
        os._exit(0)
    asyncio.run(run(Path(sys.argv[1]), int(sys.argv[2])))
