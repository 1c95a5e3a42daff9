"""The log view under a flood: key press to paint, CPU and stalls while lines arrive, on a real host over SSH or here.

    .venv/bin/python benchmarks/log_flood.py [--seconds 20] [--rate 5000] [--host HOST]

The view (`eagletui logs FILE`) runs in a pseudo-terminal of 160x48, every line a row of its own. A writer appends
SGLang's decode lines to the file at a steady rate, 20 times a second, while keys are pressed: up and down, a page,
follow again. Key press to paint is the time from writing the key to the terminal until the emulator shows its effect, the
line under the cursor in the title. CPU is user and system time of the view and its children. Then 100,000 lines are
appended at once while keys are pressed: a stall of the view is a key that waits for its paint.
"""

import argparse
import os
import re
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from pty_program import PtyProgram

COLUMNS, ROWS = 160, 48


def decode_line(number: int) -> str:
    """A line of a server that decodes; its figures move, as a real one's do."""
    second = number // 5000
    clock = f"{20 + second // 3600 % 4:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
    return (
        f"[2026-10-06 {clock} TP{number % 8}] Decode batch, #running-req: {number % 48}, #token: {number % 90000}, "
        f"token usage: 0.{number % 90 + 10}, accept len: 2.{number % 90 + 10}, accept rate: 0.{number % 80 + 10}, "
        f"cuda graph: True, gen throughput (token/s): {70 + number % 19}.{number % 90 + 10}, #queue-req: 0\n"
    )


class Writer(threading.Thread):
    """Appends lines at a steady rate."""

    def __init__(self, path: Path, rate: int, first: int) -> None:
        super().__init__(daemon=True)
        self.path, self.rate, self.number = path, rate, first
        self.ended = threading.Event()

    def run(self) -> None:
        begin, first = time.monotonic(), self.number
        with self.path.open("a") as file:
            while not self.ended.wait(0.05):
                due = first + int((time.monotonic() - begin) * self.rate)
                file.write("".join(decode_line(n) for n in range(self.number, due)))
                file.flush()
                self.number = due


def title(screen: str) -> str:
    """The title row of the log: where the reader is."""
    return next((row for row in screen.split("\n") if row.startswith(" Log ")), "")


def line_number(screen: str) -> int | None:
    """The line under the cursor, as the title says it."""
    found = re.search(r"line ([\d,]+)", title(screen))
    return int(found[1].replace(",", "")) if found else None


def answer_s(view: PtyProgram, key: bytes, line: int | None = None, deadline_s: float = 30.0) -> float:
    """Seconds from a key to the paint that shows its effect: this line under the cursor, or another title than before."""
    before = title(view.text())
    began = time.monotonic()
    view.keys(key)
    while (line_number(view.text()) != line) if line is not None else (title(view.text()) == before):
        if time.monotonic() - began > deadline_s:
            raise TimeoutError(f"{key!r} does nothing:\n{view.text()}")
        view.run_for(0.002)
    return time.monotonic() - began


def steady(view: PtyProgram, path: Path, rate: int, seconds: float) -> tuple[list[float], float, float]:
    """(key press to paint of each key, cores used, lines a second) while lines arrive."""
    writer = Writer(path, rate, 20_000)
    writer.start()
    view.run_for(2)  # it follows
    view.keys(b"z")
    view.wait_for("every line", 10)
    times: list[float] = []
    cpu, began, first = view.cpu_s(), time.monotonic(), writer.number
    keys = [b"k", b"k", b"j", b"\x1b[5~", b"k", b"\x1b[5~", b"j", b"G"]
    at = 0
    while time.monotonic() - began < seconds:
        times.append(answer_s(view, keys[at % len(keys)]))
        at += 1
        view.run_for(0.17)
    took = time.monotonic() - began
    used, rate = (view.cpu_s() - cpu) / took, (writer.number - first) / took
    writer.ended.set()
    writer.join()
    return times, used, rate


def burst(view: PtyProgram, path: Path, lines: int) -> tuple[list[float], float]:
    """(key press to paint of each key, seconds until the last line is shown) after so many lines at once."""
    view.keys(b"G")
    view.wait_for(r"following", 30)
    view.run_for(1)
    answer_s(view, b"k")
    view.run_for(1)  # lines that were still arriving change the title too
    at = line_number(view.text())
    assert at is not None
    text = "".join(decode_line(n) for n in range(1_000_000, 1_000_000 + lines))
    text += "[2026-10-06 23:59:59 TP0] the end of the burst\n"
    with path.open("a") as file:
        file.write(text)
    began = time.monotonic()
    times = []
    while time.monotonic() - began < 4.0:
        times.append(answer_s(view, b"k", at - 1))
        times.append(answer_s(view, b"j", at))
    view.keys(b"G")
    view.wait_for("the end of the burst", 60)
    return times, time.monotonic() - began


def told(times: list[float]) -> str:
    """Percentiles in milliseconds."""
    ordered = sorted(1000 * value for value in times)
    return (
        f"median {statistics.median(ordered):.0f} ms, 95th percentile {ordered[int(0.95 * len(ordered))]:.0f} ms, "
        f"longest {ordered[-1]:.0f} ms, n = {len(ordered)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="of the steady flood")
    parser.add_argument("--rate", type=int, default=5000, help="lines a second")
    parser.add_argument("--burst", type=int, default=100_000, help="lines at once")
    parser.add_argument(
        "--host", default="local", help="a host that shares this machine's files, as a loopback sshd does"
    )
    parser.add_argument("--smoke", action="store_true", help="two seconds")
    options = parser.parse_args()
    if options.smoke:
        options.seconds, options.burst = 2.0, 5_000
    with tempfile.TemporaryDirectory() as home:
        path = Path(home, "flood.log")
        path.write_text("".join(decode_line(number) for number in range(20_000)))
        env = {"HOME": os.environ["HOME"], "EAGLETUI_HOME": home, "LANG": "C.UTF-8", "PATH": os.environ["PATH"]}
        command = str(Path(sys.executable).parent / "eagletui")
        view = PtyProgram([command, "logs", f"{options.host}:{path}"], env, columns=COLUMNS, rows=ROWS)
        try:
            view.wait_for(r"following", 60)
            view.wait_for(r"20,000 lines", 60)
            times, used, rate = steady(view, path, options.rate, options.seconds)
            print(f"{rate:,.0f} lines/s: key press to paint {told(times)}; {100 * used:.0f} % of a core")
            times, took = burst(view, path, options.burst)
            print(f"{options.burst:,} lines at once: key press to paint {told(times)}; all read {took:.1f} s after")
        finally:
            view.close()


if __name__ == "__main__":
    main()
