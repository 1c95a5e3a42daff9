"""A log that is written fast, in the view of `eagletui logs` over a real sshd on loopback, in a pseudo-terminal of 160x48.

    .venv/bin/python benchmarks/log_flood.py [--seconds 20] [--rate 5000] [--burst 100000]

Two parts. Steady: so many lines a second are written while `f` (follow, hold still) is pressed again and again; told are the times from
each key to the first bytes that show its effect, and the CPU time of the program alone, the sshd and the writer left out. Burst: so many
lines are written at once while `f` is pressed as fast as its effect is shown; told is the longest time to an effect. That bounds any stall from above:
whoever presses a key in the middle of one waits for its end. Bars: 100 ms for 95 % of the keys, half a core, no stall over 100 ms.
"""

import argparse
import itertools
import os
import random
import re
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from big_log import _line
from loopback import Loopback
from peers import eagletui
from pty_program import PtyProgram

# What stands in the title of the log; a frame that has the other word was drawn before the key was taken.
_SHOWN = re.compile(rb"not following|following")
WRITER = """
import sys, time
sys.path.insert(0, {here!r})
from log_flood import lines
source, rate, end = lines(7), {rate}, time.monotonic() + {seconds}
with open({path!r}, "a", buffering=1) as file:
    at = time.monotonic()
    while time.monotonic() < end:
        file.write("".join(next(source) for _ in range(rate // 50)))
        file.flush()
        at += 0.02
        time.sleep(max(0.0, at - time.monotonic()))
"""


def lines(seed: int):  # type: ignore[no-untyped-def]
    """Lines of a busy server without end; their stamps are now."""
    rng = random.Random(seed)
    texts = [_line(rng, n, "@") for n in range(2, 5_000)]
    for text in itertools.cycle(texts):
        yield text.replace("@", time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()), 1)


class Keys(PtyProgram):
    """Reads raw bytes after a key, so that no emulator stands between the program and the clock."""

    def until_shown(self, key: bytes, wanted: bytes, deadline_s: float) -> float:
        """Seconds from the key to its effect."""
        began = time.monotonic()
        os.write(self._fd, key)
        held = b""
        while time.monotonic() - began < deadline_s:
            if not select.select([self._fd], [], [], 0.01)[0]:
                continue
            held = held[-20:] + os.read(self._fd, 1 << 20)
            if any(found == wanted for found in _SHOWN.findall(held)):
                return time.monotonic() - began
        raise TimeoutError(f"no {wanted!r} after {key!r}")

    def drain(self, seconds: float) -> None:
        """Reads what comes, without looking at it."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self._fd], [], [], left)[0]:
                os.read(self._fd, 1 << 20)


def pressed(terminal: Keys, seconds: float, pause_s: float) -> list[float]:
    """Presses `f` for so long; the time of each to its effect."""
    end = time.monotonic() + seconds
    out = []
    for wanted in itertools.cycle((b"not following", b"following")):
        if time.monotonic() > end and wanted == b"not following":
            return out
        out.append(terminal.until_shown(b"f", wanted, 20))
        terminal.drain(pause_s)
    raise AssertionError


def own_cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(env: Mapping[str, str], options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "server.log"
        source = lines(3)
        path.write_text("".join(next(source) for _ in range(3_000)))
        terminal = Keys([eagletui(), "logs", f"bench:{path}"], env, columns=160, rows=48)
        try:
            terminal.wait_for(r"(?s)batch.*batch", 60)
            terminal.run_for(3)
            script = WRITER.format(
                here=str(Path(__file__).parent),
                rate=options.rate,
                seconds=options.seconds + 2,
                path=str(path),
            )
            writer = subprocess.Popen([sys.executable, "-c", script])
            terminal.drain(1)
            before, began, size = own_cpu_s(terminal.pid), time.monotonic(), path.stat().st_size
            times = pressed(terminal, options.seconds, 0.1)
            took = time.monotonic() - began
            cpu = (own_cpu_s(terminal.pid) - before) / took
            written = (path.stat().st_size - size) / took
            writer.wait()
            times.sort()
            print(
                f"steady, {options.rate} lines/s ({written / 1e6:.2f} MB/s), {len(times)} keys, {took:.0f} s:"
            )
            print(
                f"  key to paint: median {1000 * statistics.median(times):.0f} ms, 95 % within "
                f"{1000 * times[int(0.95 * len(times))]:.0f} ms, longest {1000 * times[-1]:.0f} ms; CPU {100 * cpu:.0f} % of a core"
            )
            terminal.drain(3)
            for text in (b"burst, following", b"burst, held still"):
                batch = "".join(next(source) for _ in range(options.burst))
                if text.endswith(b"still"):
                    terminal.until_shown(b"f", b"not following", 20)
                    with path.open("a") as file:
                        file.write(batch)
                    waits = []
                    end = time.monotonic() + 5
                    while time.monotonic() < end:
                        waits.append(terminal.until_shown(b"f", b"following", 20))
                        waits.append(terminal.until_shown(b"f", b"not following", 20))
                else:
                    with path.open("a") as file:
                        file.write(batch)
                    waits = pressed(terminal, 5, 0.0)
                print(
                    f"{text.decode()}: {options.burst} lines at once, longest key to paint {1000 * max(waits):.0f} ms of {len(waits)}"
                )
                terminal.drain(2)
        finally:
            terminal.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rate", type=int, default=5_000)
    parser.add_argument("--burst", type=int, default=100_000)
    options = parser.parse_args()
    with Loopback() as loopback:
        env = {
            "HOME": str(loopback.home),
            "LANG": "C.UTF-8",
            "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
            "EAGLETUI_HOME": str(loopback.home / "eagletui"),
        }
        run(env, options)


if __name__ == "__main__":
    main()
