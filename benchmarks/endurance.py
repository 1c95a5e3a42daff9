"""What must hold for long, and for what nobody thought of: link cuts, a soak, and random input to every reader.

    .venv/bin/python benchmarks/endurance.py cuts [--count 200] [--seed 1]
    .venv/bin/python benchmarks/endurance.py soak [--minutes 30] [--seed 1]
    .venv/bin/python benchmarks/endurance.py fuzz [--seconds 60] [--seed 1]
    .venv/bin/python benchmarks/endurance.py --smoke          # seconds of each, as the tests run them

cuts: a log that grows is followed over a real sshd whose link is reset again and again; what came must have the hash of what was written.
soak: one session with that host for so many minutes: eight GPUs at 2 Hz (NVML stand-in), a log of 500 lines a second with decode
figures, looks at the runs, HTTP through the link, which is reset every 20 s. Printed are memory, tasks, handles and processes of
ours there after a tenth of the time and at the end: they must not grow.
fuzz: every reader is given real inputs of the tests with bytes changed, cut, doubled and put together; it may refuse them in one line, never
raise anything else, and never take longer than its bound.

Exits with 1 where something does not hold. Launches under random faults are in faults.py.
"""

import argparse
import asyncio
import contextlib
import gc
import hashlib
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from faults import ResettingProxy
from host_load import below, processes
from loopback import Loopback

from tui.commands.terminal import TerminalAsker
from tui.core.config import HostEntry
from tui.core.errors import EagletuiError
from tui.core.host.gpu_sources import Feed
from tui.core.host.saved.reading import read_saved
from tui.core.link.hosts import open_transport
from tui.core.link.http import request
from tui.core.link.known_hosts import parse_line
from tui.core.logs.follow import follow
from tui.core.profiles.importing.shell_command import import_command
from tui.core.profiles.load import discover
from tui.core.results.external.reading import decode, read_posted
from tui.core.runs.helper import Answer
from tui.core.server.host_look import read_look
from tui.core.server.session import HostSession
from tui.core.sglang.report import report_of
from tui.core.sglang.tracker import LogTracker

HERE = Path(__file__).parent
DATA = HERE.parent / "tests" / "data"
DECODE = (
    "[2026-11-30 08:00:00 TP0] Decode batch, #running-req: 16, #token: 9216, token usage: 0.11, accept len: 2.91, "
    "cuda graph: True, gen throughput (token/s): {rate:.2f}, #queue-req: 0\n"
)


class Writer(threading.Thread):
    """Appends to a log until it is told to end."""

    def __init__(self, path: Path, seed: int, *, lines_s: float | None = None) -> None:
        super().__init__(daemon=True)
        self.path, self.rng, self.lines_s = path, random.Random(seed), lines_s
        self.over = threading.Event()
        self.sum = hashlib.sha256()
        path.touch()

    def run(self) -> None:
        with self.path.open("ab", buffering=0) as file:
            while not self.over.is_set():
                if self.lines_s is None:
                    data = self.rng.randbytes(self.rng.randint(1, 4000))
                else:
                    data = b"".join(
                        DECODE.format(rate=800 + self.rng.random()).encode() for _ in range(int(self.lines_s / 10))
                    )
                file.write(data)
                self.sum.update(data)
                self.over.wait(0.1 if self.lines_s else 0.002)


async def cuts(count: int, seed: int) -> bool:
    rng = random.Random(seed)
    with Loopback() as host:
        proxy = ResettingProxy(host.port, rng)
        host.ssh_config(proxy.port)
        host.use()
        transport = open_transport(HostEntry("loopback", "loopback"), TerminalAsker())
        await transport.connect()
        writer = Writer(host.directory / "log", seed)
        writer.start()
        got, size, began = hashlib.sha256(), 0, time.monotonic()
        async for chunk in follow(transport, str(writer.path), ended=lambda: writer.over.is_set()):
            got.update(chunk.data)
            size += len(chunk.data)
            if proxy.resets >= count:
                writer.over.set()
                await asyncio.to_thread(writer.join)
            elif chunk.data and not proxy.resets_left:
                proxy.resets_left = 1
        await transport.close()
    same = got.digest() == writer.sum.digest()
    print(
        f"{proxy.resets} link cuts, {size:,} bytes in {time.monotonic() - began:.0f} s, seed {seed}: "
        + ("hashes equal" if same else "HASHES DIFFER")
    )
    return same


