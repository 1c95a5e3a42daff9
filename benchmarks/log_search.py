"""Searching a remote log of 1 GiB, over a real sshd on loopback, beside `grep -c` on the same file in the same run.

    .venv/bin/python benchmarks/log_search.py [--rounds 5] [--gib 1]

The search is `tui.core.logs.search` as the log view runs it, from the order to the last answer, on a connection that is up. The
bar: a count of a rare word within three times `grep -c`. Rounds take turns; medians of wall time.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from big_log import GIB, RARE, big_log
from loopback import Loopback

from tui.core.link.transport import SilentAsker, Transport
from tui.core.logs.search import HostSearch, LogMarks, Needle, lines_before
from tui.core.server.session import open_session


def grep_c(path: Path, word: str) -> tuple[float, int]:
    """`grep -c` as somebody would type it: (seconds, lines)."""
    began = time.perf_counter()
    done = subprocess.run(["grep", "-c", word, path], capture_output=True, text=True, check=False)
    return time.perf_counter() - began, int(done.stdout)


async def searched(transport: Transport, path: Path, word: str) -> tuple[float, float, int]:
    """(seconds to the end, seconds to the first hit, lines)."""
    search = HostSearch(transport, str(path), Needle(word))
    began = time.perf_counter()
    first = None
    async for state in search.run():
        if first is None and state.first:
            first = time.perf_counter() - began
    took = time.perf_counter() - began
    return took, first if first is not None else took, search.state.count


async def timed(what: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await what()
    return time.perf_counter() - began


async def drained(search: HostSearch | LogMarks) -> None:
    async for _ in search.run():
        pass


async def measure(path: Path, size: int, rounds: int) -> None:
    session = await open_session("loopback", SilentAsker())
    await session.open()
    transport = session.transport
    found: dict[str, list[float]] = {}
    counts: dict[str, set[int]] = {}
    for _ in range(rounds):
        for name, word in (("rare", RARE), ("every other line", "Decode batch")):
            seconds, count = grep_c(path, word)
            found.setdefault(f"{name}: grep -c", []).append(seconds)
            counts.setdefault(name, set()).add(count)
            took, first, count = await searched(transport, path, word)
            found.setdefault(f"{name}: count and places", []).append(took)
            found.setdefault(f"{name}: first hit told", []).append(first)
            counts[name].add(count)
        middle = HostSearch(transport, str(path), Needle("Prefill"))
        found.setdefault("next hit from the middle", []).append(
            await timed(lambda search=middle: search.next(size // 2, 1))
        )
        found.setdefault("previous hit from the middle", []).append(
            await timed(lambda search=middle: search.next(size // 2, -1))
        )
        marks = LogMarks(transport, str(path))
        found.setdefault("phases and errors of the whole file", []).append(
            await timed(lambda marks=marks: drained(marks))
        )
        found.setdefault("lines before the end counted", []).append(
            await timed(lambda: lines_before(transport, str(path), size))
        )
    await session.close()
    assert all(len(same) == 1 for same in counts.values()), counts
    rare, other = (counts[name].pop() for name in ("rare", "every other line"))
    print(f"{rounds} rounds, {size / GIB:.2f} GiB, {rare} rare lines, {other:,} others")
    print("| what | s | to grep -c |\n|---|---|---|")
    for name, seconds in found.items():
        base = found.get(f"{name.partition(':')[0]}: grep -c")
        took = statistics.median(seconds)
        ratio = f"{took / statistics.median(base):.2f}x" if base is not None else ""
        print(f"| {name} | {took:.2f} | {ratio} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--smoke", action="store_true", help="one round of a small log")
    options = parser.parse_args()
    if options.smoke:
        options.rounds, options.gib = 1, 0.01
    path = big_log(int(options.gib * GIB))
    with Loopback() as loopback:
        loopback.use()
        os.environ["EAGLETUI_HOME"] = str(loopback.home / "eagletui")
        asyncio.run(measure(path, path.stat().st_size, options.rounds))


if __name__ == "__main__":
    main()
