"""The way to the simulated host: finds it, starts it, replaces one of another version. Cheap to import."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from tui import __version__
from tui.core.config import DEMO_HOST, DEMO_HOSTS, HostKind, state_dir
from tui.core.errors import HostError, Slug
from tui.core.link import hosts
from tui.core.link.ssh_target import HostKeyPolicy, SshTarget
from tui.core.text import one_line

SPEED, SEED = "EAGLETUI_DEMO_SPEED", "EAGLETUI_DEMO_SEED"
DEFAULT_SPEED, DEFAULT_SEED = 20.0, 1
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0


def demo_env(env: Mapping[str, str]) -> dict[str, str]:
    """What a launch on the simulated host passes on of the launching command's environment, defaults filled in."""
    return {SPEED: env.get(SPEED) or f"{DEFAULT_SPEED:g}", SEED: env.get(SEED) or str(DEFAULT_SEED)}


def register() -> None:
    """Makes the simulated hosts known to the core."""
    hosts.register(HostKind.DEMO, hosts.Simulated(ensure_demo, demo_env))


async def ensure_demo(name: str = DEMO_HOST) -> SshTarget:
    """A simulated host, started where it does not run. Raises HostError (slug demo) where it cannot be started."""
    try:
        return await _found_or_started(name)
    except OSError as error:
        raise HostError(
            f"{name}: {one_line(str(error.filename or state_dir()))}: {error.strerror or error}",
            "its files need a directory that can be written: set EAGLETUI_HOME to one",
            slug=Slug.DEMO,
        ) from None


async def _found_or_started(name: str) -> SshTarget:
    from tui.demo import place

    directory = place.base(name)
    async with _locked(directory / "lock"):
        facts = _read(directory)
        if facts is not None and not _same(facts):
            await _end(facts)
            facts = None
        if facts is None or not await _answers(int(facts["port"])):
            if facts is not None:
                await _end(facts)
            facts = await _start(directory)
        (directory / "touched").touch()
    return SshTarget(
        address="127.0.0.1",
        port=int(facts["port"]),
        user=str(facts["user"]),
        name=name,
        identity_files=(directory / "key",),
        identities_only=True,
        pinned_host_key=str(facts["host_key"]),
        policy=HostKeyPolicy.STRICT,
        methods=("publickey",),
    )


async def stop_demo() -> None:
    """Ends the simulated hosts and their servers, where they run."""
    for directory in (state_dir() / name for name in DEMO_HOSTS):
        if not directory.is_dir():
            continue
        async with _locked(directory / "lock"):
            facts = _read(directory)
            if facts is not None:
                await _end(facts)


def _read(directory: Path) -> dict[str, Any] | None:
    """Who runs, None where nobody does."""
    from tui.demo.gpus import process_start

    try:
        facts = json.loads((directory / "host.json").read_text(encoding="utf-8"))
        if facts["start"] is None or process_start(int(facts["pid"])) != facts["start"]:
            return None
        int(facts["port"])
        str(facts["user"]), str(facts["host_key"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return dict(facts)


def _same(facts: Mapping[str, Any]) -> bool:
    from tui.demo import place

    return facts.get("version") == __version__ and facts.get("protocol") == place.PROTOCOL


@contextlib.asynccontextmanager
async def _locked(path: Path) -> AsyncIterator[None]:
    import fcntl

    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + START_TIMEOUT_S + STOP_TIMEOUT_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise HostError(
                        f"{path.parent.name}: another command holds {path} and does not let go",
                        "end that command, or try again",
                        slug=Slug.DEMO,
                    ) from None
                await asyncio.sleep(0.05)
        yield
    finally:
        os.close(descriptor)


async def _answers(port: int) -> bool:
    """Whether the host's SSH server greets."""
    try:
        async with asyncio.timeout(3.0):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                return (await reader.read(4)).startswith(b"SSH-")
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False


async def _end(facts: Mapping[str, Any]) -> None:
    """Ends a host that is of another version or does not answer."""
    from tui.demo.gpus import process_start

    pid, start = int(facts["pid"]), facts["start"]
    for number, patience_s in ((signal.SIGTERM, STOP_TIMEOUT_S), (signal.SIGKILL, 2.0)):
        if process_start(pid) != start:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + patience_s
        while process_start(pid) == start and time.monotonic() < deadline:  # noqa: ASYNC110 - not our child
            await asyncio.sleep(0.05)


async def _start(directory: Path) -> dict[str, Any]:
    """Starts the host and waits until it serves."""
    from tui.demo import place

    (directory / "host.json").unlink(missing_ok=True)
    env = {k: v for k, v in os.environ.items() if k not in (SPEED, SEED)}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(place.package_root()), env.get("PYTHONPATH", "")]))
    log = directory / "host.log"
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    reading, writing = os.pipe()  # closes when the host serves, and when it dies
    try:
        # The process forks again and its first half ends: no child of ours is left to wait for.
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "tui.demo.host", str(directory), str(writing)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=env,
            cwd="/",
            pass_fds=(writing,),
            start_new_session=True,
            check=False,
        )
        os.close(writing)
        writing = -1
        os.set_blocking(reading, False)
        deadline = time.monotonic() + START_TIMEOUT_S
        while done.returncode == 0 and time.monotonic() < deadline:
            with contextlib.suppress(BlockingIOError):
                os.read(reading, 1)
                break
            await asyncio.sleep(0.02)
    finally:
        for descriptor in (output, reading, writing):
            if descriptor >= 0:
                os.close(descriptor)
    facts = _read(directory)
    if facts is not None:
        return facts
    words = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    raise HostError(
        f"{directory.name}: the simulated host does not start: {one_line(words[-1], 200) if words else 'it says nothing'}",
        f"the whole story is in {log}",
        slug=Slug.DEMO,
    )