def usage(host: Loopback) -> dict[str, int]:
    """What must not grow: of this process, and of ours on the host."""
    gc.collect()
    rss = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    table = processes()
    return {
        "memory, MiB": int(rss.split()[1]) >> 10,
        "tasks": len(asyncio.all_tasks()),
        "handles": len(os.listdir("/proc/self/fd")),
        "processes there": len(list(below(host.sshd.pid, table))),
    }


async def soak(minutes: float, seed: int) -> bool:
    library = Path(tempfile.mkdtemp(prefix="eagletui-nvml-"))
    compiling = ["cc", "-shared", "-fPIC", "-o", library / "libnvidia-ml.so.1", HERE / "nvml_eight.c"]
    await asyncio.to_thread(subprocess.run, compiling, check=True)
    counts = dict.fromkeys(("samples", "lines", "answers", "refused", "looks"), 0)
    with Loopback(environment=f"LD_LIBRARY_PATH={library}") as host:
        proxy = ResettingProxy(host.port, random.Random(seed))
        host.ssh_config(proxy.port)
        host.use()
        entry = HostEntry("loopback", "loopback", python=sys.executable)
        session = HostSession(entry, open_transport(entry, TerminalAsker()))
        await session.open()
        writer = Writer(host.directory / "log", seed, lines_s=500)
        writer.start()

        async def gpus() -> None:
            async for sample in session.gpus(0.5):
                counts["samples"] += len(sample.gpus) == 8

        async def log() -> None:
            tracker = LogTracker()
            async for chunk in follow(session.transport, str(writer.path)):
                tracker.feed(chunk.data)
                counts["lines"] = tracker.state().lines

        async def looks() -> None:
            pace = session.pace(2.0, 10.0)
            while True:
                with contextlib.suppress(EagletuiError):
                    await session.runs()
                    counts["looks"] += 1
                await pace.next_look()

        async def http() -> None:  # as a bench's look at its server; nothing listens, which is an answer too
            while True:
                try:
                    await request(session.transport, "GET", 1, "/health", timeout_s=5)
                    counts["answers"] += 1
                except EagletuiError:
                    counts["refused"] += 1
                await asyncio.sleep(0.5)

        async def reset() -> None:
            while True:
                await asyncio.sleep(min(20.0, minutes * 60 / 6))
                proxy.resets_left = 1

        jobs = [asyncio.create_task(job()) for job in (gpus, log, looks, http, session.hear, reset)]
        await asyncio.sleep(minutes * 60 / 10)
        before = usage(host)
        await asyncio.sleep(minutes * 60 * 9 / 10)
        failed = [str(job.exception()) for job in jobs if job.done() and job.exception()]
        after = usage(host)
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        await session.close()
        writer.over.set()
        left = len(asyncio.all_tasks()) - 1
    shutil.rmtree(library)
    print(
        f"{minutes:g} minutes, seed {seed}, {proxy.resets} link cuts: "
        + ", ".join(f"{n} {what}" for what, n in counts.items())
    )
    bounds = {"memory, MiB": 24, "tasks": 6, "handles": 6, "processes there": 8}  # a moment within a reconnect
    held = not failed and left == 0
    for what, first in before.items():
        grown = after[what] - first
        held &= grown <= bounds[what]
        print(f"  {what}: {first}, then {after[what]}" + ("" if grown <= bounds[what] else ": IT GROWS"))
    print(f"  tasks left: {left}" + (f"; FAILED: {failed}" if failed else ""))
    return held


def readers(place: Path) -> dict[str, tuple[list[Path], Callable[[bytes], object], float]]:
    """Each reader with inputs of its kind, and the CPU seconds that it may take for one."""

    def text(data: bytes) -> str:
        return data.decode("utf-8", "replace")

    def diagnose(data: bytes) -> object:
        tracker = LogTracker(records=False)
        tracker.feed(data)
        tracker.flush()
        return json.dumps(report_of(tracker))

    def profiles(data: bytes) -> object:
        (place / "some.toml").write_bytes(data)
        return discover([place])

    def sampled(data: bytes) -> object:
        feed = Feed()
        return [feed.line(line) for line in text(data).split("\n")]

    logs = [path for path in (DATA / "logs").rglob("*") if path.is_file() and path.stat().st_size < 200_000]
    smi, commands = list((DATA / "smi/inputs").glob("*")), list((DATA / "commands").rglob("*.cmd"))
    benches = [path for path in (DATA / "bench/inputs").glob("*") if path.stat().st_size < 200_000]
    hosts = [HERE.parent / "tests/core/link/test_known_hosts.py"]
    return {
        "diagnose": (logs, diagnose, 10.0),
        "GPU figures": (smi, lambda data: read_saved(text(data)), 10.0),
        "samples": (smi, sampled, 5.0),
        "launch commands": (commands, lambda data: import_command(text(data), home="/root"), 10.0),
        "results": (benches, lambda data: read_posted(decode(data)), 10.0),
        "profiles": (list((HERE.parent / "profiles").glob("*.toml")), profiles, 5.0),
        "runs": (logs + smi, lambda data: Answer("host", data), 5.0),
        "looks": (smi, lambda data: read_look(text(data)), 5.0),
        "known_hosts": (hosts, lambda data: [parse_line(line) for line in data.decode("latin-1").split("\n")], 5.0),
    }


def changed(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """The same with a few changes."""
    for _ in range(rng.randint(1, 6)):
        at, to = sorted(rng.randint(0, len(data)) for _ in range(2))
        data = rng.choice(
            [
                lambda d, a, b: d[:a] + rng.randbytes(rng.randint(1, 8)) + d[a + 1 :],
                lambda d, a, b: d[:a] + d[b:],
                lambda d, a, b: d[:b] + d[a:][:100_000],
                lambda d, a, b: d[:a] + other[:20_000] + d[a:],
                lambda d, a, b: d[:a] + rng.choice([b"\0", b"\n", b"\r", b"[", b"{", b'"', b"9" * 400, b"-", b"\xff"]) * rng.randint(1, 300) + d[a:],
            ]
        )(data, at, to)  # fmt: skip
    return data[:400_000]


def fuzz(seconds: float, seed: int) -> bool:
    rng = random.Random(seed)
    held = True
    with tempfile.TemporaryDirectory() as directory:
        known = readers(Path(directory))
        for name, (inputs, read, bound_s) in known.items():
            count, slowest, end = 0, 0.0, time.monotonic() + seconds / len(known)
            while time.monotonic() < end or not count:
                data = changed(rng.choice(inputs).read_bytes(), rng.choice(inputs).read_bytes(), rng)
                began = time.process_time()
                try:
                    read(data)
                except EagletuiError:
                    pass
                except Exception as error:
                    held = False
                    kept = Path(tempfile.gettempdir()) / f"eagletui-fuzz-{name.replace(' ', '-')}-{seed}-{count}"
                    kept.write_bytes(data)
                    print(f"  {name}: {type(error).__name__}: {str(error)[:200]}; the input is {kept}")
                slowest = max(slowest, time.process_time() - began)
                count += 1
            held &= slowest <= bound_s
            print(
                f"  {name}: {count} inputs, slowest {slowest:.2f} s of CPU"
                + ("" if slowest <= bound_s else ": TOO SLOW")
            )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"fuzz: seed {seed}, peak memory {peak} MiB: " + ("held" if held else "DID NOT HOLD"))
    return held


def all_of(options: argparse.Namespace) -> Iterator[bool]:
    if options.what in (None, "cuts"):
        yield asyncio.run(cuts(options.count, options.seed))
    if options.what in (None, "soak"):
        yield asyncio.run(soak(options.minutes, options.seed)) or options.smoke  # seconds say nothing of growth
    if options.what in (None, "fuzz"):
        yield fuzz(options.seconds, options.seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", choices=["cuts", "soak", "fuzz"])
    parser.add_argument("--count", type=int, default=200, help="link cuts")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seconds", type=float, default=60.0, help="of fuzzing, shared among the readers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--smoke", action="store_true", help="seconds of each")
    options = parser.parse_args()
    if options.smoke:
        options.count, options.minutes, options.seconds = 3, 0.1, 3.0
    sys.exit(0 if all([*all_of(options)]) else 1)


if __name__ == "__main__":
    main()
